"""Every target against plain PyTorch on the same draws: part by part, and from text to audio.

Tolerances: float32 within 1e-4 of plain PyTorch, in mels and in audio. Other formats by the error's norm relative to the output's.
8 bits: 0.1, as one product's rounding is 1/254 of its largest weight, and a part has up to a dozen products in series.
float16: 0.005, as a rounding is 1/2048.
"""

import functools
from dataclasses import replace

import pytest
import torch

from common.inference.config import SynthesisConfig
from exports import engines
from exports.models import VOCODERS, ScriptedTacotron2
from exports.torchscript import ScriptedFreeRun, script
from exports.voice import ACOUSTIC_PARTS, load_voice
from synthesizer import Speech, Synthesizer
from tacotron2.model import Tacotron2
from tests.exports.conftest import skip_without_packages

pytestmark = pytest.mark.slow

FLOAT32 = 1e-4
PARTS = (*ACOUSTIC_PARTS, *VOCODERS["WaveGlow"].names)
ROUNDING = {"onnx-int8": 0.1, "onnx-float16": 0.005}  # of the norm
TEXTS = [["Seven small boats lay in the harbour, white and blue."]]
TEXTS.append(["One.", "The trains leave at ten.", "Where did you put them?"])
SIZES = ((1, 3, 9), (2, 7, 24), (5, 19, 41))  # batch, symbols, frames
RUNNERS = ("torchscript", "programs", "aotinductor", "onnx")
SEED_4 = SynthesisConfig(seed=4, sigma_infer=0.7, plain=True)
OPENERS = {"programs": engines.open_program, "aotinductor": engines.open_package}


def inputs_of(part, batch: int, symbols: int, frames: int) -> list[torch.Tensor]:
    """Random inputs of a part at another size than the one it was exported with."""
    sizes = {"batch": batch, "symbols": symbols, "frames": frames, "groups": 8 * frames, "samples": 64 * frames + 5}
    inputs = []
    for name, example in part.inputs.items():
        shape = [
            sizes[str(getattr(axis, "__name__", axis)).replace("8*frames", "groups")] if axis else size
            for size, axis in ((n, part.input_axes[name].get(i)) for i, n in enumerate(example.shape))
        ]
        if name == "ids":
            inputs.append(torch.randint(1, 100, shape))
        elif name == "lengths":
            longest = symbols if part.name == "encoder" else frames
            inputs.append(torch.randint(1, longest + 1, shape).index_fill(0, torch.tensor(0), longest))
        elif example.dtype == torch.bool:
            padding = torch.arange(symbols) >= symbols - 1
            inputs.append(torch.rand(shape) < 0.5 if name == "keep" else padding.expand(shape))
        else:
            inputs.append(example if example.dim() == 0 else torch.randn(shape))
    return inputs


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("target", ["onnx", *OPENERS, *ROUNDING])
@torch.no_grad()
def test_a_part_equals_the_plain_one_at_other_sizes(export_of, source, name: str, target: str) -> None:
    ending = "pt2" if target in OPENERS else "onnx"
    run = OPENERS.get(target, engines.open_onnx)(export_of(target) / f"{name}.{ending}")
    (part,) = (part for part in source.parts() if part.name == name)
    for size in SIZES:
        inputs = inputs_of(part, *size)
        outputs, expected = run(*inputs), part.module(*inputs)
        pairs = [(outputs, expected)] if isinstance(expected, torch.Tensor) else zip(outputs, expected, strict=True)
        for ours, theirs in pairs:
            if target in ROUNDING and theirs.is_floating_point():
                assert (ours - theirs).norm() <= ROUNDING[target] * theirs.norm()
            else:
                torch.testing.assert_close(ours, theirs, rtol=0, atol=FLOAT32)


@pytest.fixture(scope="module")
def voice_of(export_of):
    """voice_of(target) -> the voice of an export, loaded once."""
    return functools.cache(lambda target: load_voice(export_of(target), SEED_4))


def assert_same(ours: list[Speech], theirs: list[Speech]) -> None:
    for one, other in zip(ours, theirs, strict=True):
        assert one.audio.shape == other.audio.shape and one.finished == other.finished
        for name in ("audio", "mel", "alignment"):
            torch.testing.assert_close(getattr(one, name), getattr(other, name), rtol=0, atol=FLOAT32, equal_nan=True)


@pytest.mark.parametrize("target", RUNNERS)
@pytest.mark.parametrize("texts", TEXTS, ids=len)
def test_text_to_audio_equals_the_plain_voice_on_the_same_draws(voice_of, source, target, texts) -> None:
    plain = Synthesizer(source.voice.acoustic, source.voice.vocoding, replace(SEED_4, denoising_strength=0.05))
    ours = voice_of(target).speak(texts)
    assert_same(ours, plain.speak(texts))
    assert max(float(speech.audio.abs().max()) for speech in ours) > 0.01
    assert len(ours) == 1 or len({len(speech.audio) for speech in ours}) > 1


@pytest.mark.parametrize("target", ["torchscript", "onnx"])
def test_a_stream_equals_the_plain_voice(export_of, source, target: str) -> None:
    config = SynthesisConfig(seed=1, sigma_infer=0.7, plain=True, denoising_strength=0.05)
    plain = Synthesizer(source.voice.acoustic, source.voice.vocoding, config)
    parts, others = (list(voice.stream(TEXTS[0][0])) for voice in (load_voice(export_of(target), config), plain))
    torch.testing.assert_close(torch.cat(parts), torch.cat(others), rtol=0, atol=FLOAT32)


def test_guards_and_limits_of_decoding_hold(export_of, source) -> None:
    options = {"max_frames_per_symbol": 0.5, "attention_window": 2, "attention_stop": 6, "max_decoder_steps": 30}
    voice = load_voice(export_of("onnx"), SynthesisConfig(options=options, plain=True))
    text = ["A long line of small words that has no end in it and goes on and on"]
    ids, lengths = voice.acoustic.spec.inference.encode(text, voice.acoustic.options)
    plain = source.acoustic
    before = plain.decoder.guard
    try:
        plain.decoder.guard = voice.acoustic.model.guard
        torch.manual_seed(0)
        expected = plain.infer(ids, lengths, 30)
    finally:
        plain.decoder.guard = before
    torch.manual_seed(0)
    outputs = voice.acoustic.model.infer(ids, lengths)
    assert outputs.mel_lengths.tolist() == expected.mel_lengths.tolist()
    torch.testing.assert_close(outputs.mels, expected.mels, rtol=0, atol=FLOAT32)


def test_files_in_other_formats_have_their_operators_and_weights(export_of) -> None:
    skip_without_packages()
    import onnx

    def graph(target: str, name: str) -> onnx.GraphProto:
        return onnx.load(export_of(target) / f"{name}.onnx").graph

    for name, operator in (("decoder_step", "MatMulInteger"), ("waveglow", "QuantizeLinear")):
        assert operator in {node.op_type for node in graph("onnx-int8", name).node}
    weights = [weight.name for weight in graph("onnx-int8", "waveglow").initializer]
    quantized = [name for name in weights if name.endswith("_quantized")]
    assert any(".in_layers." in name for name in quantized)
    assert not any(part in name for name in quantized for part in (".cond_layers.", "convinv", ".start.", ".end."))
    floats = {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16}
    for name in PARTS:
        weights = graph("onnx-float16", name).initializer
        types = {weight.data_type for weight in weights if len(weight.dims) > 1} & floats
        assert types == {onnx.TensorProto.FLOAT if name == "denoiser" else onnx.TensorProto.FLOAT16}


SMALL = {
    "n_mel_channels": 5, "n_symbols": 11, "symbols_embedding_dim": 6, "encoder_embedding_dim": 8, "attention_rnn_dim": 7,
    "attention_dim": 4, "attention_location_n_filters": 3, "attention_location_kernel_size": 5, "decoder_rnn_dim": 9,
    "prenet_dim": 6, "postnet_embedding_dim": 7, "max_decoder_steps": 30,
}  # fmt: skip


def two_models(**config) -> tuple[Tacotron2, ScriptedTacotron2]:
    """A model whose prenet drops nothing, and the same as TorchScript."""
    torch.manual_seed(0)  # with which the first test's clips end at three different steps
    plain = Tacotron2(**SMALL, **config).double().eval()
    plain.decoder.prenet.p_dropout = 0.0
    with torch.no_grad():
        for weight in plain.decoder.parameters():
            weight.mul_(1.5)  # far from uniform attention
        plain.decoder.gate_layer.linear_layer.weight.mul_(6)  # far from even chances to end
    return plain, ScriptedTacotron2(script(ScriptedFreeRun(plain)), plain.config)


@pytest.mark.parametrize("config", [{}, {"n_frames_per_step": 3, "decoder_no_early_stopping": True}])
def test_the_scripted_model_equals_the_plain_one(config: dict) -> None:
    plain, fast = two_models(gate_threshold=0.5, **config)
    text, lengths = torch.randint(1, 11, (3, 7)), torch.tensor([7, 4, 6])
    for _ in range(3):  # TorchScript rewrites itself after its first runs
        expected, outputs = plain.infer(text, lengths), fast.infer(text, lengths)
        assert outputs.mel_lengths.tolist() == expected.mel_lengths.tolist()
        for ours, theirs in zip(outputs, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert config or len(set(expected.mel_lengths.tolist())) == 3
    assert expected.alignments.max() > 1.3 / 7
