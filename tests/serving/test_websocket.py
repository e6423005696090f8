"""Speech over a WebSocket: the sentences of the library, whatever the sizes of the messages; cancellation and errors."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

from common.audio.audio_processing import to_pcm
from serving.app import make_app
from serving.config import ServingConfig
from serving.engine import Engine
from tests.serving.conftest import LONG, reference, running_engine

pytestmark = pytest.mark.slow
PATH = "/v1/audio/speech/stream"
SENTENCES = ["Yes!", "It is nine.", "Good morning."]
TEXT = f"{SENTENCES[0]}\n* * *\n{SENTENCES[1]} {SENTENCES[2]}\n🙂"


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[TestClient]:
    with TestClient(make_app(engine, ServingConfig(cpu=True, page=False))) as ready:
        yield ready


def receive(socket: WebSocketTestSession) -> dict[str, Any] | bytes:
    message = socket.receive()
    if message["type"] == "websocket.close":
        raise WebSocketDisconnect(message["code"], message.get("reason"))
    return message["bytes"] if message.get("bytes") is not None else json.loads(message["text"])


def receive_until(socket: WebSocketTestSession, kind: str) -> tuple[list[dict[str, Any]], list[bytes]]:
    """The messages up to one of a type, JSON and audio apart."""
    events: list[dict[str, Any]] = []
    audio: list[bytes] = []
    while not events or events[-1]["type"] != kind:
        message = receive(socket)
        audio.append(message) if isinstance(message, bytes) else events.append(message)
    return events, audio


def expected_audio(seed: int, sentences: list[str] = SENTENCES) -> bytes:
    pause = np.zeros(round(0.35 * 22050), "<i2")
    sounds = [to_pcm(reference(text, seed, number)) for number, text in enumerate(sentences)]
    pieces = [piece for sound in sounds for piece in (pause, sound)]
    return b"".join(piece.tobytes() for piece in pieces[1:])


@pytest.mark.parametrize("size", [1, 5, 100])
def test_audio_is_that_of_the_sentences_whatever_the_pieces(client: TestClient, size: int) -> None:
    with client.websocket_connect(PATH) as socket:
        socket.send_json({"type": "start", "seed": 3, "voice": "alloy"})
        assert receive(socket) == {"type": "started", "voice": "embedded", "seed": 3, "sampling_rate": 22050}
        for start in range(0, len(TEXT), size):
            socket.send_json({"type": "text", "text": TEXT[start : start + size]})
        socket.send_json({"type": "end"})
        events, audio = receive_until(socket, "done")
        with pytest.raises(WebSocketDisconnect) as closed:
            receive(socket)
    assert closed.value.code == 1000
    assert [event.get("text") for event in events] == [*SENTENCES, None]
    assert events[-1] == {"type": "done", "sentences": 3}
    assert b"".join(audio) == expected_audio(3)


def test_audio_comes_before_the_end_of_the_text(client: TestClient) -> None:
    with client.websocket_connect(PATH) as socket:
        socket.send_json({"type": "text", "text": "Yes! And "})
        assert receive(socket)["type"] == "started"
        assert receive(socket) == {"type": "sentence", "number": 0, "text": "Yes!"}
        assert isinstance(receive(socket), bytes)
        socket.send_json({"type": "end", "text": "then."})
        events, _ = receive_until(socket, "done")
    assert [event.get("text") for event in events] == ["And then.", None]


def test_no_audio_of_a_cancelled_sentence_follows_the_confirmation(client: TestClient) -> None:
    """At another speed the filters hold samples; those are dropped as well."""
    with client.websocket_connect(PATH) as socket:
        socket.send_json({"type": "start", "seed": 3, "speed": 0.5})
        socket.send_json({"type": "text", "text": "It is late and the ferry waits. " * 3})
        while not isinstance(receive(socket), bytes):
            pass
        socket.send_json({"type": "cancel"})
        receive_until(socket, "cancelled")
        socket.send_json({"type": "end", "text": "Yes!"})
        event = receive(socket)
        assert isinstance(event, dict) and event["text"] == "Yes!"
        receive_until(socket, "done")


def test_the_seed_and_the_limit_of_the_server() -> None:
    with running_engine(seed=8, max_characters=12) as engine:
        client = TestClient(make_app(engine, engine.config))
        for settings, seed in (({}, 8), ({"seed": 0}, 0)):
            with client.websocket_connect(PATH) as socket:
                socket.send_json({"type": "start", **settings})
                started = receive(socket)
                assert isinstance(started, dict) and started["seed"] == seed
                socket.send_json({"type": "end", "text": "It is nine. "})  # 12 characters
                assert receive_until(socket, "done")[1]


def test_characters_that_are_cancelled_or_spoken_do_not_wait() -> None:
    """Each text fits --max-characters alone, and no two do."""
    with running_engine(max_characters=40, seed=3) as engine:
        client = TestClient(make_app(engine, engine.config))
        with client.websocket_connect(PATH) as socket:
            for _ in range(3):
                socket.send_json({"type": "text", "text": "It is late. The ferry waits and"})  # is cut
                socket.send_json({"type": "cancel"})
                receive_until(socket, "cancelled")
            for _ in range(3):
                socket.send_json({"type": "text", "text": "Yes and no and yes and no and no.\n"})
                receive_until(socket, "sentence")
            socket.send_json({"type": "text", "text": "a" * 41})
            events, _ = receive_until(socket, "error")
    assert "41 characters are not spoken yet, expected at most 40" in events[-1]["error"]["message"]


def test_speed_and_rate(client: TestClient) -> None:
    with client.websocket_connect(PATH) as socket:
        socket.send_json({"type": "start", "seed": 3, "speed": 2.0, "sample_rate": 16000})
        assert receive(socket)["sampling_rate"] == 16000
        socket.send_json({"type": "end", "text": "Good morning."})
        _, audio = receive_until(socket, "done")
    samples = len(reference("Good morning.", 3)) / 2 * 16000 / 22050
    assert len(b"".join(audio)) / 2 == pytest.approx(samples, rel=0.1)


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        (["no json"], "message: "),
        ([b"Yes!"], "message: binary, expected JSON as text"),
        ([{"type": "sing"}], "type"),
        ([{"type": "start", "speed": 9}], "speed"),
        ([{"type": "start", "voice": "nobody"}], "'nobody'"),
        ([{"type": "text", "text": "a"}, {"type": "start"}], "expected it first"),
        ([{"type": "text", "text": "a" * 4097}], "4097 characters are not spoken yet, expected at most 4096"),
        ([{"type": "end", "text": "{HH AH0 XX9}"}], "XX9"),
    ],
)
def test_a_mistake_is_an_error_message_and_closes(client: TestClient, messages: list[Any], words: str) -> None:
    with client.websocket_connect(PATH) as socket:
        for message in messages:
            if isinstance(message, bytes):
                socket.send_bytes(message)
            else:
                socket.send_text(message if isinstance(message, str) else json.dumps(message))
        events, _ = receive_until(socket, "error")
        with pytest.raises(WebSocketDisconnect) as closed:
            receive(socket)
    assert words in events[-1]["error"]["message"] and closed.value.code == 1008


def test_a_client_that_leaves_ends_its_speech(client: TestClient, engine: Engine) -> None:
    with client.websocket_connect(PATH) as socket:
        socket.send_json({"type": "text", "text": "It is late and the ferry waits. " * 8})
        while not isinstance(receive(socket), bytes):
            pass
    with client.websocket_connect(PATH) as socket:  # served after the first one, if that still ran
        socket.send_json({"type": "end", "text": "Yes!"})
        receive_until(socket, "done")
    assert engine.metrics.registry.get_sample_value("tts_queue_length") == 0


def test_pages_of_other_origins_open_no_socket(engine: Engine) -> None:
    """Browsers let any page open one; the server has to look at its origin (RFC 6455, 10.2)."""
    settings = ServingConfig(cpu=True, page=False, cors_origin=("https://example.org",))
    with TestClient(make_app(engine, settings)) as client:
        for origin in ("https://example.com", "http://testserver:8001", "null", "http://[broken"):
            with pytest.raises(WebSocketDisconnect), client.websocket_connect(PATH, headers={"origin": origin}):
                pass
        for origin in ("https://example.org", "http://testserver"):
            with client.websocket_connect(PATH, headers={"origin": origin}) as socket:
                socket.send_json({"type": "end"})
                receive_until(socket, "done")


def test_the_number_of_connections_and_their_idle_time_are_limited() -> None:
    """The second connection is refused; the first is closed when nothing happens, but not while it receives audio."""
    with running_engine(max_sockets=1, idle_timeout=0.3) as engine:
        client = TestClient(make_app(engine, engine.config))
        with client.websocket_connect(PATH) as socket:
            socket.send_json({"type": "text", "text": LONG + "\n"})
            with client.websocket_connect(PATH) as other:
                refusal = receive(other)
                assert isinstance(refusal, dict) and refusal["error"]["code"] == "too_many_sockets"
                with pytest.raises(WebSocketDisconnect) as closed:
                    receive(other)
            assert closed.value.code == 1013
            events, audio = receive_until(socket, "error")
            with pytest.raises(WebSocketDisconnect) as closed:
                receive(socket)
        assert closed.value.code == 1008
        assert events[-1]["error"]["code"] == "idle" and "0.3 seconds" in events[-1]["error"]["message"]
        spoken = [event["text"] for event in events if event["type"] == "sentence"]
        assert len(spoken) == 4 and len(b"".join(audio)) > 12 * 22050
        with client.websocket_connect(PATH) as socket:  # the place is free again
            socket.send_json({"type": "end", "text": "Two."})
            assert receive_until(socket, "done")[1]
