"""The review of clips: clips.tsv, a table that people edit, and their edits."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from common.errors import DataError, join_problems
from common.files import decode_lines, locate_problems, parse_json, write_text
from common.progress import counted
from studio.project import Project

YES, NO = "yes", "no"
EDITABLE = ("use", "text")
ANSWERS = {YES: YES, "y": YES, "true": YES, "1": YES, "x": YES, NO: NO, "n": NO, "false": NO, "0": NO, "": NO}


class ClipRow(NamedTuple):
    """A clip in the review: its columns, as text."""

    use: str
    clip: str
    recording: str
    start: str
    end: str
    text: str
    source: str
    recognised: str
    words_wrong: str
    faults: str

    @property
    def key(self) -> str:
        """Identity of the clip: edits belong to these samples of this recording."""
        return f"{self.clip} {self.start} {self.end}"


COLUMNS = ClipRow._fields


def sort_worst_first(rows: Sequence[ClipRow]) -> list[ClipRow]:
    """Sort rows with faults first, by the share of wrong words, then by the number of faults, then by name."""

    def badness(row: ClipRow) -> tuple[bool, float, int, str]:
        wrong = float(row.words_wrong or 0)
        return not row.faults, -wrong, -row.faults.count(";"), row.clip

    return sorted(rows, key=badness)


def share(value: float) -> str:
    """Format a share of wrong words; "" for nan."""
    return "" if math.isnan(value) else f"{value:.3f}"


def write_review(path: Path, rows: Sequence[ClipRow]) -> None:
    """Write the table. Raises OSError."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows)
    write_text(path, text.getvalue())


def read_review(path: Path, proposals: Sequence[ClipRow]) -> dict[int, ClipRow]:
    """Read the edited table, whose columns may be reordered and whose cells a spreadsheet may have quoted.

    Only the columns of EDITABLE may differ from the proposals, the rows as the command wrote them. Returns the rows by line
    number. Raises one DataError for all bad lines.
    """
    rows, faults = parse_review(path)
    faults = faults | check_rows(rows, proposals)
    if faults:
        lines = [f"{path}:{line}: {problem}" for line in sorted(faults) for problem in faults[line]]
        raise DataError(join_problems(lines))
    return accept_rows(rows, proposals)


Faults = dict[int, list[str]]  # by line


def parse_review(path: Path) -> tuple[dict[int, ClipRow], Faults]:
    """Return the rows of a table by line, unchecked, and its bad lines. Raises DataError for a file that is no table."""
    reader, heading = _open_table(path)
    rows: dict[int, ClipRow] = {}
    faults: Faults = {}
    for line, cells in reader:
        if not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(heading):
            faults[line] = [f"{counted(len(cells), 'cell')}, expected {len(heading)}"]
            continue
        rows[line] = ClipRow(**{name: " ".join(cells[heading.index(name)].split()) for name in COLUMNS})
    return rows, faults


def check_rows(rows: Mapping[int, ClipRow], proposals: Sequence[ClipRow]) -> Faults:
    """Return the problems of rows by line."""
    known = {row.clip: row for row in proposals}
    seen: dict[str, int] = {}
    faults = {line: _problems_of(row, known, seen.setdefault(row.clip, line), line) for line, row in rows.items()}
    return {line: problems for line, problems in faults.items() if problems}


def accept_rows(rows: Mapping[int, ClipRow], proposals: Sequence[ClipRow]) -> dict[int, ClipRow]:
    """Return the proposals with the edited cells of rows: a spreadsheet may have reformatted the numbers."""
    known = {row.clip: row for row in proposals}
    return {
        line: known.get(row.clip, row)._replace(use=ANSWERS.get(row.use.lower(), NO), text=row.text)
        for line, row in rows.items()
    }


def _open_table(path: Path) -> tuple[Iterator[tuple[int, list[str]]], list[str]]:
    """Return a table's rows by line, and its heading. Raises DataError for bytes that are no text, or missing columns."""
    lines, problems = decode_lines(path, "expected the table that studio.prepare has written")
    if problems:
        raise DataError(join_problems([f"{place}; save it as UTF-8" for place in locate_problems(path, problems)]))
    reader = _cells(path, lines)
    heading = [name.strip() for name in next(reader, (1, []))[1]]
    if missing := ", ".join(name for name in COLUMNS if name not in heading):
        raise DataError(f"{path}:1: no column {missing}; expected the columns {', '.join(COLUMNS)}, divided by tabs")
    return reader, heading


def _cells(path: Path, lines: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the line number and the cells of each row. Raises DataError for a bad line."""
    reader = csv.reader([f"{line}\n" for line in lines], delimiter="\t")
    try:
        for cells in reader:
            yield reader.line_num, cells
    except csv.Error as error:  # a carriage return within a line, or a cell of 131,072 characters
        raise DataError(f"{path}:{reader.line_num}: {error}; save it as text divided by tabs") from None


def _problems_of(row: ClipRow, known: dict[str, ClipRow], first_line: int, line: int) -> list[str]:
    problems = []
    if row.use.lower() not in ANSWERS:
        problems.append(f"use: {row.use!r}, expected {YES} or {NO}")
    if first_line != line:
        problems.append(f"clip: {row.clip} is already in line {first_line}")
    if "|" in row.text:
        problems.append("text: '|' in it, which separates the columns of a filelist")
    if ANSWERS.get(row.use.lower()) == YES and not row.text:
        problems.append(f"text: empty; write the words of the clip, or set the column use to {NO}")
    if row.clip not in known:
        return [*problems, f"clip: {row.clip!r} is not one of this project's"]
    proposal = known[row.clip]
    for name in COLUMNS:
        found, expected = getattr(row, name), " ".join(getattr(proposal, name).split())
        if name not in EDITABLE and found != expected and not _is_same_number(found, expected):
            problems.append(f"{name}: {found!r}, expected {expected!r}; only {' and '.join(EDITABLE)} may be edited")
    return problems


def _is_same_number(one: str, other: str) -> bool:
    try:
        return float(one.replace(",", ".")) == float(other)
    except ValueError:
        return False


def store_proposals(path: Path, rows: Sequence[ClipRow]) -> None:
    """Store the rows before edits, so that a later run finds the edits. Raises OSError."""
    write_text(path, "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows))


def read_proposals(path: Path) -> list[ClipRow]:
    """Read stored rows; none if the file is missing."""
    try:
        return [ClipRow(*parse_json(line)) for line in path.read_bytes().splitlines()]
    except (OSError, ValueError, TypeError, IndexError):
        return []


class CarriedEdits(NamedTuple):
    """Rows with the edits of an earlier table, the number of edited rows, and the edited clips that are gone."""

    rows: list[ClipRow]
    n_edited: int
    lost: list[str]


def carry_edits(rows: Sequence[ClipRow], edited: Sequence[ClipRow], proposals: Sequence[ClipRow]) -> CarriedEdits:
    """Copy the cells that people changed, between `proposals` and `edited`, the table before this run, into its new rows."""
    originals = {row.key: row for row in proposals}
    new = {row.key: row for row in rows}
    lost, n_edited = [], 0
    for row in edited:
        original = originals.get(row.key)
        if original is None:
            continue
        pairs = {name: (getattr(row, name), " ".join(getattr(original, name).split())) for name in EDITABLE}
        changes = {name: new_cell for name, (new_cell, old_cell) in pairs.items() if new_cell != old_cell}
        if changes and row.key in new:
            new[row.key] = new[row.key]._replace(**changes)
            n_edited += 1
        elif changes:
            lost.append(row.clip)
    return CarriedEdits(list(new.values()), n_edited, lost)


def renew(project: Project, rows: Sequence[ClipRow]) -> CarriedEdits:
    """Write the table of new rows, the worst first, with the edits of an earlier run's, and the rows before edits.

    Raises DataError for an earlier table with bad lines, OSError.
    """
    earlier = read_proposals(project.proposals)
    edited = read_review(project.review, earlier).values() if earlier and project.review.is_file() else ()
    edits = carry_edits(rows, list(edited), earlier)
    write_review(project.review, sort_worst_first(edits.rows))
    store_proposals(project.proposals, rows)
    return edits
