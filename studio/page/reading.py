"""Recording the reading script sentence by sentence: the sentences, the faults of a take, and the takes that are kept.

A take is kept as script_NUMBER.wav with its sentence in script_NUMBER.txt beside it, among the project's recordings.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import soundfile

from common.errors import DataError
from common.files import atomic_write, make_folder, write_text
from common.progress import counted
from studio.prepare.arguments import CuttingConfig, FaultLimits
from studio.prepare.levels import LOWEST, decibels, frame_size, is_speech, measure_clip
from studio.project import ROOT, Project, check_inside

SCRIPT = ROOT / "studio" / "reading_script.txt"
EDGE = 0.1  # seconds of silence before and after the words, which the clips keep
QUIET, LOUD = -40.0, -10.0  # dBFS: speech as recorded lies between
PEAK = -1.0  # dBFS


@cache
def read_script() -> tuple[str, ...]:
    """Return the sentences."""
    return tuple(SCRIPT.read_text(encoding="utf-8").splitlines())


class Take(NamedTuple):
    """A recording of one sentence: rate in Hz, samples (N,) of 16 bits."""

    rate: int
    samples: np.ndarray


class TakeCheck(NamedTuple):
    """The level of a take's speech in dBFS, its length in seconds, and its faults with what to do about each."""

    level: float
    seconds: float
    faults: list[str]

    @property
    def message(self) -> str:
        """The check in a sentence."""
        return "; ".join(self.faults) or f"good: {self.seconds:.1f} s, speech at {self.level:.0f} dBFS"


def make_take(recorded: tuple[int, np.ndarray] | None) -> Take:
    """Return what the microphone recorded as a take. Raises DataError if there is nothing."""
    if recorded is None or not recorded[1].size:
        raise DataError("no take yet: record the sentence first")
    rate, samples = recorded
    mono = samples if samples.ndim == 1 else samples.mean(axis=1)
    if np.issubdtype(samples.dtype, np.floating):
        mono = np.clip(mono, -1, 1) * 32767
    return Take(rate, mono.astype(np.int16))


def check_take(take: Take) -> TakeCheck:
    """Measure a take as studio.prepare measures clips."""
    limits, cutting = FaultLimits(), CuttingConfig()
    audio, size = take.samples.astype(np.float64) / 32768, frame_size(take.rate)
    whole = len(audio) // size * size
    levels = decibels(np.square(audio[:whole]).reshape(-1, size).mean(axis=1)) if whole else np.array([LOWEST])
    speech, seconds = is_speech(levels), len(audio) / take.rate
    if not speech.any():
        return TakeCheck(LOWEST, seconds, ["no speech: is this the right microphone, and is it on?"])
    found = measure_clip(audio[:, None], take.rate, levels[speech], levels[~speech])
    (places,) = np.nonzero(speech)
    edge = round(EDGE * take.rate / size)
    peak = 20 * np.log10(max(float(np.abs(audio).max()), 1e-5))
    length = (places[-1] - places[0] + 1) * size / take.rate
    faults = {
        f"clipping ({counted(found.clipping, 'run')}): lower the level of the microphone": found.clipping
        >= limits.clipping_runs,
        f"too loud ({found.level:.0f} dBFS): lower the level": found.level > LOUD or peak > PEAK,
        f"too quiet ({found.level:.0f} dBFS): raise the level, or come closer": found.level < QUIET,
        f"noise ({found.snr:.0f} dB below the speech): look for a quieter place": found.snr < limits.min_snr,
        f"too short ({length:.1f} s)": length < cutting.min_duration - 2 * EDGE,
        f"too long ({length:.1f} s): record it again without a pause": length > cutting.max_duration,
        "begins in speech: wait half a second before you speak": places[0] < edge,
        "ends in speech: wait half a second before you stop": len(levels) - 1 - places[-1] < edge,
    }
    return TakeCheck(found.level, seconds, [words for words, applies in faults.items() if applies])


def name_of(number: int) -> str:
    """Return the name of the files of a sentence, which count from 1."""
    return f"script_{number + 1:03}"


def kept_takes(project: Project) -> set[int]:
    """Return the numbers of the sentences with a take."""
    return {number for number in range(len(read_script())) if (project.recordings / f"{name_of(number)}.wav").is_file()}


def first_open(project: Project, start: int = 0) -> int:
    """Return the first sentence from `start` on, and then from the beginning, without a take; `start` if all have one."""
    count, kept = len(read_script()), kept_takes(project)
    return next((place % count for place in range(start, start + count) if place % count not in kept), start)


def keep_take(project: Project, number: int, take: Take) -> None:
    """Store a take with its sentence, in place of an earlier one. Raises DataError if the folder leads out of the project."""
    folder = check_inside(project, project.recordings)
    make_folder(folder)
    sound, text = (check_inside(project, folder / f"{name_of(number)}{ending}") for ending in (".wav", ".txt"))
    with atomic_write(sound) as file:
        soundfile.write(file, take.samples, take.rate, format="WAV", subtype="PCM_16")
    write_text(text, f"{read_script()[number]}\n")
