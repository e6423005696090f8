"""Tables as text and Markdown against rows written by hand; progress in a log."""

import pytest

from common import progress
from common.tables import markdown_table, text_table

ROWS = [("a", 1234567, "x"), ("long name", 2, "y|z")]


def test_text_columns_are_aligned() -> None:
    assert text_table("<><", ("name", "count", "note"), ROWS).splitlines() == [
        "name           count  note",
        "a          1,234,567  x",
        "long name          2  y|z",
    ]


def test_markdown_has_a_rule_and_escaped_bars() -> None:
    assert markdown_table("<><", ("name", "count", "note"), ROWS).splitlines() == [
        "| name | count | note |", "| --- | ---: | --- |", "| a | 1,234,567 | x |", "| long name | 2 | y\\|z |",
    ]  # fmt: skip


def test_a_table_without_rows_is_its_header() -> None:
    assert text_table("<", ("name",), []) == "name"
    assert markdown_table(">", ("n",), []) == "| n |\n| ---: |"


def test_a_log_has_a_line_for_each_item_after_the_interval(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0.0)
    assert list(progress.show_progress(iter("ab"), 3, "cutting", "recording")) == ["a", "b"]
    assert capsys.readouterr().err == "cutting: 1 of 3 recordings\ncutting: 2 of 3 recordings\n"


def test_short_work_leaves_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(progress.show_progress([1], 1, "cutting", "recording")) == [1]
    assert capsys.readouterr().err == ""
