"""Files of the interface: for telephony, in ranges, and with details for the page."""

import base64
import io
import json

import numpy as np
import pytest
import soundfile
import soxr
from fastapi import FastAPI

from serving.engine import Engine
from tests.serving.conftest import library_voice, pcm, reference
from tests.serving.test_app import SPEECH, app_of, call, speak

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def app(shared_engine: Engine) -> FastAPI:
    return app_of(shared_engine)


@pytest.mark.parametrize(("name", "code"), [("g711_ulaw", "ULAW"), ("g711_alaw", "ALAW")])
def test_telephony_at_8_kilohertz(app: FastAPI, name: str, code: str) -> None:
    """libsndfile reads the bytes back; soxr is the reference for the rate."""
    answer = speak(app, response_format=name, sample_rate=None)
    assert answer.headers["x-sampling-rate"] == "8000"
    options = {"samplerate": 8000, "channels": 1, "format": "RAW", "subtype": code}
    samples, _ = soundfile.read(io.BytesIO(answer.content), **options)
    expected = soxr.resample(reference("Two.", 3).numpy(), 22050, 8000, quality="VHQ")
    assert abs(len(samples) - len(expected)) <= 1
    n = min(len(samples), len(expected))
    assert np.std(samples[:n] - expected[:n]) < 0.08 * np.std(expected)


@pytest.mark.parametrize(
    ("wanted", "part"),
    [
        ("bytes=0-", slice(0, None)),
        ("bytes=0-1", slice(0, 2)),
        ("bytes=100-199", slice(100, 200)),
        ("bytes=-7", slice(-7, None)),
        ("bytes=100-99999999", slice(100, None)),
    ],
)
@pytest.mark.parametrize("seed", ["3", ""])
def test_ranges_are_of_one_file(app: FastAPI, wanted: str, part: slice, seed: str) -> None:
    """Safari asks for two bytes first; without a seed, each answer must still be of the same speech."""
    query = {"text": "Yes!", "response_format": "wav", "seed": seed}
    whole = call(app, "GET", SPEECH, params=query, headers={"range": "bytes=0-"})
    answer = call(app, "GET", SPEECH, params=query, headers={"range": wanted})
    size, content = len(whole.content), whole.content[part]
    assert answer.status_code == 206 and answer.content == content
    first = range(size)[part][0]
    assert answer.headers["content-range"] == f"bytes {first}-{first + len(content) - 1}/{size}"
    samples, _ = soundfile.read(io.BytesIO(whole.content), dtype="int16")
    assert not seed or samples.tobytes() == pcm("Yes!")


@pytest.mark.parametrize(
    ("wanted", "status"),
    [
        ("bytes=9999999-", 416),
        ("bytes=SIZE-", 416),
        ("bytes=5-2", 416),
        ("bytes=0-1,4-5", 200),
        ("lines=1-2", 200),
        (f"bytes={'9' * 5000}-", 200),
    ],
)
def test_ranges_beyond_the_file_and_of_other_kinds(app: FastAPI, wanted: str, status: int) -> None:
    size = call(app, "GET", SPEECH, params={"text": "Yes!"}, headers={"range": "bytes=0-"}).headers["content-length"]
    answer = call(app, "GET", SPEECH, params={"text": "Yes!"}, headers={"range": wanted.replace("SIZE", size)})
    assert answer.status_code == status


def test_details_are_a_last_line(app: FastAPI) -> None:
    body = {"input": "Two.", "seed": 3, "response_format": "pcm", "details": True}
    *lines, last = map(json.loads, call(app, "POST", f"{SPEECH}/timestamps", json=body).text.splitlines())
    details, seconds = last["details"], len(reference("Two.", 3)) / 22050
    assert all("audio" in line for line in lines) and details["finished"]
    assert details["seconds"] == pytest.approx(seconds, abs=0.05)
    mel, alignment = details["mel"], details["alignment"]
    assert (mel["rows"], mel["columns"]) == (
        library_voice().audio.n_mel_channels,
        len(reference("Two.", 3)) // 256,
    ) and alignment["rows"] == 4
    for picture in (mel, alignment):
        values = np.frombuffer(base64.b64decode(picture["values"]), np.uint8).reshape(picture["rows"], -1)
        assert values.shape[1] == picture["columns"] and values.max() > 200
    assert np.all(np.diff(np.argmax(values, 1)) > 0)  # each symbol has its turn
