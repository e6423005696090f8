"""The HTTP interface, through ASGI: formats, settings, errors in OpenAI's shape, batches, the key, limits and metrics."""

import base64
import io
import json
import logging
import re
import zipfile
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
from fastapi import FastAPI

from common import __version__
from serving.engine import Engine
from synthesizer import EMBEDDED
from tests.serving.conftest import (
    HEADERLESS,
    LONG,
    app_of,
    decode,
    make_engine,
    pcm,
    reference,
    run,
    running_engine,
    sample,
    wait_until_ready,
)

SPEECH, BATCH = "/v1/audio/speech", "/v1/audio/speech/batch"
JSON = {"content-type": "application/json"}


def call(app: FastAPI, method: str, path: str, raises: bool = True, **request: Any) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=raises)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=120) as client:
            return await client.request(method, path, **request)

    response: httpx.Response = run(send())
    return response


def speak(app: FastAPI, text: str = "Two.", **settings: Any) -> httpx.Response:
    body = {"input": text, "seed": 3, "response_format": "pcm", "sample_rate": 22050, **settings}
    return call(app, "POST", SPEECH, json=body)


def error_of(response: httpx.Response, status: int) -> dict[str, Any]:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] == ("invalid_request_error" if status < 500 else "server_error")
    return error


@pytest.mark.parametrize(
    ("name", "more", "kind", "rate", "is_whole"),
    [
        ("wav", {}, "wav", 24000, True),  # its readers trust the length in its header
        ("wav", {"stream": True}, "wav", 24000, False),
        (None, {}, "mpeg", 24000, False),
        ("opus", {"stream": False}, "ogg", 48000, True),
        ("pcm", {"sample_rate": None}, "pcm;rate=24000;channels=1", 24000, False),  # OpenAI's, by which clients play it
        ("g711_ulaw", {}, "PCMU", 8000, False),  # of telephony
    ],
)
def test_each_format_is_the_speech_at_its_speed_and_rate(app: FastAPI, name, more, kind, rate, is_whole) -> None:
    body = {"input": "Two.", "seed": 3, "speed": 0.5, "sample_rate": 24000, "response_format": name}
    response = call(app, "POST", SPEECH, json=body | more)
    samples, found = decode(response.content, HEADERLESS.get(name), rate)
    assert response.headers["content-type"] == f"audio/{kind}"
    ending = {None: "mp3", "opus": "ogg", "g711_ulaw": "ulaw"}.get(name, name)
    assert response.headers["content-disposition"] == f'attachment; filename="speech.{ending}"'
    assert response.headers.get("content-length") == (str(len(response.content)) if is_whole else None)
    assert int(response.headers["x-sampling-rate"]) == found == rate
    audio = reference("Two.", 3).numpy()
    assert len(samples) / rate == pytest.approx(2 * len(audio) / 22050, abs=0.15)
    assert np.std(samples) == pytest.approx(np.std(audio), rel=0.2)


@pytest.mark.slow
def test_pcm_is_the_stream_of_the_library_whatever_the_way_to_it(app: FastAPI) -> None:
    """Paths as clients write them, null for a default, names in any case, and the query of a browser's address line."""
    response = speak(app, model="tts-1", voice={"id": "embedded"})
    assert response.status_code == 200 and response.content == pcm("Two.")
    assert response.headers["x-seed"] == "3" and response.headers["x-voice"] == "embedded"
    body = {"input": "Two.", "seed": 3, "response_format": "pcm", "sample_rate": 22050}
    for path in ("/v1/audio/speech/", "/audio/speech"):
        assert call(app, "POST", path, json=body).content == pcm("Two.")
    nulls = dict.fromkeys(("speed", "stream_format", "voice", "model", "instructions", "stream", "volume"))
    strings = dict.fromkeys(nulls, "") | {"sample_rate": "22050", "seed": "3"}  # as forms send them
    for more in (nulls, strings, {"voice": "Alloy", "model": "TTS-1", "response_format": "PCM"}, {"voice": "EMBEDDED"}):
        assert call(app, "POST", SPEECH, json=body | more).content == pcm("Two.")
    settings = {"vocoder": "WaveGlow", "denoising_strength": 0.2}
    expected = pcm("Two.", 5, sigma_infer=0.5, **settings | {"vocoder": "waveglow"})
    assert speak(app, seed=5, sigma=0.5, **settings).content == expected
    query = {"text": "Two.", "voice": "nova", "speed": ""} | {name: body[name] for name in list(body)[1:]}
    answer = call(app, "GET", SPEECH, params=query)
    assert answer.content == pcm("Two.") and answer.headers["content-disposition"] == 'inline; filename="speech.pcm"'
    assert call(app, "GET", SPEECH, params={"text": "Two."}).headers["content-type"] == "audio/mpeg"
    assert error_of(call(app, "GET", SPEECH), 400)["param"] == "text"
    foreign = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}
    assert error_of(call(app, "GET", SPEECH, params=query, headers=foreign), 403)["code"] == "origin_not_allowed"
    assert call(app, "GET", SPEECH, params=query, headers=foreign | {"sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "spoken", "note"),
    [
        ({"model": "openai/tts-1"}, "Two.", "'openai/tts-1' is not one of tacotron2, tts-1"),
        ({"model": "gpt-4o-mini-tts-2025-12-15"}, "Two.", ""),
        ({"input": '<speak><prosody rate="slow">I</prosody></speak>'}, "I", "<prosody> of SSML has no effect"),
    ],
)
def test_what_has_no_effect_is_noted(app: FastAPI, body: dict[str, str], spoken: str, note: str) -> None:
    """A model of any name speaks, and so does a single letter."""
    answer = speak(app, **body)
    assert answer.content == pcm(spoken) and len(answer.content) > 2 * 0.25 * 22050
    assert note in answer.headers.get("x-note", "") and ("x-note" in answer.headers) == bool(note)


def test_speed_and_volume_of_the_server_hold_where_a_request_names_none(engine: Engine) -> None:
    with running_engine(speed=2.0, volume=0.5, seed=3, pcm_rate=22050) as own:
        app, body = app_of(own), {"input": "Good morning.", "response_format": "pcm"}
        fast = np.frombuffer(call(app, "POST", SPEECH, json=body).content, "<i2")
        plain = call(app, "POST", SPEECH, json=body | {"speed": 1, "volume": 1}).content
    assert plain == pcm("Good morning.")
    audio = np.frombuffer(plain, "<i2")
    assert len(fast) == pytest.approx(len(audio) / 2, rel=0.1)
    assert np.std(fast) == pytest.approx(np.std(audio) / 2, rel=0.2)


def test_events_are_those_of_openai(app: FastAPI) -> None:
    response = speak(app, stream_format="sse")
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["cache-control"] == "no-cache"
    *deltas, done = (json.loads(line.removeprefix("data: ")) for line in response.text.split("\n\n") if line)
    assert {event["type"] for event in deltas} == {"speech.audio.delta"}
    audio = b"".join(base64.b64decode(event["audio"]) for event in deltas)
    assert audio == pcm("Two.")
    frames = len(audio) // 2 // 256
    assert done["type"] == "speech.audio.done"
    assert done["usage"] == {"input_tokens": 4, "output_tokens": frames, "total_tokens": frames + 4}


@pytest.mark.slow
def test_words_come_with_the_audio_of_their_piece(app: FastAPI) -> None:
    """In the shape of Kokoro-FastAPI, whose clients name its model; also in one answer at twice the speed."""
    text = "Good morning.\n\nIt is late, I think.\n\nYes!"
    body = {"model": "kokoro", "input": text, "seed": 3, "response_format": "pcm", "sample_rate": 22050}
    answer = call(app, "POST", "/dev/captioned_speech", json=body)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    audio = b"".join(base64.b64decode(line["audio"]) for line in lines)
    assert audio == pcm(text) and {line["audio_format"] for line in lines} == {"audio/pcm;rate=22050;channels=1"}
    said = 0.0  # seconds before a line
    for line in lines:
        assert all(said - 1e-3 <= word["start_time"] < word["end_time"] for word in line["timestamps"])
        said += len(base64.b64decode(line["audio"])) / 2 / 22050
    words = [word for line in lines for word in line["timestamps"]]
    assert [word["word"] for word in words] == text.split()
    times = [word[name] for word in words for name in ("start_time", "end_time")]
    assert times == sorted(times) and times[-1] <= said and len([line for line in lines if line["timestamps"]]) > 1
    path, body = "/v1/audio/speech/timestamps", {"input": "Two, 3.", "seed": 3, "response_format": "wav"}
    one, fast = (call(app, "POST", path, json=body | {"stream": False} | more) for more in ({}, {"speed": 2}))
    samples, rate = decode(base64.b64decode(fast.json()["audio"]))
    for word, half in zip(one.json()["timestamps"], fast.json()["timestamps"], strict=True):
        assert half["word"] == word["word"] and half["end_time"] == pytest.approx(word["end_time"] / 2, abs=1e-3)
    assert half["end_time"] <= len(samples) / rate


UNREADABLE = (b'{"input": "\xe9"}', b"[" * 100_000, b'{"input": "a", "seed": ' + b"9" * 5000 + b"}")
REFUSALS: list[
    tuple[Any, str, str, str]
] = [  # of POST: a body of JSON, or its bytes; param, code, words of the message
    ({"input": "Two.", "seed": "x" * 10000}, "seed", "invalid_body", "seed: 'xxx"),
    (
        {"input": "Two.", "voice": {"name": "x"}},
        "voice",
        "invalid_body",
        "voice: {'name': 'x'}: Input should be a valid",
    ),
    ({"input": "Two.", "sample_rate": 1}, "sample_rate", "invalid_body", "22050"),
    ({"text": "Two."}, "input", "invalid_body", "input: missing"),
    ({"input": "Two.", "speed": 5, "seed": -1}, "speed", "invalid_body", "seed: -1"),
    ({"input": "a" * 4097}, "input", "text_too_long", "4097 characters, expected at most 4096"),
    ({"input": "* * *"}, "input", "nothing_to_say", "holds nothing to speak"),
    ({"input": "{HH AH0 XX9}"}, "input", "invalid_text", "XX9"),
    ({"input": "Two.", "voice": "../embedded"}, "voice", "voice_not_found", "is not one of embedded"),
    ({"input": "Two.", "vocoder": "flute"}, "vocoder", "vocoder_not_found", "'flute' is not one of"),
    (b'{"input":', "body", "invalid_body", "not JSON, at character"),
    (b'{"input": "\\ud800"}', "input", "nothing_to_say", "holds nothing to speak"),
    *((body, "body", "invalid_body", "expected JSON in UTF-8") for body in UNREADABLE),
    (b'{"input": "a", "seed": 1e999}', "seed", "invalid_body", "inf: Input should be a finite number"),
    (b'{"input": "a", "speed": NaN}', "speed", "invalid_body", "nan: Input should be a finite number"),
]


@pytest.mark.parametrize(("body", "param", "code", "words"), REFUSALS)
def test_a_wrong_request_is_400_with_found_and_expected(
    engine: Engine, app: FastAPI, body: Any, param: str, code: str, words: str
) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    error = error_of(call(app, "POST", SPEECH, content=content, headers=JSON), 400)
    assert (error["param"], error["code"]) == (param, code)
    assert words in error["message"] and len(error["message"]) < 300
    assert sample(engine, "tts_queue_length") == 0


def test_a_body_that_is_not_called_json_is_400(app: FastAPI) -> None:
    answer = call(app, "POST", SPEECH, content=b'{"input": "Two."}', headers={"content-type": "text/plain"})
    assert "Type: application/json" in error_of(answer, 400)["message"]


def test_a_batch_is_an_archive_of_the_single_answers_and_errors(app: FastAPI) -> None:
    texts = ["Two.", "Yes!", "{HH AH0 XX9}", " ", "***"]
    response = call(app, "POST", BATCH, json={"input": texts, "seed": 3, "response_format": "wav"})
    assert response.headers["content-type"] == "application/zip" and response.headers["x-seed"] == "3,3,3,3,3"
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        names = ["audio_0.wav", "audio_1.wav", *(f"error_{number}.json" for number in (2, 3, 4))]
        assert archive.testzip() is None and archive.namelist() == names
        for number, text in enumerate(texts[:2]):
            samples, _ = soundfile.read(io.BytesIO(archive.read(f"audio_{number}.wav")), dtype="int16")
            assert samples.tobytes() == pcm(text)  # to the end that the header states
        error, *silent = (json.loads(archive.read(f"error_{number}.json"))["error"] for number in (2, 3, 4))
    assert [one["code"] for one in silent] == ["nothing_to_say"] * 2
    assert error["code"] == "invalid_text" and "XX9" in error["message"] and "item" not in error["message"]


def test_limits_of_a_batch(app: FastAPI) -> None:
    """A batch larger than the queue can never be accepted, so it is the client's mistake, not 503 that asks it to try again."""
    for own, count, most in ((app, 33, 32), (app_of(make_engine(max_queue=2)), 3, 2)):
        error = error_of(call(own, "POST", BATCH, json={"input": ["a"] * count}), 400)
        assert f"{count} texts, expected at most {most}" in error["message"]
    error = error_of(call(app, "POST", BATCH, json={"input": ["Two.", "a" * 4097]}), 400)
    assert error["param"] == "input.1" and error["message"].startswith("input.1: 4097 characters")


def test_models_and_voices(app: FastAPI) -> None:
    models = call(app, "GET", "/v1/models").json()
    assert models["object"] == "list" and models["data"][0]["id"] == "tacotron2"
    # Of Open WebUI, which reads `models` and `voices`.
    assert call(app, "GET", "/audio/models/").json() == models | {"models": models["data"]}
    names = [voice["name"] for voice in call(app, "GET", "/v1//audio/voices/").json()["voices"]]
    assert names == ["embedded", "heart", "spanish"]
    for name in ("TTS-1-HD", "gpt-4o-mini-tts-2025-12-15", "kokoro"):  # with a date as well
        assert call(app, "GET", f"/v1/models/{name}").json()["id"] == name
    assert error_of(call(app, "GET", "/v1/models/nothing"), 404)["code"] == "model_not_found"
    voice, other, spanish = call(app, "GET", "/v1/voices").json()["data"]
    about = {"id": "embedded", "name": "embedded", "object": "voice", "default": True, "sampling_rate": 22050}
    vocoders = {"vocoders": ["pulse-noise", "waveglow", "griffin-lim"], "noisy_vocoders": ["waveglow"]}
    who = {"language": "en", "speaker": "a man", "words_wrong": 0.06}
    assert voice == about | vocoders | who and other["id"] == "heart" and not other["default"]
    assert (spanish["id"], spanish["language"]) == ("spanish", "es")
    assert spanish["vocoders"] == ["pulse-noise", "griffin-lim"]


def test_health_and_readiness(app: FastAPI) -> None:
    assert call(app, "GET", "/healthz").status_code == call(app, "GET", "/readyz").status_code == 200
    assert call(app, "GET", "/health").json() == {"status": "ok", "version": __version__}
    engine = make_engine()
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
    assert "the server is stopping" in error_of(speak(cold), 503)["message"]


def test_head_has_the_headers_of_get(app: FastAPI) -> None:
    """As probes and download tools ask. A speech would have to be computed."""
    for path in ("/health", "/readyz/", "/audio/voices"):
        answers = [call(app, method, path) for method in ("HEAD", "GET")]
        assert [answer.status_code for answer in answers] == [200, 200]
        assert len({answer.headers["content-type"] for answer in answers}) == 1
    answer = call(app, "HEAD", SPEECH, params={"text": "Two.", "response_format": "opus"})
    assert (answer.status_code, answer.content, answer.headers["content-type"]) == (200, b"", "audio/ogg")
    assert "content-length" not in answer.headers and answer.headers["x-sampling-rate"] == "48000"
    for query in ({}, {"text": "Two.", "voice": "nobody"}, {"text": "a" * 4097}):
        assert call(app, "HEAD", SPEECH, params=query).status_code == 400


def test_unknown_paths_and_methods_and_faults_have_the_shape_of_errors(engine: Engine) -> None:
    app = app_of(engine)
    response = call(app, "PUT", "/audio/speech/")
    assert error_of(response, 405)["message"] == "method PUT: expected GET or POST"
    assert response.headers["allow"] == "GET, POST"
    for path in ("/audio/nothing", "/nothing", "/v2/audio/speech"):
        error_of(call(app, "POST", path), 404)
    app.state.engine = None  # no request can reach a fault of the server that is known
    response = call(app, "GET", "/v1/voices", raises=False)
    assert error_of(response, 500)["code"] == "internal" and "NoneType" not in response.text


def test_the_key(engine: Engine) -> None:
    """tests/common/web/test_gate.py has the ways to write it."""
    app = app_of(engine, api_key="sésame")
    assert error_of(speak(app), 401)["code"] == "invalid_api_key"
    for key in ("Bearer sésame", f"Basic {base64.b64encode('me:sésame'.encode()).decode()}"):
        assert call(app, "GET", "/v1/voices", headers={"authorization": key.encode()}).status_code == 200
    page, program = (call(app, "GET", path) for path in ("/docs", "/v1/voices"))
    assert page.status_code == program.status_code == 401
    assert "basic" in page.headers["www-authenticate"].lower() and "www-authenticate" not in program.headers
    for path in ("/healthz", "/health", "/readyz", "/metrics"):
        assert call(app, "GET", path).status_code == 200


def test_other_origins_are_allowed_where_the_settings_name_them(engine: Engine, app: FastAPI) -> None:
    headers = {"origin": "https://example.org"}
    assert error_of(call(app, "GET", "/v1/voices", headers=headers), 403)["code"] == "origin_not_allowed"
    open_app = app_of(engine, cors_origin=("https://example.org",), api_key="k")
    asking = headers | {"access-control-request-method": "POST", "access-control-request-headers": "authorization"}
    answer = call(open_app, "OPTIONS", SPEECH, headers=asking)
    assert answer.status_code == 200 and answer.headers["access-control-allow-origin"] == "https://example.org"
    own = call(open_app, "GET", "/v1/voices", headers=headers | {"authorization": "Bearer k"})
    assert "X-Seed" in own.headers["access-control-expose-headers"]


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


def test_a_request_is_one_line_of_the_log_with_its_text_on_demand_alone(app: FastAPI, caplog) -> None:
    with caplog.at_level(logging.INFO, logger="serving.access"):
        answer = speak(app, "Yes!")
        call(app, "GET", "/readyz")
    (record,) = caplog.records
    fields = record.fields
    assert fields.items() >= {"path": SPEECH, "status": 200, "voice": "embedded", "seed": 3, "characters": 4}.items()
    assert fields["audio_seconds"] == pytest.approx(len(reference("Yes!", 3)) / 22050, abs=1e-3)
    assert 0 < fields["first_byte"] <= fields["seconds"]
    assert "Yes" not in str(fields)
    assert fields["request_id"] == answer.headers["x-request-id"] != speak(app).headers["x-request-id"]
    with running_engine(log_texts=True) as engine, caplog.at_level(logging.INFO, logger="serving.access"):
        speak(app_of(engine, log_texts=True), "Yes!")
    assert caplog.records[-1].fields["texts"] == ["Yes!"]


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [(BATCH, "The key is hunter.", "input: invalid_body"), (SPEECH, "The key is {HH hunter}", "input: invalid_text")],
)
def test_the_log_of_a_refused_request_has_no_text(app: FastAPI, caplog, path: str, text: Any, words: str) -> None:
    with caplog.at_level(logging.INFO, logger="serving.access"):
        answer = call(app, "POST", path, json={"input": text})
    assert "hunter" in error_of(answer, 400)["message"].lower()
    assert caplog.records[-1].fields["error"] == words
    assert "hunter" not in str(caplog.records[-1].fields).lower()


def test_a_voice_with_a_name_beyond_latin(tmp_path: Path) -> None:
    """The header has it in percent-encoding."""
    (tmp_path / "Жанна").symlink_to(EMBEDDED)
    with running_engine(voices=tmp_path) as engine:
        app = app_of(engine)
        response = speak(app, voice="Жанна")
        voices = call(app, "GET", "/v1/voices").json()["data"]
    default = {voice["id"]: voice["default"] for voice in voices}
    assert default == {"embedded": True, "heart": False, "spanish": False, "Жанна": False}
    assert response.status_code == 200 and response.headers["x-voice"] == "%D0%96%D0%B0%D0%BD%D0%BD%D0%B0"


def test_all_that_docs_loads_is_below_the_prefix(engine: Engine) -> None:
    """Whether a proxy takes the prefix away or leaves it."""
    app = app_of(engine, root_path="/speech")
    for prefix in ("/speech", ""):
        page = call(app, "GET", f"{prefix}/docs").text
        files = re.findall(r"""(?:src|href)="([^"]+)"|url: '([^']+)'""", page)
        assert len(files) >= 3
        for url in map("".join, files):
            assert url.startswith("/speech/")
            assert call(app, "GET", url.replace("/speech", prefix, 1)).status_code == 200, url


@pytest.mark.parametrize("path", ["speech", "speech/timestamps", "speech/batch"])
def test_every_endpoint_says_what_is_left_out(app: FastAPI, path: str) -> None:
    text = "Guten Tag, wie geht es Ihnen? A \u2603."
    answer = call(app, "POST", f"/v1/audio/{path}", json={"input": ["Two.", text] if "batch" in path else text})
    note = answer.headers["x-note"].encode().decode("unicode_escape")
    assert "the alphabet has no '\u2603': left out" in note and "seems to be German" in note
    assert ("input.1: " in note) == ("batch" in path)


def test_a_player_that_asks_for_all_bytes_is_streamed_to(app: FastAPI) -> None:
    """With the seed of its later ranges, so that all are of one speech."""
    query = {"text": "Two. Three.", "response_format": "pcm"}
    whole = call(app, "GET", SPEECH, params=query, headers={"range": "bytes=0-"})
    assert (whole.status_code, "content-length" in whole.headers) == (200, False)
    part = call(app, "GET", SPEECH, params=query, headers={"range": "bytes=1000-1999"})
    assert part.status_code == 206 and part.content == whole.content[1000:2000]
    assert part.headers["x-seed"] == whole.headers["x-seed"]


@pytest.mark.slow
def test_captions_may_have_a_second_file(app: FastAPI) -> None:
    """The same sound in another format, as parts beside those of the first."""
    body = {"input": LONG, "seed": 3, "response_format": "pcm", "sample_rate": 22050, "second_format": "MP3"}
    answer = call(app, "POST", "/v1/audio/speech/timestamps", json=body)
    lines = [json.loads(line) for line in answer.text.splitlines()]
    first, second = (b"".join(base64.b64decode(line[name]) for line in lines) for name in ("audio", "second"))
    samples, rate = decode(second)
    assert first == pcm(LONG) and rate == 22050
    assert (
        len(samples) == pytest.approx(len(first) / 2, abs=0.1 * rate)
        and sum(bool(line["second"]) for line in lines) > 2
    )
    sound = np.frombuffer(first, "<i2") / 32768
    shift = int(np.argmax(np.correlate(samples[: len(sound)], sound[2000:-2000], "valid"))) - 2000
    both = sound[: len(samples) - shift][5000:20000], samples[shift:][5000:20000]
    assert np.corrcoef(*both)[0, 1] > 0.98
