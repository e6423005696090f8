"""Tables as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def text_table(columns: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Align cells in columns two spaces apart, without trailing spaces; integers get thousands separators.

    Args:
        columns: < or > for each column: aligned left or right.
        header: one title per column.
        rows: one cell per column.
    """
    cells = _cells(header, rows)
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(f"{c:{side}{w}}" for c, side, w in zip(row, columns, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)


def markdown_table(columns: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write the table of `text_table` in Markdown; a | inside a cell is escaped."""
    titles, *body = ([cell.replace("|", "\\|") for cell in row] for row in _cells(header, rows))
    rule = ["---:" if side == ">" else "---" for side in columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, rule, *body))


def _cells(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[list[str]]:
    return [list(header), *([f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows)]
