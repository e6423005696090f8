"""tts.onnx: ids in, audio out. The parts' graphs in two Loops, with the small steps between them.

The decoder's Loop ends when every item has stopped. The vocoder's Loop takes the items one by one, each at its own length, so an
item sounds the same alone and in any batch. The steps that compute are PyTorch modules, exported like the parts; this file connects
the graphs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.compose import add_prefix_graph
from torch import Tensor, nn

from common.audio.stft import SILENCE, AudioConfig
from common.inference.vocoders import MIN_FRAMES
from common.layers import length_mask
from exports.models import VocoderExport
from exports.onnx_files import OPSET
from exports.parts import BATCH, EXAMPLE_BATCH, EXAMPLE_FRAMES, FRAMES, STATE, STATE_AXES, TEXT, ExportPart
from exports.random_numbers import KeepMasks
from tacotron2.model import Tacotron2

# B batch, S symbols, E encoder channels, K decoder steps, r frames a step, M mels, T frames, N samples


class FirstInputs(nn.Module):
    """The decoder's inputs at its first step."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        config = model.config
        self.attention, self.decoder = config.attention_rnn_dim, config.decoder_rnn_dim
        self.frames = config.n_mel_channels * config.n_frames_per_step

    def forward(self, values: Tensor, seeds: Tensor) -> tuple[Tensor, ...]:
        """Values (B, S, E), seeds (B,) or (1,) -> frames, the state's tensors, steps, running and seeds, (B, …) each."""
        batch, symbols, channels = values.shape
        sizes = self.frames, self.attention, self.attention, channels, symbols, symbols, self.decoder, self.decoder
        zeros = [values.new_zeros(batch, size) for size in sizes]
        steps = torch.zeros(batch, dtype=torch.int64, device=values.device)
        return *zeros, steps, steps == 0, seeds + steps


class Stop(nn.Module):
    """tacotron2.guard.StopRule for one step, without guards."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        self.threshold, self.early_stopping = model.decoder.gate_threshold, model.decoder.early_stopping

    def forward(self, gate: Tensor, steps: Tensor, running: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Gate logits (B,), steps so far (B,), running (B,) -> steps, running, and True () to continue the Loop."""
        running = running & (torch.sigmoid(gate) <= self.threshold)
        going_on = running.any() if self.early_stopping else torch.ones_like(running).any()
        return steps + running, running, going_on


class Collect(nn.Module):
    """The frames of all steps, and how many of each item the postnet takes, as in Tacotron2.infer."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        self.per_step, self.n_mels = model.config.n_frames_per_step, model.config.n_mel_channels

    def forward(self, frames: Tensor, steps: Tensor, max_steps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Frames (K, B, r·M), steps (B,), max_steps () -> mels (B, M, T), their lengths (B,), the postnet's lengths (B,)."""
        mels = frames.transpose(0, 1).unflatten(2, (self.per_step, self.n_mels)).flatten(1, 2).transpose(1, 2)
        return mels, steps * self.per_step, torch.minimum(steps + 1, max_steps) * self.per_step


class Fill(nn.Module):
    """Silence past each item's length, and the number of frames that the vocoder takes."""

    def __init__(self, audio: AudioConfig, more_frames: int) -> None:
        super().__init__()
        # The denoiser's window needs room.
        self.least = max(MIN_FRAMES, -(-audio.filter_length // audio.hop_length))
        self.more_frames = more_frames

    def forward(self, refined: Tensor, mel_lengths: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Refined frames (B, M, T), lengths (B,), the postnet's lengths (B,) -> mels (B, M, T + …), the vocoder's lengths."""
        inside = length_mask(mel_lengths, refined.shape[2])[:, None]
        mels = torch.where(inside, refined, torch.full_like(refined, SILENCE))
        silence = torch.full_like(mels[:, :, :1], SILENCE).expand(-1, -1, self.least + self.more_frames)
        return torch.cat((mels, silence), dim=2), lengths.clamp(min=self.least) + self.more_frames


INPUTS = {  # name: element type, axes
    "ids": (TensorProto.INT64, ["batch", "symbols"]),
    "lengths": (TensorProto.INT64, ["batch"]),
    "seeds": (TensorProto.INT64, ["seeds"]),
    "sigma": (TensorProto.FLOAT, []),
    "strength": (TensorProto.FLOAT, []),
    "max_steps": (TensorProto.INT64, []),
}
OUTPUTS = {
    "audio": (TensorProto.FLOAT, ["batch", "samples"]),
    "audio_lengths": (TensorProto.INT64, ["batch"]),
    "mels": (TensorProto.FLOAT, ["batch", "mel_channels", "frames"]),
    "mel_lengths": (TensorProto.INT64, ["batch"]),
}


VOCODING = ("sigma", "strength")
TYPES = {TensorProto.INT64: "int64", TensorProto.FLOAT: "float32"}


def describe_single_file(vocoder: VocoderExport) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs and outputs for the manifest."""
    inputs, outputs = (
        {name: {"type": TYPES[kind], "shape": axes} for name, (kind, axes) in values.items()}
        for values in (inputs_with(vocoder.settings), OUTPUTS)
    )
    return inputs, outputs


def inputs_with(settings: Collection[str]) -> dict[str, tuple[Any, list[str]]]:
    """INPUTS without those of VOCODING that are not among a vocoder's settings."""
    return {name: value for name, value in INPUTS.items() if name not in VOCODING or name in settings}


def acoustic_steps(model: Tacotron2) -> Iterator[ExportPart]:
    """The steps around the parts of the acoustic model."""
    config, batch = model.config, EXAMPLE_BATCH
    seeds, steps = torch.arange(batch), torch.tensor([5, 3])
    width = config.n_mel_channels * config.n_frames_per_step
    values = torch.zeros(batch, 7, config.encoder_embedding_dim)
    state = {f"first_{name}": axes for name, axes in STATE_AXES.items()}
    first = {"first_frames": BATCH, **state, "first_steps": BATCH, "first_running": BATCH, "all_seeds": BATCH}
    yield ExportPart(
        "start", FirstInputs(model), {"values": values, "seeds": seeds}, {"values": TEXT, "seeds": BATCH}, first
    )
    keep = KeepMasks(config.prenet_dim, model.decoder.prenet.p_dropout)
    axes = {"step": {}, "seeds": BATCH}
    yield ExportPart("keep", keep, {"step": torch.tensor(3), "seeds": seeds}, axes, {"keep": {1: BATCH[0]}})
    inputs = {"gate": torch.zeros(batch), "steps": steps, "running": steps > 0}
    outputs = {"next_steps": BATCH, "next_running": BATCH, "going_on": {}}
    yield ExportPart("stop", Stop(model), inputs, dict.fromkeys(inputs, BATCH), outputs)
    inputs = {"frames": torch.zeros(9, batch, width), "steps": steps, "max_steps": torch.tensor(100)}
    axes = {"frames": {0: torch.export.Dim("steps"), 1: BATCH[0]}, "steps": BATCH, "max_steps": {}}
    yield ExportPart("collect", Collect(model), inputs, axes, {"mels": FRAMES, "mel_lengths": BATCH, "lengths": BATCH})


def vocoder_steps(vocoder: VocoderExport, vocoder_config: Any, audio: AudioConfig) -> Iterator[ExportPart]:
    """The steps between the acoustic model and the vocoder."""
    seeds, steps = torch.arange(EXAMPLE_BATCH), torch.tensor([5, 3])
    mels = torch.zeros(EXAMPLE_BATCH, audio.n_mel_channels, EXAMPLE_FRAMES)
    inputs = {"refined": mels, "mel_lengths": steps, "lengths": steps + 1}
    axes = {"refined": FRAMES, "mel_lengths": BATCH, "lengths": BATCH}
    yield ExportPart("fill", Fill(audio, vocoder.more_frames), inputs, axes, {"mels": FRAMES, "vocoder_lengths": BATCH})
    noise, axes = vocoder.noise(vocoder_config), {"mels": FRAMES, "seeds": BATCH}
    yield ExportPart("noise", noise, {"mels": mels, "seeds": seeds}, axes, {"z": BATCH})


class Assembly:
    """A graph under construction: nodes, which may stand in a Loop's body, and the weights of all graphs."""

    def __init__(self, graphs: Mapping[str, onnx.ModelProto]) -> None:
        self.graphs, self.weights = graphs, list[TensorProto]()

    def call(self, name: str, **renamed: str) -> list[onnx.NodeProto]:
        """The nodes of a graph, with some inputs and outputs renamed; names inside it are prefixed with the graph's."""
        graph = onnx.GraphProto()
        graph.CopyFrom(self.graphs[name].graph)
        names = {value.name: value.name for value in (*graph.input, *graph.output)}
        assert renamed.keys() <= names.keys(), f"{name}: no {renamed.keys() - names.keys()}"
        names |= renamed
        names |= {weight.name: f"{name}/{weight.name}" for weight in graph.initializer}  # else not in its Loops' bodies
        add_prefix_graph(graph, f"{name}/", rename_inputs=False, rename_outputs=False, inplace=True, name_map=names)
        self.weights += graph.initializer
        return list(graph.node)

    def constant(self, name: str, value: np.ndarray) -> str:
        """Add a constant; returns its name."""
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def graph(self, nodes: list[onnx.NodeProto], defaults: Mapping[str, np.ndarray]) -> onnx.ModelProto:
        """The finished model; a call may omit inputs with a default."""
        inputs, outputs = (
            [helper.make_tensor_value_info(name, *description) for name, description in values.items()]
            for values in (inputs_with(defaults.keys()), OUTPUTS)
        )
        initial = [numpy_helper.from_array(value, name) for name, value in defaults.items()]
        graph = helper.make_graph(nodes, "tts", inputs, outputs, [*initial, *self.weights])
        opsets = [helper.make_opsetid("", OPSET)]
        for model in self.graphs.values():  # quantised parts have operators of ONNX Runtime's own
            opsets += [opset for opset in model.opset_import if opset.domain not in {one.domain for one in opsets}]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def node(operator: str, inputs: list[str], output: str, **attributes: Any) -> onnx.NodeProto:
    """A node with one output."""
    return helper.make_node(operator, inputs, [output], name=output, **attributes)


def loop(
    name: str, limit: str, carried: Mapping[str, tuple[str, str]], nodes: list[onnx.NodeProto], scan: str, out: str
):
    """A Loop over `nodes`, which read `{name}/index` and set `{name}/on`.

    `carried` maps each value that passes from step to step to the names of its initial value and of its value after a step. The
    values of `scan` are stacked into `out`.
    """
    value = helper.make_empty_tensor_value_info
    inputs = [value(f"{name}/index"), value(f"{name}/before"), *map(value, carried)]
    inputs[0].CopyFrom(helper.make_tensor_value_info(f"{name}/index", TensorProto.INT64, []))
    inputs[1].CopyFrom(helper.make_tensor_value_info(f"{name}/before", TensorProto.BOOL, []))
    outputs = [value(f"{name}/on"), *(value(after) for _, after in carried.values()), value(scan)]
    body = helper.make_graph(nodes, name, inputs, outputs)
    initial = [first for first, _ in carried.values()]
    last = [f"{name}/last/{key}" for key in carried]
    return helper.make_node("Loop", [limit, "", *initial], [*last, out], name=name, body=body)


def assemble(
    graphs: Mapping[str, onnx.ModelProto], vocoder: VocoderExport, hop_length: int, defaults: Mapping[str, Any]
) -> onnx.ModelProto:
    """Connect the graphs of the parts, plain or quantised, and of the steps between them into one model from ids to audio.

    `defaults` are the values of max_steps and the vocoder's settings for calls that leave them out.
    """
    assembly = Assembly(graphs)
    nodes = [
        *assembly.call("encoder"),
        *assembly.call("start"),
        _decoder_loop(assembly),
        *assembly.call(
            "collect", frames="all_frames", steps="decoder/last/steps", mels="raw_mels", lengths="refined_lengths"
        ),
        *assembly.call("postnet", mels="raw_mels", lengths="refined_lengths"),
        *assembly.call("fill", lengths="refined_lengths"),
        *_vocoder_loop(assembly, vocoder.names, hop_length),
    ]
    types = {TensorProto.INT64: np.int64, TensorProto.FLOAT: np.float32}
    values = {name: np.asarray(value, types[INPUTS[name][0]]) for name, value in defaults.items()}
    return assembly.graph(nodes, {"seeds": np.zeros(1, np.int64), **values})


def _decoder_loop(assembly: Assembly) -> onnx.NodeProto:
    """Decoder steps until every item has stopped, at most max_steps."""
    carried = {name: (f"first_{name}", f"next_{name}") for name in ["frames", *STATE, "steps", "running"]}
    body = [
        *assembly.call("keep", step="decoder/index", seeds="all_seeds"),
        *assembly.call("decoder_step"),
        *assembly.call("stop", going_on="decoder/on"),
        node("Identity", ["next_frames"], "step_frames"),
    ]
    return loop("decoder", "max_steps", carried, body, "step_frames", "all_frames")


def _vocoder_loop(assembly: Assembly, names: Sequence[str], hop_length: int) -> list[onnx.NodeProto]:
    """The audio of the items, one by one, with zeros past their lengths."""
    zero, hop = assembly.constant("zero", np.array([0])), assembly.constant("hop_length", np.array(hop_length))
    axis_1, axis_2 = assembly.constant("axis_1", np.array([1])), assembly.constant("axis_2", np.array([2]))
    before = assembly.constant("no_padding", np.array([0, 0, 0]))
    body = [
        node("Identity", ["items/before"], "items/on"),
        node("Unsqueeze", ["items/index", zero], "item"),
        node("Gather", ["mels", "item"], "item_mels", axis=0),
        node("Gather", ["vocoder_lengths", "item"], "item_frames"),
        node("Slice", ["item_mels", zero, "item_frames", axis_2], "own_mels"),
        node("Gather", ["all_seeds", "item"], "item_seed"),
        *assembly.call("noise", mels="own_mels", seeds="item_seed"),
        *_vocoder_calls(assembly, names, "raw_audio"),
        node("Gather", ["audio_lengths", "item"], "item_samples"),
        node("Slice", ["raw_audio", zero, "item_samples", axis_1], "own_audio"),
        node("Sub", ["longest", "item_samples"], "missing"),
        node("Concat", [before, "missing"], "padding_sizes", axis=0),
        node("Pad", ["own_audio", "padding_sizes"], "padded_audio"),
        node("Squeeze", ["padded_audio", zero], "item_audio"),
    ]
    return [
        node("Mul", ["mel_lengths", hop], "audio_lengths"),
        node("ReduceMax", ["audio_lengths", zero], "longest"),
        node("Size", ["mel_lengths"], "n_items"),
        loop("items", "n_items", {}, body, "item_audio", "audio"),
    ]


def _vocoder_calls(assembly: Assembly, names: Sequence[str], result: str) -> list[onnx.NodeProto]:
    """The vocoder's parts, each with the audio of the one before it; the last one's is `result`."""
    nodes: list[onnx.NodeProto] = []
    for number, name in enumerate(names, 1):
        graph = assembly.graphs[name].graph
        sources = {"mels": "own_mels", "audio": f"audio_{number - 1}"}
        renamed = {value.name: sources[value.name] for value in graph.input if value.name in sources}
        renamed[graph.output[0].name] = result if number == len(names) else f"audio_{number}"
        nodes += assembly.call(name, **renamed)
    return nodes
