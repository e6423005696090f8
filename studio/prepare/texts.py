"""The text of every clip: from subtitles, from a transcript with or without alignment, or from the recogniser.

A recording whose transcript has no times is first cut at every pause, and each part is recognised: a pause at a comma may be
longer than one at the end of a sentence, so it takes the words to find where sentences end.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from common.data.parallel import stream_parallel
from common.quality.words import Errors, character_errors, normalise, word_errors
from studio.prepare.alignment import assign_words, find_longest_pauses
from studio.prepare.arguments import TextConfig
from studio.prepare.clips import CutRecording, CuttingJob, cut_parts
from studio.prepare.ledger import Ledger
from studio.prepare.recognition import recognise
from studio.prepare.transcripts import Transcript, has_sentence_ends
from studio.project import Project

RECOGNISED = "recognised"
WORDS = "words.jsonl"  # in the project's state: words by recogniser and digest
PARTS = "parts"  # in the project's state: a folder that is removed once all clips are cut


def recognise_parts(jobs: Sequence[CuttingJob], project: Project, config: TextConfig, workers: int) -> list[CuttingJob]:
    """Add the words of their parts to jobs whose text has sentence ends or times, unless their clips exist already.

    Raises DataError if packages are missing, or the endpoint refuses.
    """
    jobs = [job._replace(recogniser=config.recogniser) if _is_divided_by_words(job) else job for job in jobs]
    wanting = [job for job in jobs if job.recogniser]
    folder = project.state / PARTS
    work = partial(cut_parts, folder=folder)
    recordings = list(filter(None, stream_parallel(work, wanting, workers, "cutting at pauses", "recording", 1)))
    sounds = [part.sound(folder) for recording in recordings for part in recording.clips]
    with Ledger(project.state / WORDS) as ledger:
        words = recognise(sounds, config, ledger, workers)
    of_parts = {recording.name: [words[part.digest] for part in recording.clips] for recording in recordings}
    return [_with_words(job, of_parts[job.source.name]) if job.source.name in of_parts else job for job in jobs]


def _with_words(job: CuttingJob, words: Sequence[str]) -> CuttingJob:
    assert job.transcript is not None
    pauses = () if job.transcript.cues else find_longest_pauses(job.transcript.text, words)
    return job._replace(words=tuple(words), longest_pauses=tuple(pauses))


def _is_divided_by_words(job: CuttingJob) -> bool:
    """Return True for a text with times, or one without in which a sentence ends before the last word."""
    return job.transcript is not None and (bool(job.transcript.cues) or has_sentence_ends(job.transcript.text))


def remove_parts(project: Project) -> None:
    """Remove the sound of the parts."""
    shutil.rmtree(project.state / PARTS, ignore_errors=True)


class ClipText(NamedTuple):
    """The text of a clip, where it comes from, and the recognised words; shares are nan if nothing was compared."""

    text: str
    source: str
    recognised: str
    words_wrong: float  # share of the text's words that differ from the recognised ones
    letters_wrong: float  # likewise, without spaces: "under score" has no errors


def needs_words(recording: CutRecording, transcript: Transcript | None) -> bool:
    """Return True if a recording's clips need recognised words to have a text."""
    return transcript is None or (not transcript.cues and len(recording.clips) > 1)


def has_words(recording: CutRecording, transcript: Transcript | None) -> bool:
    """Return True if a recording's clips have the recognised words of their parts."""
    return transcript is not None and not transcript.cues and any(clip.text for clip in recording.clips)


def texts_of(recording: CutRecording, transcript: Transcript | None, words: Mapping[str, str] | None) -> list[ClipText]:
    """Return the texts of a recording's clips, in order.

    Args:
        recording: its clips.
        transcript: its words, or None.
        words: recognised words by the clips' digests; None if nothing was recognised.
    """
    recognised = [words[clip.digest] if words else "" for clip in recording.clips]
    if transcript is None:
        return [ClipText(text, RECOGNISED, text, math.nan, math.nan) for text in recognised]
    texts = _texts_of_transcript(recording, transcript, recognised)
    return [
        ClipText(text, transcript.origin, found, *(shares_wrong(text, found) if words else (math.nan, math.nan)))
        for text, found in zip(texts, recognised, strict=True)
    ]


def _texts_of_transcript(recording: CutRecording, transcript: Transcript, recognised: Sequence[str]) -> list[str]:
    if transcript.cues:
        return [clip.text for clip in recording.clips]
    if len(recording.clips) == 1:
        return [transcript.text]
    return assign_words(transcript.text, recognised)


def shares_wrong(text: str, recognised: str) -> tuple[float, float]:
    """Return the shares of a text's words and letters that differ, at most 1; nan for a text without words."""
    wanted, found = ("".join(normalise(words).split()) for words in (text, recognised))
    words, letters = word_errors(text, recognised), character_errors(wanted, found)
    return _share(words), _share(letters)


def _share(errors: Errors) -> float:
    return min(1.0, errors.rate) if errors.count else math.nan
