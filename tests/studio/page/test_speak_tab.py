"""The Speak tab without a browser: which voice speaks at /speak, on which device, and what is said of one that cannot."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest

from common.audio.audio_processing import to_pcm
from studio.jobs.jobs import Jobs
from studio.jobs.run_files import Run, write_note
from synthesizer import Line, SynthesisConfig, Synthesizer
from tests.browser import wait
from tests.studio.projects import add_spoken_voice

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")
from fastapi import FastAPI
from starlette.testclient import TestClient

from studio.page.events import Context
from studio.page.speak_tab import ROUTE, Speech, show

pytestmark = pytest.mark.slow


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, True, Jobs(tmp_path))


@pytest.fixture
def client(context: Context) -> Iterator[Any]:
    """A client of /speak alone, in one event loop."""
    app, speech = FastAPI(), Speech(context)
    app.mount(f"{ROUTE}/{{name}}", speech)
    with TestClient(app) as client:
        yield client
        speech.close()


def voices(client: Any) -> list[dict[str, Any]]:
    """The voices once they are loaded."""
    return wait(lambda: (answer := client.get("/speak/mine/v1/voices")).status_code == 200 and answer.json()["data"])


def test_a_voice_that_cannot_be_loaded_is_an_error_in_words_until_there_is_another(client, project) -> None:
    add_spoken_voice(project)
    weights = project.voice / "tacotron2.safetensors"
    whole, before = weights.read_bytes(), show(project)
    weights.write_bytes(whole[:1000])
    error = wait(lambda: (answer := client.get("/speak/mine/v1/voices")).status_code == 404 and answer.json()["error"])
    assert error["message"].startswith("mine/voice/tacotron2.safetensors: ") and error["code"] == "voice_not_loaded"
    weights.write_bytes(whole)
    (project.voice / "config.json").write_text(json.dumps({"name": "mine", "vocoder": "griffin-lim"}))
    assert show(project) != before
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
    config = Speech(context)._config(project)
    assert config.default_voice == default
    assert config.voices == (None if verdict is None else project.voice)


def test_speech_leaves_the_gpu_to_a_command(tmp_path: Path, project) -> None:
    context = Context(tmp_path, False, Jobs(tmp_path))
    assert not Speech(context)._config(project).cpu
    with subprocess.Popen(["sleep", "600"]) as process:
        started = psutil.Process(process.pid).create_time()
        run = Run(identity="600", words=["x"], device="0", pid=process.pid, started=started, log_start=0)
        (project.root / "jobs").mkdir()
        write_note(project.root / "jobs" / "train.json", asdict(run))
        assert Speech(context)._config(project).cpu
        process.kill()
    assert not Speech(context)._config(project).cpu
