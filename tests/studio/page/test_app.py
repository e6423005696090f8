"""The page without a browser: contrasts of WCAG 2 at level AA, its messages, and events that take turns."""

import asyncio
import re
from pathlib import Path

import pytest

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")

from studio.jobs.jobs import Jobs
from studio.page.app import make_page, make_theme
from studio.page.events import Context
from studio.wording import without_folders
from tests.recipe import ROOT

NAMES = {"white": "#ffffff", "black": "#000000"}
PAIRS = (
    ("body-text-color", "background-fill-primary"),
    ("body-text-color-subdued", "background-fill-primary"),
    ("block-info-text-color", "block-background-fill"),
    ("block-title-text-color", "block-background-fill"),
    ("input-placeholder-color", "input-background-fill"),
    ("color-accent", "background-fill-primary"),  # the chosen tab
    ("button-primary-text-color", "button-primary-background-fill"),
    ("button-primary-text-color", "button-primary-background-fill-hover"),
    ("button-secondary-text-color", "button-secondary-background-fill"),
)


def variables_of(sheet: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w-]+): ([^;]+);", sheet))


def colour(name: str, variables: dict[str, str]) -> str:
    """Follow the variables of a style sheet to a colour, as #rrggbb."""
    value = variables[name]
    if found := re.fullmatch(r"var\(--([\w-]+)\)", value):
        return colour(found[1], variables)
    return NAMES.get(value, value)


def luminance(hex_colour: str) -> float:
    """The relative luminance of WCAG 2."""
    parts = [int(hex_colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", ["light", "dark"])
@pytest.mark.parametrize(("text", "background"), PAIRS)
def test_texts_have_enough_contrast(mode: str, text: str, background: str) -> None:
    assert contrast("#ffffff", "#3b82f6") == pytest.approx(3.67, abs=0.01)  # as axe-core gives it
    light, dark = make_theme()._get_theme_css().split(".dark", 1)
    variables = variables_of(light) | (variables_of(dark) if mode == "dark" else {})
    assert contrast(colour(text, variables), colour(background, variables)) >= 4.5


def test_messages_contain_no_folder_of_the_machine(tmp_path: Path) -> None:
    projects = tmp_path / "studio"
    messages = {
        f"{projects}/mine/plan.json: no such file": "mine/plan.json: no such file",
        f"{ROOT}/voice/waveglow.safetensors: damaged": "voice/waveglow.safetensors: damaged",
        "/home/someone/a.pt: cut short; beside it: /home/b.pt": "a.pt: cut short; beside it: b.pt",
        "x 1/2 and https://example.org/a": "x 1/2 and https://example.org/a",
        "a\x1b[2J": "a\\x1b[2J",
        f"run python -m studio.plan mine --projects {projects} first": "run python -m studio.plan mine first",
    }
    for message, expected in messages.items():
        assert without_folders(message, projects) == expected


def test_events_that_choose_a_project_take_turns(tmp_path: Path) -> None:
    """The choice as a page loads, computed before a project was made, could arrive after that project's own."""
    page = make_page(Context(tmp_path, True, Jobs(tmp_path)), asyncio.Event())
    events = [event for event in page.fns.values() if event.fn]
    changed = {event: [getattr(block, "elem_id", "") for block in event.outputs] for event in events}
    choosing = [event for event, names in changed.items() if "project" in names]
    assert len(choosing) >= 2
    assert {(event.concurrency_id, event.concurrency_limit) for event in choosing} == {("project", 1)}
