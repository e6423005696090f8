"""Subtitles of a speech: SubRip (srt) and WebVTT (vtt) files from the times of its words."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from common.errors import DataError
from common.files import atomic_write
from common.inference.words import Word

KINDS = ("srt", "vtt", "srt-words", "vtt-words")  # a cue for some words, or for each word
# Limits of a cue, as usual in television.
LINE, LINES, LONGEST_CUE = 42, 2, 7.0  # characters, lines, seconds
LONGEST_GAP, SENTENCE_GAP = (
    1.0,
    0.15,
)  # seconds of silence that end a cue, and after a point, which may be an abbreviation's
CLOSING, ENDS = "\"'”’»)]", (".", "!", "?", "…", "。", "！", "？")


def write_subtitles(path: Path, words: Sequence[Word], kind: str) -> None:
    """Write subtitles of a kind in KINDS, atomically. Raises DataError if the file cannot be written."""
    is_vtt = kind.startswith("vtt")
    blocks = ["WEBVTT"] if is_vtt else []
    cues = ([word] for word in words) if kind.endswith("-words") else cut_cues(words)
    for number, cue in enumerate(cues, 1):
        lines = textwrap.wrap(_text(cue), LINE, break_on_hyphens=False)
        text = "\n".join(lines)
        times = f"{timestamp(cue[0].start, is_vtt)} --> {timestamp(cue[-1].end, is_vtt)}"
        blocks.append(f"{times}\n{html.escape(text, quote=False)}" if is_vtt else f"{number}\n{times}\n{text}")
    try:
        with atomic_write(path) as file:
            file.write("".join(f"{block}\n\n" for block in blocks).encode())
    except OSError as error:
        raise DataError(f"{path}: cannot write the subtitles ({error.strerror}); choose another --output") from error


def cut_cues(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Cut words into cues: at the ends of sentences, at long silences, and where a cue would be too long."""
    cue: list[Word] = []
    for word in words:
        if cue and (word.start - cue[-1].end > _longest_gap(cue[-1].text) or not _fits([*cue, word])):
            yield cue
            cue = []
        cue.append(word)
    if cue:
        yield cue


def timestamp(seconds: float, is_vtt: bool) -> str:
    """Return HH:MM:SS,mmm, or with a point for WebVTT. Milliseconds are rounded down: no cue ends after its audio."""
    milliseconds = int(seconds * 1000 + 1e-6)  # 0.29 s are 289.99… ms
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{'.' if is_vtt else ','}{rest % 1000:03}"


def _longest_gap(word: str) -> float:
    return SENTENCE_GAP if word.rstrip(CLOSING).endswith(ENDS) else LONGEST_GAP


def _fits(cue: Sequence[Word]) -> bool:
    lines = textwrap.wrap(_text(cue), LINE, break_on_hyphens=False)
    return len(lines) <= LINES and cue[-1].end - cue[0].start <= LONGEST_CUE


def _text(cue: Sequence[Word]) -> str:
    return " ".join(word.text for word in cue)
