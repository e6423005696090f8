"""SIGTERM while text is spoken sentence by sentence: text that has arrived is spoken to its end, and no other is accepted."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from common.audio.audio_processing import to_pcm
from serving.engine import Engine
from serving.errors import RequestError
from serving.stream import SpeechRequest
from tests.serving.conftest import LONG, reference, run, running_engine
from tests.serving.test_server import LONGEST_START, ServerProcess, free_port, metric, serve, wait_until

pytestmark = pytest.mark.slow
SENTENCES = ["It is late and the ferry waits until noon.", "Then it leaves.", "Good morning.", "Two."]
TEXT = " ".join(SENTENCES)
PAUSE = bytes(2 * round(0.35 * 22050))


def sounds(sentences: list[str] = SENTENCES) -> list[bytes]:
    return [to_pcm(reference(text, 3, number)).tobytes() for number, text in enumerate(sentences)]


@pytest.fixture
def socket_of() -> Iterator[Any]:
    """A function that opens a WebSocket to a server."""
    reason = "websockets, of requirements/serving.txt, is missing"
    websockets = pytest.importorskip("websockets.sync.client", reason=reason)
    with ExitStack() as opened:

        def connect(server: ServerProcess) -> Any:
            url = server.url.replace("http", "ws") + "/v1/audio/speech/stream"
            return opened.enter_context(websockets.connect(url, open_timeout=LONGEST_START))

        yield connect


def read_to_end(socket: Any) -> tuple[list[dict[str, Any]], bytes, int]:
    """The messages of a WebSocket until it closes: JSON, joined audio, and the code."""
    events: list[dict[str, Any]] = []
    audio = b""
    for message in iter(partial(receive, socket), None):
        if isinstance(message, bytes):
            audio += message
        else:
            events.append(json.loads(message))
    return events, audio, socket.close_code


def receive(socket: Any) -> str | bytes | None:
    from websockets.exceptions import ConnectionClosed

    try:
        return socket.recv(timeout=LONGEST_START)
    except ConnectionClosed:
        return None


def stop_after_audio(server: ServerProcess, socket: Any) -> bytes:
    """Send SIGTERM once audio comes; return that audio."""
    while not isinstance(message := receive(socket), bytes):
        assert message is not None
    server.process.send_signal(signal.SIGTERM)
    wait_until(lambda: metric(server, "tts_ready") == 0)
    return message


def test_a_socket_speaks_the_whole_text_and_a_new_one_is_refused(socket_of: Any) -> None:
    with serve("--seed", 3) as server:
        socket = socket_of(server)
        socket.send(json.dumps({"type": "end", "text": TEXT}))
        first = stop_after_audio(server, socket)
        refusal, _, refused = read_to_end(socket_of(server))
        events, rest, code = read_to_end(socket)
    assert refusal[0]["error"]["code"] == "not_ready" and refused == 1013
    assert events[-1] == {"type": "done", "sentences": 4} and code == 1000
    assert first + rest == PAUSE.join(sounds())


def test_a_socket_without_the_end_of_its_text_speaks_what_has_arrived(socket_of: Any) -> None:
    with serve("--seed", 3) as server:
        socket = socket_of(server)
        socket.send(json.dumps({"type": "text", "text": TEXT}))  # no word follows: the last sentence is incomplete
        first = stop_after_audio(server, socket)
        socket.send(json.dumps({"type": "text", "text": " Yes!"}))
        events, rest, code = read_to_end(socket)
    assert events[-1]["error"]["code"] == "not_ready" and code == 1013
    assert first + rest == PAUSE.join(sounds())


@pytest.mark.parametrize("is_complete", [True, False])
def test_wyoming_speaks_what_has_arrived(is_complete: bool) -> None:
    wyoming = pytest.importorskip("wyoming.client", reason="wyoming, of requirements/serving.txt, is not installed")
    from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop

    async def steps(server: ServerProcess, port: int) -> list[Any]:
        pieces = [SynthesizeStart(), *(SynthesizeChunk(f"{text} ") for text in SENTENCES)]
        events: list[Any] = []
        async with wyoming.AsyncTcpClient("127.0.0.1", port) as client:
            for piece in [*pieces, *[SynthesizeStop()] * is_complete]:
                await client.write_event(piece.event())
            while not events or events[-1] is not None:
                events.append(await asyncio.wait_for(client.read_event(), LONGEST_START))
                if len(events) == 2:
                    server.process.send_signal(signal.SIGTERM)
                    await asyncio.to_thread(wait_until, lambda: metric(server, "tts_ready") == 0)
                    async with wyoming.AsyncTcpClient("127.0.0.1", port) as late:
                        await late.write_event(Synthesize("Two.").event())
                        error = await asyncio.wait_for(late.read_event(), LONGEST_START)
                        assert error.type == "error" and error.data["code"] == "not_ready"
        return events[:-1]

    port = free_port()
    with serve("--seed", 3, "--wyoming-port", port) as server:
        events = asyncio.run(steps(server, port))
    assert b"".join(event.payload or b"" for event in events) == b"".join(
        to_pcm(reference(text, 3)).tobytes() for text in SENTENCES
    )
    assert [event.type for event in events[-2:]] == (
        ["audio-stop", "synthesize-stopped"] if is_complete else ["audio-chunk", "error"]
    )


@pytest.mark.parametrize("answers", [SENTENCES, SENTENCES[:1]])
def test_an_answer_on_the_page_is_spoken_to_its_end(answers: list[str]) -> None:
    """The engine begins to stop after the first sentence; its thread ends after the last one, and takes no further question."""
    pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
    import gradio as gr

    from serving.page.relay import Relay
    from serving.page.speaking import Speaker
    from serving.page.talking import Talker

    class Words:
        def answer(self, *arguments: Any) -> Iterator[str]:
            yield from answers

    async def transcribe(recording: str | None) -> str:
        return "What time is it?"

    async def call(engine: Engine) -> list[Any]:
        talker: Any = Talker(Speaker(engine, Relay()), None)
        talker.conversation, talker.transcribe = Words(), transcribe
        talks: list[Any] = []
        async for talk in talker.answer("question.wav", [], None, None, "3"):
            talks.append(talk)
            if len(talks) == 2:  # the first sentence
                engine.begin_stop()
        with pytest.raises(gr.Error, match="the server stops"):
            await anext(talker.answer("question.wav", [], None, None, "3"))
        return talks

    with running_engine() as engine:
        rate, samples = run(call(engine))[-1].audio
    assert rate == 22050 and samples.tobytes() == b"".join(sound + PAUSE for sound in sounds(answers))


def test_the_page_shows_the_outcome_of_its_text() -> None:
    """The engine ends after the pictures, not after the audio."""
    pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
    from serving.page.relay import Relay
    from serving.page.speaking import Speaker

    async def call(engine: Engine) -> None:
        outcomes = Speaker(engine, Relay()).speak("Two.", None, None, "3", None, None, None)
        await anext(outcomes)
        stop = asyncio.ensure_future(engine.stop(LONGEST_START))
        outcome = await anext(outcomes)
        assert "s of speech" in outcome.message
        await asyncio.sleep(0.2)
        assert not stop.done()
        await outcomes.aclose()
        assert await stop

    with running_engine() as engine:
        run(call(engine))


def test_the_engine_waits_for_slow_readers() -> None:
    """Within the grace, an answer that is computed and not read yet counts as not finished."""

    async def call(engine: Engine) -> None:
        stream = engine.submit(SpeechRequest(text="Two.", seed=3))
        stop = asyncio.ensure_future(engine.stop(LONGEST_START))
        while not stream.ended:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.2)
        assert not stop.done()
        assert len([audio async for audio in stream]) > 0
        assert await stop

    with running_engine() as engine:
        run(call(engine))


def test_the_grace_ends_a_visit() -> None:
    async def call(engine: Engine) -> list[str]:
        calls: list[str] = []
        with engine.visit(lambda: calls.append("stop")) as visit:
            stream = engine.submit(SpeechRequest(text=LONG * 20, seed=3), visit)
            assert not await engine.stop(0.2)
            with pytest.raises(RequestError, match="the server stops"):
                async for _ in stream:
                    pass
            with pytest.raises(RequestError, match="the server stops"):
                engine.submit(SpeechRequest(text="Two."), visit)
        return calls

    with running_engine() as engine:
        assert run(call(engine)) == ["stop"]
