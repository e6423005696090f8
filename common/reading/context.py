"""The text around a match, for speakers that depend on it."""

from __future__ import annotations

import re

_AROUND = 60  # characters on each side of a match that are its context


def before(match: re.Match[str]) -> str:
    """The text before a match, as far as it may decide how the match is read."""
    return match.string[max(0, match.start() - _AROUND) : match.start()]


def after(match: re.Match[str]) -> str:
    """The text behind a match, likewise."""
    return match.string[match.end() : match.end() + _AROUND]
