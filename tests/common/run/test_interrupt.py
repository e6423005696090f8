"""Signals as requests to stop: one waits for the step, a later one does not. The limit of a run's time."""

from __future__ import annotations

import signal

import pytest

from common.run.interrupt import StopRequest, TimeLimit


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_first_signal_is_a_request(number: signal.Signals, code: int, capsys) -> None:
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.is_requested
        signal.raise_signal(number)
        assert stop.is_requested
        assert stop.exit_code == code
    assert signal.getsignal(number) is before
    again = "; once more to stop without saving" if number == signal.SIGINT else ""
    assert capsys.readouterr().err == f"stopping after this step{again}\n"


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


def test_a_limit_is_near_where_an_epoch_as_long_as_the_longest_does_not_fit(monkeypatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    limit, unlimited, answers = TimeLimit(10.0), TimeLimit(float("inf")), []
    for minutes in (1, 3, 1, 1, 2):  # 1, 4, 5, 6, 8 since the start; the longest takes 1, then 3
        now[0] += 60 * minutes
        answers.append(limit.is_near())
        assert not unlimited.is_near()
    assert answers == [False, False, False, False, True]
