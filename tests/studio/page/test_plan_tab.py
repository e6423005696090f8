"""The plan for a page: its words, its explanation, and edits that name no file outside the projects."""

import json

import pytest

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")

from common.errors import DataError, UsageError
from studio.page.plan_tab import describe_plan, plan_argv, read_text, save_plan, start_choices
from studio.plan.file import read_plan
from studio.project import Project, create_project
from tests.studio.projects import FLAGS, plan_groups, store_plan

FIGURES = {"model": "Tacotron2", "parameters": 1, "device": "a CPU", "clips": 5, "batch_size": 2, "clips_per_step": 2}
FIGURES |= {"steps_per_epoch": 3, "always": 1, "clip": 1, "available": 10, "step_seconds": [3.0, 3.0]}
FIGURES |= {"report_seconds": 5.0, "start_seconds": 7.0}


@pytest.fixture
def project(project: Project) -> Project:
    reasons = {"Tacotron2": {"epochs": "usual; expect a <rough> voice"}}
    store_plan(project, {"Tacotron2": FLAGS}, {"machine": {"Tacotron2": FIGURES}, "reasons": reasons})
    return project


def plan_text(project: Project, **flags: object) -> str:
    return json.dumps(plan_groups(project, {"Tacotron2": FLAGS | flags}))


def test_a_plan_is_described(project):
    words = describe_plan(project)
    # 4 x 3 x 3 s, reports of 5 s after the epochs 0, 2 and 3, and the start
    assert "expected: 58 s at most on a CPU, 7 s of it to start;" in words
    assert '<th scope="row">epochs</th><td>4</td><td>usual; expect a &lt;rough&gt; voice</td>' in words
    assert words.startswith("<details><summary>Settings") and "train.py -m Tacotron2 --config-file" in words
    project.plan.unlink()
    assert describe_plan(project) == read_text(project) == ""


def test_an_edit_is_checked_before_it_is_saved(project):
    save_plan(project, plan_text(project, epochs=7))
    assert read_plan(project.plan).models["Tacotron2"].run.epochs == 7
    before = project.plan.read_bytes()
    with pytest.raises(DataError) as caught:
        save_plan(project, plan_text(project, epochs=0, best_by="luck"))
    lines = str(caught.value).splitlines()
    assert lines[0] == "plan.json: Tacotron2.epochs: 0, expected at least 1"
    assert lines[1].startswith("plan.json: Tacotron2.best_by: invalid choice: 'luck'")
    with pytest.raises(DataError, match=r"plan\.json: cannot be read as JSON"):
        save_plan(project, "{")
    assert project.plan.read_bytes() == before


STARTS = [{"warm_start": start} for start in ("/etc/passwd", "../voice.pt", "--output=/tmp/x", "x\0y")]
FILES = ["config_file", "training_files", "symbols_file", "output", "log_file", "dataset_path"]  # read and written
OTHERS = ({"output": "x"}, {"output=/tmp/x": "y"}, {"freeze": ["--output=/tmp/x"]}, {"freeze": "--output=/tmp/x"})
OPTIONS = [*OTHERS, {"lr-schedule": "cosine"}, *({name: "/etc/passwd"} for name in FILES)]


@pytest.mark.parametrize("values", STARTS + OPTIONS, ids=str)
def test_no_plan_names_a_file_elsewhere(project, values):
    before = project.plan.read_bytes()
    with pytest.raises(DataError, match=r"plan\.json: Tacotron2(\.|: --)"):
        save_plan(project, plan_text(project, **values))
    assert project.plan.read_bytes() == before


def test_files_of_projects_may_be_named(project, tmp_path):
    flags = {"symbols_file": str(project.symbols), "drop_frame_rate": 0.2, "freeze": None}
    project.symbols.write_text("_\n \na\n")
    save_plan(project, plan_text(project, warm_start=str(tmp_path / "other" / "voice" / "x.pt"), **flags))
    save_plan(project, plan_text(project, warm_start=None))
    (tmp_path / "linked").symlink_to(tmp_path.parent)
    with pytest.raises(DataError, match="warm_start"):
        save_plan(project, plan_text(project, warm_start=str(tmp_path / "linked" / "x.pt")))


def test_the_words_of_a_plan(project, tmp_path):
    place = ["studio.plan", "mine", "--projects", str(tmp_path)]
    assert plan_argv(project, "embedded", " ", "hours", False, False) == [*place, "--from", "embedded"]
    words = plan_argv(project, "none", "90", "minutes", True, True)
    assert words == [*place, "--from", "none", "--hours", "1.5", "--find-lr", "--cpu"]
    embedded = "the embedded voice (a man's, English)"
    assert start_choices(tmp_path) == [
        (embedded, "embedded"),
        ("no voice: random weights, for hours of speech", "none"),
    ]
    (create_project(tmp_path, "other").root / "voice").mkdir()
    assert start_choices(tmp_path)[2] == ("voice of project other", "voice:other")
    assert plan_argv(project, "voice:other", "", "hours", False, False)[-1] == str(tmp_path / "other" / "voice")
    for start in ("voice:../x", "/etc/passwd", "voice:mine"):
        with pytest.raises(DataError, match="this voice no longer exists"):
            plan_argv(project, start, "", "hours", False, False)
    for limit, unit in (*((text, "hours") for text in ("0", "nan", "inf", "many")), ("1", "weeks")):
        words = f"time limit: '{limit}', expected a number of {unit} above 0, or nothing"
        with pytest.raises(UsageError, match=words):
            plan_argv(project, "embedded", limit, unit, False, False)
