"""Transcripts: the words of a recording, with or without times, and what ends a sentence in them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import NamedTuple

from common.data.transliteration import compose

SENTENCE_ENDS = ".!?…。！？।"
INVISIBLE = (0xAD, 0x200B, 0x2060, 0xFEFF)  # soft hyphen and characters without width, except those that shape letters
CLOSING = "\"'”’»)]"


class Cue(NamedTuple):
    """A subtitle: its times in seconds, and its words."""

    start: float
    end: float
    text: str


@dataclass(frozen=True)
class Transcript:
    """The words of a recording: the file they come from, the text, and subtitles if there are times."""

    origin: str
    text: str
    cues: tuple[Cue, ...] = ()


def has_sentence_ends(text: str) -> bool:
    """Return True if a sentence ends before the last word of the text."""
    return any(ends_sentence(word) for word in text.split()[:-1])


def ends_sentence(text: str) -> bool:
    """Return True if the text ends with the end of a sentence."""
    return text.rstrip().rstrip(CLOSING)[-1:] in tuple(SENTENCE_ENDS)


def plain_text(text: str) -> str:
    """Compose characters (NFC), collapse white space, and remove the separator of filelists and control characters."""
    text = compose(text)
    text = "".join(" " if c == "|" or unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    text = text.translate(dict.fromkeys(INVISIBLE))
    return " ".join(text.split())
