"""The text of every clip: from subtitles, from a transcript with or without alignment, or from the recogniser."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from common.quality.words import Errors, character_errors, normalise, word_errors
from studio.prepare.alignment import assign_words
from studio.prepare.clips import CutRecording
from studio.prepare.transcripts import Transcript

RECOGNISED = "recognised"


class ClipText(NamedTuple):
    """The text of a clip, its source, the recognised words, and the share of the transcript's words that differ from these.

    Shares are nan where there is no transcript, or nothing was recognised on purpose. `letters_wrong` leaves spaces out, so that
    "under score" has no errors.
    """

    text: str
    source: str
    recognised: str
    words_wrong: float
    letters_wrong: float


def needs_words(recording: CutRecording, transcript: Transcript | None) -> bool:
    """Return True if a recording has no texts for its clips without recognised words."""
    return transcript is None or (not transcript.cues and len(recording.clips) > 1)


def has_words(recording: CutRecording, transcript: Transcript | None) -> bool:
    """Return True if the clips of a recording have the recognised words of their parts."""
    return transcript is not None and not transcript.cues and any(clip.text for clip in recording.clips)


def texts_of(recording: CutRecording, transcript: Transcript | None, words: Mapping[str, str] | None) -> list[ClipText]:
    """Return the texts of a recording's clips, in order.

    Args:
        recording: its clips.
        transcript: its words, or None.
        words: recognised words by digests of clips; None where none were recognised.
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
    """Return the shares of the text's words and of its letters that differ, at most 1; nan for a text without words."""
    wanted, found = ("".join(normalise(words).split()) for words in (text, recognised))
    words, letters = word_errors(text, recognised), character_errors(wanted, found)
    return _share(words), _share(letters)


def _share(errors: Errors) -> float:
    return min(1.0, errors.rate) if errors.count else math.nan
