"""The names of numbers: inflect's engine, which the cleaners, the reader and the word error rate share."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import inflect

MAX_DIGITS = 36  # inflect's names end before 10^36; longer numbers are read digit by digit


@cache
def inflect_engine() -> inflect.engine:
    """Return the engine that names numbers, created once."""
    import inflect  # takes over a second, and not every program needs it

    return inflect.engine()
