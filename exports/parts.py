"""The parts of a voice that every target exports, each a plain module over tensors with named inputs and outputs.

Random numbers are inputs: the prenet's keep masks and the vocoder's noise. So an export and PyTorch can run on the same draws.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from common.audio.stft import STFT, AudioConfig
from common.errors import DataError
from common.fast import shallow_copy
from common.layers import length_mask
from tacotron2.decoder import Decoder, DecoderState, Memory
from tacotron2.model import Postnet, Tacotron2
from waveglow.denoiser import Denoiser
from waveglow.model import WN, Invertible1x1Conv, WaveGlow, WeightNormConv1d

# B batch, S symbols, T frames, M mels, E encoder channels, A attention channels, H and D sizes of the LSTMs, P prenet size
# r frames a step, N samples, g samples in a group, G groups, F frequency bins

STATE = DecoderState._fields
MEMORY = Memory._fields


class Encode(nn.Module):
    """Symbol ids to the inputs of attention."""

    def __init__(self, model: Tacotron2) -> None:
        super().__init__()
        self.embedding, self.encoder, self.attention = model.embedding, model.encoder, model.decoder.attention_layer

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids (B, S), lengths (B,) -> values (B, S, E), keys (B, S, A), padding (B, S)."""
        memory = self.attention.memory(self.encoder(self.embedding(ids), lengths, True), lengths)
        return memory.values, memory.keys, memory.padding


class ExportedStep(nn.Module):
    """One decoder step, from the prenet to the next frames and the gate."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(
        self,
        frames: Tensor,
        keep: Tensor,
        attention_hidden: Tensor,
        attention_cell: Tensor,
        context: Tensor,
        weights: Tensor,
        cumulative: Tensor,
        decoder_hidden: Tensor,
        decoder_cell: Tensor,
        values: Tensor,
        keys: Tensor,
        padding: Tensor,
    ) -> tuple[Tensor, ...]:
        """Frames (B, r·M) of the step before, keep masks (2, B, P), state, memory -> state, frames (B, r·M), gate logits (B,)."""
        state = DecoderState(
            attention_hidden, attention_cell, context, weights, cumulative, decoder_hidden, decoder_cell
        )
        x = self.decoder.prenet(frames[None], keep[None])[0]
        state = self.decoder.step(x, state, Memory(values, keys, padding))
        output = torch.cat((state.decoder_hidden, state.context), dim=1)
        gate = self.decoder.gate_layer(output)[:, 0]
        return *state, self.decoder.linear_projection(output), gate


class Refine(nn.Module):
    """The postnet, with zeros past each item's length."""

    def __init__(self, postnet: Postnet) -> None:
        super().__init__()
        self.postnet = postnet

    def forward(self, mels: Tensor, lengths: Tensor) -> Tensor:
        """Frames (B, M, T), lengths (B,) -> refined frames (B, M, T)."""
        mask = length_mask(lengths, mels.shape[2])[:, None]
        return self.postnet(mels * mask, mask)


class Vocode(nn.Module):
    """WaveGlow's infer as a forward."""

    def __init__(self, model: WaveGlow) -> None:
        super().__init__()
        self.model = model

    def forward(self, mels: Tensor, z: Tensor, sigma: Tensor) -> Tensor:
        """Mels (B, M, T), noise (B, g, G), its standard deviation () -> audio (B, N)."""
        return self.model.infer(mels, sigma, z)  # type: ignore[arg-type]


class ConvSTFT(nn.Module):
    """common.audio.stft.STFT with convolutions instead of complex transforms, which few runtimes have.

    A frame's spectrum is its product with cosines and sines, the inverse is the transposed product, and both are windowed. The sum
    of the overlapping frames is divided by the sum of the squared windows, as in torch.istft.
    """

    def __init__(self, stft: STFT) -> None:
        super().__init__()
        self.size, self.hop = stft.filter_length, stft.hop_length
        bins = self.size // 2 + 1
        pad = (self.size - stft.win_length) // 2
        window = F.pad(stft.window.double().cpu(), (pad, self.size - stft.win_length - pad))
        turns = torch.outer(torch.arange(bins), torch.arange(self.size)).remainder(self.size) / self.size
        angles = 2 * torch.pi * turns.double()
        basis = torch.cat((angles.cos(), -angles.sin())) * window
        weights = torch.full((bins,), 2.0, dtype=torch.float64)  # a bin and its conjugate; the first and last have none
        weights[[0, -1]] = 1
        self.basis = nn.Buffer(basis[:, None].float())
        self.weights = nn.Buffer(weights.repeat(2)[:, None].float() / self.size)
        self.envelope = nn.Buffer(window.square()[None, None].float())

    def forward(self, audio: Tensor) -> Tensor:
        """Audio (B, N) -> spectrum (B, 2F, T): real parts, then imaginary parts."""
        half = self.size // 2
        padded = F.pad(audio[:, None], (half, half), mode="reflect")
        return F.conv1d(padded, self.basis, stride=self.hop)

    @torch.jit.export
    def inverse(self, spectrum: Tensor) -> Tensor:
        """Spectrum (B, 2F, T) -> audio (B, (T - 1) * hop + size / 2). No centre of a frame follows the last half window."""
        half = self.size // 2
        total = F.conv_transpose1d(spectrum * self.weights, self.basis, stride=self.hop)
        windows = F.conv_transpose1d(torch.ones_like(spectrum[:1, :1]), self.envelope, stride=self.hop)
        return total[:, 0, half:] / windows[:, 0, half:].clamp(min=1e-11)


class ConvDenoiser(nn.Module):
    """waveglow.denoiser.Denoiser on a ConvSTFT."""

    def __init__(self, denoiser: Denoiser) -> None:
        super().__init__()
        self.stft, self.tiny = ConvSTFT(denoiser.stft), torch.finfo(torch.float32).tiny
        self.bias = nn.Buffer(denoiser.bias_spectrum.float().cpu().clone())  # without the frames that it is a view of

    def forward(self, audio: Tensor, strength: Tensor) -> Tensor:
        """Audio (B, N), N at least filter_length; strength () -> audio (B, N)."""
        real, imaginary = self.stft(audio).chunk(2, dim=1)
        magnitude = (real.square() + imaginary.square()).sqrt()
        gain = (magnitude - strength * self.bias).clamp(min=0) / magnitude.clamp(min=self.tiny)
        return self.stft.inverse(torch.cat((gain * real, gain * imaginary), dim=1))[:, : audio.shape[1]]


def fold(model: WaveGlow) -> WaveGlow:
    """A WaveGlow for inference only: weight norms folded, mixing matrices inverted, as runtimes have no operator for an inverse."""
    return shallow_copy(
        model,
        WaveGlow,
        WN=nn.ModuleList(_fold_wn(wn) for wn in model.WN),  # type: ignore[arg-type]
        convinv=nn.ModuleList(InverseMixing(convinv) for convinv in model.convinv),  # type: ignore[arg-type]
    )


class InverseMixing(nn.Module):
    """An Invertible1x1Conv with its inverse computed once, in float64."""

    def __init__(self, convinv: Invertible1x1Conv) -> None:
        super().__init__()
        weight = convinv.conv.weight.detach()
        inverse = torch.linalg.inv(weight[:, :, 0].double()).to(weight.dtype).contiguous()  # columns came first
        self.conv = nn.Conv1d(len(inverse), len(inverse), kernel_size=1, bias=False)
        self.conv.weight = nn.Parameter(inverse[:, :, None], requires_grad=False)

    @torch.jit.export
    def inverse(self, x: Tensor) -> Tensor:
        """(B, C, G) -> W^-1 x (B, C, G)."""
        return self.conv(x)


def _fold_wn(wn: WN) -> WN:
    children: dict[str, nn.Module] = {"start": _fold_conv(wn.start)}
    for name in ("in_layers", "cond_layers", "res_skip_layers"):
        children[name] = nn.ModuleList(_fold_conv(layer) for layer in getattr(wn, name))
    return shallow_copy(wn, WN, **children)


def _fold_conv(layer: WeightNormConv1d) -> nn.Conv1d:
    norm = torch.linalg.vector_norm(layer.weight_v, dim=(1, 2), keepdim=True)
    weight = (layer.weight_g * layer.weight_v / norm).detach()
    conv = nn.Conv1d(weight.shape[1], weight.shape[0], weight.shape[2], padding=layer.padding, dilation=layer.dilation)
    conv.weight, conv.bias = nn.Parameter(weight, requires_grad=False), layer.bias
    return conv


# Each axis of any size: its Dim, or only its name where torch.export works out how it depends on the others.
Axes = dict[int, Any]


def axis_name(axis: Any) -> str:
    """The name of a dynamic axis; `groups` for multiples of frames, `samples` for the samples between frames."""
    name = axis if isinstance(axis, str) else axis.__name__
    if name.isidentifier():
        return name
    return "samples" if "-" in name else "groups"  # a Dim that depends on frames is named by its formula


@dataclass(frozen=True)
class ExportPart:
    """A module to export, with example inputs and the names of its dynamic axes."""

    name: str
    module: nn.Module
    inputs: dict[str, Tensor]
    input_axes: dict[str, Axes]
    outputs: dict[str, Axes]


def program(part: ExportPart) -> ExportedProgram:
    """The torch.export program of a part, for any size of its dynamic axes."""
    shapes = tuple(
        {axis: Dim.AUTO if isinstance(dim, str) else dim for axis, dim in part.input_axes[name].items()}
        for name in part.inputs
    )
    with torch.no_grad():
        return torch.export.export(part.module, tuple(part.inputs.values()), dynamic_shapes=shapes)


BATCH: Axes = {0: Dim("batch")}
TEXT: Axes = BATCH | {1: Dim("symbols")}
FRAMES: Axes = BATCH | {2: Dim("frames")}
SAMPLES: Axes = BATCH | {1: "samples"}
STATE_AXES = {name: TEXT if name in ("weights", "cumulative") else BATCH for name in STATE}
MEMORY_AXES = dict.fromkeys(MEMORY, TEXT)

# None of these is a size of the model, so that no axis is taken for a fixed one.
EXAMPLE_BATCH, EXAMPLE_SYMBOLS, EXAMPLE_FRAMES = 2, 7, 24


@torch.no_grad()
def acoustic_parts(model: Tacotron2) -> Iterator[ExportPart]:
    """The parts of a plain Tacotron 2 in evaluation mode."""
    decoder, config = model.decoder, model.config
    batch, symbols = EXAMPLE_BATCH, EXAMPLE_SYMBOLS
    ids = torch.ones(batch, symbols, dtype=torch.int64)
    text = {"ids": ids, "lengths": torch.tensor([symbols, symbols - 2])}
    encode = Encode(model).eval()
    yield ExportPart("encoder", encode, text, {"ids": TEXT, "lengths": BATCH}, MEMORY_AXES)
    memory = Memory(*encode(**text))
    frames = torch.zeros(batch, config.n_mel_channels * config.n_frames_per_step)
    keep = decoder.prenet.draw_keep_masks(1, batch, frames.device)[0]
    state = {name: zeros.clone() for name, zeros in decoder.start(memory)._asdict().items()}  # shared ones would merge
    inputs = {"frames": frames, "keep": keep, **state, **memory._asdict()}
    axes = {"frames": BATCH, "keep": {1: BATCH[0]}, **STATE_AXES, **MEMORY_AXES}
    outputs = {f"next_{name}": axis for name, axis in STATE_AXES.items()} | {"next_frames": BATCH, "gate": BATCH}
    yield ExportPart("decoder_step", ExportedStep(decoder).eval(), inputs, axes, outputs)
    mels = torch.zeros(batch, config.n_mel_channels, EXAMPLE_FRAMES)
    lengths = torch.tensor([EXAMPLE_FRAMES, EXAMPLE_FRAMES - 1])
    axes = {"mels": FRAMES, "lengths": BATCH}
    yield ExportPart(
        "postnet", Refine(model.postnet).eval(), {"mels": mels, "lengths": lengths}, axes, {"refined": FRAMES}
    )


@torch.no_grad()
def waveglow_parts(model: WaveGlow, audio: AudioConfig) -> Iterator[ExportPart]:
    """The parts of a plain WaveGlow in evaluation mode: the model with folded weights, and the denoiser.

    Raises DataError if the hop is not a multiple of the group.
    """
    config, batch = model.config, EXAMPLE_BATCH
    mels = torch.zeros(batch, config.n_mel_channels, EXAMPLE_FRAMES)
    n_groups = EXAMPLE_FRAMES * config.hop_length // config.n_group
    per_frame, rest = divmod(config.hop_length, config.n_group)
    if rest:  # torch.export would assume a relation that holds for some lengths only
        hop, group = config.hop_length, config.n_group
        raise DataError(
            f"WaveGlow: the hop of {hop} samples is not a multiple of the group of {group}, as an export requires"
        )
    inputs = {"mels": mels, "z": torch.zeros(batch, config.n_group, n_groups), "sigma": torch.tensor(0.9)}
    axes = {"mels": FRAMES, "z": BATCH | {2: per_frame * FRAMES[2]}, "sigma": {}}
    yield ExportPart("waveglow", Vocode(fold(model)).eval(), inputs, axes, {"audio": SAMPLES})
    denoiser = Denoiser(model, audio.filter_length, win_length=audio.win_length, hop_length=audio.hop_length)
    length = 3 * audio.filter_length + 1
    inputs = {"audio": torch.zeros(batch, length), "strength": torch.tensor(0.1)}
    axes = {"audio": SAMPLES, "strength": {}}
    yield ExportPart("denoiser", ConvDenoiser(denoiser).eval(), inputs, axes, {"denoised": SAMPLES})
