"""A server process: OpenAI's client, Wyoming's client, clients that leave, SIGTERM, and mistakes on the command line."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from common.audio.audio_processing import load_audio, to_pcm
from common.errors import UsageError
from serving.arguments import parse_args
from serving.config import API_KEY_VARIABLE
from tests.recipe import ROOT, start
from tests.serving.conftest import LONG, reference

pytestmark = pytest.mark.slow
LONGEST_START = 120  # seconds


class ServerProcess(NamedTuple):
    process: subprocess.Popen[str]
    url: str
    log: list[dict[str, Any]]
    errors: list[str]  # lines of stderr

    def lines(self, message: str) -> list[dict[str, Any]]:
        return [line for line in self.log if line["message"].startswith(message)]


@contextmanager
def serve(*flags: object, **environment: str) -> Iterator[ServerProcess]:
    """A server on a free port, ready; it must end with exit code 0 after SIGTERM."""
    one_thread = {"OMP_NUM_THREADS": "1"} | environment
    words = [ROOT / ".venv" / "bin" / "python", "-m", "serving", "--cpu", "--port", 0, "--no-page", *flags]
    process = start(*words, environment=os.environ | one_thread)
    try:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        server = ServerProcess(process, f"http://{first['host']}:{first['port']}", [first], [])
        reader = Thread(target=lambda: server.log.extend(map(json.loads, process.stdout)), daemon=True)
        reader.start()
        Thread(target=lambda: server.errors.extend(process.stderr or ()), daemon=True).start()
        wait_until(lambda: httpx.get(f"{server.url}/readyz").status_code == 200)
        yield server
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        reader.join(10)
        assert process.returncode == 0, "".join(server.errors)
    finally:
        process.kill()
        process.wait()


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + LONGEST_START
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def metric(server: ServerProcess, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", httpx.get(f"{server.url}/metrics").text, re.MULTILINE)
    return float(found[1]) if found else 0.0


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serve("--seed", 3, "--wyoming-port", WYOMING) as ready:
        yield ready


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


WYOMING = free_port()


@pytest.fixture(scope="module")
def openai_client(server: ServerProcess) -> Any:
    openai = pytest.importorskip("openai", reason="openai, of tests/requirements.txt, is not installed")
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_the_client_of_openai(openai_client: Any, tmp_path: Path) -> None:
    response = openai_client.audio.speech.create(model="tts-1", voice="alloy", input="Two.", response_format="wav")
    response.write_to_file(tmp_path / "two.wav")
    np.testing.assert_array_equal(to_pcm(load_audio(tmp_path / "two.wav", 22050)), to_pcm(reference("Two.", 3)))
    extra = {"seed": 5, "vocoder": "waveglow", "sigma": 0.5}
    response = openai_client.audio.speech.create(
        model="tts-1", voice="alloy", input="Two.", response_format="pcm", extra_body=extra
    )
    assert response.content == to_pcm(reference("Two.", 5, vocoder="waveglow", sigma_infer=0.5)).tobytes()
    assert openai_client.models.list().data[0].id == "tacotron2"


def test_the_client_of_openai_streams(openai_client: Any, server: ServerProcess) -> None:
    """The first bytes come while the server computes: then its queue still has the request."""
    speech = openai_client.audio.speech.with_streaming_response
    parts = []
    with speech.create(model="tts-1", voice="alloy", input=LONG * 2, response_format="pcm") as response:
        for part in response.iter_bytes():
            if not parts:
                assert metric(server, "tts_queue_length") == 1
            parts.append(part)
    assert len(parts) > 5
    assert b"".join(parts) == to_pcm(reference(LONG * 2, 3)).tobytes()


def test_the_client_of_openai_reads_events(openai_client: Any) -> None:
    speech = openai_client.audio.speech.with_streaming_response
    settings = {"model": "gpt-4o-mini-tts", "voice": "coral", "response_format": "pcm", "stream_format": "sse"}
    with speech.create(input="Two.", **settings) as response:
        events = [json.loads(line.removeprefix("data: ")) for line in response.iter_lines() if line]
    audio = b"".join(base64.b64decode(event["audio"]) for event in events[:-1])
    assert audio == to_pcm(reference("Two.", 3)).tobytes()
    assert events[-1]["type"] == "speech.audio.done" and events[-1]["usage"]["output_tokens"] > 0


def test_the_client_of_openai_reads_errors(openai_client: Any) -> None:
    import openai

    with pytest.raises(openai.NotFoundError) as caught:
        openai_client.audio.speech.create(model="tts-1", voice="nobody", input="Two.")
    assert caught.value.code == "voice_not_found" and caught.value.param == "voice"
    with pytest.raises(openai.BadRequestError, match="speed: 7"):
        openai_client.audio.speech.create(model="tts-1", voice="alloy", input="Two.", speed=7)


def test_a_client_that_leaves_ends_the_work(server: ServerProcess) -> None:
    before = metric(server, 'tts_requests_total{result="cancelled",voice="embedded"}')
    seconds = metric(server, 'tts_audio_seconds_total{voice="embedded"}')
    body = {"input": LONG * 8, "response_format": "pcm"}
    with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=60) as response:
        next(response.iter_raw())
    wait_until(lambda: metric(server, "tts_queue_length") == 0)
    assert metric(server, 'tts_requests_total{result="cancelled",voice="embedded"}') == before + 1
    whole = len(reference(LONG, 3)) / 22050 * 8
    assert metric(server, 'tts_audio_seconds_total{voice="embedded"}') - seconds < whole / 2
    wait_until(lambda: any(line.get("disconnected") for line in server.lines("request")))


def test_wyoming(server: ServerProcess) -> None:
    wyoming = pytest.importorskip("wyoming.client", reason="wyoming, of requirements/serving.txt, is not installed")
    from wyoming.info import Describe, Info
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

    async def exchange(*events: Any, last: str) -> list[Any]:
        answers = []
        async with wyoming.AsyncTcpClient("127.0.0.1", WYOMING) as client:
            for event in events:
                await client.write_event(event.event())
            while not answers or answers[-1].type != last:
                answers.append(await asyncio.wait_for(client.read_event(), 60))
        return answers

    def audio(answers: list[Any]) -> bytes:
        assert answers[0].type == "audio-start" and answers[0].data["rate"] == 22050
        return b"".join(answer.payload or b"" for answer in answers if answer.type == "audio-chunk")

    (info,) = asyncio.run(exchange(Describe(), last="info"))
    assert [voice.name for voice in Info.from_event(info).tts[0].voices] == ["embedded"]
    whole = Synthesize("Two.", SynthesizeVoice("embedded"))
    assert audio(asyncio.run(exchange(whole, last="audio-stop"))) == to_pcm(reference("Two.", 3)).tobytes()
    pieces = [
        SynthesizeStart(),
        *map(SynthesizeChunk, ["Ye", "s! Tw", "o."]),
        Synthesize("Yes! Two."),
        SynthesizeStop(),
    ]
    answers = asyncio.run(exchange(*pieces, last="synthesize-stopped"))
    sounds = [to_pcm(reference(text, 3)).tobytes() for text in ("Yes!", "Two.")]
    assert audio(answers) == b"".join(sounds)
    (error,) = asyncio.run(exchange(Synthesize("Two.", SynthesizeVoice("nobody")), last="error"))
    assert "nobody" in error.data["text"]


def test_sigterm_finishes_accepted_requests_and_refuses_new_ones() -> None:
    with serve("--seed", 3) as server, httpx.Client(base_url=server.url, timeout=60) as probe:
        assert probe.get("/readyz").status_code == 200
        body = {"input": LONG * 2, "response_format": "pcm"}
        with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=60) as response:
            chunks = response.iter_raw()
            received = next(chunks)
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: probe.get("/readyz").status_code == 503)
            refusal = probe.post("/v1/audio/speech", json=body)
            assert refusal.status_code == 503 and refusal.json()["error"]["code"] == "not_ready"
            received += b"".join(chunks)
        assert received == to_pcm(reference(LONG * 2, 3)).tobytes()
        assert server.process.wait(60) == 0
    assert server.lines("stopping: accepted requests have 30 seconds")


def test_the_grace_limits_the_wait() -> None:
    with serve("--grace", 0.2, "--seed", 3) as server:
        body = {"input": LONG * 20, "response_format": "pcm"}
        with httpx.stream("POST", f"{server.url}/v1/audio/speech", json=body, timeout=60) as response:
            chunks = response.iter_raw()
            next(chunks)
            server.process.send_signal(signal.SIGTERM)
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete"):
                list(chunks)
        assert server.process.wait(60) == 0


def test_the_key_comes_from_the_environment() -> None:
    with serve(**{API_KEY_VARIABLE: "secret"}) as server:
        assert httpx.get(f"{server.url}/v1/voices").status_code == 401
        assert httpx.get(f"{server.url}/v1/voices", headers={"authorization": "Bearer secret"}).status_code == 200
        assert "secret" not in json.dumps(server.log)


def fail(*flags: object) -> tuple[int, str]:
    words = [ROOT / ".venv" / "bin" / "python", "-m", "serving", "--cpu", *flags]
    result = subprocess.run(list(map(str, words)), cwd=ROOT, capture_output=True, text=True, timeout=LONGEST_START)
    assert "Traceback" not in result.stderr + result.stdout
    return result.returncode, result.stderr


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    assert fail("--timeout", 0) == (2, "error: --timeout: 0.0, expected more than 0 seconds\n")
    assert fail("--voices", tmp_path / "none")[0] == 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, message = fail("--port", port)
    assert code == 1 and f"--port {port}: cannot listen there (Address already in use)" in message
    folder = tmp_path / "voices" / "broken"
    folder.mkdir(parents=True)
    (folder / "tacotron2.pt").write_bytes(b"no checkpoint")
    code, message = fail("--port", 0, "--no-page", "--voices", folder.parent)
    assert code == 1 and "tacotron2.pt: no checkpoint" in message


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--grace", "-1"], "--grace: -1.0, expected 0 or more"),
        (["--port", "65536"], "--port: 65536, expected 0 to 65535"),
        (["--port", "-1"], "--port: -1, expected 0 to 65535"),
        (["--wyoming-port", "70000"], "--wyoming-port: 70000, expected 0 to 65535"),
        (["--timeout", "inf"], "--timeout: inf, expected more than 0 seconds"),
        (["--idle-timeout", "0"], "--idle-timeout: 0.0, expected more than 0 seconds"),
        (["--api-key", " "], "--api-key: empty"),
        (["--no-embedded"], "--no-embedded: no voice is left"),
    ],
)
def test_values_out_of_range(flags: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        parse_args(flags)


@pytest.mark.parametrize(
    "flags", [["--max-queue", "0"], ["--max-inputs", "x"], ["--timeou", "3"], ["--vocoder", "flute"]]
)
def test_flags_that_the_parser_refuses(flags: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_args(flags)
    assert caught.value.code == 2
