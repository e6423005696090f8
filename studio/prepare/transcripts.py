"""Transcripts, and those with times: subtitles, labels of Audacity, Praat and HTK, and what Whisper and its kin write."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from common.data.tables import read_cells
from common.data.text_files import plain_text
from common.errors import shorten
from common.files import parse_json

SUBTITLES = (".srt", ".vtt")
TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
TIMES = re.compile(rf"\s*{TIME}\s*-->\s*{TIME}(?:\s.*)?")
TAG = re.compile(r"<[^<>]{0,200}>|\{\\[^{}]{0,200}\}|\[[^\[\]]{0,200}\]|[♪♫]")  # markup, and notes such as [music]
TURN = re.compile(r"(?:[-–—]|>>)\s+(?=\S)")  # a change of speaker, at the start of a line
FLASH = 0.05  # seconds; automatic subtitles show a single line for less before they roll
NUMBER, DECIMAL = r"(\d{1,9}(?:[.,]\d{1,9})?)", r"(\d{1,9}[.,]\d{1,9})"
LABEL = re.compile(rf"\s*{NUMBER}\t\s*{NUMBER}(?:\t(.*))?")  # of Audacity: start, end, text
SPACED_LABEL = re.compile(rf"\s*{DECIMAL}\s+{DECIMAL}(?:\s+(.*))?")  # where an editor has replaced the tabs
HTK_LABEL = re.compile(r"\s*(\d{1,18})\s+(\d{1,18})\s+(\S.*)")
HTK_UNITS, SHORTEST_HTK = 1e7, 10_000  # a second; a millisecond: "1 2 buckle my shoe" is a text
END_LABEL = re.compile(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s+-?\d{1,9}\s+(\S.*)")  # of xwaves and Festival: end, colour, text
MOST = 0.5  # of the lines; with more labels the others are mistakes, with fewer the file is a text
# As Praat reads: free-standing numbers, texts in quotation marks and flags; all else is a comment.
TOKEN = re.compile(r'"([^"]*(?:""[^"]*)*)"|<(exists|absent)>|(?<!\S)(-?\d[\d.eE+-]*)(?!\S)')
PAUSES = {
    *("sil", "sp", "spn", "pau", "silence", "pause", "h#", "#", "_", "-"),
    *("<sil>", "<sp>", "<eps>", "<p:>", "<p>", "<usb>"),
}
PHONES = re.compile(r"\b(?:phon\w*|phn|mau|kan|syllab\w*|pinyin|tones?)\b", re.IGNORECASE)  # names of tiers
PHONE_LETTERS = 2.5  # mean letters of a label in Latin script; words have more
NEARLY_ALL = 0.8  # of the letters of the fullest tier; of such tiers, the one with the longest labels is taken
GAP = 0.1  # seconds; a longer pause between words ends a cue
SEGMENTS = ("segments", "transcription", "fragments", "results", "result", "word_segments", "words")
AUDACITY = "labels"
FAULTY = "expected times such as 00:01:02,500 --> 00:01:04,000"


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


class Timed(NamedTuple):
    """The cues of a file, in order, what they are, and a remark, "" without any."""

    cues: list[Cue]
    kind: str
    note: str = ""


Problems = dict[int, str]  # of lines, by index from 0
Interval = tuple[float, float, str]  # start, end, label


def parse_timed(ending: str, lines: Sequence[str], problems: Problems) -> Timed | None:
    """Parse a file with times, told by its content and its ending in lower case. None for a text without times.

    The problems of its lines are added to `problems`.
    """
    first = next((line for line in lines if line.strip()), "")
    if ending in SUBTITLES or any("-->" in line and TIMES.fullmatch(line) for line in lines):
        return in_order(parse_subtitles(lines, problems), "subtitles")
    if "ooTextFile" in first or "ooBinaryFile" in first or ending == ".textgrid":
        return parse_textgrid("\n".join(lines), problems)
    if ending == ".json":
        return parse_segments("\n".join(lines), problems)
    if {"start", "end", "text"} <= {name.strip().lower() for name in re.split(r"[\t;,]", first)}:
        return parse_rows(lines, problems)
    return parse_labels(lines, problems)


def in_order(cues: Sequence[Cue], kind: str, note: str = "") -> Timed:
    """Sort cues by time. One without length, a mark at a point, lasts until the next begins."""
    is_sorted = all(one.start <= other.start for one, other in pairwise(cues))
    ordered = sorted(cues, key=lambda cue: cue.start)
    following = [*(cue.start for cue in ordered[1:]), math.inf][: len(ordered)]
    points = sum(cue.end <= cue.start for cue in ordered)
    lasting = [
        cue._replace(end=after) if cue.end <= cue.start else cue for cue, after in zip(ordered, following, strict=True)
    ]
    notes = [note, f"{points} without length, which last until the next" if points else ""]
    notes.append("" if is_sorted else "sorted by time")
    return Timed([cue for cue in lasting if cue.end > cue.start], kind, ", ".join(filter(None, notes)))


def parse_subtitles(lines: Sequence[str], problems: Problems) -> list[Cue]:
    """Parse SubRip or WebVTT, and add the problems of lines. Subtitles without words are left out.

    Automatic subtitles roll: one that repeats the last line of the one before keeps only its other lines.
    """
    cues: list[Cue] = []
    last_line = ""
    for index, line in enumerate(lines):
        if "-->" not in line:
            continue
        match = TIMES.fullmatch(line)
        if not match:
            problems[index] = f"{line.strip()[:60]!r}, {FAULTY}"
            continue
        start, end = _seconds(match.groups()[:4]), _seconds(match.groups()[4:])
        if end <= start:
            problems[index] = f"{line.strip()[:60]!r} ends before it begins"
            continue
        words = _words_below(lines, index)
        is_repetition = len(words) > 1 or end - start < FLASH  # people do say a word twice
        fresh = words[1:] if words and words[0] == last_line and is_repetition else words
        last_line = words[-1] if words else last_line
        if text := plain_text(" ".join(fresh)):
            cues.append(Cue(start, end, text))
    if not cues and not problems:
        problems[0] = f"no subtitles in it, {FAULTY}"
    return cues


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = (part or "0" for part in parts)
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds) + float(f"0.{fraction}")


def _words_below(lines: Sequence[str], index: int) -> list[str]:
    """Return the text lines of the subtitle with its times in line `index`."""
    words: list[str] = []
    last = index + 1
    while last < len(lines) and lines[last].strip() and "-->" not in lines[last]:
        words.append(TURN.sub("", html.unescape(TAG.sub("", lines[last])).strip(), 1))
        last += 1
    if words and last < len(lines) and "-->" in lines[last] and words[-1].isdecimal():
        words.pop()  # the number of the next subtitle, without a blank line between them
    return [line for line in words if line]


def parse_labels(lines: Sequence[str], problems: Problems) -> Timed | None:
    """Parse the labels of Audacity, HTK or Festival, one a line. None if most lines are none."""
    after = next((number for number, line in enumerate(lines) if line.strip() == "#"), -1) + 1  # Festival's heading
    numbered = [(number, line) for number, line in enumerate(lines) if line.strip() and number >= after]
    numbered = [pair for pair in numbered if not pair[1].startswith("\\")]  # Audacity's frequencies of the label above
    parsers: list[tuple[Callable[[str, float], Interval | None], str]] = [
        (_audacity_label, AUDACITY),
        (_htk_label, "HTK labels"),
        *([(_end_label, "Festival labels")] if after else []),
    ]
    for parse, kind in parsers:
        found: dict[int, Interval] = {}
        end = 0.0
        for number, line in numbered:
            if label := parse(line, end):
                found[number], end = label, label[1]
        if len(found) > MOST * len(numbered):
            for number, line in numbered:
                if number not in found:
                    problems[number] = (
                        f"{shorten(line.strip(), 60)!r}, expected start, end and text, as in the other lines"
                    )
                elif found[number][1] < found[number][0]:
                    problems[number] = f"{shorten(line.strip(), 60)!r} ends before it begins"
            return _of_intervals(list(found.values()), kind, "", problems)
    return None


def _audacity_label(line: str, _: float) -> Interval | None:
    match = LABEL.fullmatch(line) or SPACED_LABEL.fullmatch(line)
    if not match or not re.search(r"[.,]", match[1] + match[2]):
        return None
    return float(match[1].replace(",", ".")), float(match[2].replace(",", ".")), match[3] or ""


def _htk_label(line: str, _: float) -> Interval | None:
    match = HTK_LABEL.fullmatch(line)
    is_label = match and (int(match[2]) >= SHORTEST_HTK or int(match[1]) > int(match[2]))
    return (int(match[1]) / HTK_UNITS, int(match[2]) / HTK_UNITS, match[3]) if match and is_label else None


def _end_label(line: str, earlier: float) -> Interval | None:
    match = END_LABEL.fullmatch(line)
    return (earlier, float(match[1]), match[2]) if match else None


def _of_intervals(intervals: Sequence[Interval], kind: str, note: str, problems: Problems) -> Timed:
    """Return the cues of labels: words become cues from pause to pause; phones are a problem."""
    labels = [(start, end, plain_text(text)) for start, end, text in intervals]
    spoken = [label for label in labels if label[2] and label[2].lower() not in PAUSES]
    if not spoken:
        problems.setdefault(0, "no words in it")
    elif _are_phones([text for _, _, text in spoken]):
        problems.setdefault(0, f"its labels are sounds, such as {spoken[0][2]!r}, expected words")
    are_words = kind != AUDACITY and len(spoken) > 1 and all(" " not in text for _, _, text in spoken)
    if are_words and spoken[0][1] > spoken[0][0]:
        return in_order([Cue(*phrase) for phrase in _join_words(spoken)], kind, note)
    return in_order([Cue(*label) for label in spoken], kind, note)


def _are_phones(labels: Sequence[str]) -> bool:
    """Return True for labels of about two letters in Latin script, or of HTS's kind, such as x^sil-dh+ax=k."""
    letters = [sum(character.isalpha() and character.isascii() for character in text) for text in labels]
    is_latin = 2 * sum(letters) > sum(map(len, labels))
    contexts = sum(bool(re.search(r"\S-\S+\+\S", text)) for text in labels)
    return 2 * contexts > len(labels) or (len(labels) > 3 and is_latin and sum(letters) < PHONE_LETTERS * len(labels))


def _join_words(words: Sequence[Interval]) -> Iterator[Interval]:
    start, end, texts = words[0][0], words[0][1], [words[0][2]]
    for word in words[1:]:
        if word[0] - end > GAP:
            yield start, end, " ".join(texts)
            start, texts = word[0], []
        end = word[1]
        texts.append(word[2])
    yield start, end, " ".join(texts)


def parse_textgrid(content: str, problems: Problems) -> Timed:
    """Parse a TextGrid in Praat's long or short form: of the tiers with nearly all words, the one with the longest labels."""
    try:
        tiers = _read_tiers(content)
    except (ValueError, IndexError) as error:
        problems[0] = f"no TextGrid in Praat's text form, or cut short ({error or 'unknown'})"
        return Timed([], "TextGrid")
    texts = {name: [text for _, _, text in tier if text and text.lower() not in PAUSES] for name, tier in tiers.items()}
    usable = [name for name in tiers if texts[name] and not PHONES.search(name) and not _are_phones(texts[name])]
    if not usable:
        problems[0] = f"no tier of words, only {', '.join(tiers) or 'none'}"
        return Timed([], "TextGrid")
    letters = {name: sum(map(len, texts[name])) for name in usable}
    full = [name for name, count in letters.items() if count >= NEARLY_ALL * max(letters.values())]
    chosen = min(full, key=lambda name: len(texts[name]))
    others = [name for name in tiers if name != chosen]
    note = f"tier {chosen!r}" + (f", not {', '.join(others)}" if others else "")
    return _of_intervals(tiers[chosen], "intervals", note, problems)


def _read_tiers(content: str) -> dict[str, list[Interval]]:
    """Return the labels of each tier. Raises ValueError or IndexError for anything but a TextGrid."""
    found = list(TOKEN.finditer(content))
    tokens = [match[1].replace('""', '"') if match[1] is not None else match[2] or float(match[3]) for match in found]
    if tokens[:2] != ["ooTextFile", "TextGrid"]:
        raise ValueError("expected its heading, ooTextFile and TextGrid")
    place, tiers = 6, {}
    for number in range(_count(tokens[5]) if tokens[4] == "exists" else 0):
        is_interval, name, size = tokens[place] == "IntervalTier", str(tokens[place + 1]), _count(tokens[place + 4])
        width = 3 if is_interval else 2
        cells, place = tokens[place + 5 : place + 5 + width * size], place + 5 + width * size
        if len(cells) < width * size:
            raise ValueError(f"tier {name!r} has {len(cells) // width} of its {size} labels")
        rows = [cells[first : first + width] for first in range(0, len(cells), width)]
        tiers[name if name not in tiers else f"{name} {number + 1}"] = [
            (float(row[0]), float(row[-2]), str(row[-1]).strip()) for row in rows
        ]
    return tiers


def _count(token: object) -> int:
    if not isinstance(token, float) or not 0 <= token < 1e9:
        raise ValueError(f"{token!r}, expected a number of tiers or labels")
    return int(token)


def parse_segments(content: str, problems: Problems) -> Timed | None:
    """Parse the segments of Whisper, whisperX, whisper.cpp, Vosk or aeneas. None for other JSON."""
    try:
        data = parse_json(content)
    except ValueError as error:
        problems[0] = f"no JSON ({error})"
        return None
    found = data if isinstance(data, list) else None
    if isinstance(data, Mapping):
        found = next((data[key] for key in SEGMENTS if isinstance(data.get(key), list) and data[key]), None)
    if not found or not all(isinstance(item, Mapping) for item in found):
        return None
    intervals = [_segment(item) for item in found]
    known = [interval for interval in intervals if interval]
    if not known:
        return None
    missing = len(intervals) - len(known)
    return _of_intervals(known, "segments", f"{missing} without times left out" if missing else "", problems)


def _segment(item: Mapping[str, Any]) -> Interval | None:
    offsets = item.get("offsets")
    scale = 1000.0 if isinstance(offsets, Mapping) else 1.0  # whisper.cpp counts milliseconds
    times = offsets if isinstance(offsets, Mapping) else item
    text = next((item[key] for key in ("text", "lines", "word", "transcript") if key in item), None)
    try:
        start = next(float(times[key]) for key in ("start", "begin", "from") if key in times)
        end = next(float(times[key]) for key in ("end", "to") if key in times)
    except (TypeError, ValueError, StopIteration):
        return None
    if not (math.isfinite(start) and math.isfinite(end) and 0 <= start <= end):
        return None
    words = " ".join(map(str, text)) if isinstance(text, list) else str(text or "")
    return start / scale, end / scale, TAG.sub("", words)


def parse_rows(lines: Sequence[str], problems: Problems) -> Timed:
    """Parse rows with the columns start, end and text, as Whisper writes them: in milliseconds unless a time has decimals."""
    first = next(line for line in lines if line.strip())
    delimiter = next(sign for sign in "\t;," if sign in first)
    cells = read_cells(lines, problems, delimiter)
    heading, *rows = cells.values()
    names = [name.lower() for name in heading]
    columns = [names.index(name) for name in ("start", "end", "text")]
    found: list[Interval] = []
    for number, row in list(cells.items())[1:]:
        try:
            start, end, text = (row[column] for column in columns)
            found.append((float(start), float(end), text))
        except (ValueError, IndexError):
            problems[number - 1] = f"{shorten(delimiter.join(row), 60)!r}, expected start, end and text"
    decimals = any("." in row[column] for row in rows for column in columns[:2] if column < len(row))
    scale = 1.0 if decimals else 1000.0
    return _of_intervals([(start / scale, end / scale, text) for start, end, text in found], "segments", "", problems)
