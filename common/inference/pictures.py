"""Pictures of synthesised speech: the alignment."""

from __future__ import annotations

from pathlib import Path

from common.data.pictures import plot_alignment, save_figure
from common.errors import shorten
from common.inference.stages import Speech


def write_picture(path: Path, text: str, speech: Speech, symbols: list[str]) -> None:
    """Draw the alignment of a text's frames with its symbols, which are named unless the text was cut."""
    names = symbols if speech.pieces == 1 else None  # the pieces have different symbols
    save_figure(path, plot_alignment(speech.alignment, names, title=shorten(text)))
