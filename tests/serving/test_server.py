"""A server process: OpenAI's client, the command line, and SIGTERM, at which what has arrived is spoken and no more is accepted."""

import asyncio
import logging
import signal
import socket
import wave
from pathlib import Path
from typing import Any

import httpx
import pytest

from common.errors import DataError, UsageError
from common.web.sockets import listen
from serving.__main__ import main
from serving.config import parse_args
from serving.engine import Engine
from serving.errors import RequestError
from serving.stream import SpeechRequest
from synthesizer import EMBEDDED
from tests.recipe import ROOT, start
from tests.serving.conftest import LONG, own_engine, pcm, run, sample
from tests.serving.server_process import PATIENCE, SPEECH, ServerProcess


@pytest.mark.slow
def test_the_client_of_openai(server: ServerProcess, tmp_path: Path) -> None:
    """The first bytes of a stream come while the server computes: then its queue still has the request."""
    openai = pytest.importorskip("openai", reason="openai, of tests/requirements.txt, is not installed")
    client = openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    create = client.audio.speech.create
    create(model="tts-1", voice="alloy", input="Two.", response_format="wav").write_to_file(tmp_path / "two.wav")
    with wave.open(str(tmp_path / "two.wav")) as file:
        assert file.readframes(file.getnframes()) == pcm("Two.")
    raw = create(model="tts-1", voice="alloy", input="Two.", response_format="pcm").content
    assert len(raw) == pytest.approx(len(pcm("Two.")) * 24000 / 22050, abs=2)  # what it hands to a player of 24,000 Hz
    assert client.models.list().data[0].id == "tacotron2"
    with pytest.raises(openai.BadRequestError) as caught:
        create(model="tts-1", voice="nobody", input="Two.")
    assert caught.value.code == "voice_not_found" and caught.value.param == "voice"
    speech, parts = client.audio.speech.with_streaming_response, list[bytes]()
    settings = {"model": "tts-1", "voice": "alloy", "response_format": "pcm", "extra_body": {"sample_rate": 22050}}
    with speech.create(input=LONG, **settings) as response:
        for part in response.iter_bytes():
            if not parts:
                assert server.metric("tts_queue_length") == 1
            parts.append(part)
    assert len(parts) > 5 and b"".join(parts) == pcm(LONG)


def test_a_voice_that_cannot_be_loaded_ends_the_server(tmp_path: Path, monkeypatch) -> None:
    for name in ("handlers", "level"):  # which the server sets, and other tests need as they were
        monkeypatch.setattr(logging.root, name, getattr(logging.root, name))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tacotron2.pt").write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match=r"tacotron2\.pt: no checkpoint"):
        main(["--cpu", "--port", "0", "--no-page", "--voices", str(tmp_path)])


def test_a_connection_sends_small_parts_at_once_and_a_port_that_is_taken_is_named() -> None:
    with listen("127.0.0.1", 0) as port, socket.create_connection(port.getsockname()), port.accept()[0] as connection:
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        number = port.getsockname()[1]
        with pytest.raises(DataError, match=rf"--port {number}: cannot listen there \(Address already in use\)"):
            listen("127.0.0.1", number)


def test_flags_reach_the_settings(monkeypatch) -> None:
    """The key of the flag comes before that of the environment, without spaces around it."""
    monkeypatch.setenv("TTS_API_KEY", " of the environment\n")
    monkeypatch.setenv("TTS_CORS_ORIGIN", "c, d,")
    monkeypatch.setenv("TTS_GRACE", "4")
    monkeypatch.setenv("TTS_PORT", "tcp://10.0.0.1:80")  # Kubernetes's, for a service named tts
    words = "--fp16 --int8 --plain --no-page --log-texts --cors-origin a --cors-origin b --seed 4 --root-path /tts"
    config = parse_args(words.split())
    assert config.fp16 and config.int8 and config.plain and config.log_texts and not config.page
    assert (config.cors_origin, config.seed, config.root_path) == (("a", "b"), 4, "/tts")
    assert config.api_key == "of the environment" and parse_args(["--api-key", " k "]).api_key == "k"
    assert (config.grace, config.port) == (4.0, 8000)
    assert parse_args([]).cors_origin == ("c", "d")
    with pytest.raises(SystemExit):
        parse_args(["--timeou", "3"])
    monkeypatch.setenv("TTS_GRACE", "soon")
    monkeypatch.setenv("TTS_PAGE", "maybe")
    with pytest.raises(UsageError, match=r"TTS_PAGE: 'maybe': expected 1 or .*\nTTS_GRACE: 'soon': invalid float"):
        parse_args([])


SENTENCES = ["It is late and the ferry waits until noon.", "Then it leaves.", "Good morning.", "Two."]
END = ["audio-stop", "synthesize-stopped"]
PAUSE = bytes(2 * round(0.35 * 22050))


async def ask(client: httpx.AsyncClient, hears: asyncio.Event) -> bytes:
    body, audio = {"input": LONG, "response_format": "pcm", "sample_rate": 22050}, b""
    async with client.stream("POST", SPEECH, json=body) as response:
        async for part in response.aiter_raw():
            audio += part
            hears.set()
    return audio


async def ask_wyoming(port: int, hears: asyncio.Event, *pieces: Any) -> list[Any]:
    """The events that answer those of a client, until the server closes the connection."""
    from wyoming.client import AsyncTcpClient

    events: list[Any] = []
    async with AsyncTcpClient("127.0.0.1", port) as client:
        for piece in pieces:
            await client.write_event(piece.event())
        while event := await client.read_event():
            events.append(event)
            if event.type == "audio-chunk":
                hears.set()
    return events


async def visit_until_it_stops(server: ServerProcess) -> list[Any]:
    """Be a client of every kind when SIGTERM arrives, and one that comes too late."""
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop

    heard = [asyncio.Event() for _ in range(3)]
    part = [SynthesizeStart(), *(SynthesizeChunk(f"{text} ") for text in SENTENCES)]
    async with httpx.AsyncClient(base_url=server.url, timeout=PATIENCE) as client:
        visits = [ask(client, heard[0]), ask_wyoming(server.wyoming_port, heard[1], *part, SynthesizeStop())]
        running = [*map(asyncio.ensure_future, [*visits, ask_wyoming(server.wyoming_port, heard[2], *part)])]
        await asyncio.gather(*(hears.wait() for hears in heard))
        server.process.send_signal(signal.SIGTERM)
        while (await client.get("/readyz")).status_code != 503:
            await asyncio.sleep(0.01)
        late = await client.post(SPEECH, json={"input": "Two."})
        event, *_ = await ask_wyoming(server.wyoming_port, heard[0], Synthesize("Two."))
        return [[late.status_code, late.json()["error"]["code"], event.data["code"]], *await asyncio.gather(*running)]


@pytest.mark.slow
def test_sigterm_finishes_what_has_arrived_and_refuses_the_rest(server: ServerProcess) -> None:
    """It is the last one that has the server."""
    pytest.importorskip("wyoming", reason="wyoming, of requirements/serving.txt, is not installed")
    refused, answer, whole, part = run(asyncio.wait_for(visit_until_it_stops(server), PATIENCE))
    assert server.process.wait(60) == 0
    sounds = [pcm(text, 3, number) for number, text in enumerate(SENTENCES)]
    assert refused == [503, "not_ready", "not_ready"] and answer == pcm(LONG)
    for events, kinds in ((whole, ["audio-chunk", *END]), (part, ["error", *END])):
        assert b"".join(event.payload or b"" for event in events) == PAUSE.join(sounds)
        assert [event.type for event in events[-3:]] == kinds
    assert server.lines(f"stopping: accepted requests have {PATIENCE} seconds")
    assert [line for line in server.log if line["level"] == "ERROR"] == []


@own_engine()
async def test_the_engine_waits_for_slow_readers(engine: Engine) -> None:
    """Within the grace, an answer that is computed and not read yet counts as not finished."""
    stream = engine.submit(SpeechRequest(text="Two.", seed=3))
    stop = asyncio.ensure_future(engine.stop(PATIENCE))
    while not stream.ended:
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.2)
    assert not stop.done()
    assert len([audio async for audio in stream]) > 0
    assert await stop


@own_engine()
async def test_the_grace_ends_a_visit(engine: Engine) -> None:
    calls: list[str] = []
    with engine.visit(lambda: calls.append("stop")) as visit:
        stream = engine.submit(SpeechRequest(text=LONG * 20, seed=3), visit)
        assert not await engine.stop(0.2)
        with pytest.raises(RequestError, match="the server is stopping"):
            async for _ in stream:
                pass
        with pytest.raises(RequestError, match="the server is stopping"):
            engine.submit(SpeechRequest(text="Two."), visit)
    assert len(stream.speeches) < 80 and sample(engine, "tts_queue_length") == 0  # cut off
    assert calls == ["stop"]


@pytest.mark.slow
def test_sigterm_ends_a_server_that_still_loads(tmp_path: Path) -> None:
    """At once, since it has accepted nothing, and well: forty voices take far longer than their first second."""
    for number in range(40):
        (tmp_path / f"voice{number}").symlink_to(EMBEDDED / "heart")
    process = start(ROOT / ".venv" / "bin" / "python", "-m", "serving", "--cpu", "--port", 0, "--voices", tmp_path)
    assert process.stdout is not None
    while "listening" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGTERM)
    rest, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0 and '"ready"' not in rest and "Traceback" not in errors
    assert "stopping" in rest and "terminate called" not in errors
