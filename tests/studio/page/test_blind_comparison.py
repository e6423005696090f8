"""The tab Compare without a browser: the page's updates have no name before the vote, and the order is random."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from common.audio.audio_processing import to_pcm
from studio.comparison import Row, read_votes, table_path
from studio.jobs.jobs import Jobs
from studio.project import Project
from tests.studio.projects import add_spoken_voice, embedded_name, make_project

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")
import gradio as gr
from gradio.state_holder import SessionState

from studio.page.compare_tab import Comparer, add_compare_tab
from studio.page.context import Context
from studio.page.samples import Request

pytestmark = pytest.mark.slow

TEXT = "It is noon."
SIDES = ("voice", "griffin-lim", "embedded", "griffin-lim")
NAMES = ("the finished voice (epoch 3) with griffin-lim", embedded_name())


@pytest.fixture(scope="module")
def context(tmp_path_factory) -> Context:
    projects = tmp_path_factory.mktemp("projects")
    add_spoken_voice(make_project(Project(name="mine", projects=projects)))
    context = Context(projects, True, Jobs(projects))
    yield context
    context.speaker.close()


def project_of(context: Context) -> Project:
    return Project(name="mine", projects=context.projects)


def compare(comparer: Comparer, text: str = TEXT, seed: str = "4") -> list[Any]:
    """The values of the last update of a comparison."""
    return list(comparer.compare("mine", text, seed, *SIDES))[-1]


def audio_of(context: Context, voice: str) -> np.ndarray:
    sample = context.speaker.speak(
        Request(project=project_of(context), text=TEXT, voice=voice, vocoder="griffin-lim", seed=4)
    )
    return to_pcm(sample.speech.audio)


def test_both_sides_have_the_text_and_the_seed_in_random_order(context: Context) -> None:
    expected = dict(zip(NAMES, (audio_of(context, "voice"), audio_of(context, "embedded")), strict=True))
    comparer, lefts = Comparer(context, random.Random(1)), []
    for _ in range(6):
        pair, _, left, right, *_ = compare(comparer)
        lefts.append(pair.left)
        assert {pair.left, pair.right} == set(NAMES)
        np.testing.assert_array_equal(left[1], expected[pair.left])
        np.testing.assert_array_equal(right[1], expected[pair.right])
    order = random.Random(1)
    assert lefts == [NAMES[0] if order.random() < 0.5 else NAMES[1] for _ in range(6)]
    assert len(set(lefts)) == 2


def test_no_name_reaches_the_browser_before_the_vote(context: Context, tmp_path: Path, monkeypatch) -> None:
    """The updates as Gradio sends them, the events of the real tab included."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    with gr.Blocks() as page, gr.Tab("Compare"):
        add_compare_tab(context, gr.Dropdown(["mine"], value="mine"), random.Random(2))
    events = {event.name: event for event in page.fns.values()}
    (button,) = [block for block in page.blocks.values() if block.elem_id == "vote-right"]
    (vote,) = [event for event in page.fns.values() if event.targets == [(button._id, "click")]]
    state = SessionState(page)

    async def call() -> tuple[list[str], str]:
        await page.process_api(events["fill_fields"], ["mine"], state)
        before, result = [], {"is_generating": True, "iterator": None}
        while result["is_generating"]:
            values = ["mine", TEXT, "4", *SIDES]
            result = await page.process_api(events["compare"], values, state, iterator=result["iterator"])
            before.append(json.dumps(result["data"], default=str))
        after = await page.process_api(vote, [None], state)
        return before, json.dumps(after["data"], default=str)

    before, after = asyncio.run(call())
    assert any("Listen to A and B" in update for update in before)
    for words in ("finished", "embedded", "griffin", "epoch"):
        assert not any(words in update for update in before)
        assert words in after


def test_a_vote_is_written_once_and_then_the_names_are_shown(context: Context) -> None:
    from studio.comparison import Vote

    table_path(project_of(context)).unlink(missing_ok=True)
    comparer = Comparer(context, random.Random(3))
    pair = compare(comparer)[0]
    pair_after, message, table, *buttons = comparer.vote(pair, Vote.LEFT)
    assert pair_after is None and message == f"A was {pair.left}. B was {pair.right}."
    assert "at least 5 more votes, all for" in table and pair.left in table
    assert [button["interactive"] for button in buttons] == [False] * 3
    assert comparer.vote(pair_after, Vote.LEFT)[1] == "There is nothing to vote on yet."
    (row,) = read_votes(table_path(project_of(context)))
    assert row == Row(row.time, TEXT, pair.left, pair.right, "left")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("mine", " ", "", *SIDES), "text: empty, expected a sentence"),
        (("mine", TEXT, "many", *SIDES), "seed: 'many', expected a whole number from 0 to 4294967295, or nothing"),
        (("mine", TEXT, "", *SIDES[:2], *SIDES[:2]), f"both sides are {NAMES[0]}; choose two voices that differ"),
        (("mine", TEXT, "", "../voice", *SIDES[1:]), "this voice is gone"),
        ((None, TEXT, "", *SIDES), "no project is chosen"),
        (("../..", TEXT, "", *SIDES), "project '../..': expected"),
    ],
)
def test_mistakes_are_messages(context: Context, values: tuple, message: str) -> None:
    updates = []
    with pytest.raises(gr.Error) as caught:
        updates.extend(Comparer(context).compare(*values))
    assert message in caught.value.message and str(context.projects) not in caught.value.message


def test_a_damaged_table_is_named_without_folders(context: Context) -> None:
    path = table_path(project_of(context))
    path.write_text("no table\n")
    with pytest.raises(gr.Error) as caught:
        Comparer(context).results("mine")
    assert caught.value.message == "mine/comparisons.tsv:1: 1 cells, expected 5, divided by tabs"
    path.unlink()


def test_the_next_text_is_one_of_validation(context: Context) -> None:
    comparer = Comparer(context)
    first = comparer.next_text("mine", TEXT)
    assert comparer.next_text("mine", comparer.next_text("mine", first)) == first != comparer.next_text("mine", first)
