"""Signals as requests to stop: one waits for the step, a later one does not."""

from __future__ import annotations

import signal

import pytest

from common.training.interrupt import StopRequest


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_first_signal_is_a_request(number: signal.Signals, code: int, capsys) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.is_requested
        signal.raise_signal(number)
        assert stop.is_requested
        assert stop.exit_code == code
    assert signal.getsignal(number) is before
    assert capsys.readouterr().err.count("stopping after this step") == 1


def test_the_same_signal_from_terminal_and_launcher_counts_once(capsys) -> None:
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)  # torchrun's, moments later
        assert stop.is_requested
    assert capsys.readouterr().err.count("stopping") == 1


def test_a_later_signal_ends_the_process(monkeypatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    with StopRequest() as stop, pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
        now[0] += StopRequest.ECHO + 0.1
        signal.raise_signal(signal.SIGINT)
    assert stop.signal == signal.SIGTERM


def test_without_a_signal_nothing_is_requested() -> None:
    with StopRequest() as stop:
        assert not stop.is_requested
        assert stop.exit_code == 0


def test_a_signal_inside_the_first_ones_handler_counts_as_the_same(monkeypatch, capsys) -> None:
    calls = []

    def monotonic() -> float:  # called by the handler before it records anything
        calls.append(1)
        if len(calls) == 1:
            signal.raise_signal(signal.SIGINT)
        return 100.0

    monkeypatch.setattr("time.monotonic", monotonic)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.is_requested
    assert capsys.readouterr().err.count("stopping") == 1
