"""Answers sent while they are computed, ranges of files, details for the page, and errors in the shape of OpenAI's API."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import re
import zipfile
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import torch
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from common.inference.words import Word
from serving.encoding import AudioEncoder, Sink
from serving.errors import RequestError, quote_value
from serving.limits import ReadingPace
from serving.stream import SpeechStream

Chunks = AsyncGenerator[bytes, None]
LARGEST_CHUNK = 2**16  # bytes
# One range, of numbers that Python reads; a server may ignore others (RFC 9110, 14.2).
RANGE = re.compile(r"bytes=(?=\d|-\d)(\d{0,18})-(\d{0,18})", re.ASCII)
MOST_FILES, MOST_BYTES = 16, 2**25
WIDEST, HIGHEST = 800, 240  # points of a picture

# M mels, T frames, K decoder steps, S symbols


class StreamedResponse(Response):
    """Sends chunks as they arrive, and cancels their streams at the end or when the client leaves.

    An error before the first chunk becomes the status of the answer. After a later error, the connection ends without the mark of a
    complete body, unless `error_chunk` turns the error into a last chunk; the request's line of the log is then one of an error.
    `is_whole`: the first chunk is the only one, and the answer states its length.
    """

    def __init__(
        self,
        chunks: Chunks,
        streams: Sequence[SpeechStream],
        media_type: str,
        headers: Mapping[str, str],
        error_chunk: Callable[[RequestError], bytes] | None = None,
        is_whole: bool = False,
    ) -> None:
        self.chunks, self.streams, self.error_chunk, self.is_whole = chunks, streams, error_chunk, is_whole
        super().__init__(None, headers=headers, media_type=media_type)
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the last chunk, or until the client leaves."""
        sending = asyncio.ensure_future(self._send(scope, receive, send))
        leaving = asyncio.ensure_future(wait_for_disconnect(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._close()
            if not sending.done():
                scope.setdefault("log", {})["disconnected"] = True
            for task in (sending, leaving):
                task.cancel()
            results = await asyncio.gather(sending, leaving, return_exceptions=True)
        for error in results:
            if isinstance(error, Exception):
                raise error

    async def whole(self) -> bytes:
        """Return all chunks. Raises RequestError as they do."""
        try:
            return b"".join([chunk async for chunk in self.chunks])
        finally:
            self._close()

    def _close(self) -> None:
        for stream in self.streams:
            stream.cancel()

    async def _send(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            first = await anext(self.chunks)
        except RequestError as error:
            scope.setdefault("log", {})["error"] = error.log_message
            await error_response(error)(scope, receive, send)
            return
        if self.is_whole:
            self.headers["content-length"] = str(len(first))
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for start in range(0, len(first), LARGEST_CHUNK):  # a client in real time takes minutes for a whole file
            part = first[start : start + LARGEST_CHUNK]
            await send({"type": "http.response.body", "body": part, "more_body": True})
        try:
            async for chunk in self.chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except RequestError as error:
            scope.setdefault("log", {}).update({"error": error.log_message, "cut": True})
            if self.error_chunk is None:
                return  # the server closes the connection of an incomplete answer
            await send({"type": "http.response.body", "body": self.error_chunk(error), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has left. Its body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def audio_chunks(stream: SpeechStream, encoder: AudioEncoder, pace: ReadingPace) -> Chunks:
    """Yield the bytes of a stream's file, and count its audio. Raises as the stream does.

    Threads encode: the last bytes of a long file take a second, in which the event loop answers others.
    """
    pace.begin()
    has_begun = False
    try:
        async for audio in stream:
            pace.add(encoder.seconds(audio))
            if chunk := await asyncio.to_thread(encoder.encode, audio):
                has_begun = True
                yield chunk
    except RequestError:
        if has_begun and (last := await asyncio.to_thread(encoder.finish)):
            yield last  # what has been sent becomes a file with an end
        raise
    if last := await asyncio.to_thread(encoder.finish):
        yield last


async def event_chunks(stream: SpeechStream, encoder: AudioEncoder, pace: ReadingPace) -> Chunks:
    """Yield OpenAI's events: parts of the file in base64, then the usage in text symbols and mel frames."""
    async with contextlib.aclosing(audio_chunks(stream, encoder, pace)) as chunks:
        async for chunk in chunks:
            yield event("speech.audio.delta", audio=base64.b64encode(chunk).decode())
    symbols = sum(map(len, stream.symbols))
    frames = sum(speech.mel.shape[1] for speech in stream.speeches)
    usage = {"input_tokens": symbols, "output_tokens": frames, "total_tokens": symbols + frames}
    yield event("speech.audio.done", usage=usage)


async def caption_chunks(
    stream: SpeechStream,
    encoder: AudioEncoder,
    pace: ReadingPace,
    has_words: bool,
    details: Callable[[], dict[str, Any]] | None = None,
) -> Chunks:
    """Yield lines of JSON in the shape of Kokoro-FastAPI: a part of the file in base64, and the words whose audio has begun.

    `details`: called at the end, for a line of its own.
    """
    async with contextlib.aclosing(audio_chunks(stream, encoder, pace)) as chunks:
        async for chunk in chunks:
            words = word_times(await asyncio.to_thread(stream.new_words) if has_words else [], encoder.speed)
            yield caption(encoder, chunk, words)
        if encoder.second is not None and (last := encoder.take_second()):
            yield caption(encoder, b"", [], last)
    if details is not None:
        yield json.dumps({"details": await asyncio.to_thread(details)}).encode() + b"\n"


def caption(encoder: AudioEncoder, chunk: bytes, words: Sequence[Mapping[str, object]], last: bytes = b"") -> bytes:
    """Return a line of JSON: a part of the file, and what there is of the second file since the line before."""
    line = {"audio": base64.b64encode(chunk).decode(), "audio_format": encoder.media_type, "timestamps": words}
    if encoder.second is not None:
        line["second"] = base64.b64encode(last or encoder.take_second()).decode()
    return json.dumps(line).encode() + b"\n"


def word_times(words: Sequence[Word], speed: float) -> list[dict[str, str | float]]:
    """List the times of words, in Kokoro-FastAPI's names, of speech at a speed.

    Milliseconds are rounded down, so that no word ends after its audio.
    """

    def seconds(time: float) -> float:
        return math.floor(1000 * time / speed) / 1000

    return [{"word": word.text, "start_time": seconds(word.start), "end_time": seconds(word.end)} for word in words]


def error_line(error: RequestError) -> bytes:
    """Format an error as the last line of JSON of a stream."""
    return json.dumps(error.body()).encode() + b"\n"


def event(kind: str, **fields: object) -> bytes:
    """Format one server-sent event."""
    return f"data: {json.dumps({'type': kind, **fields})}\n\n".encode()


def error_event(error: RequestError) -> bytes:
    """Format an error as the last event of a stream."""
    return event("error", **error.body())


async def zip_chunks(streams: Sequence[SpeechStream], encoders: Sequence[AudioEncoder], pace: ReadingPace) -> Chunks:
    """Yield a zip archive with a file for each stream (audio_0, audio_1, …), each as soon as it is complete.

    A stream that fails is replaced by error_0.json, error_1.json and so on, with the body of the error.
    """
    sink = Sink()
    with zipfile.ZipFile(sink, "w") as archive:  # type: ignore[call-overload]
        for number, (stream, encoder) in enumerate(zip(streams, encoders, strict=True)):
            try:
                contents = b"".join([chunk async for chunk in audio_chunks(stream, encoder, pace)])
            except RequestError as error:
                archive.writestr(f"error_{number}.json", json.dumps(error.body()))
                yield sink.take()
                continue
            await asyncio.to_thread(archive.writestr, f"audio_{number}.{encoder.ending}", contents)
            yield sink.take()
    yield sink.take()


def error_response(error: RequestError) -> JSONResponse:
    """Return the answer for an error."""
    return JSONResponse(error.body(), error.status, headers=error.headers)


def handle_request_error(request: Request, error: Exception) -> Response:
    """Answer a RequestError, as a handler of FastAPI."""
    assert isinstance(error, RequestError)
    request.scope.setdefault("log", {})["error"] = error.log_message
    return error_response(error)


def handle_http_error(request: Request, error: Exception) -> Response:
    """Answer an unknown path or method, or a body that is too large or too late."""
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST:  # FastAPI's, for bytes that are not UTF-8 and numbers without end
        message = "body: cannot be read, expected JSON in UTF-8"
        return handle_request_error(request, RequestError(400, message, param="body", code="invalid_body"))
    path = quote_value(request.scope["path"])
    headers = error.headers
    message = f"path {path}: not found; /docs lists all" if error.status_code == 404 else str(error.detail)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED and (allowed := allowed_methods(request)):
        # Starlette names those of one of the path's routes.
        message, headers = f"method {request.method}: expected {' or '.join(allowed)}", {"Allow": ", ".join(allowed)}
    return handle_request_error(request, RequestError(error.status_code, message, headers=headers))


def allowed_methods(request: Request) -> list[str]:
    """List the methods that the interface's routes of a request's path have; GET implies HEAD."""
    routes = [route for route in request.app.state.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in routes for method in getattr(route, "methods", None) or ()} - {"HEAD"})


File = tuple[bytes, Mapping[str, str]]  # its contents, and the headers of its answer


class FileCache:
    """The latest files, by request, so that a browser's next range is not computed again."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, File] = OrderedDict()

    def get(self, key: str) -> File | None:
        """Return a file that is still here."""
        return self._files.get(key)

    def add(self, key: str, contents: bytes, headers: Mapping[str, str]) -> File:
        """Keep a file, and drop the oldest beyond the limits."""
        file = contents, {name: value for name, value in headers.items() if name != "content-length"}
        self._files[key] = file
        while len(self._files) > MOST_FILES or sum(len(data) for data, _ in self._files.values()) > MOST_BYTES:
            self._files.popitem(last=False)
        return file


def ranged(wanted: str, contents: bytes, headers: Mapping[str, str]) -> Response:
    """Answer 206 with the bytes of a header Range that RANGE matches, or 416 where the file has none of them (RFC 9110, 14)."""
    match = RANGE.fullmatch(wanted)
    assert match is not None
    size = len(contents)
    first = int(match[1]) if match[1] else max(0, size - int(match[2]))
    last = min(size - 1, int(match[2])) if match[1] and match[2] else size - 1
    if first >= size or (match[1] and match[2] and int(match[2]) < first):
        return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    own = {"Content-Range": f"bytes {first}-{last}/{size}", "Accept-Ranges": "bytes"}
    return Response(contents[first : last + 1], 206, headers={**headers, **own})


def details_of(stream: SpeechStream, speed: float) -> dict[str, Any]:
    """Describe a finished stream: when its first and its last sound were computed, whether it is complete, and both pictures."""
    speech = stream.speech
    mel = (speech.mel - speech.mel.min()) / (speech.mel.max() - speech.mel.min()).clamp(min=1e-5)
    return {
        "first": stream.first or 0.0,
        "computed": stream.clock.progress - stream.start,
        "finished": speech.finished,
        "seconds": sum(part.seconds for part in speech.parts) / speed,  # without pauses
        "mel": picture(mel),  # (M, T)
        "alignment": picture(speech.alignment.T),  # (S, K)
    }


def picture(values: Tensor) -> dict[str, Any]:
    """Shrink values (rows, columns) from 0 to 1 to the size of a screen; return bytes in base64, the first row at the bottom."""
    size = (min(HIGHEST, values.shape[0]), min(WIDEST, values.shape[1]))
    small = adaptive_max_pool2d(values[None].float(), size)[0]  # the maximum keeps a thin line of attention
    data = (255 * small).round().clamp(0, 255).to(torch.uint8).numpy().tobytes()
    return {"rows": size[0], "columns": size[1], "values": base64.b64encode(data).decode()}
