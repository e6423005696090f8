"""studio/prepare/levels.py against stretches of known length, and studio/prepare/clips.py on recordings with gated pauses."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from common.audio.stft import AudioConfig, TacotronSTFT
from studio.prepare.arguments import CuttingConfig, FaultLimits
from studio.prepare.clips import CutRecording
from studio.prepare.faults import Candidate, find_faults
from studio.prepare.levels import SHORTEST, STEP, fill_silence, find_silence
from tests.sounds import RATE, save
from tests.studio.projects import cut

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
    assert AudioConfig.win_length / 2 < SHORTEST * RATE < AudioConfig.win_length
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


def test_mels_of_filled_silence_lie_above_the_lower_bound() -> None:
    audio = speech(400 * FRAME).astype(np.float32)
    audio[100 * FRAME : 300 * FRAME] = 0.0
    filled = fill_silence(audio, find_silence(audio, RATE))
    stft, bound = TacotronSTFT.from_config(AudioConfig()), math.log(1e-5)
    gated, mels = (stft.mel_spectrogram(torch.from_numpy(values)[None])[0, :, 100:250] for values in (audio, filled))
    assert float(gated.max()) == pytest.approx(bound)
    assert float(mels.min()) > bound + 0.5


def cut_talk(folder: Path, room: float, **options: bool) -> CutRecording:
    """Cut three bursts of noise with pauses of half a second in which the room has this root mean square."""
    pause = np.zeros(RATE // 2)
    audio = np.concatenate([part for seed in range(3) for part in (pause, speech(2 * RATE, seed))] + [pause])
    audio = audio + np.random.default_rng(9).normal(0.0, room, len(audio)) * (room > 0)
    record = cut(save(folder / "talk.wav", audio), folder, **options)
    assert isinstance(record, CutRecording)
    return record


def faults_of(record: CutRecording, config: CuttingConfig) -> list[str]:
    (clip,) = record.clips
    row = Candidate(clip.seconds, "a" * 20, False, clip.measures, 0.0, 0.0, False, "", clip.silence)
    return [name for name in find_faults([row], config, FaultLimits())[0] if "silence" in name]


def test_gated_pauses_are_a_fault_and_a_room_is_none(tmp_path: Path) -> None:
    gated, room = cut_talk(tmp_path / "gated", 0.0), cut_talk(tmp_path / "room", ROOM)
    (name,) = faults_of(gated, CuttingConfig())
    assert gated.clips[0].silence == pytest.approx(2 * 0.5 + 2 * 0.1, abs=0.05)  # two pauses and the margins
    assert name == f"digital silence ({gated.clips[0].silence:.2f} s, filled)"
    assert faults_of(gated, CuttingConfig(fill_silence=False)) == [name.replace(", filled", "")]
    assert room.clips[0].silence == 0.0 and faults_of(room, CuttingConfig()) == []


def test_a_filled_clip_differs_in_its_silence_alone_and_copies_stay_copies(tmp_path: Path) -> None:
    filled, plain = cut_talk(tmp_path / "filled", 0.0), cut_talk(tmp_path / "plain", 0.0, fill_silence=False)
    assert filled.clips[0].silence == plain.clips[0].silence
    paths = [tmp_path / name / "clips" / "talk.wav" for name in ("filled", "plain")]
    audio, gated = (soundfile.read(path, dtype="int16")[0] for path in paths)
    silent = find_silence(gated / 32768, RATE)
    np.testing.assert_array_equal(audio[~silent], gated[~silent])
    assert not find_silence(audio / 32768, RATE).any()
    copy = cut(shutil.copy(tmp_path / "filled" / "talk.wav", tmp_path / "copy.wav"), tmp_path)
    assert isinstance(copy, CutRecording) and copy.clips[0].digest == filled.clips[0].digest
    assert (tmp_path / "clips" / "copy.wav").read_bytes() == paths[0].read_bytes()
    assert filled.clips[0].digest != plain.clips[0].digest and filled.key != plain.key
