"""The guide of each step: what it found, whether that is enough, and the one next thing, in sentences."""

import json
import re

import pytest

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")

from studio.jobs.jobs import Job, State
from studio.page import guide
from studio.page.guide import write_guide
from studio.plan.file import NEED
from studio.prepare.review import ClipRow, write_review
from studio.project import Project
from studio.voice.verdict import UNDECIDED_ADVICE
from tests.studio.page.test_plan_tab import FIGURES
from tests.studio.projects import FLAGS, store_plan


def text_of(words: str) -> str:
    return re.sub(r"<[^>]*>", " ", words)


def add_clips(project: Project, used: float, left_out: float = 0.0) -> None:
    """Clips of 6 s: so many minutes in use, and others left out for a fault."""
    row = ClipRow(
        **(dict.fromkeys(ClipRow._fields, "") | {"start": "0", "end": "6", "text": "Two.", "recording": "a.wav"})
    )
    counts = [("yes", round(10 * used)), ("no", round(10 * left_out))]
    rows = [row._replace(clip=f"{use}{i}", use=use) for use, count in counts for i in range(count)]
    write_review(project.review, rows)
    project.proposals.parent.mkdir(exist_ok=True)
    project.proposals.write_text("".join(f"{json.dumps(row._asdict())}\n" for row in rows))


@pytest.mark.parametrize(
    ("used", "left_out", "words", "bar"),
    [
        (0.5, 0.0, ["Found 30 s", "is too little.", "Still wanted: 20 minutes for a good voice, 5 minutes", "rough"], "0.50"),
        (5.0, 0.6, ["Found 5 minutes", "too little for a good", "wanted: 15 minutes for a good", "6 clips", "no0, no1"], "5.00"),
        (30.0, 0.0, ["Found 30 minutes", "enough for a good voice", "Next: open the tab Plan"], "20.00"),
    ],
)  # fmt: skip
def test_data_says_how_much_is_wanted_in_minutes(project: Project, used, left_out, words, bar) -> None:
    add_clips(project, used, left_out)
    found = write_guide("prepare", project, None)
    for part in words:
        assert part in " ".join(text_of(found).split()), part
    assert f'max="20" value="{bar}"' in found and found.count('class="next"') == 1


def test_steps_point_to_what_comes_before_them(project: Project) -> None:
    assert "No recordings yet" in write_guide("prepare", project, None)
    project.recordings.mkdir(exist_ok=True)
    (project.recordings / "a.wav").touch()
    assert "press Prepare" in write_guide("prepare", project, None)
    assert "in the tab Plan" in write_guide("train", project, None)


def test_a_plan_says_what_to_expect_and_how_long_it_takes(project: Project) -> None:
    notes = {"machine": {"Tacotron2": FIGURES}, "material": {"minutes": 0.5}, NEED: "3 h are needed"}
    store_plan(project, {"Tacotron2": FLAGS}, notes, verdict_minutes=1.0)
    project.training_list.parent.mkdir(exist_ok=True)
    project.training_list.touch()
    found = " ".join(text_of(write_guide("plan", project, None)).split())
    for words in (
        "Expect a rough voice",
        "30 s of speech",
        "3 h are needed",
        "Next: open the tab Train",
        "about 118 s in all",
    ):
        assert words in found  # 58 s of training, and the minute of the verdict
    assert "press Start" in write_guide("train", project, None)


@pytest.mark.parametrize(
    ("lines", "next_thing"),
    [
        (["The voice is better than the embedded one: closer."], "hear it in the tab Speak"),
        (
            ["Undecided whether the voice is better than the embedded one", f"warning: {UNDECIDED_ADVICE}"],
            "judge for yourself",
        ),
        (["The voice is worse than the embedded one: further.", "warning: use the embedded voice"], "record more"),
    ],
)
def test_a_verdict_has_a_next_thing(project: Project, lines: list[str], next_thing: str) -> None:
    project.voice.mkdir()
    (project.voice / "config.json").write_text(json.dumps({"verdict": {"lines": lines, "prefers_embedded": False}}))
    found = write_guide("train", project, None)
    assert lines[0] in found and next_thing in found and found.count('class="next"') == 1


def test_a_run_and_a_damaged_file_have_their_own_words(project: Project) -> None:
    for state, words in (
        (State.RUNNING, guide.WAITING["plan"]),
        (State.STOPPING, "Saving"),
        (State.FAILED, "what went wrong"),
    ):
        job = Job(project=project, name="plan", run=None, state=state, exit_code=1)
        assert words in write_guide("plan", project, job)
    project.training_list.parent.mkdir(exist_ok=True)
    project.training_list.touch()
    project.plan.write_text("{")
    assert "plan.json" in write_guide("plan", project, None)
