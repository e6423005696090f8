"""Every flag of the server changes just what its row says of its answers and of its log."""

from __future__ import annotations

import logging
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from serving.app import make_app
from serving.config import ServingConfig, parse_args
from synthesizer import EMBEDDED
from tests.options import changes, unmatched
from tests.recipe import ROOT
from tests.serving.conftest import make_engine, run, wait_until_ready
from tests.serving.test_app import BATCH, SPEECH, call

pytestmark = pytest.mark.slow

# A flag and its words: what differs from a server without it; after a semicolon, the words that both have.
ROWS = {
    "--no-page": "page",
    "--root-path /speech": "page",
    "--voices {folder}": "voices",
    "--no-embedded": "voices ; --voices {folder}",
    "--default-voice heart": "speech voices",
    "--vocoder waveglow": "speech voices",
    "--seed 4": "range speech",
    "--speed 2": "page speech",
    "--volume 0.5": "speech",
    "--sentence-pause 1": "speech",
    "--pcm-rate 8000": "speech",
    "--fp16": "speech",
    "--int8": "speech",
    "--plain": "speech",
    "--lexicon {folder}/lexicon": "speech",
    "--no-batching": "places",
    "--max-batch 1": "places",
    "--max-queue 2": "batch",
    "--max-characters 40": "long page",
    "--max-body 30": "batch log long speech",
    "--max-inputs 2": "batch",
    "--api-key key": "batch log long page range speech voices",
    "--cors-origin http://a": "origin",
    "--allowed-host a": "host",
    "--log-texts": "log",
}
# Flags of the process and of other protocols, and limits of time.
ELSEWHERE = {
    "tests/serving/test_server.py": "--host --port --grace --log-format",
    "tests/serving/test_wyoming.py": "--wyoming-port --max-sockets --wyoming-client",
    "tests/serving/test_limits.py": "--idle-timeout --timeout",
    "tests/test_gpu_rules.py": "--cpu",
}


def test_every_flag_has_a_row() -> None:
    assert unmatched(parse_args, ROWS, " ".join(ELSEWHERE.values()).split()) == set()
    assert all(Path(ROOT, place).exists() for place in ELSEWHERE)


@cache
def answers(*words: str) -> dict[str, Any]:
    """What a server answers to requests that name nothing, to large ones and to strange ones, and what it logs."""
    config = parse_args([*words, "--cpu"])
    settings = {field.name: getattr(config, field.name) for field in fields(ServingConfig) if field.name != "cpu"}
    loads = {"fp16", "int8", "plain", "lexicon"} & {word.strip("-") for word in words}
    engine, records = make_engine(shares=not loads, **settings), list[Any]()
    app, handler = make_app(engine, config), logging.Handler()
    handler.emit = lambda record: records.append(sorted(vars(record).get("fields", ())))  # type: ignore[method-assign]
    log = logging.getLogger("serving.access")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    engine.start()
    wait_until_ready(engine)
    try:
        speech = call(app, "POST", SPEECH, json={"input": "Yes! Two.", "response_format": "pcm"})
        found: dict[str, Any] = {"speech": (speech.status_code, speech.content), "log": records[-1:]}
        for name, path, body in (("long", SPEECH, {"input": "Two. " * 9}), ("batch", BATCH, {"input": ["Two."] * 3})):
            found[name] = call(app, "POST", path, json=body).status_code
        for name, headers in (("origin", {"origin": "http://a"}), ("host", {"host": "a"})):
            found[name] = call(app, "GET", "/v1/models", headers=headers).status_code
        found["page"] = [call(app, "GET", path).text for path in ("/", "/docs")]
        player = {"params": {"text": "Two."}, "headers": {"range": "bytes=0-"}}
        found["range"] = call(app, "GET", SPEECH, **player).headers.get("x-seed")
        found["voices"] = call(app, "GET", "/v1/voices").text
        found["places"] = engine._places
    finally:
        assert run(engine.stop(30))
        log.removeHandler(handler)
    return found


@pytest.mark.parametrize("words", ROWS)
def test_an_option_of_the_server(words: str, tmp_path: Path) -> None:
    (tmp_path / "other").symlink_to(EMBEDDED)
    (tmp_path / "lexicon").write_text("two\tthree\n")
    seen, _, both = ROWS[words].partition(" ; ")
    usual, given = (text.format(folder=tmp_path).split() for text in (f"--seed 3 {both}", words))
    found = changes(answers(*usual), answers(*usual, *given))
    assert found == seen
