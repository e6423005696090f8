"""Faults against sounds of known level, noise, bandwidth and digital silence; speakers against directions of known angles."""

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from scipy import signal

from common.audio.audio_processing import at_rate
from studio.prepare.arguments import CuttingConfig, FaultLimits, parse_args
from studio.prepare.clips import CutClip, CutRecording, CutRecordings
from studio.prepare.faults import Candidate, find_faults, is_usable
from studio.prepare.ledger import ClipSound
from studio.prepare.levels import (
    SHORTEST,
    STEP,
    Measures,
    bandwidth,
    decibels,
    fill_silence,
    find_silence,
    measure_clip,
)
from studio.prepare.speakers import Sound, compare_voices, describe_voice, find_voices, is_sound_only
from studio.prepare.texts import ClipText, shares_wrong
from tests.recipe import ROOT, skip_without_evaluators
from tests.sounds import RATE, save, sentence
from tests.studio.projects import cut

GOOD = Measures(level=-20.0, clipping=0, snr=40.0, bandwidth=8000.0)
CLIP = CutClip("b_0001", 0.0, 3.0, "", False, "", 0.0, GOOD)
FINE = Candidate(CLIP, ClipText("a" * 40, "b.txt", "", 0.1, 0.02))


def changed(values: dict[str, Any]) -> Candidate:
    """A clip without faults, but for these values, of its sound, of its text, or of its place among others."""
    clip = {name: values[name] for name in values if name in ("end", *CutClip._fields[4:])}
    text = {name: values[name] for name in values if name in ClipText._fields}
    rest = {name: values[name] for name in values if name in Candidate._fields[2:]}
    return FINE._replace(clip=CLIP._replace(**clip), text=FINE.text._replace(**text), **rest)


def levels(samples: np.ndarray, rate: int) -> np.ndarray:
    size = round(0.01 * rate)
    return decibels(np.square(samples[: len(samples) // size * size].reshape(-1, size)).mean(axis=1))


@pytest.mark.parametrize("snr", [6.0, 35.0])
def test_snr_of_noise_of_known_level(snr: float) -> None:
    generator = np.random.default_rng(0)
    noise = generator.standard_normal(32000) * 0.1 * 10 ** (-snr / 20)
    speech = generator.standard_normal(32000) * 0.1 + noise[::-1]
    measures = measure_clip(speech[:, None], 16000, levels(speech, 16000), levels(noise, 16000))
    assert measures.snr == pytest.approx(snr, abs=0.7)
    assert measures.level == pytest.approx(10 * math.log10(0.01 * (1 + 10 ** (-snr / 10))), abs=0.1)


@pytest.mark.parametrize(("rate", "cutoff"), [(16000, 7000), (22050, 3400), (48000, 7000)])
def test_bandwidth_of_filtered_noise_of_silence_and_of_a_short_clip(rate: int, cutoff: int) -> None:
    noise = np.random.default_rng(1).standard_normal(2 * rate)
    taps = signal.firwin(1001, cutoff, fs=rate, window=("kaiser", 10.0))
    assert bandwidth(0.1 * signal.lfilter(taps, 1, noise), rate) == pytest.approx(cutoff, abs=400)
    assert bandwidth(np.zeros(rate), rate) == 0.0 and bandwidth(np.zeros(10), rate) == min(rate / 2, 12000.0)


@pytest.mark.parametrize("gain", [1.0, 0.5])
def test_clipping_in_one_channel_is_found_after_the_level_was_turned_down(gain: float) -> None:
    tone = np.sin(np.arange(16000) * 0.05)
    samples = np.round(np.stack([gain * tone, gain * np.clip(3 * tone, -1, 1)], axis=1) * 32767) / 32768
    level = levels(samples.mean(axis=1), 16000)
    runs = 2 * 16000 * 0.05 / (2 * math.pi)
    assert measure_clip(samples, 16000, level, level[:0]).clipping == pytest.approx(runs, abs=3)


@pytest.mark.parametrize(
    ("change", "fault", "usable"),
    [
        ({}, "", True),
        ({"text": ""}, "no text", False),
        ({"words_wrong": 0.8, "letters_wrong": 0.0}, "", True),  # only spelled apart
        ({"in_speech": True}, "cut in speech", False),
        ({"speaker": True}, "speaker", False),
        ({"silence": 0.3}, "digital silence (0.30 s, filled)", True),
        ({"double": "a_0001"}, "double of a_0001", False),
        ({"measures": GOOD._replace(clipping=4000)}, "distorted (4000 clipped runs)", False),
        ({"measures": GOOD._replace(level=-66.0)}, "too quiet (-66 dBFS, -46 dB)", False),
    ],
)
def test_each_fault_has_its_name(change: dict[str, object], fault: str, usable: bool) -> None:
    *others, found = find_faults([FINE] * 30 + [changed(change)], CuttingConfig(), FaultLimits())
    assert others == [[]] * 30
    assert [name.startswith(fault) for name in found] == [True] * bool(fault)
    assert is_usable(found) is usable


@pytest.mark.parametrize(
    ("fault", "fine", "faulty"),
    [
        ("too short", {"end": 1.0, "text": "a" * 13}, {"end": 0.99, "text": "a" * 13}),
        ("too long", {"end": 11.05, "text": "a" * 147}, {"end": 11.1, "text": "a" * 147}),
        ("words", {"words_wrong": 0.4, "letters_wrong": 0.4}, {"words_wrong": 0.41, "letters_wrong": 0.4}),
        ("words", {"words_wrong": 0.9, "letters_wrong": 0.2}, {"words_wrong": 0.9, "letters_wrong": 0.21}),
        ("clipping", {"measures": GOOD._replace(clipping=2)}, {"measures": GOOD._replace(clipping=3)}),
        ("noise", {"measures": GOOD._replace(snr=20.0)}, {"measures": GOOD._replace(snr=19.9)}),
        ("bandwidth", {"measures": GOOD._replace(bandwidth=5000.0)}, {"measures": GOOD._replace(bandwidth=4900.0)}),
        ("loudness", {"measures": GOOD._replace(level=-28.0)}, {"measures": GOOD._replace(level=-28.1)}),
        ("loudness", {"measures": GOOD._replace(level=-12.0)}, {"measures": GOOD._replace(level=-11.9)}),
        ("pace", {"text": "a" * 100}, {"text": "a" * 101}),
        ("pace", {"text": "a" * 17}, {"text": "a" * 15}),
    ],
)
def test_faults_begin_at_their_limits(fault: str, fine: dict[str, object], faulty: dict[str, object]) -> None:
    clips = [FINE] * 30 + [changed(fine), changed(faulty)]
    *_, first, second = find_faults(clips, CuttingConfig(), FaultLimits())
    assert first == [] and [name.split(" (")[0] for name in second] == [fault]
    assert is_usable(second) is (fault not in ("too short", "too long", "words"))


@pytest.mark.parametrize(("count", "is_known"), [(19, False), (20, True)])
def test_a_median_pace_needs_twenty_clips(count: int, is_known: bool) -> None:
    *_, found = find_faults([FINE] * (count - 1) + [changed({"text": "a" * 101})], CuttingConfig(), FaultLimits())
    assert [name.split(" (")[0] for name in found] == ["pace"] * is_known


def test_shares_of_wrong_words_and_letters() -> None:
    pytest.importorskip("jiwer", reason="jiwer, of requirements/eval.txt, is not installed")
    assert shares_wrong("under score", "underscore", "en") == (1.0, 0.0)
    assert shares_wrong("one two three four", "one two three for", "en") == (0.25, pytest.approx(1 / 15))
    assert shares_wrong("one two", "a b c d e f g h i j k l m n", "en") == (1.0, 1.0)


def directions(generator: np.random.Generator, centre: np.ndarray, count: int) -> np.ndarray:
    points = centre + 0.03 * generator.standard_normal((count, len(centre)))
    return points / np.linalg.norm(points, axis=1, keepdims=True)


@pytest.mark.parametrize("n_others", [3, 20])
def test_two_directions_are_two_voices_and_one_is_one(n_others: int) -> None:
    """60 degrees apart; noise of 0.03 in 256 dimensions turns each clip by 25 degrees."""
    generator = np.random.default_rng(2)
    one, other = np.eye(256)[0], 0.5 * np.eye(256)[0] + math.sqrt(0.75) * np.eye(256)[1]
    points = np.concatenate([directions(generator, one, 30), directions(generator, other, n_others)])
    voices = find_voices(points)
    assert voices.others == list(range(30, 30 + n_others))
    assert voices.likeness == pytest.approx(0.5, abs=0.1)
    for count in (5, 40):
        assert find_voices(directions(generator, one, count)).others == []


def with_noise(samples: np.ndarray) -> np.ndarray:
    return samples + np.random.default_rng(4).standard_normal(len(samples)) * samples.std() * 10 ** (-5 / 20)


def in_a_room(samples: np.ndarray) -> np.ndarray:
    """Add a reverberation of 0.8 s, echoes at random times."""
    generator = np.random.default_rng(4)
    delays = np.sort(generator.uniform(0.002, 0.8, 3000))
    echoes = np.bincount((22050 * delays).astype(int), generator.choice([-1, 1], 3000) * 10 ** (-3 * delays / 0.8))
    return np.convolve(samples, np.append(1.0, echoes / np.linalg.norm(echoes)))


@pytest.mark.parametrize(("change", "snr", "rate"), [(with_noise, 5, 30000), (in_a_room, 60, 15000)])
def test_another_sound_is_no_other_speaker(tmp_path: Path, change, snr: float, rate: int) -> None:
    """Three of thirteen clips form a group of their own for their sound, as those of another voice do, here of another pitch."""
    skip_without_evaluators("resemblyzer")
    options = parse_args(["--projects", str(tmp_path / "projects"), "--name", "mine", str(ROOT / "audio")])

    def write(name: str, samples: np.ndarray) -> ClipSound:
        return ClipSound(save(options.project.clips / f"{name}.wav", 0.5 * samples / np.abs(samples).max()), name)

    ours = [write(f"ours{n}", sentence(n)) for n in range(1, 11)]
    same, others = (
        [write(f"{kind}{n}", change(at_rate(sentence(n), 22050, pitch))) for n in range(11, 14)]
        for kind, pitch in (("same", 22050), ("other", rate))
    )
    clear, worse = Sound(60, 11000), Sound(snr, 11000)
    embeddings = np.array([describe_voice(sound.path) for sound in (*ours, *same, *others)])
    assert find_voices(embeddings[:13]).others == [10, 11, 12]
    assert is_sound_only(ours, clear, embeddings[10:13], worse)
    assert not is_sound_only(ours, clear, embeddings[13:], worse)
    clips = [
        CutClip(sound.path.stem, 0.0, 3.0, "", False, sound.digest, 0.0, GOOD._replace(snr=found.snr, bandwidth=11000))
        for sound, found in (*((sound, clear) for sound in ours), *((sound, worse) for sound in same))
    ]
    cut = CutRecordings([CutRecording("talk.wav", "", 40.0, 22050, 1, 40.0, 0.0, clips)], {}, [])
    assert compare_voices(cut, options).others == set()


FRAME = 220  # samples of 10 ms
ROOM = 10 ** (-70 / 20)


def speech(samples: int, seed: int = 0) -> np.ndarray:
    return 0.1 * np.random.default_rng(seed).standard_normal(samples)


@pytest.mark.parametrize(("constant", "frames"), [(0.0, 4), (STEP, 40), (-0.25, 40)])
def test_a_constant_is_silent_from_its_first_whole_frame_on(constant: float, frames: int) -> None:
    audio = speech(100 * FRAME)
    audio[30 * FRAME : (30 + frames) * FRAME] = constant
    expected = np.zeros(len(audio), bool)
    expected[30 * FRAME : (30 + frames) * FRAME] = True
    np.testing.assert_array_equal(find_silence(audio.astype(np.float32), RATE), expected)


def test_silence_reaches_the_end_and_has_a_least_length_and_level() -> None:
    audio = speech(50 * FRAME + 7)
    audio[40 * FRAME :] = 0.0
    assert np.flatnonzero(find_silence(audio, RATE)).tolist() == list(range(40 * FRAME, len(audio)))
    audio, shorter = speech(100 * FRAME), math.ceil(SHORTEST * RATE / FRAME) - 1
    audio[30 * FRAME : (30 + shorter) * FRAME] = 0.0
    assert not find_silence(audio, RATE).any()
    audio = 1e-3 * speech(400 * FRAME)
    audio[100 * FRAME : 300 * FRAME] = 0.0
    assert not find_silence(fill_silence(audio, find_silence(audio, RATE)), RATE).any()


@pytest.mark.parametrize(("deviation", "silent"), [(0.8 * STEP, True), (1.2 * STEP, False), (ROOM, False)])
def test_noise_is_silent_below_one_step(deviation: float, silent: bool) -> None:
    audio = np.random.default_rng(1).normal(0.0, deviation, 100 * FRAME)
    assert find_silence(audio, RATE).mean() == pytest.approx(float(silent), abs=0.05)


@pytest.mark.parametrize("offset", [0.0, 0.2])
def test_only_silent_samples_are_filled_at_the_level_below_the_others(offset: float) -> None:
    audio = (speech(400 * FRAME) + offset).astype(np.float32)
    audio[100 * FRAME : 300 * FRAME] = 0.0
    silent = find_silence(audio, RATE)
    filled = fill_silence(audio, silent)
    np.testing.assert_array_equal(filled[~silent], audio[~silent])
    level = np.sqrt(np.mean(np.square(filled[silent], dtype=np.float64)) / np.var(audio[~silent]))
    assert 20 * math.log10(level) == pytest.approx(-50.0, abs=0.1)
    assert not find_silence(filled, RATE).any()
    np.testing.assert_array_equal(fill_silence(audio, silent), filled)
    assert not np.array_equal(fill_silence(audio[::-1].copy(), silent[::-1])[silent], filled[silent])


def cut_talk(folder: Path, room: float, **options: bool) -> CutRecording:
    """Cut three bursts of noise with pauses of half a second in which the room has this root mean square."""
    pause = np.zeros(RATE // 2)
    audio = np.concatenate([part for seed in range(3) for part in (pause, speech(2 * RATE, seed))] + [pause])
    audio = audio + np.random.default_rng(9).normal(0.0, room, len(audio)) * (room > 0)
    record = cut(save(folder / "talk.wav", audio), folder, **options)
    assert isinstance(record, CutRecording)
    return record


def test_a_filled_clip_differs_in_its_silence_alone_and_copies_stay_copies(tmp_path: Path) -> None:
    filled, plain = cut_talk(tmp_path / "filled", 0.0), cut_talk(tmp_path / "plain", 0.0, fill_silence=False)
    assert filled.clips[0].silence == plain.clips[0].silence == pytest.approx(2 * 0.5 + 2 * 0.1, abs=0.05)
    assert cut_talk(tmp_path / "room", ROOM).clips[0].silence == 0.0
    paths = [tmp_path / name / "clips" / "talk.wav" for name in ("filled", "plain")]
    audio, gated = (soundfile.read(path, dtype="int16")[0] for path in paths)
    silent = find_silence(gated / 32768, RATE)
    np.testing.assert_array_equal(audio[~silent], gated[~silent])
    assert not find_silence(audio / 32768, RATE).any()
    copy = cut(shutil.copy(tmp_path / "filled" / "talk.wav", tmp_path / "copy.wav"), tmp_path)
    assert isinstance(copy, CutRecording) and copy.clips[0].digest == filled.clips[0].digest
    assert (tmp_path / "clips" / "copy.wav").read_bytes() == paths[0].read_bytes()
    assert filled.clips[0].digest != plain.clips[0].digest and filled.key != plain.key
