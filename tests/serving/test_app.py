"""The HTTP interface, through ASGI: formats, settings, errors in OpenAI's shape, batches, the key, limits and metrics."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import torch
from fastapi import FastAPI

from common.audio.audio_processing import load_audio, to_pcm
from serving.app import make_app
from serving.config import ServingConfig
from serving.engine import Engine
from serving.schemas import ErrorBody
from serving.voices import Voices
from synthesizer import EMBEDDED
from tests.serving.conftest import decode, reference, run, running_engine, wait_until_ready

pytestmark = pytest.mark.slow
SPEECH, BATCH = "/v1/audio/speech", "/v1/audio/speech/batch"


def app_of(engine: Engine, **settings: Any) -> FastAPI:
    return make_app(engine, ServingConfig(cpu=True, page=False, **settings))


@pytest.fixture(scope="module")
def app(engine: Engine) -> FastAPI:
    return app_of(engine)


def call(app: FastAPI, method: str, path: str, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://server", timeout=120) as client:
            return await client.request(method, path, **request)

    response: httpx.Response = run(send())
    return response


def speak(app: FastAPI, text: str = "Two.", **settings: Any) -> httpx.Response:
    return call(app, "POST", SPEECH, json={"input": text, "seed": 3, "response_format": "pcm", **settings})


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return error  # type: ignore[no-any-return]


def test_pcm_is_the_stream_of_the_library(app: FastAPI) -> None:
    response = speak(app, model="tts-1", voice="alloy")
    assert response.status_code == 200 and response.content == to_pcm(reference("Two.", 3)).tobytes()
    assert response.headers["content-type"] == "audio/pcm;rate=22050;channels=1"
    assert response.headers["x-seed"] == "3" and response.headers["x-voice"] == "embedded"
    assert "content-length" not in response.headers


@pytest.mark.parametrize(
    ("name", "kind"), [("wav", "audio/wav"), ("mp3", "audio/mpeg"), ("opus", "audio/ogg"), ("aac", "audio/aac")]
)
def test_each_format_is_the_speech(app: FastAPI, name: str, kind: str) -> None:
    response = speak(app, response_format=name)
    assert response.headers["content-type"] == kind
    audio = reference("Two.", 3).numpy()
    samples, rate = decode(response.content)
    assert len(samples) / rate == pytest.approx(len(audio) / 22050, abs=0.12)
    assert np.std(samples) == pytest.approx(np.std(audio), rel=0.15)


def test_mp3_is_the_default_format(app: FastAPI) -> None:
    response = call(app, "POST", SPEECH, json={"input": "Two."})
    assert response.headers["content-type"] == "audio/mpeg"
    assert 0 <= int(response.headers["x-seed"]) < 2**31


def test_settings_reach_the_voice(app: FastAPI) -> None:
    settings = {"vocoder": "waveglow", "sigma": 0.5, "denoising_strength": 0.2}
    audio = reference("Two.", 3, vocoder="waveglow", sigma_infer=0.5, denoising_strength=0.2)
    assert speak(app, **settings).content == to_pcm(audio).tobytes()
    assert speak(app, voice={"id": "embedded"}, seed=4).content == to_pcm(reference("Two.", 4)).tobytes()


def test_speed_and_rate(app: FastAPI) -> None:
    samples = len(reference("Two.", 3))
    assert len(speak(app, speed=2.0).content) / 2 == pytest.approx(samples / 2, rel=0.1)
    response = speak(app, sample_rate=24000)
    assert len(response.content) / 2 == pytest.approx(samples * 24000 / 22050, rel=0.02)
    assert response.headers["x-sampling-rate"] == "24000"


def test_events_are_those_of_openai(app: FastAPI) -> None:
    response = speak(app, stream_format="sse")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    lines = [line for line in response.text.split("\n\n") if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    *deltas, done = events
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    audio = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert audio == to_pcm(reference("Two.", 3)).tobytes()
    frames = len(audio) // 2 // 256
    assert done == {
        "type": "speech.audio.done",
        "usage": {"input_tokens": 4, "output_tokens": frames, "total_tokens": frames + 4},
    }


class BrokenVocoder:
    """A vocoder that fails after its first part."""

    def with_settings(self, seed: int, sigma: float, strength: float) -> BrokenVocoder:
        return self

    def stream(self, *args: object) -> Iterator[torch.Tensor]:
        yield torch.zeros(100)
        raise RuntimeError("shapes")


def test_a_fault_among_events_is_the_last_event() -> None:
    with running_engine() as engine:
        _, neural = engine.voices.all_loaded()
        neural.vocoder = BrokenVocoder()
        response = speak(app_of(engine), stream_format="sse", vocoder="waveglow")
    first, last = [json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line]
    assert base64.b64decode(first["audio"]) == bytes(200)
    assert last["type"] == "error" and last["error"]["code"] == "internal" and "shapes" not in response.text


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"input": "Two.", "speed": 5}, "speed", "speed: 5"),
        ({"input": "Two.", "response_format": "ogg"}, "response_format", "'ogg'"),
        ({"input": "Two.", "seed": -1}, "seed", "seed: -1"),
        ({"input": "Two.", "seed": 1.5}, "seed", "seed: 1.5"),
        ({"input": "Two.", "sample_rate": 1}, "sample_rate", "22050"),
        ({"input": ["Two."]}, "input", "input: ['Two.']"),
        ({"text": "Two."}, "input", "input: missing"),
        ({"input": "Two.", "speed": 5, "seed": -1}, "speed", "seed: -1"),
        ({"input": " "}, "input", "empty"),
        ({"input": "{HH AH0 XX9}"}, "input", "XX9"),
    ],
)
def test_a_wrong_body_is_400_with_found_and_expected(app: FastAPI, body: dict, param: str, words: str) -> None:
    error = error_of(call(app, "POST", SPEECH, json=body), 400)
    assert error["param"] == param and words in error["message"]


def test_a_body_that_is_no_json(app: FastAPI) -> None:
    headers = {"content-type": "application/json"}
    assert "not JSON" in error_of(call(app, "POST", SPEECH, content=b'{"input":', headers=headers), 400)["message"]
    assert len(error_of(speak(app, seed="x" * 10000), 400)["message"]) < 300


def test_unknown_names(app: FastAPI) -> None:
    assert error_of(speak(app, model="whisper-1"), 404)["code"] == "model_not_found"
    assert error_of(speak(app, voice="nobody"), 404)["code"] == "voice_not_found"
    assert error_of(call(app, "GET", "/other"), 404)["message"] == "Not Found"


@pytest.mark.parametrize(
    "path", ["/../README.md", "/static-offline-docs/../core.py", "/static-offline-docs/%2e%2e/core.py"]
)
def test_no_path_reaches_a_file(app: FastAPI, path: str) -> None:
    assert call(app, "GET", path).status_code == 404
    assert error_of(speak(app, voice="../../voice"), 404)["param"] == "voice"


def test_a_batch_is_an_archive_of_the_single_answers(app: FastAPI, tmp_path: Path) -> None:
    texts = ["Two.", "Yes!"]
    response = call(app, "POST", BATCH, json={"input": texts, "seed": 3, "response_format": "wav"})
    assert response.headers["content-type"] == "application/zip" and response.headers["x-seed"] == "3,3"
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.testzip() is None and archive.namelist() == ["audio_0.wav", "audio_1.wav"]
        archive.extractall(tmp_path)
    for number, text in enumerate(texts):
        path = tmp_path / f"audio_{number}.wav"
        np.testing.assert_array_equal(to_pcm(load_audio(path, 22050)), to_pcm(reference(text, 3)))
        assert soundfile.info(path).frames == len(reference(text, 3))  # the header has the true size


def test_limits_of_a_batch(app: FastAPI) -> None:
    assert (
        "33 texts, expected at most 32"
        in error_of(call(app, "POST", BATCH, json={"input": ["a"] * 33}), 400)["message"]
    )
    assert error_of(call(app, "POST", BATCH, json={"input": []}), 400)["param"] == "input"
    error = error_of(call(app, "POST", BATCH, json={"input": ["Two.", " "]}), 400)
    assert error["param"] == "input.1" and error["message"].startswith("input.1: empty")


def test_the_files_of_a_batch_and_its_errors(app: FastAPI) -> None:
    body = {"input": ["Two.", "{HH AH0 XX9}"], "seed": 3, "response_format": "opus"}
    with zipfile.ZipFile(io.BytesIO(call(app, "POST", BATCH, json=body).content)) as archive:
        assert archive.namelist() == ["audio_0.ogg", "error_1.json"]
        error = json.loads(archive.read("error_1.json"))["error"]
        assert error["code"] == "invalid_text" and "XX9" in error["message"] and "item" not in error["message"]
        assert soundfile.info(io.BytesIO(archive.read("audio_0.ogg"))).subtype == "OPUS"


def test_a_batch_larger_than_the_queue_can_never_be_accepted() -> None:
    """So it is the client's mistake, 400, in place of 503 that asks it to try again."""
    config = ServingConfig(cpu=True, max_queue=2)
    app = app_of(Engine(Voices(config), config))
    assert (
        "3 texts, expected at most 2" in error_of(call(app, "POST", BATCH, json={"input": ["a"] * 3}), 400)["message"]
    )


def test_models_and_voices(app: FastAPI) -> None:
    models = call(app, "GET", "/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == "tacotron2"
    for name in ("tts-1", "gpt-4o-mini-tts-2025-12-15"):  # with a date as well
        assert call(app, "GET", f"/v1/models/{name}").json()["id"] == name
    assert error_of(call(app, "GET", "/v1/models/nothing"), 404)["code"] == "model_not_found"
    (voice,) = call(app, "GET", "/v1/voices").json()["data"]
    assert voice == {
        "id": "embedded",
        "object": "voice",
        "default": True,
        "vocoders": ["griffin-lim", "waveglow"],
        "sampling_rate": 22050,
    }


def test_health_and_readiness(app: FastAPI) -> None:
    assert call(app, "GET", "/healthz").status_code == call(app, "GET", "/readyz").status_code == 200
    config = ServingConfig(cpu=True)
    engine = Engine(Voices(config), config)
    cold = app_of(engine)
    assert call(cold, "GET", "/healthz").status_code == 500  # no thread yet
    assert call(cold, "GET", "/readyz").status_code == 503
    response = speak(cold)
    assert error_of(response, 503)["code"] == "not_ready" and response.headers["retry-after"] == "5"
    assert "being loaded" in error_of(response, 503)["message"]
    assert error_of(call(cold, "GET", "/v1/voices"), 503)["code"] == "not_ready"
    engine.start()
    wait_until_ready(engine)
    assert call(cold, "GET", "/readyz").status_code == 200
    run(engine.stop())
    assert call(cold, "GET", "/readyz").status_code == 503 and call(cold, "GET", "/healthz").status_code == 200
    assert "the server stops" in error_of(speak(cold), 503)["message"]


def test_unknown_paths_and_methods_have_the_shape_of_errors_beside_a_page(app: FastAPI) -> None:
    """A page is mounted at / and would answer them otherwise."""
    response = call(app, "GET", "/v1/audio/speech")
    assert error_of(response, 405)["message"] == "method GET: expected POST" and response.headers["allow"] == "POST"
    assert "'/v1/nothing'" in error_of(call(app, "POST", "/v1/nothing"), 404)["message"]
    assert error_of(call(app, "DELETE", "/v1/models/tts-1"), 405)["message"] == "method DELETE: expected GET"


def test_a_body_without_its_type_is_named(app: FastAPI) -> None:
    response = call(app, "POST", SPEECH, content=b'{"input": "Two."}', headers={"Content-Type": "text/plain"})
    assert "Content-Type: application/json" in error_of(response, 400)["message"]
    broken = call(app, "POST", SPEECH, content=b'{"input": "', headers={"Content-Type": "application/json"})
    assert error_of(broken, 400)["param"] == "body"


def test_the_header_names_the_rate_of_opus(app: FastAPI) -> None:
    assert speak(app, response_format="opus").headers["x-sampling-rate"] == "48000"
    assert speak(app, response_format="opus", sample_rate=16000).headers["x-sampling-rate"] == "48000"


def test_metrics_count_requests_characters_audio_and_errors() -> None:
    with running_engine() as engine:
        app = app_of(engine)
        speak(app)
        speak(app, voice="nobody")
        response = call(app, "GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    values = dict(re.findall(r"^(tts_\S+) (\S+)$", response.text, re.MULTILINE))
    assert float(values['tts_requests_total{result="ok",voice="embedded"}']) == 1
    assert float(values['tts_characters_total{voice="embedded"}']) == 4
    seconds = len(reference("Two.", 3)) / 22050
    assert float(values['tts_audio_seconds_total{voice="embedded"}']) == pytest.approx(seconds)
    assert float(values['tts_errors_total{status="404"}']) == 1
    assert float(values["tts_batch_size_sum"]) == float(values["tts_first_byte_seconds_count"]) == 1
    assert float(values["tts_queue_length"]) == 0 and float(values["tts_ready"]) == 1


def test_the_key(engine: Engine) -> None:
    app = app_of(engine, api_key="sésame")
    assert error_of(speak(app), 401)["code"] == "invalid_api_key"

    def status(path: str, **headers: str) -> int:
        encoded = {name: value.encode() for name, value in headers.items()}
        return call(app, "GET", path, headers=encoded).status_code

    assert status("/v1/voices", authorization="Bearer sésame") == 200
    assert status("/v1/voices", authorization="Bearer other") == status("/v1/voices", authorization="sésame") == 401
    basic = base64.b64encode("me:sésame".encode()).decode()
    assert status("/docs", authorization=f"Basic {basic}") == 200
    assert status("/docs", authorization="Basic !!") == status("/openapi.json") == 401
    assert "basic" in call(app, "GET", "/docs").headers["www-authenticate"].lower()
    assert "www-authenticate" not in call(app, "GET", "/v1/voices").headers
    assert status("/healthz") == status("/readyz") == status("/metrics") == 200


def test_bodies_beyond_the_limit(engine: Engine) -> None:
    app = app_of(engine, max_body=2000)
    error = error_of(speak(app, "a" * 3000), 413)
    assert re.fullmatch(r"body: \d+ bytes, expected at most 2000 bytes \(--max-body\)", error["message"])

    async def chunks() -> Any:
        for _ in range(30):
            yield b" " * 100

    headers = {"content-type": "application/json"}
    assert "--max-body" in error_of(call(app, "POST", SPEECH, content=chunks(), headers=headers), 413)["message"]
    assert speak(app).status_code == 200


def test_other_origins_are_allowed_where_the_settings_name_them(engine: Engine, app: FastAPI) -> None:
    headers = {"origin": "https://example.org"}
    assert "access-control-allow-origin" not in call(app, "GET", "/v1/voices", headers=headers).headers
    open_app = app_of(engine, cors_origins=("https://example.org",), api_key="k")
    asking = headers | {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    answer = call(open_app, "OPTIONS", SPEECH, headers=asking)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://example.org"
    own = call(open_app, "GET", "/v1/voices", headers=headers | {"authorization": "Bearer k"})
    assert "X-Seed" in own.headers["access-control-expose-headers"]
    asking["origin"] = "https://example.com"
    assert "access-control-allow-origin" not in call(open_app, "OPTIONS", SPEECH, headers=asking).headers


def test_the_page_of_the_interface_needs_no_other_host(app: FastAPI) -> None:
    page = call(app, "GET", "/docs").text
    places = re.findall(r"(?:src|href)=[\"']([^\"']+)", page)
    assert len(places) >= 2 and all(place.startswith("/") for place in places)
    for place in places:
        assert call(app, "GET", place).status_code == 200
    paths = call(app, "GET", "/openapi.json").json()["paths"]
    assert {SPEECH, BATCH, "/v1/models", "/v1/voices", "/healthz", "/readyz", "/metrics"} <= set(paths)
    for path in (SPEECH, BATCH):  # wrong bodies have 400 and OpenAI's shape: FastAPI's own 422 is never sent
        assert set(paths[path]["post"]["responses"]) == {"200", "4XX", "5XX"}
    wrong = call(app, "POST", SPEECH, json={"input": 7}).json()
    ErrorBody.model_validate(wrong, strict=True)


def test_a_request_is_one_line_of_the_log_without_its_text(app: FastAPI, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="serving.access"):
        speak(app, "Yes!")
        call(app, "GET", "/readyz")
    (record,) = caplog.records
    fields = record.fields  # type: ignore[attr-defined]
    assert fields.items() >= {"path": SPEECH, "status": 200, "voice": "embedded", "seed": 3, "characters": 4}.items()
    assert fields["audio_seconds"] == pytest.approx(len(reference("Yes!", 3)) / 22050, abs=1e-3)
    assert 0 < fields["first_byte"] <= fields["seconds"]
    assert "Yes" not in str(fields)


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        (SPEECH, ["The key is hunter."], "input: invalid_body"),
        (BATCH, "The key is hunter.", "input: invalid_body"),
        (SPEECH, "The key is {hunter}", "input: invalid_text"),
    ],
)
def test_the_log_of_a_refused_request_has_no_text(
    app: FastAPI, caplog: pytest.LogCaptureFixture, path: str, text: Any, words: str
) -> None:
    with caplog.at_level(logging.INFO, logger="serving.access"):
        answer = call(app, "POST", path, json={"input": text})
    assert "hunter" in error_of(answer, 400)["message"].lower()
    assert caplog.records[-1].fields["error"] == words  # type: ignore[attr-defined]
    assert "hunter" not in str(caplog.records[-1].fields).lower()  # type: ignore[attr-defined]


def test_the_log_has_texts_where_the_settings_ask_for_them(caplog: pytest.LogCaptureFixture) -> None:
    with running_engine(log_texts=True) as engine, caplog.at_level(logging.INFO, logger="serving.access"):
        speak(app_of(engine, log_texts=True), "Yes!")
    assert caplog.records[-1].fields["texts"] == ["Yes!"]  # type: ignore[attr-defined]


def test_a_client_that_leaves_before_the_first_part_is_not_served(engine: Engine, app: FastAPI) -> None:
    """ASGI's own message of it, since an HTTP client of this process cannot leave."""
    body = json.dumps({"input": "It is late. " * 40, "seed": 1}).encode()
    sent: list[dict] = []

    async def serve() -> None:
        messages = [{"type": "http.request", "body": body, "more_body": False}, {"type": "http.disconnect"}]

        async def receive() -> dict:
            await asyncio.sleep(0.01)
            return messages.pop(0)

        async def send(message: dict) -> None:
            sent.append(message)

        headers = [(b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": SPEECH, "headers": headers, "query_string": b""}
        await app(scope, receive, send)
        while engine.metrics.registry.get_sample_value("tts_queue_length"):
            await asyncio.sleep(0.01)

    run(asyncio.wait_for(serve(), 60))
    assert sent == []


def test_a_voice_with_a_name_beyond_latin(tmp_path: Path) -> None:
    """The header has it in percent-encoding."""
    (tmp_path / "Жанна").symlink_to(EMBEDDED)
    with running_engine(voices=tmp_path) as engine:
        app = make_app(engine, engine.config)
        response = speak(app, voice="Жанна")
        voices = call(app, "GET", "/v1/voices").json()["data"]
    assert [(voice["id"], voice["default"]) for voice in voices] == [("embedded", True), ("Жанна", False)]
    assert response.status_code == 200 and response.headers["x-voice"] == "%D0%96%D0%B0%D0%BD%D0%BD%D0%B0"
