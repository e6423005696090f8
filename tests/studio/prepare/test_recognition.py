"""Recognised words of studio/prepare/texts.py, against an endpoint that behaves well, badly, and for a while badly."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from common.errors import DataError
from studio.prepare import texts
from studio.prepare.arguments import PrepareOptions, TextConfig
from studio.prepare.ledger import ClipSound, Ledger
from studio.prepare.texts import recognise
from studio.project import Project

httpx = pytest.importorskip("httpx", reason="httpx, of requirements/studio.txt, is not installed")

GOOD = (200, json.dumps({"text": " Good | morning. "}).encode())


@pytest.fixture
def endpoint(monkeypatch) -> SimpleNamespace:
    """In this process: answers with the statuses in `plan`, or raises what is there, then with 200; stores the requests."""
    endpoint = SimpleNamespace(plan=[], requests=[])

    def answer(request: Any) -> Any:
        request.read()
        endpoint.requests.append(request)
        found = endpoint.plan.pop(0) if endpoint.plan else GOOD
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found[0], content=found[1])

    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(answer)))
    return endpoint


@pytest.fixture
def sounds(tmp_path: Path) -> list[ClipSound]:
    for name in "ab":
        soundfile.write(tmp_path / f"{name}.wav", np.zeros(1600), 16000)
    return [ClipSound(tmp_path / "a.wav", "1"), ClipSound(tmp_path / "b.wav", "2"), ClipSound(tmp_path / "b.wav", "2")]


ENDPOINT = {"transcriber": "http://words.example/v1/", "transcriber_model": "m", "transcriber_requests": 1}
CONFIG = TextConfig(language="de", **ENDPOINT)


def recognise_sounds(sounds: list[ClipSound], folder: Path, config: TextConfig = CONFIG) -> dict[str, str]:
    project = Project(name="x", projects=folder)
    return recognise(sounds, PrepareOptions(project=project, texts=config, num_workers=1))


def test_each_clip_is_sent_once(endpoint, sounds: list[ClipSound], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TRANSCRIBER_API_KEY", "secret")
    endpoint.plan = [GOOD, (200, b'{"text": "Good night."}')]
    for _ in range(2):
        assert recognise_sounds(sounds, tmp_path) == {"1": "Good morning.", "2": "Good night."}
    first, second = endpoint.requests
    assert (first.url.path, first.headers["authorization"]) == ("/v1/audio/transcriptions", "Bearer secret")
    assert b'filename="a.wav"' in first.content and b'filename="b.wav"' in second.content
    for part in (b'name="language"\r\n\r\nde', b'name="model"\r\n\r\nm', b"RIFF"):
        assert part in first.content
    recognise_sounds(sounds, tmp_path, replace(CONFIG, transcriber_model="another"))
    assert len(endpoint.requests) == 4
    assert b"secret" not in (tmp_path / "x/state/words.jsonl").read_bytes()


def test_a_busy_endpoint_is_asked_again_and_none_is_an_error(endpoint, sounds, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(texts, "FIRST_WAIT", 0.01)
    endpoint.plan = [(503, b"busy"), (429, b"slow down"), httpx.ConnectError("gone")]
    assert len(recognise_sounds(sounds, tmp_path)) == 2 and len(endpoint.requests) == 5
    endpoint.plan = [httpx.ConnectError("gone")] * 8
    with pytest.raises(
        DataError, match=r"^--transcriber http://words\.example/v1/audio/transcriptions: gone; put a key"
    ):
        recognise_sounds(sounds, tmp_path / "none")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, b"no such key"), r"401 no such key; put a key into the environment variable TRANSCRIBER_API_KEY"),
        ((200, b"<html>"), r"answered '<html>', expected JSON with the key text"),
        ((200, b'{"text": 3}'), "expected JSON with the key text"),
    ],
)
def test_refusals_are_one_error_and_words_so_far_are_stored(endpoint, sounds, tmp_path: Path, answer, message) -> None:
    endpoint.plan = [(200, b'{"text": "first"}'), answer]
    with pytest.raises(DataError, match=message):
        recognise_sounds(sounds, tmp_path)
    with Ledger(tmp_path / "x/state/words.jsonl") as ledger:
        assert list(ledger.values.values()) == ["first"]
