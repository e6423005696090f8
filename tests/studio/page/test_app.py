"""The choice of a project on the page: events that make it take turns, so that none undoes a later one."""

import asyncio
from pathlib import Path

import pytest

from studio.jobs.jobs import Jobs

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")

from studio.page.app import make_page
from studio.page.context import Context


def test_events_that_choose_a_project_take_turns(tmp_path: Path) -> None:
    """The choice as a page loads, computed before a project was made, could arrive after that project's own."""
    page = make_page(Context(tmp_path, True, Jobs(tmp_path)), asyncio.Event())
    events = [event for event in page.fns.values() if event.fn]
    changed = {event: [getattr(block, "elem_id", "") for block in event.outputs] for event in events}
    choosing = [event for event, names in changed.items() if "project" in names]
    assert len(choosing) >= 2
    assert {(event.concurrency_id, event.concurrency_limit) for event in choosing} == {("project", 1)}
