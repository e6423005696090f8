"""Tables as text and Markdown against rows written by hand."""

from __future__ import annotations

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
        "| name | count | note |",
        "| --- | ---: | --- |",
        "| a | 1,234,567 | x |",
        "| long name | 2 | y\\|z |",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert text_table("<", ("name",), []) == "name"
    assert markdown_table(">", ("n",), []) == "| n |\n| ---: |"
