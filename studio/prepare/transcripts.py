"""Transcripts beside recordings: texts, subtitles, and tables with one row a recording."""

from __future__ import annotations

import csv
import html
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from common.data.transliteration import compose
from common.errors import DataError
from common.files import decode_lines, locate_problems
from studio.prepare.sources import SourceFile, readable_name

SUBTITLES = (".srt", ".vtt")
TABLES = (".csv", ".tsv")
LANGUAGE = re.compile(r"\.[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})?$")  # as in talk.en.srt
TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?")
TAG = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}|\[[^\[\]]{0,200}\]|[♪♫]")  # markup, and notes such as [music]
FLASH = 0.05  # seconds; automatic subtitles show a single line for less before they roll
ID_COLUMNS = ("id", "file", "filename", "file_name", "path", "audio", "audio_path", "audio_file", "wav", "clip")
TEXT_COLUMNS = ("normalized_text", "normalised_text", "text", "sentence", "transcript", "transcription")
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


def find_transcripts(folder: Path, sources: Sequence[SourceFile]) -> dict[str, Transcript]:
    """Read the transcripts of recordings, by the recordings' names. Subtitles take precedence over texts, and texts over tables.

    Raises one DataError for all files that are no transcripts, and all bad rows.
    """
    problems: list[str] = []
    found = _from_tables(folder, sources, problems)
    for source in sources:
        if path := _file_beside(source.path):
            try:
                found[source.name] = read_transcript(path, readable_name(path.relative_to(folder)))
            except DataError as error:
                problems.append(str(error))
    if problems:
        raise DataError("\n".join(problems))
    return found


def _file_beside(audio: Path) -> Path | None:
    """Return NAME.srt, NAME.vtt, NAME.LANGUAGE.srt or .vtt, or NAME.txt, the first that exists; NAME with or without extension."""
    stems = (audio.stem, audio.name)
    exact = [audio.with_name(stem + ending) for ending in SUBTITLES for stem in stems]
    named = [
        path
        for ending in SUBTITLES
        for path in sorted(audio.parent.glob(f"*{ending}"))
        if LANGUAGE.sub("", path.stem) in stems
    ]
    texts = [audio.with_name(f"{stem}.txt") for stem in stems]
    return next((path for path in (*exact, *named, *texts) if path.is_file()), None)


def read_transcript(path: Path, name: str) -> Transcript:
    """Read subtitles or a text. Raises one DataError for all bad lines."""
    lines, problems = decode_lines(path)
    cues: list[Cue] = []
    if path.suffix.lower() in SUBTITLES and not problems:
        cues = parse_subtitles(lines, problems)
    text = plain_text(" ".join(cue.text for cue in cues) if path.suffix.lower() in SUBTITLES else " ".join(lines))
    if not text and not problems:
        problems[0] = "no words in it; remove the file, or write the words of the recording into it"
    if problems:
        raise DataError("\n".join(locate_problems(path, problems)))
    return Transcript(name, text, tuple(cues))


def parse_subtitles(lines: Sequence[str], problems: dict[int, str]) -> list[Cue]:
    """Parse SubRip or WebVTT, and add the problems of lines by index from 0. Subtitles without words are left out.

    Automatic subtitles roll: one that repeats the last line of the one before keeps only its other lines.
    """
    cues: list[Cue] = []
    last_line = ""
    for index, line in enumerate(lines):
        if "-->" not in line:
            continue
        match = TIMES.fullmatch(line)
        if not match:
            problems[index] = f"{line.strip()[:60]!r}, expected times such as 00:01:02,500 --> 00:01:04,000"
            continue
        start, end = _seconds(match.groups()[:4]), _seconds(match.groups()[4:])
        if end <= start:
            problems[index] = f"{line.strip()[:60]!r} ends before it begins"
        elif cues and start < cues[-1].start:
            problems[index] = f"{line.strip()[:60]!r} begins before the subtitle above it: sort them by time"
        else:
            words = _words_below(lines, index)
            is_repetition = len(words) > 1 or end - start < FLASH  # people do say a word twice
            fresh = words[1:] if words and words[0] == last_line and is_repetition else words
            last_line = words[-1] if words else last_line
            if text := plain_text(" ".join(fresh)):
                cues.append(Cue(start, end, text))
    if not cues and not problems:
        problems[0] = "no subtitles in it, expected times such as 00:01:02,500 --> 00:01:04,000"
    return cues


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")


def _words_below(lines: Sequence[str], index: int) -> list[str]:
    """Return the text lines of the subtitle with its times in line `index`."""
    words: list[str] = []
    last = index + 1
    while last < len(lines) and lines[last].strip() and "-->" not in lines[last]:
        words.append(html.unescape(TAG.sub("", lines[last])).strip())
        last += 1
    if words and last < len(lines) and "-->" in lines[last] and words[-1].isdecimal():
        words.pop()  # the number of the next subtitle, without a blank line between them
    return [line for line in words if line]


def _from_tables(folder: Path, sources: Sequence[SourceFile], problems: list[str]) -> dict[str, Transcript]:
    """Read all tables in a folder that name recordings; adds the problems of bad rows."""
    found: dict[str, Transcript] = {}
    index = _index(sources)
    for path in sorted(path for ending in TABLES for path in folder.rglob(f"*{ending}") if path.is_file()):
        try:
            rows = read_table(path)
        except DataError as error:
            problems.append(str(error))
            continue
        place = path.parent.relative_to(folder)
        names = {number: _recordings_of(row[0], place, index) for number, row in rows.items()}
        if path.name != "metadata.csv" and not any(names.values()):
            continue  # a table of something else
        for number, (_, text) in rows.items():
            problem = _problem_of_row(names[number], text, found)
            if problem:
                problems.append(f"{path}:{number}: {problem}")
            elif names[number]:
                found[names[number][0]] = Transcript(readable_name(path.relative_to(folder)), text)
    return found


def _problem_of_row(names: Sequence[str], text: str, found: Mapping[str, Transcript]) -> str:
    """Return the problem of a row, or "". A row without a recording is fine: many corpora are used in part."""
    if len(names) > 1:
        return f"names several recordings: {', '.join(names[:3])}"
    if names and not text:
        return "no text"
    if names and names[0] in found and found[names[0]].text != text:
        return f"{names[0]} has another text already, in {found[names[0]].origin}"
    return ""


def _index(sources: Sequence[SourceFile]) -> dict[str, list[str]]:
    """Map paths and bare names, with and without extension, to the recordings that have them."""
    index: dict[str, list[str]] = defaultdict(list)
    for source in sources:
        path = Path(source.name)
        for key in {source.name, str(path.with_suffix("")), path.name, path.stem}:
            index[key].append(source.name)
    return index


def _recordings_of(identifier: str, place: Path, index: Mapping[str, list[str]]) -> list[str]:
    """Return the recordings that an identifier in a table in the folder `place` names: by path, else by name."""
    path = Path(identifier)
    for key in (place / path, place / "wavs" / path, place / "clips" / path, path):
        if names := index.get(key.as_posix()):
            return names
    return index.get(path.name) or []


def read_table(path: Path) -> dict[int, tuple[str, str]]:
    """Read rows (identifier, text) by line from 1: `id|text`, `id|raw text|normalised text`, or columns with a heading.

    Raises one DataError for all bad lines.
    """
    lines, problems = decode_lines(path)
    first = lines[0] if lines else ""
    delimiter = "|" if "|" in first else "\t" if "\t" in first else ";" if first.count(";") > first.count(",") else ","
    sheet = [f"{line}\n" for line in lines]
    if delimiter in ",;":
        reader = csv.reader(sheet, delimiter=delimiter)
    else:  # quotation marks of a text are part of it
        reader = csv.reader(sheet, delimiter=delimiter, quoting=csv.QUOTE_NONE)
    rows: dict[int, tuple[str, str]] = {}
    columns: tuple[int, int] | None = None
    try:
        for row in reader:
            number = reader.line_num
            if number == 1 and (columns := _columns(row)):
                continue
            if not any(row) or number - 1 in problems:
                continue
            fields = _fields(row, columns)
            if fields is None:
                problems[number - 1] = f"{delimiter.join(row)[:60]!r}, expected id{delimiter}text"
            else:
                rows[number] = fields
    except csv.Error as error:
        problems[reader.line_num - 1] = str(error)
    if problems:
        raise DataError("\n".join(locate_problems(path, problems)))
    return rows


def _columns(row: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns of the identifier and the text if a row is a heading."""
    names = [name.strip().lower() for name in row]
    identifiers = [names.index(name) for name in ID_COLUMNS if name in names]
    texts = [names.index(name) for name in TEXT_COLUMNS if name in names]
    return (identifiers[0], texts[0]) if identifiers and texts else None


def _fields(row: Sequence[str], columns: tuple[int, int] | None) -> tuple[str, str] | None:
    """Return the identifier and the text of a row, or None."""
    if columns:
        return (row[columns[0]].strip(), plain_text(row[columns[1]])) if max(columns) < len(row) else None
    if len(row) not in (2, 3) or not row[0].strip():
        return None
    return row[0].strip(), plain_text(row[2] if len(row) == 3 and row[2].strip() else row[1])
