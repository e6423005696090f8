"""Blind comparisons of two voices: a random order, votes in PROJECT/comparisons.tsv, and results with their significance."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from common.data.filelist import read_filelist
from common.errors import DataError, join_problems
from common.files import atomic_write, decode_lines, locate_problems, lock_folder
from studio.page.samples import Sample
from studio.project import Project, check_inside

SIGNIFICANT = 0.05  # a result is clear below this probability of votes by chance


class Vote(Enum):
    """A listener's vote on the left sample, A, and the right one, B."""

    LEFT = "left"
    RIGHT = "right"
    TIE = "none"


class Row(NamedTuple):
    """A vote: its time (ISO 8601), the text, and the names of the voices on the left and on the right."""

    time: str
    text: str
    left: str
    right: str
    vote: str


@dataclass(frozen=True, kw_only=True)
class Pair:
    """The names of two voices that spoke a text, in the order in which a listener gets their samples."""

    project: Project
    text: str
    left: str
    right: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """The votes on two voices. `probability` is that of a difference as large, or larger, if both were equally good."""

    first: str
    second: str
    first_wins: int
    second_wins: int
    ties: int
    probability: float
    sentence: str


def shuffle(first: Sample, second: Sample, order: random.Random) -> tuple[Sample, Sample]:
    """Put two samples in random order. Raises DataError for two samples of one voice."""
    if first.name == second.name:
        raise DataError(f"both sides are {first.name}; choose two voices that differ")
    return (first, second) if order.random() < 0.5 else (second, first)


def add_vote(pair: Pair, vote: Vote, now: datetime | None = None) -> Row:
    """Append a vote to the project's table. Raises DataError where the table is damaged or cannot be written."""
    time = (now or datetime.now()).astimezone().isoformat(timespec="seconds")
    text, left, right = (" ".join(cell.split()) for cell in (pair.text, pair.left, pair.right))
    row = Row(time, text, left, right, vote.value)
    path = table_path(pair.project)
    try:
        with lock_folder(pair.project.root):
            rows = [*read_votes(path), row]
            table = io.StringIO(newline="")
            csv.writer(table, delimiter="\t", lineterminator="\n").writerows([Row._fields, *rows])
            with atomic_write(path) as file:
                file.write(table.getvalue().encode())
    except OSError as error:
        raise DataError(f"{path}: the vote cannot be written ({error.strerror})") from None
    return row


def table_path(project: Project) -> Path:
    """Return the path of the project's votes. Raises DataError for a link that leads out of the project."""
    return check_inside(project, project.root / "comparisons.tsv")


def read_votes(path: Path) -> list[Row]:
    """Read the votes; [] without a table. Raises one DataError for all lines that are no votes."""
    if not path.exists():
        return []
    lines, unreadable = decode_lines(path, "expected the table of votes")
    problems = locate_problems(path, unreadable)
    reader = csv.reader([f"{line}\n" for line in lines], delimiter="\t")
    rows, votes = [], [vote.value for vote in Vote]
    for number, cells in enumerate(reader, 1):
        if tuple(cells) == Row._fields or not any(cells):
            continue
        if len(cells) != len(Row._fields):
            problems.append(f"{path}:{number}: {len(cells)} cells, expected {len(Row._fields)}, divided by tabs")
        elif cells[-1] not in votes:
            problems.append(f"{path}:{number}: vote: {cells[-1]!r}, expected one of {', '.join(votes)}")
        else:
            rows.append(Row(*cells))
    if problems:
        raise DataError(join_problems(problems))
    return rows


def results(rows: Sequence[Row]) -> list[Result]:
    """Count the votes of each pair of voices, in the order of their first votes."""
    by_pair: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        first, second = sorted((row.left, row.right))
        by_pair.setdefault((first, second), []).append(row)
    return [_result(first, second, votes) for (first, second), votes in by_pair.items()]


def _result(first: str, second: str, rows: Sequence[Row]) -> Result:
    winners = [winner(row) for row in rows]
    wins = winners.count(first), winners.count(second)
    return Result(
        first=first,
        second=second,
        first_wins=wins[0],
        second_wins=wins[1],
        ties=winners.count(None),
        probability=probability(*wins),
        sentence=describe_result(first, second, *wins),
    )


def winner(row: Row) -> str | None:
    """Return the name of the voice that a vote prefers; None for a tie."""
    return {Vote.LEFT.value: row.left, Vote.RIGHT.value: row.right}.get(row.vote)


def probability(first_wins: int, second_wins: int) -> float:
    """Return the two-sided binomial probability of such votes, or clearer ones, if both voices were equally good.

    Ties are left out, as in the sign test.
    """
    from scipy.stats import binomtest  # takes a second to import

    total = first_wins + second_wins
    return float(binomtest(first_wins, total, 0.5).pvalue) if total else 1.0


def missing_votes(first_wins: int, second_wins: int) -> int:
    """Return the fewest further votes, all for the voice that leads, that make the result clear."""
    count = 0
    leader, other = max(first_wins, second_wins), min(first_wins, second_wins)
    while probability(leader + count, other) >= SIGNIFICANT:
        count += 1
    return count


def describe_result(first: str, second: str, first_wins: int, second_wins: int) -> str:
    """Say in a sentence if a result is clear, or how many more votes it takes at least."""
    missing = missing_votes(first_wins, second_wins)
    leader = "one voice" if first_wins == second_wins else first if first_wins > second_wins else second
    if not missing:
        return f"Listeners prefer {leader}."
    return f"Not clear yet: it takes at least {missing} more vote{'s' if missing > 1 else ''}, all for {leader}."


def validation_texts(project: Project) -> list[str]:
    """Return the validation texts of a project, each once. Raises DataError where it has no list yet."""
    rows = read_filelist(check_inside(project, project.require(project.validation_list, "studio.prepare")))
    return list(dict.fromkeys(row.text for row in rows))


def next_text(texts: Sequence[str], text: str) -> str:
    """Return the text after this one, or the first for another text or the last."""
    return texts[(texts.index(text) + 1) % len(texts)] if text in texts else texts[0]
