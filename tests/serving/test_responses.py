"""Answers from streams that a test feeds: errors at each stage, clients that leave, archives. And ranges and details of files."""

import asyncio
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import soundfile
import torch
from fastapi import FastAPI
from starlette.types import Message

from common.audio.audio_processing import to_pcm
from serving import responses
from serving.encoding import AudioEncoder
from serving.errors import RequestError, not_ready_error, timeout_error
from serving.limits import ReadingPace
from serving.responses import FileCache, StreamedResponse, audio_chunks, error_event, zip_chunks
from serving.stream import SpeechStream
from tests.serving.conftest import decode, make_stream, pcm, run
from tests.serving.test_app import SPEECH, call

PART = torch.linspace(-1, 1, 100)


class Answer(NamedTuple):
    sent: list[Message]
    log: dict[str, Any]
    stream: SpeechStream
    pace: ReadingPace

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent)


def send(*items: Any, leaves: bool = False, error_chunk: Callable[[RequestError], bytes] | None = None) -> Answer:
    """Answer with the audio of a stream; `leaves`: the client leaves while more audio is due."""

    async def call() -> Answer:
        stream, pace = make_stream(*items), ReadingPace(60)
        chunks = audio_chunks(stream, AudioEncoder("pcm", 22050), pace)
        answer = StreamedResponse(chunks, [stream], "audio/pcm", {}, error_chunk)
        scope: dict[str, Any] = {"type": "http"}
        sent: list[Message] = []

        async def receive() -> Message:
            await asyncio.sleep(0.05 if leaves else 60)
            return {"type": "http.disconnect"}

        async def collect(message: Message) -> None:
            sent.append(message)

        await answer(scope, receive, collect)
        return Answer(sent, scope.get("log", {}), stream, pace)

    result: Answer = run(call())
    return result


def test_an_answer_has_a_mark_of_its_end_unless_the_client_leaves() -> None:
    answer = send(PART, PART[:3], None)
    assert answer.sent[0]["status"] == 200 and answer.body == to_pcm(torch.cat([PART, PART[:3]])).tobytes()
    assert [message["more_body"] for message in answer.sent[1:]] == [True, True, False]
    assert "disconnected" not in answer.log and answer.stream.cancelled
    assert answer.pace.has_audio and answer.pace.lag == pytest.approx(-2 * 103 / 22050)  # may take twice its time
    answer = send(PART, leaves=True)
    assert answer.stream.cancelled and answer.log == {"disconnected": True}
    assert answer.sent[-1]["more_body"] is True


def test_an_error_is_the_status_then_the_end_or_the_last_event() -> None:
    """Before the first part; after it, without and with events. What is cut is an error of the log."""
    before, after = send(timeout_error(3)), send(PART, timeout_error(3))
    event = send(PART, timeout_error(3), error_chunk=error_event)
    assert before.sent[0]["status"] == 504 and json.loads(before.body)["error"]["code"] == "timeout"
    assert "cut" not in before.log and before.stream.cancelled
    assert after.sent[0]["status"] == 200 and after.body == to_pcm(PART).tobytes()
    assert after.sent[-1]["more_body"] is True  # the answer is incomplete
    assert event.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
    data = event.sent[-2]["body"].decode()
    assert json.loads(data.removeprefix("data: ")) == {"type": "error", **timeout_error(3).body()}
    assert data.endswith("\n\n") and after.log["cut"] and event.log["cut"]
    assert all("3 seconds" in answer.log["error"] for answer in (before, after, event))


def test_an_archive_has_an_error_in_place_of_a_stream_that_fails() -> None:
    """Each file leaves as soon as it is complete, so the first chunk has the first file's name."""

    async def call() -> list[bytes]:
        streams = [make_stream(PART, timeout_error(3)), make_stream(PART, None)]
        encoders = [AudioEncoder("wav", 22050, whole=True) for _ in streams]
        return [chunk async for chunk in zip_chunks(streams, encoders, ReadingPace(60))]

    first, *rest = run(call())
    assert b"error_0.json" in first and b"audio_1" not in first
    with zipfile.ZipFile(io.BytesIO(first + b"".join(rest))) as archive:
        assert archive.testzip() is None and archive.namelist() == ["error_0.json", "audio_1.wav"]
        assert json.loads(archive.read("error_0.json")) == timeout_error(3).body()
        contents = archive.read("audio_1.wav")
    assert contents[-200:] == to_pcm(PART).tobytes() and int.from_bytes(contents[40:44], "little") == 200


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("bytes=0-", 200),
        ("bytes=0-99999999", slice(0, None)),
        ("bytes=100-199", slice(100, 200)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=100-99999999", slice(100, None)),
        ("bytes=SIZE-", 416),
        ("bytes=5-2", 416),
        ("bytes=0-1,4-5", 200),
        (f"bytes={'9' * 5000}-", 200),
    ],
)
@pytest.mark.parametrize("seed", ["3", ""])
def test_ranges_are_of_one_file(app: FastAPI, wanted: str, part: slice | int, seed: str) -> None:
    """Safari asks for two bytes first; without a seed, each answer must still be of the same speech."""
    query = {"text": "Yes!", "response_format": "wav", "seed": seed}
    whole = call(app, "GET", SPEECH, params=query, headers={"range": "bytes=0-"})
    size = len(whole.content)
    app.state.files = FileCache()  # as if others had been asked for meanwhile
    answer = call(app, "GET", SPEECH, params=query, headers={"range": wanted.replace("SIZE", str(size))})
    assert answer.status_code == (206 if isinstance(part, slice) else part)
    if isinstance(part, slice):
        first, content = range(size)[part][0], whole.content[part]
        assert answer.content == content
        assert answer.headers["content-range"] == f"bytes {first}-{first + len(content) - 1}/{size}"
    samples, _ = soundfile.read(io.BytesIO(whole.content), dtype="int16")
    assert not seed or samples.tobytes() == pcm("Yes!")


def test_the_latest_files_are_kept_within_the_limits(monkeypatch) -> None:
    monkeypatch.setattr(responses, "MOST_FILES", 3)
    monkeypatch.setattr(responses, "MOST_BYTES", 10)
    files, kept = FileCache(), []
    for key, size in (("a", 1), ("b", 1), ("c", 1), ("d", 1), ("e", 9), ("f", 11)):
        assert files.add(key, bytes(size), {"x-seed": "3", "content-length": "7"}) == (bytes(size), {"x-seed": "3"})
        kept.append("".join(name for name in "abcdef" if files.get(name)))
    assert kept == ["a", "ab", "abc", "bcd", "de", ""]


async def test_a_stream_that_is_cut_ends_as_its_format_does() -> None:
    """The last page of an Ogg file says that it is the last; what has been sent decodes."""
    stream = make_stream(torch.rand(22050) - 0.5, torch.zeros(22050), not_ready_error(is_stopping=True))
    chunks: list[bytes] = []
    with pytest.raises(RequestError, match="is stopping"):
        async for chunk in audio_chunks(stream, AudioEncoder("opus", 22050), ReadingPace(60)):
            chunks.append(chunk)
    file = b"".join(chunks)
    last = file.rindex(b"OggS")
    assert file[last + 5] & 4 and len(decode(file)[0]) == pytest.approx(2 * 48000, abs=1000)
