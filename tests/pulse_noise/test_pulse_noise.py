"""Pulse-noise: pitch from mels, streams, batches, refusals, its loss and data; source and filter against closed forms."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import scipy.optimize
import soundfile
import torch

from common.audio.stft import SILENCE, TacotronSTFT
from common.data.filelist import Utterance
from common.errors import DataError, UsageError
from common.spec import Key
from pulse_noise.data_function import PitchDataset, augment
from pulse_noise.loss_function import PitchLoss, PitchTargets
from pulse_noise.model import PulseNoise
from pulse_noise.spec import SPEC, advise, draw_noise
from pulse_noise.synthesis import PulseNoiseSynthesis, Source, interpolate, make_source, pulse_train

MELS, FRAMES, HOP = 20, 150, 256
NEEDS_PYWORLD = pytest.mark.skipif(
    find_spec("pyworld") is None, reason="pyworld, of requirements/eval.txt, is not installed"
)


@pytest.fixture(scope="module")
def model() -> PulseNoise:
    torch.manual_seed(0)
    return PulseNoise(n_mel_channels=MELS, channels=8, pitches=16).eval()


def speech(batch: int = 1, seed: int = 0, n_mels: int = MELS) -> torch.Tensor:
    """Log-mels (B, M, T), smooth over time."""
    noise = torch.randn(batch, n_mels, FRAMES, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.avg_pool1d(noise, 9, 1, 4) * 3 - 4


def test_a_sure_network_gives_its_pitch_and_voicing(model: PulseNoise, monkeypatch) -> None:
    logits = torch.full((1, 17, 12), -20.0)
    logits[0, 5, :6] = logits[0, 6, :6] = 0.0  # midway between two pitches, for six voiced frames
    logits[0, 9, 6:] = 0.0
    logits[0, -1, :6] = 5.0
    monkeypatch.setattr(model, "forward", lambda mels: logits)
    log_pitch, voicing = model.read_pitch(torch.zeros(1, MELS, 12))
    pitch = interpolate(log_pitch, voicing > 0.5).exp()
    low, high = math.log(50), math.log(600)
    # unvoiced frames continue the last voiced pitch
    assert pitch.numpy() == pytest.approx(np.full(12, math.exp(low + 5.5 / 15 * (high - low))), rel=1e-4)
    assert (voicing[:6] > 0.99).all() and (voicing[6:] < 0.01).all()


def test_joined_parts_are_the_whole_and_items_are_as_if_alone(model: PulseNoise) -> None:
    mels = speech()
    noise = torch.randn(1, (FRAMES - 1) * HOP, generator=torch.Generator().manual_seed(1))
    whole = model.infer(mels, noise)
    parts = list(model.stream(mels, noise, first=16, longest=50))
    assert [part.shape[1] // HOP for part in parts] == [16, 48, 50, 35] and whole.abs().max() > 0.01
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-5 * float(whole.abs().max()))
    assert model.infer(mels - 6, noise).abs().max() < 0.1 * whole.abs().max()  # what is quiet stays quiet
    mels = speech(2)
    noise = torch.randn(2, (FRAMES - 1) * HOP)
    torch.testing.assert_close(model.infer(mels, noise)[1:], model.infer(mels[1:], noise[1:]))
    assert draw_noise(model, mels, None).shape == noise.shape


@pytest.mark.parametrize(
    ("value", "shape", "words"),
    [(math.nan, (1, MELS, 20), "NaN"), (0.0, (1, MELS, 0), "0 frames"), (0.0, (1, MELS + 1, 20), "shape")],
)
def test_unusable_mels_are_refused(model: PulseNoise, value: float, shape: tuple, words: str) -> None:
    mels = torch.full(shape, value)
    with pytest.raises(DataError, match=words):
        next(model.stream(mels, torch.zeros(1, max(0, mels.shape[2] - 1) * HOP)))


def test_impossible_dimensions_are_refused_and_its_file_is_called_pitch() -> None:
    with pytest.raises(UsageError, match="lowest"):
        PulseNoise(lowest_pitch=400.0, highest_pitch=100.0)
    assert (SPEC.flag, SPEC.file_stem, SPEC.role) == ("pulse-noise", "pitch", "vocoder")


def test_the_loss_is_least_at_the_target() -> None:
    targets = PitchTargets(torch.tensor([[3.0, 0.0]]), torch.tensor([[True, False]]))
    wanted = torch.softmax(-0.5 * ((torch.arange(8) - 3.0) / 0.8).square(), 0)
    logits = torch.zeros(1, 9, 2)
    logits[0, :8, 0] = wanted.log()
    logits[0, 8] = torch.tensor([20.0, -20.0])
    terms = PitchLoss().terms(logits, targets)
    entropy = -(wanted * wanted.log()).sum()
    assert terms["pitch"].item() == pytest.approx(entropy.item(), abs=1e-5) and terms["voicing"].item() < 1e-6
    other = logits.clone()
    other[0, :8, 1] = torch.randn(8)  # an unvoiced frame's pitch does not count
    assert PitchLoss()(other, targets).item() == pytest.approx(PitchLoss()(logits, targets).item())
    other[0, 4, 0] += 0.5
    assert PitchLoss().terms(other, targets)["pitch"] > terms["pitch"]


def test_augmentation_repeats_with_its_seed_and_advice_makes_about_1500_steps() -> None:
    mels = speech()[0]
    one, same, other = (augment(mels, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert one.shape == mels.shape and torch.equal(one, same) and not torch.equal(one, other)
    for minutes in (3.0, 30.0, 600.0):
        options = advise(minutes, 0, False).options
        steps = options["epochs"] * max(1, 12 * minutes // options["batch_size"])
        assert 1200 < steps < 3000


@NEEDS_PYWORLD
def test_a_crop_has_its_own_pitch_and_another_place_in_each_epoch(tmp_path) -> None:
    pulses = 0.1 * pulse_train(torch.linspace(100, 300, 3 * 22050), 22050)
    pulses[22050:44100] = 0.0  # silence, which has no pitch
    soundfile.write(tmp_path / "one.wav", pulses.numpy(), 22050)
    data = PitchDataset({"dataset_path": str(tmp_path), "seed": 1}, [Utterance("one.wav", "")])
    items = [data[Key(epoch, 0)] for epoch in range(4)]
    other = PitchDataset({"dataset_path": str(tmp_path), "seed": 2}, [Utterance("one.wav", "")])[Key(0, 0)]
    assert not torch.allclose(items[0].clip.mels, other.clip.mels, atol=0.5)
    assert torch.equal(items[0].clip.mels, data[Key(0, 0)].clip.mels)
    assert len({tuple(item.clip.pitch.tolist()) for item in items}) == 4
    batch = data.collate(items)
    sounding = batch.mels.mean(1) > batch.mels.mean((1, 2))[:, None]
    assert (sounding == batch.voiced).float().mean() > 0.9
    hertz = 50 * (600 / 50) ** (batch.places / 127)
    assert torch.allclose(
        hertz[batch.voiced], torch.stack([item.clip.pitch for item in items])[batch.voiced], rtol=1e-3
    )


RATE, HOP = 22050, 256


def place_of(pulse: torch.Tensor) -> float:
    """The place of a single pulse (n,): its group delay, from the phase of the lowest harmonic."""
    n = len(pulse)
    return -float(torch.angle(torch.fft.fft(pulse.double())[1])) * n / (2 * math.pi) % n


def test_a_constant_pitch_is_a_line_spectrum_at_its_multiples() -> None:
    pulses = pulse_train(torch.full((RATE,), 100.0), RATE)  # one second: bins of 1 Hz
    spectrum = torch.fft.rfft(pulses.double() * torch.hann_window(RATE, dtype=torch.float64)).abs()[:8000]
    frequencies = torch.arange(8000)
    distance = (frequencies + 50) % 100 - 50
    lines = spectrum[(distance == 0) & (frequencies > 0)]
    assert lines.max() / lines.min() < 1.05  # all harmonics are equally strong
    assert spectrum[distance.abs() > 3].max() < 2e-3 * lines.min()


@pytest.mark.parametrize("f0", [80.0, 123.4, 441.0])
def test_pulses_have_unit_power(f0: float) -> None:
    rising = f0 * torch.linspace(1, 4, 4 * RATE)
    for f0s in (torch.full((4 * RATE,), f0), rising):
        power = pulse_train(f0s, RATE).square()
        assert [part.mean().item() for part in power.chunk(2)] == pytest.approx([1, 1], abs=0.04)


def test_the_pulses_of_a_chirp_lie_at_the_integral_of_its_frequency() -> None:
    start, slope = 60.0, 90.0  # Hz, Hz a second
    time = torch.arange(RATE, dtype=torch.float64) / RATE
    pulses = pulse_train(start + slope * time, RATE)
    # start t + slope t^2 / 2 = k - 1/2, solved for t
    for k in range(2, 100, 9):
        place = RATE * (math.sqrt(start**2 + 2 * slope * (k - 0.5)) - start) / slope
        first = round(place) - 60
        assert first + place_of(pulses[first : first + 120]) == pytest.approx(place, abs=0.02)


def test_unknown_values_are_interpolated_and_constant_at_the_ends() -> None:
    values = torch.tensor([9.0, 1.0, 9.0, 9.0, 4.0, 9.0])
    known = torch.tensor([False, True, False, False, True, False])
    torch.testing.assert_close(interpolate(values, known), torch.tensor([1.0, 1.0, 2.0, 3.0, 4.0, 4.0]))
    assert interpolate(values, torch.zeros(6, dtype=torch.bool)) is values


def clip(n_mels: int = 80) -> tuple[PulseNoiseSynthesis, torch.Tensor, torch.Tensor, torch.Tensor]:
    """A synthetic voice: pulses and noise through two resonances. The synthesis, log-mels (M, T), pitch and voicing (T,)."""
    stft = TacotronSTFT(n_mel_channels=n_mels)
    frames = 60
    pitch = 120 * (1 + 0.2 * torch.sin(torch.arange(frames) / 10))
    voicing = (torch.arange(frames) % 40 < 30).float()
    noise = torch.randn((frames - 1) * HOP, generator=torch.Generator().manual_seed(1))
    source = make_source(pitch.log(), voicing, noise, RATE, HOP)
    mixed = source.voicing.sqrt() * source.pulses + (1 - source.voicing).sqrt() * source.noise
    frequencies = torch.linspace(0, RATE / 2, 513)
    gain = sum(1 / (1 + ((frequencies - centre) / width) ** 2) for centre, width in ((700, 200), (2400, 400)))
    voice = stft.stft.from_spectrum(stft.stft.spectrum(mixed[None]) * (0.03 * gain[:, None]))
    return PulseNoiseSynthesis(stft), stft.mel_spectrogram(voice.clamp(-1, 1))[0], pitch, voicing


@pytest.mark.parametrize("n_mels", [48, 80])
def test_the_mels_of_the_audio_are_the_given_ones(n_mels: int) -> None:
    synthesis, mels, pitch, voicing = clip(n_mels)
    noise = torch.randn((mels.shape[1] - 1) * HOP, generator=torch.Generator().manual_seed(2))
    audio = synthesis(mels, make_source(pitch.log(), voicing, noise, RATE, HOP))
    error = (synthesis.stft.mel_spectrogram(audio[None].clamp(-1, 1))[0] - mels).abs()
    assert audio.shape == noise.shape and error.mean() < 0.2


@pytest.mark.parametrize("n_mels", [48, 80])
def test_the_envelope_is_near_that_of_the_least_squares(n_mels: int) -> None:
    """Of SciPy, in float64: the squares of what log-mels lack and of the cosines, which weigh more the faster they change."""
    synthesis, mels, pitch, voicing = clip(n_mels)
    noise = torch.randn((mels.shape[1] - 1) * HOP, generator=torch.Generator().manual_seed(3))
    level = synthesis.spectra(make_source(pitch.log(), voicing, noise, RATE, HOP))[2]
    basis, cosines = synthesis.basis.double().numpy(), synthesis.cosines.double().numpy()
    weights = np.sqrt(1e-4 * (1 + np.arange(n_mels) ** 2))
    smooth = np.stack([mels[:, max(0, t - 1) : t + 2].numpy().mean(1) for t in range(mels.shape[1])], 1)
    for t in (5, 20, 35, 50):  # voiced and unvoiced, within the clip
        target = mels[:, t].numpy() + 0.3 * (mels[:, t].numpy() - smooth[:, t])
        source = level[:, t].double().numpy()

        def log_mels(c: np.ndarray, source: np.ndarray = source) -> np.ndarray:
            return np.log(basis @ (source * np.exp(cosines @ c)))

        def lacking(c: np.ndarray, target: np.ndarray = target) -> np.ndarray:
            return np.concatenate((target - log_mels(c), weights * c))

        best = scipy.optimize.least_squares(lacking, np.zeros(n_mels)).x
        found = synthesis.fit(mels, level)[:, t].double().numpy()
        assert np.abs(np.log(basis @ (source * found)) - log_mels(best)).mean() < 0.02  # 0.17 dB
        difference = np.log(found) - cosines @ best
        heard = source * np.exp(cosines @ best)
        assert np.sqrt((difference**2 * heard).sum() / heard.sum()) < 0.2  # 1.7 dB


@pytest.mark.parametrize("n_mels", [20, 80])
def test_no_step_overshoots_where_neighbouring_mels_differ_most(n_mels: int) -> None:
    synthesis = PulseNoiseSynthesis(TacotronSTFT(n_mel_channels=n_mels))
    level = torch.rand(513, FRAMES, generator=torch.Generator().manual_seed(3)) + 0.1
    mels = speech(n_mels=n_mels)[0]
    error = ((synthesis.basis @ (level * synthesis.fit(mels, level))).log() - mels).abs()
    assert error.mean() < 0.25 and error.max() < 5


def test_silence_stays_silence() -> None:
    synthesis, mels, pitch, voicing = clip()
    noise = torch.randn((mels.shape[1] - 1) * HOP)
    audio = synthesis(torch.full_like(mels, SILENCE), make_source(pitch.log(), voicing, noise, RATE, HOP))
    assert audio.abs().max() < 1e-3


@pytest.mark.parametrize("voiced_half", [0.0, 1.0])
def test_the_expected_level_is_that_of_the_mixture(voiced_half: float) -> None:
    synthesis, _, pitch, _ = clip()
    n = (len(pitch) - 1) * HOP
    voicing = (torch.arange(n) > n // 2).float() * voiced_half
    levels, magnitudes = [], []
    for number in range(40):
        noise = torch.randn(n, generator=torch.Generator().manual_seed(number))
        voiced, unvoiced, level = synthesis.spectra(Source(torch.zeros(n), noise, voicing))
        levels.append(level[2:-2, 5:-5])
        magnitudes.append((voiced + unvoiced).abs()[2:-2, 5:-5])
    # |E| of complex Gaussian noise of power s is sqrt(pi / 4 s) in the mean
    found, wanted = (torch.stack(values)[:, :60, :26].mean((0, 1)) for values in (magnitudes, levels))  # of each frame
    torch.testing.assert_close(found, wanted, rtol=0.1, atol=0)
    assert (torch.stack(magnitudes).mean() / torch.stack(levels).mean()).item() == pytest.approx(1, abs=0.01)


@NEEDS_PYWORLD
def test_the_pitch_of_a_frame_is_that_of_its_time_at_any_rate(tmp_path) -> None:
    """A chirp of 3.2 Hz a frame; the clip is shorter than a crop, which it begins."""
    rate, hertz = 16000, torch.linspace(100, 400, 24000)
    soundfile.write(tmp_path / "one.wav", (0.1 * pulse_train(hertz, rate)).numpy(), rate)
    options = {"dataset_path": str(tmp_path), "sampling_rate": rate, "mel_fmax": 8000.0}
    pitch = PitchDataset(options, [Utterance("one.wav", "")])[Key(0, 0)].clip.pitch
    frames = torch.arange(10, 85)
    assert (pitch[frames] - hertz[frames * HOP]).median().abs() < 1.0
