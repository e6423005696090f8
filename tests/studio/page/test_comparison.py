"""Blind comparisons: random order, a table of votes, counts and probabilities against hand-computed cases."""

from __future__ import annotations

import random
import threading
from datetime import datetime, timezone
from math import comb
from pathlib import Path

import pytest
import torch

from common.errors import DataError
from common.inference.stages import Speech
from studio.comparison import (
    Pair,
    Row,
    Vote,
    add_vote,
    describe_result,
    missing_votes,
    next_text,
    probability,
    read_votes,
    results,
    shuffle,
    table_path,
    validation_texts,
)
from studio.page.samples import Sample
from studio.project import Project
from tests.studio.projects import make_project

SPEECH = Speech(torch.zeros(256), 22050, torch.zeros(10, 1), torch.zeros(1, 1), True, 1)
NOON = datetime(2026, 11, 24, 12, tzinfo=timezone.utc)


def sample(name: str) -> Sample:
    return Sample(SPEECH, [SPEECH], [["a"]], name, 1, 0.0, 0.0)


def pair(tmp_path: Path, left: str = "one", right: str = "other", text: str = "Two.") -> Pair:
    project = Project(name="mine", projects=tmp_path)
    project.root.mkdir(exist_ok=True)
    return Pair(project=project, text=text, left=left, right=right)


def test_the_order_is_random_and_repeats_with_its_seed() -> None:
    def orders(seed: int) -> list[str]:
        order = random.Random(seed)
        return [shuffle(sample("one"), sample("other"), order)[0].name for _ in range(200)]

    assert orders(1) == orders(1) != orders(2)
    assert 60 < orders(1).count("one") < 140


def test_a_voice_is_not_compared_with_itself() -> None:
    with pytest.raises(DataError, match="both sides are one; choose two voices that differ"):
        shuffle(sample("one"), sample("one"), random.Random(1))


def test_a_vote_is_a_row(tmp_path: Path) -> None:
    given = pair(tmp_path, text='A "quoted"\ttext,\nin two lines.')
    add_vote(given, Vote.RIGHT, NOON)
    add_vote(pair(tmp_path), Vote.TIE, NOON)
    content = table_path(given.project).read_text().splitlines()
    assert content[0] == "time\ttext\tleft\tright\tvote" and len(content) == 3
    first, second = read_votes(table_path(given.project))
    assert datetime.fromisoformat(first.time) == NOON
    assert first[1:] == ('A "quoted" text, in two lines.', "one", "other", "right")
    assert second.vote == "none"


def test_votes_of_several_pages_are_all_written(tmp_path: Path) -> None:
    given = pair(tmp_path)
    threads = [threading.Thread(target=add_vote, args=(given, Vote.LEFT)) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read_votes(table_path(given.project))) == 16


def test_damaged_tables_are_named_by_line_and_stay_as_they_are(tmp_path: Path) -> None:
    given = pair(tmp_path)
    path = table_path(given.project)
    path.write_text("time\ttext\tleft\tright\tvote\nnow\tTwo.\ta\tb\tperhaps\nnow\tTwo.\n")
    with pytest.raises(DataError) as caught:
        add_vote(given, Vote.LEFT)
    assert f"{path}:2: vote: 'perhaps', expected one of left, right, none" in str(caught.value)
    assert f"{path}:3: 2 cells, expected 5" in str(caught.value)
    assert "perhaps" in path.read_text()


def test_results_are_counted_by_pair_whatever_the_side(tmp_path: Path) -> None:
    votes = [("a", "b", "left"), ("b", "a", "right"), ("a", "b", "right"), ("b", "a", "none"), ("a", "c", "right")]
    first, second = results([Row("now", "Two.", *vote) for vote in votes])
    assert (first.first, first.second, first.first_wins, first.second_wins, first.ties) == ("a", "b", 2, 1, 1)
    assert first.probability == pytest.approx(1.0)  # two of three: 2 (3 + 1) / 8
    assert (second.first, second.second, second.first_wins, second.second_wins, second.ties) == ("a", "c", 0, 1, 0)
    assert results([]) == []


@pytest.mark.parametrize(("wins", "losses"), [(6, 0), (5, 0), (7, 1), (9, 2), (2, 12), (0, 0)])
def test_the_probability_is_that_of_coins(wins: int, losses: int) -> None:
    total, extreme = wins + losses, max(wins, losses)
    tail = sum(comb(total, count) for count in range(extreme, total + 1)) / 2**total
    assert probability(wins, losses) == pytest.approx(min(1.0, 2 * tail))


def test_a_result_says_how_many_more_votes_it_takes() -> None:
    assert missing_votes(0, 0) == 6  # 2 / 2^6 = 0.031, and 2 / 2^5 = 0.063
    assert missing_votes(5, 0) == 1
    assert missing_votes(1, 7) == 1  # 2 (1 + 9) / 2^9 = 0.039, and 2 (1 + 8) / 2^8 = 0.070
    assert describe_result("a", "b", 0, 6) == "Listeners prefer b."
    assert describe_result("a", "b", 5, 0) == "Not clear yet: it takes at least 1 more vote, all for a."
    assert describe_result("a", "b", 0, 0) == "Not clear yet: it takes at least 6 more votes, all for one voice."


def test_the_next_text_goes_through_the_validation_texts(tmp_path: Path) -> None:
    texts = validation_texts(make_project(Project(name="mine", projects=tmp_path)))
    assert len(texts) == 2
    assert [next_text(texts, text) for text in ("another", *texts)] == [texts[0], texts[1], texts[0]]
    with pytest.raises(DataError, match=r"run python -m studio\.prepare none --projects \S+ first"):
        validation_texts(Project(name="none", projects=tmp_path))


def test_links_out_of_the_project_are_refused(tmp_path: Path) -> None:
    (tmp_path / "projects").mkdir()
    given = pair(tmp_path / "projects")
    (tmp_path / "secret.tsv").write_text("a\tb\tc\td\tsecret\n")
    (given.project.root / "comparisons.tsv").symlink_to(tmp_path / "secret.tsv")
    with pytest.raises(DataError) as caught:
        add_vote(given, Vote.LEFT)
    assert "secret" not in str(caught.value)
