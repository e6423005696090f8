"""Measures of quality reports in the words of the studio's page and card; docs/evaluation.md explains them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from common.quality.report import MEASURES
from common.training.checkup import LOGGED_AS

PERCENT = 100.0
CAPPED = LOGGED_AS["wer"]
# Of the log, those that a reader of the page understands, in the order of the page: words for each, and the factor of its number.
WORDS: dict[str, tuple[str, float]] = {
    CAPPED: ("wrong words", PERCENT),
    "cer": ("wrong letters", PERCENT),
    "ran_to_limit": ("lines that do not stop", PERCENT),
    "coverage": ("text that attention reads", PERCENT),
    "mos": ("naturalness, 1 to 5", 1),
    "mcd": ("distance from the recordings in dB (MCD)", 1),
    "mel_distance": ("distance of mels from the recordings", 1),
}
COLUMNS = {
    CAPPED: "wrong words %, at most 100 a line",
    "wer": "wrong words %",
    "coverage": "text that attention reads %",
    "mel_distance": "distance of mels",
    "val_loss": "validation loss",
}
FACTORS = {CAPPED: PERCENT, "wer": PERCENT, "coverage": PERCENT}
CHOICES = {"loss": "validation loss", "wer": "wrong words", "coverage": "text that attention reads"}  # of best_by


def describe_measures(values: Mapping[str, float]) -> str:
    """Describe the measures of a report, those that are known."""
    parts = []
    for name, (words, factor) in WORDS.items():
        value = values.get(name, math.nan)
        if not math.isnan(value):
            unit = " %" if factor == PERCENT else ""
            parts.append(f"{words} {factor * value:.3g}{unit}")
    return ", ".join(parts)


def column_of(name: str) -> str:
    """Return the heading of a measure's column in a card."""
    return COLUMNS.get(name) or (MEASURES[name].title if name in MEASURES else name)


def cell_of(name: str, value: float | None) -> str:
    """Format a measure in a card; `-` where there is none."""
    return "-" if value is None else f"{FACTORS.get(name, 1.0) * value:.4g}"


def choice_of(best_by: str) -> str:
    """Return the words for a measure that selects the weights."""
    return CHOICES.get(best_by) or column_of(best_by)
