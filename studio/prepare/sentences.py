"""The words that find sentence ends: recordings with a text are cut at every pause, and each part is recognised.

A pause at a comma may be longer than one at a sentence end, so the length of pauses cannot decide the cuts.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import partial

from common.data.parallel import stream_parallel
from studio.prepare.alignment import find_longest_pauses
from studio.prepare.clips import Job, cut_parts
from studio.prepare.config import TextConfig
from studio.prepare.ledger import Ledger
from studio.prepare.recognition import Sound, recognise
from studio.prepare.transcripts import Transcript, has_sentence_ends
from studio.project import Project

WORDS = "words.jsonl"  # in the project's state: recognised words by recogniser and digest
PARTS = "parts"  # a folder in the project's state, removed once all clips are cut


def recognise_parts(jobs: Sequence[Job], project: Project, config: TextConfig, workers: int) -> list[Job]:
    """Return the jobs; those whose text has sentence ends get the words of their parts, unless their clips are there already.

    Raises:
        DataError: packages are missing, or the endpoint refuses.
    """
    jobs = [job._replace(recogniser=config.recogniser) if _has_sentence_ends(job.transcript) else job for job in jobs]
    wanting = [job for job in jobs if job.recogniser]
    folder = project.state / PARTS
    work = partial(cut_parts, folder=folder)
    recordings = list(filter(None, stream_parallel(work, wanting, workers, "cutting at pauses", "recording", 1)))
    sounds = [Sound(folder / f"{part.name}.wav", part.digest) for recording in recordings for part in recording.clips]
    with Ledger(project.state / WORDS) as ledger:
        words = recognise(sounds, config, ledger, workers)
    of_parts = {recording.name: [words[part.digest] for part in recording.clips] for recording in recordings}
    return [_with_words(job, of_parts[job.source.name]) if job.source.name in of_parts else job for job in jobs]


def _with_words(job: Job, words: Sequence[str]) -> Job:
    assert job.transcript is not None
    return job._replace(words=tuple(words), longest_pauses=tuple(find_longest_pauses(job.transcript.text, words)))


def _has_sentence_ends(transcript: Transcript | None) -> bool:
    """Return True for a text without times that has sentence ends before its last word."""
    return transcript is not None and not transcript.cues and has_sentence_ends(transcript.text)


def remove_parts(project: Project) -> None:
    """Remove the sound of the parts."""
    shutil.rmtree(project.state / PARTS, ignore_errors=True)
