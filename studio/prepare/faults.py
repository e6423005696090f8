"""Faults of clips by name, from measurements of each and comparison with the others; and the rows that they propose."""

# K clips

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from common.progress import counted
from studio.prepare import review
from studio.prepare.arguments import CuttingConfig, FaultLimits, PrepareOptions
from studio.prepare.clips import CutClip, CutRecordings
from studio.prepare.lists import select_usable, settings_of, training_problems
from studio.prepare.speakers import ComparedVoices, find_copies
from studio.prepare.texts import RECOGNISED, ClipText

LETTERS = 2  # a wrong word has about half its letters wrong; one that is only spelled apart has none
PACE_FEWEST = 20  # clips for a meaningful median pace
SILENCE, FILLED = "digital silence", ", filled"
DISTORTED = 50.0  # runs of clipped samples a second; a few at the loudest places do no harm
TOO_QUIET, FAR_BELOW = -55.0, 30.0  # dBFS, and dB below the median: what is left of 16 bits is too little
UNUSABLE = ("too short", "too long", "too quiet", "no text", "words", "cut in speech", "distorted", "speaker", "double")


class Candidate(NamedTuple):
    """What decides the faults of a clip."""

    clip: CutClip
    text: ClipText
    speaker: bool = False  # another voice than the others'
    double: str = ""  # name of the clip that it repeats


def find_faults(clips: Sequence[Candidate], cutting: CuttingConfig, limits: FaultLimits) -> list[list[str]]:
    """Return the faults of each clip (K,), with their figures."""
    median_level = float(np.median([one.clip.measures.level for one in clips])) if clips else 0.0
    paces = [len(one.text.text) / one.clip.seconds for one in clips if one.text.text]
    median_pace = float(np.median(paces)) if len(paces) >= PACE_FEWEST else math.nan
    return [_faults_of(one, median_level, median_pace, cutting, limits) for one in clips]


def _faults_of(
    one: Candidate, median_level: float, median_pace: float, cutting: CuttingConfig, limits: FaultLimits
) -> list[str]:
    clip, text, sound = one.clip, one.text, one.clip.measures
    distance = sound.level - median_level
    pace = len(text.text) / clip.seconds / median_pace if text.text else math.nan
    wrong = min(text.words_wrong, LETTERS * text.letters_wrong)
    is_distorted = sound.clipping > max(limits.clipping_runs, DISTORTED * clip.seconds)
    is_quiet = sound.level < TOO_QUIET or distance < -FAR_BELOW
    faults = {
        f"too short ({clip.seconds:.1f} s)": clip.seconds < cutting.min_duration,
        f"too long ({clip.seconds:.1f} s)": clip.seconds > cutting.max_duration + 0.05,
        "no text": not text.text,
        f"words ({100 * text.words_wrong:.0f} % wrong)": wrong > limits.max_words_wrong,
        "cut in speech": clip.in_speech,
        "speaker": one.speaker,
        f"double of {one.double}": bool(one.double),
        f"{SILENCE} ({clip.silence:.2f} s{FILLED if cutting.fill_silence else ''})": clip.silence > 0,
        f"distorted ({sound.clipping} clipped runs)": is_distorted,
        f"clipping ({counted(sound.clipping, 'run')})": sound.clipping >= limits.clipping_runs and not is_distorted,
        f"noise (SNR {sound.snr:.0f} dB)": sound.snr < limits.min_snr,
        f"bandwidth ({sound.bandwidth:.0f} Hz)": sound.bandwidth < limits.min_bandwidth,
        f"too quiet ({sound.level:.0f} dBFS, {distance:+.0f} dB)": is_quiet,
        f"loudness ({distance:+.0f} dB)": abs(distance) > limits.loudness and not is_quiet,
        f"pace ({pace:.1f} times the median)": pace > limits.pace or pace < 1 / limits.pace,
    }
    return [name for name, applies in faults.items() if applies]


def is_usable(faults: Sequence[str]) -> bool:
    """Return True if none of the faults rules a clip out for training."""
    return not any(fault.startswith(UNUSABLE) for fault in faults)


def propose(
    cut: CutRecordings, texts: Mapping[str, Sequence[ClipText]], voices: ComparedVoices, options: PrepareOptions
) -> list[review.ClipRow]:
    """Return a row for every clip, with its faults."""
    clips = [(recording.name, clip) for recording in cut.recordings for clip in recording.clips]
    of_clips = [text for recording in cut.recordings for text in texts[recording.name]]
    doubles = _find_doubles([clip for _, clip in clips], of_clips, voices.embeddings)
    candidates = [
        Candidate(clip, text, clip.name in voices.others, doubles.get(clip.name, ""))
        for (_, clip), text in zip(clips, of_clips, strict=True)
    ]
    faults = find_faults(candidates, options.cutting, options.limits)
    rows = [
        review.ClipRow(
            review.YES if is_usable(found) else review.NO,
            clip.name,
            recording,
            f"{clip.start:.3f}",
            f"{clip.end:.3f}",
            text.text,
            text.source,
            text.recognised,
            review.share(text.words_wrong),
            "; ".join(found),
        )
        for (recording, clip), text, found in zip(clips, of_clips, faults, strict=True)
    ]
    return _refuse_untrainable(rows, options)


def _find_doubles(clips: Sequence[CutClip], texts: Sequence[ClipText], embeddings: np.ndarray | None) -> dict[str, str]:
    """Return the original of each clip that repeats another one; it has a text by people if one has, and the wider bandwidth."""
    worth = [(text.source == RECOGNISED, -clip.measures.bandwidth) for clip, text in zip(clips, texts, strict=True)]
    order = sorted(range(len(clips)), key=worth.__getitem__)
    if embeddings is None:  # only the same samples are known to repeat
        first: dict[str, int] = {}
        copies = {i: first[clips[i].digest] for i in order if first.setdefault(clips[i].digest, i) != i}
    else:
        copies = find_copies(embeddings, [clip.seconds for clip in clips], order)
    return {clips[copy].name: clips[original].name for copy, original in copies.items()}


def _refuse_untrainable(rows: Sequence[review.ClipRow], options: PrepareOptions) -> list[review.ClipRow]:
    """Add a fault to the rows that training would refuse."""
    problems = training_problems(options.project, select_usable(rows), settings_of(options))

    def refuse(row: review.ClipRow) -> review.ClipRow:
        faults = filter(None, [row.faults, f"text ({problems[row.clip]})"])
        return row._replace(use=review.NO, faults="; ".join(faults))

    return [refuse(row) if row.clip in problems else row for row in rows]
