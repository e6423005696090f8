"""The page without a browser: contrasts of WCAG 2 at level AA, messages, events that take turns, and the tabs Export and Speak."""

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")
import gradio as gr
from fastapi import FastAPI
from starlette.testclient import TestClient

from common.audio.audio_processing import to_pcm
from common.errors import DataError
from exports import targets
from studio.jobs.jobs import Jobs
from studio.jobs.run_files import Run, write_exit, write_note
from studio.page import speak_tab
from studio.page.app import make_page, make_theme
from studio.page.events import Context, ProjectPage, newest_job, run_values
from studio.page.export_tab import add_export_tab, export_argv, share_argv, show
from studio.wording import without_folders
from synthesizer import Line, SynthesisConfig, Synthesizer
from tests.browser import wait
from tests.recipe import ROOT
from tests.studio.projects import add_spoken_voice

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


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, True, Jobs(tmp_path))


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


def test_events_that_choose_a_project_take_turns(context: Context) -> None:
    """The choice as a page loads, computed before a project was made, could arrive after that project's own."""
    page = make_page(context, asyncio.Event())
    events = [event for event in page.fns.values() if event.fn]
    changed = {event: [getattr(block, "elem_id", "") for block in event.outputs] for event in events}
    choosing = [event for event, names in changed.items() if "project" in names]
    assert len(choosing) >= 2
    assert {(event.concurrency_id, event.concurrency_limit) for event in choosing} == {("project", 1)}


# --- Export ---


def test_missing_packages_are_named_and_their_targets_cannot_be_chosen(context, monkeypatch) -> None:
    for name, target in targets.TARGETS.items():
        if target.packages:
            monkeypatch.setitem(targets.TARGETS, name, target._replace(packages=("no-such-package",)))
    with gr.Blocks() as page, gr.Tab("Export"):
        add_export_tab(ProjectPage(context, gr.Dropdown([])))
    named = {block.elem_id: block for block in page.blocks.values() if block.elem_id}
    chosen = {value for _, value in named["targets"].choices}
    assert {"torchscript", "triton"} <= chosen and "onnx" not in chosen
    words = "- onnx: no-such-package: not installed; `bash scripts/exports.sh` installs them"
    assert words in named["missing-targets"].value


def test_a_project_is_looked_up_and_mistakes_are_messages(context, project, tmp_path: Path) -> None:
    with gr.Blocks() as blocks:
        page, button, shown = ProjectPage(context, gr.Dropdown([])), gr.Button(), [gr.HTML(), gr.HTML()]
        page.on(button.click, export_argv, [button], shown)
        page.on(button.click, lambda project: project.name, [], shown[:1], clears=True)
        page.on(button.click, lambda project: (project.name, ""), [], shown, clears=True)
    export, name, names = (event.fn for event in blocks.fns.values())
    for chosen, runtimes, message in (
        ("mine", ["../paper"], "choose a runtime first"),
        ("mine", ["triton"], "mine/voice: no such file; run python -m studio.train mine first"),
        (None, ["triton"], "no project is chosen"),
        ("none", ["triton"], "project none: no such project"),
    ):
        with pytest.raises(gr.Error) as caught:
            export(chosen, runtimes)
        assert message in caught.value.message and str(tmp_path) not in caught.value.message
    assert name("mine") == "mine" and name(None) is name("none") is name("../mine") is None
    assert names("mine") == ("mine", "") and names(None) == (None, None)


def test_the_commands_of_the_page_and_the_addresses_of_their_files(project, tmp_path: Path) -> None:
    files, commands = show(project)
    assert files == "<p>No files yet.</p>"
    voice = f"{tmp_path}/mine/voice"
    for words in ("studio.share mine", f"python inference.py --voice {voice}", f"python -m serving --voices {voice}"):
        assert words in commands
    with pytest.raises(DataError, match="mine/voice: no such file"):
        share_argv(project)
    project.voice.mkdir()
    assert share_argv(project) == ["studio.share", "mine", "--projects", str(tmp_path)]
    expected = ["studio.export", "mine", "torchscript", "web", "--projects", str(tmp_path)]
    assert export_argv(project, ["web", "torchscript"]) == expected
    project.exports.mkdir()
    (project.exports / "mine_torchscript.zip").touch()
    assert 'href="download/mine/mine_torchscript.zip"' in show(project)[0]


def test_the_newest_run_is_described_in_words(context, project, tmp_path: Path) -> None:
    """An export that failed, after the voice was packed."""
    folder, kinds = project.root / "jobs", ("share", "export")
    folder.mkdir()
    assert newest_job(context.jobs, project, kinds) is None and run_values(context, None) == ("", "")
    for started, name in enumerate(kinds):
        run = Run(identity="1", words=[f"studio.{name}"], device="", pid=2**22, started=float(started), log_start=0)
        write_note(folder / f"{name}.json", asdict(run))
        write_exit(folder / f"{name}.json", "1", started)
    (folder / "export.log").write_text(f"Traceback\nerror: {project.voice}/waveglow.pt: no checkpoint\n")
    state, log = run_values(context, newest_job(context.jobs, project, kinds))
    words = "python -m studio.export failed with exit code 1: mine/voice/waveglow.pt: no checkpoint"
    assert state == words and str(tmp_path) not in log


# --- Speak ---


@pytest.fixture
def client(context: Context) -> Iterator[Any]:
    """A client of /speak alone, in one event loop."""
    app, speech = FastAPI(), speak_tab.ProjectSpeech(context)
    app.mount(f"{speak_tab.ROUTE}/{{name}}", speech)
    with TestClient(app) as client:
        yield client
        speech.close()


def voices(client: Any) -> list[dict[str, Any]]:
    return wait(lambda: (answer := client.get("/speak/mine/v1/voices")).status_code == 200 and answer.json()["data"])


@pytest.mark.slow
def test_a_voice_that_cannot_be_loaded_is_an_error_in_words_until_there_is_another(client, project) -> None:
    add_spoken_voice(project)
    weights = project.voice / "tacotron2.safetensors"
    whole, before = weights.read_bytes(), speak_tab.show(project)
    weights.write_bytes(whole[:1000])
    error = wait(lambda: (answer := client.get("/speak/mine/v1/voices")).status_code == 404 and answer.json()["error"])
    assert error["message"].startswith("mine/voice/tacotron2.safetensors: ") and error["code"] == "voice_not_loaded"
    weights.write_bytes(whole)
    (project.voice / "config.json").write_text(json.dumps({"name": "mine", "vocoder": "griffin-lim"}))
    assert speak_tab.show(project) != before
    assert [voice["id"] for voice in voices(client)] == ["mine", "embedded", "heart"]
    body = {"input": "Two.", "seed": 3, "response_format": "pcm", "sample_rate": 22050}
    answer = client.post("/speak/mine/v1/audio/speech", json=body)
    own = Synthesizer.from_checkpoints(weights, config=SynthesisConfig(seed=3), device="cpu")
    expected = b"".join(to_pcm(part).tobytes() for part in own.stream_line(Line("Two.", 3)))
    assert answer.content == expected and answer.headers["X-Voice"] == "mine"
    assert client.get("/speak/mine/page.js").status_code == client.get("/speak/mine/audio/voices").status_code == 200
    assert "url: '/speak/mine/openapi.json'" in client.get("/speak/mine/docs").text
    assert client.get("/speak/none/").text == "project none: no such project"  # what the frame shows


@pytest.mark.parametrize(
    ("verdict", "default"),
    [
        (None, None),
        ({"lines": [], "prefers_embedded": False}, "mine"),
        ({"lines": [], "prefers_embedded": True}, None),
        ({"lines": [], "prefers_embedded": 1}, "mine"),
        (3, "mine"),
    ],
)
def test_the_finished_voice_is_the_default_unless_the_verdict_found_it_worse(
    context, project, verdict, default
) -> None:
    project.voice.mkdir()  # a training writes the weights first
    if verdict is not None:
        (project.voice / "config.json").write_text(json.dumps({"name": "mine", "verdict": verdict}))
    config = speak_tab.ProjectSpeech(context)._config(project)
    assert config.default_voice == default
    assert config.voices == (None if verdict is None else project.voice)


def test_speech_leaves_the_gpu_to_a_command(tmp_path: Path, project) -> None:
    context = Context(tmp_path, False, Jobs(tmp_path))
    assert not speak_tab.ProjectSpeech(context)._config(project).cpu
    with subprocess.Popen(["sleep", "600"]) as process:
        started = psutil.Process(process.pid).create_time()
        run = Run(identity="600", words=["x"], device="0", pid=process.pid, started=started, log_start=0)
        (project.root / "jobs").mkdir()
        write_note(project.root / "jobs" / "train.json", asdict(run))
        is_on_cpu = speak_tab.ProjectSpeech(context)._config(project).cpu
        process.kill()
    assert is_on_cpu and not speak_tab.ProjectSpeech(context)._config(project).cpu
