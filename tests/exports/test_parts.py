"""The parts that differ from the plain models: the denoiser by convolutions, folded WaveGlow, pulse-noise on other operations.

Pulse-noise is within 1e-3 of audio, as a stream: the phase of the pulses adds up the rounding of the pitch.
"""

import pytest
import torch

from common.audio.stft import AudioConfig
from common.errors import DataError
from common.inference.config import SynthesisConfig
from exports import engines, pulse_noise
from exports.parts import ConvDenoiser, fold, waveglow_parts
from exports.pulse_noise import VocodePulseNoise
from exports.voice import load_voice
from pulse_noise import synthesis
from pulse_noise.model import PulseNoise
from synthesizer import Synthesizer
from tests.exports.conftest import AUDIO, pulse_noise_model, pulse_noise_source, vocoder_model
from waveglow.denoiser import Denoiser


@pytest.mark.parametrize("sizes", [(256, 64, 256), (256, 64, 200), (250, 50, 250)], ids=str)
@pytest.mark.parametrize("n_samples", [256, 1000, 64 * 17])
@torch.no_grad()
def test_the_denoiser_equals_the_one_with_complex_transforms(sizes: tuple[int, int, int], n_samples: int) -> None:
    frame, hop, window = sizes
    denoiser = Denoiser(vocoder_model(), frame, win_length=window, hop_length=hop)
    audio = torch.randn(3, n_samples)
    for strength in (0.0, 0.3, 2.0):
        outputs = ConvDenoiser(denoiser)(audio, torch.tensor(strength))
        torch.testing.assert_close(outputs, denoiser(audio, strength), rtol=0, atol=1e-4)


@torch.no_grad()
def test_folding_changes_nothing_but_rounding() -> None:
    model = vocoder_model()
    before = {name: weights.clone() for name, weights in model.state_dict().items()}
    mels, z = torch.randn(2, 9, 13), torch.randn(2, 8, 13 * 8)
    torch.testing.assert_close(fold(model).infer(mels, 0.8, z), model.infer(mels, 0.8, z), rtol=0, atol=1e-5)
    assert all(torch.equal(weights, before[name]) for name, weights in model.state_dict().items())


def test_a_hop_that_is_no_multiple_of_the_group_is_refused() -> None:
    model = vocoder_model(n_group=6, n_early_every=4)  # 64 samples a frame are ten groups and four samples
    audio = AudioConfig(n_mel_channels=5, filter_length=256, hop_length=64, win_length=256)
    with pytest.raises(DataError, match="the hop of 64 samples is not a multiple of the group of 6"):
        next(iter(waveglow_parts(model, audio)))


TOLERANCE = 1e-3
TEXTS = ["The trains leave at ten.", "One.", "Where did you put them?"]


def clip(model: PulseNoise, frames: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Smooth log-mels (1, M, T) and white noise (1, N)."""
    generator = torch.Generator().manual_seed(seed)
    mels = torch.randn(1, model.config.n_mel_channels, frames, generator=generator)
    mels = torch.nn.functional.avg_pool1d(mels, 9, 1, 4) * 3 - 4
    return mels, torch.randn(1, (frames - 1) * model.config.hop_length, generator=generator)


@pytest.mark.parametrize("known", ["", "2", "0 9", "1 2 6", "0 1 2 3 4 5 6 7 8 9"])
def test_values_are_interpolated_as_in_the_plain_model(known: str) -> None:
    mask = torch.zeros(10, dtype=torch.bool)
    mask[[int(place) for place in known.split()]] = True
    values = torch.randn(10)
    torch.testing.assert_close(pulse_noise.interpolate(values, mask), synthesis.interpolate(values, mask))


@pytest.mark.parametrize("f0", [55.0, 220.5, 441.0], ids=str)  # at 220.5 and 441 Hz pulses fall on samples
def test_pulses_are_those_of_the_plain_model(f0: float) -> None:
    for pitch in (torch.full((4410,), f0), f0 * torch.linspace(1, 1.7, 4410)):
        ours = pulse_noise.pulse_train(pitch.double(), 22050)
        torch.testing.assert_close(ours, synthesis.pulse_train(pitch, 22050), rtol=0, atol=1e-4)


@torch.no_grad()
def test_the_module_equals_the_plain_model() -> None:
    model = pulse_noise_model(**AUDIO)
    inputs = clip(model, 50)
    audio = model.infer(*inputs)
    assert audio.abs().max() > 0.01
    torch.testing.assert_close(
        VocodePulseNoise(model)(*inputs), audio, rtol=0, atol=TOLERANCE * float(audio.abs().max())
    )


@pytest.mark.slow
@torch.no_grad()
def test_the_onnx_file_equals_the_plain_model_at_other_sizes(export_of) -> None:
    """9 cosines are eliminated in two blocks, the second of which is padded."""
    model = pulse_noise_source().vocoder
    assert model.config.n_mel_channels == 9
    run = engines.open_onnx(export_of("onnx").parent / "onnx-pulse-noise" / "pulse_noise.onnx")
    for frames in (8, 24, 90):
        inputs = clip(model, frames, frames)
        audio = model.infer(*inputs)
        torch.testing.assert_close(run(*inputs), audio, rtol=0, atol=TOLERANCE * float(audio.abs().max()))


@pytest.mark.slow
def test_text_to_audio_equals_the_plain_voice_on_the_same_draws(export_of) -> None:
    config, source = SynthesisConfig(seed=4, plain=True), pulse_noise_source()
    plain = Synthesizer(source.voice.acoustic, source.voice.vocoding, config)
    ours = load_voice(export_of("onnx").parent / "onnx-pulse-noise", config)
    for one, other in zip(ours.speak(TEXTS), plain.speak(TEXTS), strict=True):
        assert one.audio.shape == other.audio.shape and other.audio.abs().max() > 0.01
        torch.testing.assert_close(one.audio, other.audio, rtol=0, atol=TOLERANCE)
    parts, others = (torch.cat(list(voice.stream(TEXTS[0]))) for voice in (ours, plain))
    torch.testing.assert_close(parts, others, rtol=0, atol=TOLERANCE)
