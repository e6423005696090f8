"""The log's formats: which one is chosen, and lines for a terminal. test_gate.py has those of JSON."""

import json
import logging
from collections.abc import Iterator

import pytest

from serving.logs import PlainFormatter, announce


@pytest.fixture(autouse=True)
def root() -> Iterator[None]:
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:], logging.root.level = handlers, level


@pytest.mark.parametrize(
    ("words", "variable", "kind"),
    [
        ([], "", "json"),  # stdout of a test is no terminal
        (["--log-format", "plain"], "", "plain"),
        (["--log-format=json"], "plain", "json"),
        (["--port", "0"], "plain", "plain"),
        (["--help"], "", "none"),
    ],
)
def test_the_first_line(words: list[str], variable: str, kind: str, monkeypatch, capsys) -> None:
    monkeypatch.setenv("TTS_LOG_FORMAT", variable)
    announce(words)
    line = capsys.readouterr().out
    if kind == "json":
        assert json.loads(line)["message"] == "loading …"
    else:
        assert line[9:] == ("loading …\n" if kind == "plain" else "")


def test_a_line_for_a_terminal_has_no_control_characters() -> None:
    record = logging.LogRecord("serving", logging.ERROR, "", 0, "listening on http://[::1]:80\x1b[2J\n", (), None)
    record.fields = {"host": "::1", "path": "/\x9b\n", "seed": 3}
    line = PlainFormatter().format(record)
    assert line[8:] == r' ERROR: listening on http://[::1]:80\x1b[2J\n path="/\x9b\n" seed=3'
