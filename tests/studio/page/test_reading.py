"""Takes of the reading script: their faults, and what is kept where."""

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import resample
from common.errors import DataError
from studio.page.reading import Take, check_take, first_open, keep_take, kept_takes, make_take, read_script
from studio.page.recordings import prepare_argv
from tests.sounds import sentence

RATE = 48000


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """A sentence at -20 dBFS with half a second of a quiet room around it, (N,) at RATE."""
    sound = resample(sentence(1), 22050, RATE)
    sound *= 0.1 / np.sqrt(np.mean(np.square(sound)))
    return np.pad(sound, RATE // 2) + 1e-4 * np.random.default_rng(0).standard_normal(len(sound) + RATE)


def noise(size: int) -> np.ndarray:
    return 0.02 * np.random.default_rng(1).standard_normal(size)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda x: x, ""),
        (lambda x: np.clip(20 * x, -1, 1), "clipping"),
        (lambda x: 0.03 * x, "too quiet"),
        (lambda x: x + noise(len(x)), "noise"),
        (lambda x: x[RATE:], "begins in speech"),
        (lambda x: x[:-RATE], "ends in speech"),
        (lambda x: np.concatenate([x] * 5), "too long"),
        (lambda x: np.zeros_like(x), "no speech"),
        (lambda x: np.zeros(0), "no speech"),
        (lambda x: np.concatenate([x[: RATE // 2], x[RATE : RATE + RATE // 4], x[-RATE // 2 :]]), "too short"),
    ],
)
def test_a_take_has_its_fault_at_once(speech: np.ndarray, change, fault: str) -> None:
    found = check_take(Take(RATE, np.round(32767 * change(speech)).astype(np.int16)))
    assert (fault in "; ".join(found.faults)) if fault else found.faults == []
    assert found.message.startswith("good: ") == (not fault)


def test_kept_takes_are_recordings_with_their_sentence(project, tmp_path, speech: np.ndarray) -> None:
    with pytest.raises(DataError, match="no take yet"):
        make_take(None)
    stereo = np.stack([speech, speech], axis=1)
    for recorded in (speech.astype(np.float32), np.round(32767 * stereo).astype(np.int16)):
        keep_take(project, 2, make_take((RATE, recorded)))  # the second in place of the first
    assert kept_takes(project) == {2} and [first_open(project, place) for place in (0, 2, 3)] == [0, 3, 3]
    sound, rate = soundfile.read(project.recordings / "script_003.wav")
    assert rate == RATE and np.abs(sound - speech).max() < 2 / 32768
    assert (project.recordings / "script_003.txt").read_text() == read_script()[2] + "\n"
    assert str(project.recordings) in prepare_argv(project, "en", False)
    project.recordings.rename(tmp_path / "outside")
    project.recordings.symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="leads out of the project"):
        keep_take(project, 0, make_take((RATE, speech)))
