"""Alignments and words counted by hand; likeness to a recording."""

import math
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import Tensor

from common.audio.audio_processing import at_rate, griffin_lim
from common.audio.stft import TacotronSTFT
from common.quality.attention import Reading, attention_focus, furthest, read_attention
from common.quality.likeness import ALPHA, aligned_likeness, analyse, likeness, mel_cepstra
from common.quality.words import Errors, character_errors, normalise, word_errors
from tests.sounds import RATE, sentence


def attending(positions: list[int], symbols: int) -> Tensor:
    """An alignment with all of a step's weight on one symbol."""
    return torch.nn.functional.one_hot(torch.tensor(positions), symbols).float()


def each(start: int, end: int, times: int = 3) -> list[int]:
    """Positions from start to end - 1, each for some steps."""
    return [position for position in range(start, end) for _ in range(times)]


CASES = {
    "diagonal": (each(0, 20), 20, Reading(1, 1, 1, 0, 0)),
    "jump over five": (each(0, 5) + each(10, 20), 20, Reading(1, 1, 0.75, 1, 0)),
    "jump over four, which is not far": (each(0, 5) + each(9, 20), 20, Reading(1, 1, 0.8, 0, 0)),
    "two jumps": (each(0, 3) + each(9, 12) + each(18, 20), 20, Reading(1, 1, 0.4, 2, 0)),
    "a late start": (each(5, 20), 20, Reading(1, 1, 0.75, 1, 0)),
    "one loop": (each(0, 10) + each(0, 20), 20, Reading(1, 1 - 1 / 89, 1, 0, 1)),
    "a loop of four, which is not far": (each(0, 10) + each(5, 20), 20, Reading(1, 1 - 1 / 74, 1, 0, 0)),
    "three loops": (each(0, 10) * 3 + each(0, 20), 20, Reading(1, 1 - 3 / 149, 1, 0, 3)),
    "ahead, then back to what was left": (each(0, 5) + each(12, 20) + each(5, 12), 20, Reading(1, 1 - 1 / 59, 1, 1, 0)),
    "ahead, then back to what is read": (each(0, 10) + each(16, 20) + each(3, 20), 20, Reading(1, 1 - 1 / 92, 1, 1, 1)),
    "faster than a symbol a step, and again": ([*range(0, 20, 2), *range(1, 20, 2)], 20, Reading(1, 18 / 19, 1, 0, 1)),
    "a glance of one step": ([*each(0, 5), 19, *each(5, 20)], 20, Reading(1, 1 - 1 / 60, 1, 0, 0)),
    "one symbol back now and then": ([0, 1, 0, 1, 2, 1, 2, 3], 4, Reading(1, 1, 1, 0, 0)),
    "one step": ([0], 4, Reading(1, 1, 0.25, 0, 0)),
}


@pytest.mark.parametrize("name", CASES)
def test_readings_counted_by_hand(name: str) -> None:
    positions, symbols, expected = CASES[name]
    assert tuple(read_attention(attending(positions, symbols))) == pytest.approx(tuple(expected))


def test_focus_is_the_mean_of_the_largest_weights_and_half_a_step_covers() -> None:
    assert read_attention(torch.full((10, 20), 1 / 20)) == pytest.approx((1 / 20, 1, 1, 0, 0))  # 10/20 of a step each
    assert read_attention(torch.full((9, 20), 1 / 20)).coverage == 0
    weights = torch.tensor([[0.7, 0.3, 0.0], [0.4, 0.6, 0.0], [0.0, 0.5, 0.5]], dtype=torch.bfloat16)
    assert read_attention(weights)[:3:2] == pytest.approx((0.6, 1), abs=2e-3)  # bfloat16 has 8 bits
    assert read_attention(torch.zeros(0, 7)) == (0, 1, 0, 0, 0)


def test_the_furthest_symbol_is_not_that_of_a_single_glance_and_focus_in_closed_form() -> None:
    assert furthest(attending([0, 1, 2, 9, 3, 4], 10)) == 4
    assert (furthest(torch.eye(10)), furthest(torch.zeros(0, 10))) == (9, -1)
    alignments = torch.full((4, 5, 4), 0.25)  # item 0: spread evenly
    alignments[1] = torch.eye(4)[[0, 1, 2, 3, 3]]  # item 1: one symbol at a time
    alignments[2, :3] = torch.tensor([[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0.5, 0.5, 0]])
    alignments[2, 3:] = torch.nan  # past the length: must not count
    focus = attention_focus(alignments, torch.tensor([5, 5, 3, 0]))
    assert focus.tolist() == pytest.approx([0.25, 1.0, 2.5 / 3, 0.0])


@pytest.mark.parametrize(
    ("written", "spoken"),
    [
        ("It is 6:45 p.m.", "It is six forty five p m."),
        ("It is 5 km to the U.S., e.g. No. 7.", "it is five kilometers to the u s, for example number seven."),
        ("Six o'clock", "six o\u2019clock"),
        ("Dr. Evans moved here in 1995.", "Doctor Evans moved here in nineteen ninety-five."),
        ("$5-million, $5M, $1 million dollars", "five million dollars, five million dollars, one million dollars"),
        ("$.5 million, $1900 million", "point five million dollars, one thousand nine hundred million dollars"),
        ("Mr Baker", "mister baker"),
    ],
)
def test_written_and_spoken_forms_meet(written: str, spoken: str) -> None:
    assert normalise(written) == normalise(spoken)
    assert normalise(spoken) == spoken.lower().translate(str.maketrans("-", " ", "',.!\u2019")).replace(" o ", " oh ")


@pytest.mark.parametrize(
    ("reference", "hypothesis", "words", "characters"),
    [
        ("The cat sat.", "the cat sat", (0, 3), (0, 11)),
        ("The cat sat.", "the bat sat down", (2, 3), (6, 11)),  # c → b, ` down`
        ("It is 5 p.m.", "it is p m", (1, 5), (5, 14)),  # `five ` of `it is five p m`
        ("The cat sat.", "", (3, 3), (11, 11)),
        ("", "no one", (2, 0), (6, 0)),
        ("…", "", (0, 0), (0, 0)),
    ],
)
def test_errors_counted_by_hand(reference: str, hypothesis: str, words, characters) -> None:
    pytest.importorskip("jiwer", reason="of requirements/eval.txt")
    assert word_errors(reference, hypothesis) == words
    assert character_errors(reference, hypothesis) == characters
    assert Errors(*words).rate == pytest.approx(words[0] / words[1] if words[1] else math.nan, nan_ok=True)


@pytest.mark.parametrize(
    ("language", "reference", "hypothesis", "words"),
    [
        ("es", "Marque el ocho. Su contrasena, por favor.", "¡Marque el 8! Su contraseña, por favor", (0, 7)),
        ("es", "El niño tiene veintidós años.", "El nino tiene 22 anos", (2, 5)),  # accents that the text has count
        ("pt-BR", "Às oito horas", "as 8 horas", (1, 3)),
        ("fr", "C’est l'été, n'est-ce pas ?", "c'est l’été n’est ce pas", (0, 5)),
        ("de", "GRÜSSE aus 21 Strassen", "Grüße aus einundzwanzig Straßen", (0, 4)),
        ("de", "Fuenf Aepfel", "fünf Äpfel", (0, 2)),
        ("ru", "Ещё раз: пять.", "еще раз 5", (0, 3)),
        ("tr", "Dokuz elma", "9 elma", (0, 2)),
        ("hi", "हिन्दी में", "हिन्दी मे", (1, 2)),  # marks of vowels belong to their word
        ("zh", "你好，世界", "你好是界", (1, 4)),
        ("th", "สวัสดี", "สวัสดี", (0, 6)),
        ("xx", "Nova lingo 8", "nova lingo", (0, 2)),  # nothing spells its numbers
    ],
)
def test_words_of_a_language_are_compared_as_they_are_spoken(
    language: str, reference: str, hypothesis: str, words
) -> None:
    pytest.importorskip("jiwer", reason="of requirements/eval.txt")
    assert word_errors(reference, hypothesis, language) == words


@pytest.mark.parametrize("number", ["9" * 37, "9" * 5000, f"${'9' * 40}", f"{'9' * 40}th", f"1.{'9' * 40}"])
def test_numbers_beyond_all_names_are_digits(number: str) -> None:
    words = normalise(f"a {number} b").split()
    assert words[0] == "a" and words[-1] == "b"
    assert words.count("nine") + words.count("ninth") >= 37


@pytest.fixture
def world() -> None:
    if find_spec("pyworld") is None:  # importorskip would also skip where it wants a stand-in for a module
        pytest.skip("pyworld, of requirements/eval.txt, is not installed")


def pulses(pitch: float, seconds: float = 1.5) -> np.ndarray:
    """Cosines in phase at all multiples of the pitch up to 8 kHz."""
    time, count = np.arange(round(seconds * RATE)) / RATE, int(8000 / pitch)
    return sum(np.cos(2 * np.pi * number * pitch * time) for number in range(1, count + 1)) / (2 * count)


@pytest.mark.parametrize("alpha", [0.0, 0.41, 0.6])
def test_cosines_on_the_warped_axis_are_one_coefficient_each(alpha: float) -> None:
    omega = np.linspace(0, np.pi, 513)
    warped = np.angle((np.exp(1j * omega) - alpha) / (1 - alpha * np.exp(1j * omega)))  # of the all-pass itself
    log_magnitude = 1.5 - 0.7 * np.cos(3 * np.abs(warped)) + 0.2 * np.cos(24 * np.abs(warped))
    expected = np.zeros(25)
    expected[[0, 3, 24]] = 1.5, -0.7, 0.2
    assert np.allclose(mel_cepstra(np.exp(2 * log_magnitude)[None], alpha)[0], expected, atol=1e-9)


def test_warping_is_the_nearest_to_the_mel_scale() -> None:
    omega, alphas = np.linspace(0, np.pi, 1000), np.arange(0, 1, 0.001)[:, None]
    mels = np.log1p(omega / np.pi * 16000 / 2 / 1000)
    warped = omega + 2 * np.arctan2(alphas * np.sin(omega), 1 - alphas * np.cos(omega))
    distances = ((mels / mels[-1] - warped / np.pi) ** 2).mean(axis=1)
    assert pytest.approx(float(alphas[distances.argmin(), 0]), abs=0.0015) == ALPHA


def test_a_clip_is_like_itself_at_any_level_and_a_band_that_no_mel_has_does_not_outweigh_all_others(world) -> None:
    clip, stft = sentence(219), TacotronSTFT()
    mel = stft.mel_spectrogram(torch.from_numpy(clip).float()[None])
    assert likeness(griffin_lim(mel, stft)[0].numpy(), clip, RATE).mcd < 6  # 22 dB where the band above 8 kHz counts
    assert likeness(clip, clip, RATE) == (0, 0, 0)
    softer = likeness(0.5 * clip, clip, RATE)  # the level is in c0 alone
    assert softer.mcd < 0.01 and softer.f0_rmse < 1e-6


def test_distortion_of_a_known_filter(world) -> None:
    """A filter adds its own mel-cepstrum to every frame's: (1 - 0.5/z) is -sum of 0.5^m/m cos(mw) in log magnitude."""
    noise = np.random.default_rng(0).normal(size=RATE) * 0.1
    filtered = noise - 0.5 * np.concatenate([[0], noise[:-1]])
    plain, changed = analyse(noise), analyse(filtered)
    omega = np.linspace(0, np.pi, 2049)
    expected = mel_cepstra(np.abs(1 - 0.5 * np.exp(-1j * omega))[None] ** 2)[0]
    found = (changed.cepstra - plain.cepstra).mean(axis=0)
    assert np.allclose(found, expected, atol=0.03)
    assert abs(expected[1]) > 0.3
    tone = pulses(200)  # whose frames are all alike
    filtered = tone - 0.5 * np.concatenate([[0], tone[:-1]])
    ours, theirs = (analyse(at_rate(clip, RATE, 16000)).cepstra[:, 1:] for clip in (filtered, tone))
    distortion = 10 / np.log(10) * np.sqrt(2 * np.sum(np.median(ours - theirs, axis=0) ** 2))  # Kubichek 1993
    assert likeness(filtered, tone, RATE).mcd == pytest.approx(distortion, rel=0.05)


@pytest.mark.parametrize(("pitch", "other"), [(200, 210), (120, 100)])
def test_pitch_of_pulses(world, pitch: float, other: float) -> None:
    found = likeness(pulses(pitch), pulses(other), RATE)
    assert found.f0_rmse == pytest.approx(abs(pitch - other), rel=0.02)
    assert found.voicing_error < 0.05


def test_voiced_against_unvoiced_and_a_stretched_clip_is_warped_back(world) -> None:
    noise = np.random.default_rng(0).normal(size=RATE) * 0.1
    assert likeness(pulses(200, 1.0), noise, RATE).voicing_error > 0.8
    assert math.isnan(likeness(noise, np.zeros(RATE), RATE).f0_rmse)
    steps, longer = (np.concatenate([pulses(150, seconds), pulses(250, 0.6)]) for seconds in (0.6, 1.2))
    warped = likeness(longer, steps, RATE)
    assert warped.f0_rmse < 2 and warped.voicing_error < 0.05
    half = likeness(np.concatenate([pulses(200), noise]), np.concatenate([pulses(210), noise]), RATE)
    assert half.f0_rmse == pytest.approx(10, rel=0.05)  # over the frames that both voice


@pytest.mark.parametrize("count", [0, 1, 50, 2204])
def test_any_length_can_be_compared(world, count: int) -> None:
    found = likeness(sentence(219)[3000 : 3000 + count], sentence(220), RATE)
    assert math.isfinite(found.mcd) and 0 <= found.voicing_error <= 1


def test_measures_of_copies_have_their_extremes() -> None:
    """PESQ's largest value is 0.999 + 4 / (1 + e^-2.8...) = 4.64 (P.862.2), ESTOI's is the correlation of a clip with itself."""
    for package in ("pesq", "pystoi"):
        pytest.importorskip(package, reason="of requirements/eval.txt")
    clip = sentence(219)
    noise = np.random.default_rng(0).normal(size=len(clip)) * clip.std()
    same, better, worse = (aligned_likeness(clip + share * noise, clip, RATE) for share in (0, 0.1, 1))
    assert same == pytest.approx({"pesq": 4.644, "estoi": 1.0}, abs=1e-3)
    assert all(same[name] > better[name] > worse[name] for name in ("pesq", "estoi"))
    muted = np.concatenate([clip[: len(clip) // 5], np.zeros(len(clip) // 5), clip[len(clip) // 5 * 2 :]])
    missing, added = aligned_likeness(muted, clip, RATE), aligned_likeness(clip, muted, RATE)
    assert all(missing[name] < added[name] for name in missing)  # silence in the recording counts little
    assert aligned_likeness(np.zeros(RATE), clip, RATE).keys() <= {"pesq", "estoi"}
    for count, is_compared in ((0, False), (RATE // 2 - 1, False), (RATE // 2, True)):
        assert bool(aligned_likeness(clip[4000 : 4000 + count], clip[4000:], RATE)) == is_compared
