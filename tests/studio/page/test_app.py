"""The page without a browser: messages, events that take turns, and the tabs Export and Speak."""

import asyncio
import json
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
from studio.jobs.jobs import Jobs
from studio.jobs.run_files import Run, write_exit, write_note
from studio.page import speak_tab
from studio.page.app import make_page
from studio.page.events import Context, ProjectPage, newest_job, run_values
from studio.page.export_tab import export_argv
from studio.wording import without_folders
from synthesizer import Line, SynthesisConfig, Synthesizer
from tests.browser import wait
from tests.recipe import ROOT
from tests.studio.projects import add_spoken_voice


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, True, Jobs(tmp_path))


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


def test_the_newest_run_is_described_in_words(context, project, tmp_path: Path) -> None:
    """An export that failed, after the voice was packed."""
    folder, kinds = project.root / "jobs", ("share", "export")
    folder.mkdir()
    for started, name in enumerate(kinds):
        run = Run(identity="1", words=[f"studio.{name}"], device="", pid=2**22, started=float(started), log_start=0)
        write_note(folder / f"{name}.json", asdict(run))
        write_exit(folder / f"{name}.json", "1", started)
    (folder / "export.log").write_text(f"Traceback\nerror: {project.voice}/waveglow.pt: no checkpoint\n")
    state, log = run_values(context, newest_job(context.jobs, project, kinds))
    words = "python -m studio.export failed with exit code 1: mine/voice/waveglow.pt: no checkpoint"
    assert state == words and str(tmp_path) not in log


@pytest.fixture
def client(context: Context) -> Iterator[Any]:
    app, speech = FastAPI(), speak_tab.ProjectSpeech(context)
    app.mount(f"{speak_tab.ROUTE}/{{name}}", speech)
    with TestClient(app) as client:
        yield client
        speech.close()


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
    found = wait(lambda: (answer := client.get("/speak/mine/v1/voices")).status_code == 200 and answer.json()["data"])
    assert [voice["id"] for voice in found] == ["mine", "embedded", "heart", "spanish"]
    body = {"input": "Two.", "seed": 3, "response_format": "pcm", "sample_rate": 22050}
    answer = client.post("/speak/mine/v1/audio/speech", json=body)
    own = Synthesizer.from_checkpoints(weights, config=SynthesisConfig(seed=3), device="cpu")
    expected = b"".join(to_pcm(part).tobytes() for part in own.stream_line(Line("Two.", 3)))
    assert answer.content == expected and answer.headers["X-Voice"] == "mine"
    assert client.get("/speak/mine/page.js").status_code == 200
    assert client.get("/speak/none/").text == "project none: no such project"  # what the frame shows


@pytest.mark.parametrize(
    ("verdict", "default"),
    [(None, None), ({"lines": [], "prefers_embedded": True}, None), ({"lines": [], "prefers_embedded": 1}, "mine")],
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
