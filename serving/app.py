"""The HTTP interface of an engine as a FastAPI app: OpenAI's speech API, batches, voices, health and metrics."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote
from zlib import crc32

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.cors import CORSMiddleware
from fastapi_offline import FastAPIOffline
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from common import __version__
from models import REGISTRY
from serving import responses
from serving.config import ServingConfig
from serving.encoding import AudioEncoder
from serving.engine import Engine
from serving.errors import RequestError, quote_value
from serving.gate import Gate
from serving.limits import pace_of
from serving.page import add_page
from serving.schemas import BatchBody, CaptionBody, ErrorBody, Options, SpeechBody, SpeechQuery
from serving.stream import SpeechStream, check_length
from serving.voices import Voices

TITLE = "Speech server"
DESCRIPTION = "Text to speech in the shape of OpenAI's API."
VERSION = "v1"  # of the interface, as in the paths
ALL_BYTES = "bytes=0-"
LONGEST_NOTE = 2000  # characters of a header; some proxies pass on 4,096 for all
OWNER = "local"  # of the models, a field that OpenAI's clients read
OPENAI_MODELS = ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")  # clients written for OpenAI's API name one of these
EXPOSED_HEADERS = (
    *("X-Seed", "X-Voice", "X-Sampling-Rate", "X-Note", "X-Request-Id"),
    *("Content-Disposition", "Retry-After"),
)

# Without an entry 4XX, FastAPI would document status 422, which this server never sends.
ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorBody, "description": "The request is wrong; `message` says why"},
    "5XX": {"model": ErrorBody, "description": "The server is full, is stopping or has failed"},
}

api = APIRouter(responses=ERRORS)
health = APIRouter()


def make_app(engine: Engine, config: ServingConfig) -> FastAPI:
    """Make the app of an engine, which the caller starts and stops."""
    app: FastAPI = FastAPIOffline(title=TITLE, description=DESCRIPTION, version=VERSION, root_path=config.root_path)
    app.state.engine, app.state.config, app.state.files = engine, config, responses.FileCache()
    app.state.routes = [*api.routes, *health.routes]
    app.include_router(api)
    app.include_router(health)
    app.add_exception_handler(RequestError, responses.handle_request_error)
    app.add_exception_handler(RequestValidationError, handle_validation_error)
    app.add_exception_handler(HTTPException, responses.handle_http_error)
    app.add_exception_handler(Exception, handle_other_error)
    app.add_middleware(Gate, config=config, metrics=engine.metrics)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=list(config.cors_origin),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=list(EXPOSED_HEADERS),
    )
    if config.page:
        add_page(app, config)
    return app


SPEECH: dict[str, Any] = {"response_class": Response, "responses": {200: {"content": {"audio/*": {}}}}}


@api.post("/v1/audio/speech", **SPEECH)
async def create_speech(body: SpeechBody, request: Request) -> Response:
    """Speak a text; the answer is sent while the audio is being computed, unless the whole file is asked for."""
    return await answer_speech(body, request, "attachment")


@api.get("/v1/audio/speech", **SPEECH)
async def get_speech(query: Annotated[SpeechQuery, Query()], request: Request) -> Response:
    """Speak a text of the address itself, which a browser plays. A browser that seeks asks for ranges of the file.

    Every player first asks for the range of all bytes, which is the file as it is computed.
    """
    wanted = request.headers.get("range", "")
    if responses.RANGE.fullmatch(wanted) and wanted != ALL_BYTES:
        return await answer_range(query, request)
    if wanted == ALL_BYTES:
        query = with_seed(query, engine_of(request).config)
    return await answer_speech(query, request, "inline")


async def answer_speech(body: SpeechBody, request: Request, disposition: str) -> Response:
    """Answer a request for speech. Raises RequestError as Engine.submit does."""
    pace = pace_of(request.scope)
    stream = engine_of(request).submit(body.request(body.input))
    (encoder,), headers = await encoders_and_headers([stream], body, request, body.is_whole)
    if body.stream_format == "sse":
        chunks, media_type = responses.event_chunks(stream, encoder, pace), "text/event-stream"
        headers |= {"Cache-Control": "no-cache"}
        return responses.StreamedResponse(chunks, [stream], media_type, headers, responses.error_event)
    headers["Content-Disposition"] = f'{disposition}; filename="speech.{encoder.ending}"'
    chunks = responses.audio_chunks(stream, encoder, pace)
    return responses.StreamedResponse(chunks, [stream], encoder.media_type, headers, is_whole=body.is_whole)


@api.head("/v1/audio/speech", include_in_schema=False)
async def head_speech(query: Annotated[SpeechQuery, Query()], request: Request) -> Response:
    """Answer with the headers of a speech, without those that only its computation would tell."""
    engine = engine_of(request)
    engine.check_ready()
    check_length(len(query.input), engine.config)
    voice = engine.voices.resolve(query.voice)
    engine.voices.vocoder_of(voice, query.vocoder)
    encoder = query.encoder(engine.voices.sampling_rate(voice), engine.config, whole=False)
    headers = {"X-Voice": quote(voice), "X-Sampling-Rate": str(encoder.rate)}
    answer = Response(media_type=encoder.media_type, headers=headers)
    del answer.headers["content-length"]
    return answer


def with_seed(query: SpeechQuery, config: ServingConfig) -> SpeechQuery:
    """Return a query whose seed follows from it, unless it or the settings have one, so that a repetition is the same file."""
    seed = crc32(query.model_dump_json().encode()) if query.seed is None and config.seed is None else query.seed
    return query.model_copy(update={"seed": seed})


async def answer_range(query: SpeechQuery, request: Request) -> Response:
    """Answer with a range of the file, computed once. Without a seed, the query chooses it: all ranges are of one file."""
    key = query.model_dump_json()
    query = with_seed(query, engine_of(request).config)
    files: responses.FileCache = request.app.state.files
    if (found := files.get(key)) is None:
        answer = await answer_speech(
            query.model_copy(update={"stream": False, "stream_format": "audio"}), request, "inline"
        )
        assert isinstance(answer, responses.StreamedResponse)
        found = files.add(key, await answer.whole(), answer.headers)
    return responses.ranged(request.headers["range"], *found)


@api.post(
    "/v1/audio/speech/timestamps", response_class=Response, responses={200: {"content": {"application/json": {}}}}
)
@api.post("/v1/dev/captioned_speech", include_in_schema=False)  # its name in Kokoro-FastAPI, without /v1
async def create_captions(body: CaptionBody, request: Request) -> Response:
    """Speak a text; the answer is lines of JSON with parts of the audio and the times of the words."""
    stream = engine_of(request).submit(body.request(body.input))
    (encoder,), headers = await encoders_and_headers([stream], body, request, not body.stream)
    if body.second_format:
        encoder.second = body.encoder(
            stream.sampling_rate, engine_of(request).config, not body.stream, body.second_format
        )
    last = partial(responses.details_of, stream, encoder.speed) if body.details else None
    chunks = responses.caption_chunks(stream, encoder, pace_of(request.scope), body.return_timestamps, last)
    return responses.StreamedResponse(
        chunks, [stream], "application/json", headers, responses.error_line, not body.stream
    )


@api.post("/v1/audio/speech/batch", response_class=Response, responses={200: {"content": {"application/zip": {}}}})
async def create_batch(body: BatchBody, request: Request) -> Response:
    """Speak several texts; the answer is a zip archive with audio_0, audio_1 and so on, in the order of the texts."""
    engine = engine_of(request)
    most = min(engine.config.max_inputs, engine.config.max_queue)
    if len(body.input) > most:
        raise RequestError(400, f"input: {len(body.input)} texts, expected at most {most}", param="input")
    for number, text in enumerate(body.input):
        check_length(len(text), engine.config, f"input.{number}")
    streams = engine.submit_all([body.request(text) for text in body.input])
    encoders, headers = await encoders_and_headers(streams, body, request, whole=True)
    chunks = responses.zip_chunks(streams, encoders, pace_of(request.scope))
    return responses.StreamedResponse(chunks, streams, "application/zip", headers)


@api.get("/v1/models")
@api.get("/v1/audio/models")
async def list_models() -> dict[str, Any]:
    """List the models, in OpenAI's shape and, as `models`, in that of Open WebUI."""
    models = [model_object(name) for name in model_names()]
    return {"object": "list", "data": models, "models": models}


@api.get("/v1/models/{model}")
async def get_model_object(model: str) -> dict[str, Any]:
    """Describe one model."""
    if model_notes(model):
        message = f"model: {quote_value(model)} is not one of {', '.join(model_names())}"
        raise RequestError(404, message, param="model", code="model_not_found")
    return model_object(model)


@api.get("/v1/voices")
@api.get("/v1/audio/voices")
async def list_voices(request: Request) -> dict[str, Any]:
    """List the voices with their vocoders and sampling rates, the default ones first; `voices` is for Open WebUI and others."""
    engine = engine_of(request)
    engine.check_ready()
    voices = engine.voices
    data = [
        {
            "id": name,
            "name": name,
            "object": "voice",
            "default": name == voices.default,
            "vocoders": voices.vocoders(name),
            "noisy_vocoders": [vocoder for vocoder in voices.vocoders(name) if voices.has_noise(name, vocoder)],
            "sampling_rate": voices.sampling_rate(name),
            **voices.about(name)._asdict(),
        }
        for name in voices.names
    ]
    return {"object": "list", "data": data, "voices": data}


@health.get("/healthz")
@health.get("/health", include_in_schema=False)  # as other speech servers name it
async def get_health(request: Request) -> Response:
    """Answer 200 while the process works, 500 once the models' thread has failed."""
    is_alive = engine_of(request).is_alive
    content = {"status": "ok" if is_alive else "failed", "version": __version__}
    return JSONResponse(content, 200 if is_alive else 500)


@health.get("/readyz")
async def get_readiness(request: Request) -> Response:
    """Answer 200 while requests are accepted, 503 before the voices are loaded and while the server is stopping."""
    ready = engine_of(request).ready
    return JSONResponse({"status": "ready" if ready else "not ready"}, 200 if ready else 503)


@health.get("/metrics", response_class=PlainTextResponse)
async def get_metrics(request: Request) -> Response:
    """Return the metrics for Prometheus."""
    return Response(generate_latest(engine_of(request).metrics.registry), media_type=CONTENT_TYPE_LATEST)


def engine_of(request: Request) -> Engine:
    """Return the engine of the app that received a request."""
    engine: Engine = request.app.state.engine
    return engine


async def encoders_and_headers(
    streams: list[SpeechStream], body: Options, request: Request, whole: bool
) -> tuple[list[AudioEncoder], dict[str, str]]:
    """Make the encoders of a request's streams and the headers that describe them, and add them to its log line.

    The voice, a folder's name, is percent-encoded. Texts are in the log only if the settings say so.
    """
    config, first = engine_of(request).config, streams[0]
    encoders = [body.encoder(stream.sampling_rate, config, whole) for stream in streams]
    texts = [stream.request.text for stream in streams]
    fields = {"voice": first.voice, "seed": first.seed, "characters": sum(map(len, texts))}
    fields |= {"texts": texts} if config.log_texts else {}
    request.scope.setdefault("log", {}).update(fields)
    request.scope.setdefault("streams", []).extend(streams)  # the gate logs their audio at the end
    seeds = ",".join(str(stream.seed) for stream in streams)
    headers = {"X-Seed": seeds, "X-Voice": quote(first.voice), "X-Sampling-Rate": str(encoders[0].rate)}
    if notes := [*model_notes(body.model), *await asyncio.to_thread(notes_on, streams, engine_of(request).voices)]:
        headers["X-Note"] = ascii("; ".join(notes))[1:-1][:LONGEST_NOTE]
    return encoders, headers


def notes_on(streams: list[SpeechStream], voices: Voices) -> list[str]:
    """List what the texts of streams demand in vain, of several each with its number."""
    found = ((number, note) for number, one in enumerate(streams) for note in voices.notes(one.voice, one.request.text))
    return [note if len(streams) == 1 else f"input.{number}: {note}" for number, note in found]


def model_names() -> list[str]:
    """List the ids of /v1/models: this server's own, then OpenAI's."""
    return [*(spec.flag for spec in REGISTRY.values() if spec.role == "acoustic"), *OPENAI_MODELS]


def model_notes(name: str | None) -> list[str]:
    """Note a model that is not listed: clients name many, and all have the same speech."""
    known = not name or name.lower().startswith((*model_names(), "kokoro"))
    return (
        [] if known else [f"model {quote_value(name)} is not one of {', '.join(model_names())}; the voice's own spoke"]
    )


def model_object(name: str) -> dict[str, Any]:
    """Describe a model in OpenAI's shape."""
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER}


def handle_validation_error(request: Request, error: Exception) -> Response:
    """Answer an invalid body, with all problems in one message."""
    assert isinstance(error, RequestValidationError)
    problems, params = [], []
    for problem in error.errors():
        name = ".".join(str(part) for part in problem["loc"][1:]) or "body"
        params.append("body" if problem["type"] == "json_invalid" else name)
        if problem["type"] == "json_invalid":
            problems.append(f"body: not JSON, at character {name}: {problem.get('ctx', {}).get('error', '')}")
        elif isinstance(problem.get("input"), bytes):
            problems.append("body: not read as JSON; send the header Content-Type: application/json")
        elif problem["type"] == "missing":
            problems.append(f"{name}: missing")
        else:
            problems.append(f"{name}: {quote_value(problem.get('input'))}: {problem['msg']}")
    return responses.handle_request_error(
        request, RequestError(400, "; ".join(problems), param=params[0], code="invalid_body")
    )


def handle_other_error(request: Request, error: Exception) -> Response:
    """Answer a fault of the server. The traceback is in its log."""
    return responses.error_response(RequestError(500, "the server failed; its log has the cause", code="internal"))
