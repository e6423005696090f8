"""Progress in a log: lines at an interval, and the items as they are."""

from __future__ import annotations

import pytest

from common import progress


def test_a_log_has_a_line_for_each_item_after_the_interval(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    assert list(progress.show_progress(iter("ab"), 3, "cutting", "recording")) == ["a", "b"]
    assert capsys.readouterr().err == "cutting: 1 of 3 recordings\ncutting: 2 of 3 recordings\n"


def test_short_work_leaves_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.show_progress([1], 1, "cutting", "recording")) == [1]
    assert capsys.readouterr().err == ""
