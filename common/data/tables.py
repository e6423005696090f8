"""Tables of recordings and their texts, as people and corpora write them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from common.data.text_files import plain_text, read_text
from common.errors import shorten
from common.files import parse_json

TABLES = (".csv", ".tsv", ".jsonl", ".json", ".data", ".txt")
SIGNS = "|\t;,"  # that divide columns
CONSISTENT = 0.9  # share of the lines that have such a sign
FILE_HEADINGS = (
    *("file", "filename", "file_name", "path", "audio", "audio_path", "audio_file", "audio_filepath", "wav", "clip"),
    *("recording", "id", "name"),
)
TEXT_HEADINGS = ("normalized_text", "normalised_text", "text", "sentence", "transcript", "transcription")
ID_WORDS, TEXT_WORDS = {"file", "filename", "path", "audio", "wav"}, {"text", "sentence", "transcript", "transcription"}
SHOWN = 40  # characters of a cell in a message
LONGEST_NAME = 3  # words of a heading
FAR_SHORTER = 0.4  # times the characters of the longest column
WANTED = "expected rows id|text, or headings such as file and text"
PROMPT = re.compile(r'\s*\(\s*(\S+)\s+"(.*)"\s*\)\s*')  # Festival's, as in txt.done.data


class Table(NamedTuple):
    """Rows (identifier, text) by line from 1, the problems of others by index from 0, and a remark, "" without any.

    `may_be_prose` if only spaces or commas divide columns without a heading.
    """

    rows: dict[int, tuple[str, str]]
    problems: dict[int, str]
    note: str
    may_be_prose: bool


def read_table(path: Path) -> Table:
    """Read rows `id|text`, `id|raw text|normalised text`, columns with a heading, prompts of Festival, or JSON.

    Columns are divided by | tabs ; or commas, or else by the first space. Raises DataError for a file that is no text.
    """
    lines, encoding = (file := read_text(path)).lines, file.note
    problems: dict[int, str] = {}
    prompts = {number: match for number, line in enumerate(lines, 1) if (match := PROMPT.fullmatch(line))}
    if path.suffix.lower() in (".json", ".jsonl"):
        cells = _read_json(lines, path.suffix.lower() == ".jsonl", problems)
    elif prompts:
        cells = {number: [match[1], match[2]] for number, match in prompts.items()}
    else:
        cells = read_cells(lines, problems, _delimiter(lines))
    columns, note, misplaced = _choose_columns(cells)
    rows = {}
    usual = max(3, Counter(map(len, cells.values())).most_common(1)[0][0]) if cells else 0
    for number, row in cells.items():
        if number in misplaced:
            problems[number - 1] = misplaced[number]
        elif len(row) <= max(usual, max(columns[1])) and (fields := _fields(row, columns)):
            rows[number] = fields
        else:
            problems[number - 1] = f"{shorten('|'.join(row), 60)!r}, {WANTED}"
    return Table(rows, problems, note + encoding, may_be_prose=_delimiter(lines) in ",; " and not note and not prompts)


def read_cells(lines: Sequence[str], problems: dict[int, str], delimiter: str) -> dict[int, list[str]]:
    """Return the cells of the rows by line from 1, and add the problem of a line that ends them; blank rows are left out."""
    if delimiter == " ":
        return {number: line.split(None, 1) for number, line in enumerate(lines, 1) if line.strip()}
    # quotation marks of a text are part of it, unless commas divide columns
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if delimiter in ",;" else csv.QUOTE_NONE
    sheet = (f"{line}\n" for line in lines)
    reader = csv.reader(sheet, delimiter=delimiter, skipinitialspace=True, quoting=quoting)
    cells: dict[int, list[str]] = {}
    try:
        for row in reader:
            if any(cell.strip() for cell in row):
                cells[reader.line_num] = [cell.strip() for cell in row]
    except csv.Error as error:
        problems[reader.line_num - 1] = str(error)
    return cells


def _delimiter(lines: Sequence[str]) -> str:
    """Return the first sign that nearly all lines have, else the one of the first line, else a space."""
    full = [line for line in lines if line.strip()]
    for sign in SIGNS:
        if full and sum(sign in line for line in full) >= CONSISTENT * len(full):
            return sign
    counts = {sign: full[0].count(sign) if full else 0 for sign in SIGNS}
    if not any(counts.values()):
        return " "
    return max(counts, key=lambda sign: (sign in "|\t" and counts[sign] > 0, counts[sign]))


def _read_json(lines: Sequence[str], is_lines: bool, problems: dict[int, str]) -> dict[int, list[str]]:
    """Return rows of {file: text}, or of objects with one set of keys, below those as a heading: by line where each is one."""
    documents = (
        {number: line for number, line in enumerate(lines, 1) if line.strip()} if is_lines else {1: "\n".join(lines)}
    )
    found = {}
    for number, document in documents.items():
        try:
            found[number] = parse_json(document)
        except ValueError as error:
            problems[number - 1] = f"no JSON ({error})"
            return {}
    data = list(found.values()) if is_lines else found[1]
    if isinstance(data, Mapping) and all(isinstance(text, str) for text in data.values()):
        return {number: [str(key), str(text)] for number, (key, text) in enumerate(data.items(), 1)}
    if not isinstance(data, list) or not data or not all(isinstance(item, Mapping) for item in data):
        return {}
    heading = list(data[0])
    rows = [[str(item.get(key, "")) for key in heading] for item in data]
    numbers = found if is_lines else range(1, len(rows) + 1)
    return {0: list(map(str, heading)), **dict(zip(numbers, rows))}


def _choose_columns(cells: dict[int, list[str]]) -> tuple[tuple[int, list[int]], str, dict[int, str]]:
    """Return the columns of the identifier and of the text, the best first, a remark, and the problems of rows by line.

    A row with the names of columns is taken out of the cells.
    """
    first = next(iter(cells), 0)
    if columns := _columns(heading := cells.get(first, [])):
        del cells[first]
        return columns, f"; columns {heading[columns[0]]!r} and {heading[columns[1][0]]!r}", {}
    fitting = _text_columns(list(cells.values()))
    text, problems = fitting[-1], {}
    if fitting[0] == 1 < text:  # a raw text, and its normalised form
        both = {line: (row[1], row[text]) for line, row in cells.items() if len(row) > text and row[1] and row[text]}
        problems = misplaced_columns(both)
    has_more = text > 1 or any(len(row) > 2 for row in cells.values())
    return (0, [text, 1]), f"; texts from column {text + 1}" if has_more else "", problems


def _columns(heading: Sequence[str]) -> tuple[int, list[int]] | None:
    """Return the columns of the identifier and of the text, the best first, if a row is a heading."""
    names = [re.sub(r"[\W_]+", "_", name.casefold()).strip("_") for name in heading]
    files = [names.index(name) for name in FILE_HEADINGS if name in names]
    texts = [names.index(name) for name in TEXT_HEADINGS if name in names]
    words = [set(name.split("_")) for name in names]
    files += [place for place, found in enumerate(words) if found & ID_WORDS and not found & TEXT_WORDS]
    texts += [place for place, found in enumerate(words) if found & TEXT_WORDS and place not in files[:1]]
    if not files or not texts:
        return None
    are_names = all(
        len(words[place]) <= LONGEST_NAME for place in (files[0], texts[0])
    )  # a text may be about a text, too
    return (files[0], texts) if are_names else None


def _fields(row: Sequence[str], columns: tuple[int, Sequence[int]]) -> tuple[str, str] | None:
    """Return the identifier and the text of a row, or None."""
    file, texts = columns
    if max(file, min(texts)) >= len(row) or not row[file]:
        return None
    text = next((row[place] for place in texts if place < len(row) and row[place]), "")
    return row[file], plain_text(text)


def _text_columns(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns that may be texts in rows without a heading: none that repeats or is far shorter than another.

    LJSpeech's last column is the normalised text; elsewhere it is a speaker, a language, an emotion or a length.
    """
    columns = range(1, max(map(len, rows), default=2))
    cells = {place: [row[place] for row in rows if place < len(row) and row[place]] for place in columns}
    lengths = {place: sum(map(len, texts)) for place, texts in cells.items()}
    longest = max(lengths.values(), default=0)
    is_various = {place: len(texts) < 3 or 2 * len(set(texts)) > len(texts) for place, texts in cells.items()}
    return [place for place in columns if lengths[place] >= FAR_SHORTER * longest and is_various[place]] or [1]


def misplaced_columns(rows: Mapping[int, tuple[str, str]]) -> dict[int, str]:
    """Return the problems of rows (text, third column) by their key, where the third column is no form of the text.

    Some corpora have a speaker, a language, an emotion or a length there. Such a value has no word of the text, and it has no
    letters, stands beside several texts, or is far shorter than the text.
    """
    texts_of: dict[str, set[str]] = {}
    for text, third in rows.values():
        texts_of.setdefault(third, set()).add(text)
    problems = {}
    for key, (text, third) in rows.items():
        words, others = _words(text), _words(third)
        if words and not words & others and (not others or len(texts_of[third]) > 1 or 2 * len(third) <= len(text)):
            problems[key] = (
                f"{shorten(third, SHOWN)!r} in the third column, expected the normalised text of {shorten(text, SHOWN)!r}: "
                "if it is a speaker, a language, an emotion or a length, remove the column"
            )
    return problems


def _words(text: str) -> set[str]:
    return set(re.findall(r"[^\W\d_]+", text.casefold()))
