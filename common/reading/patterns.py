"""The form of a rule of reader.py, and the patterns that rules share.

A rule has three parts: where it begins, a pattern, and a function from the pattern's groups to words. It begins at digits ("0"), at
capitals or small letters at the start of a word ("A", "a"), at spaces (" ") or at other signs ("-"). Rules are tried in the order
of the list, so more specific patterns come first. Every pattern reads a bounded stretch of text or consumes all that it reads, so
that time grows linearly with the length of a text.

Digits are rarer than words: a rule that depends on the words before a number begins at the number and looks behind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from common.reading import tables


class InContext(NamedTuple):
    """A function from a match to words, for a rule that depends on more of the text than its pattern reads."""

    read: Callable[[re.Match[str]], str]


Rule = tuple[str, str, Callable[..., str] | InContext]

_AROUND = 60  # characters on each side of a match that are its context


def before(match: re.Match[str]) -> str:
    """The text before a match, as far as it may decide how the match is read."""
    return match.string[max(0, match.start() - _AROUND) : match.start()]


def after(match: re.Match[str]) -> str:
    """The text behind a match, likewise."""
    return match.string[match.end() : match.end() + _AROUND]


# Patterns of numbers: whole ones, and those with a point.
INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,11}(?![0-9]|,[0-9])|[0-9]{1,36}(?![0-9]))"
NUMBER = rf"(?:{INTEGER}(?:\.[0-9]{{1,40}}(?![0-9]))?|(?<![\w.])\.[0-9]{{1,40}}(?![0-9]))"
DASH = r"\s?[-–]\s?"
SUFFIX = r"(?:st|nd|rd|th|ST|ND|RD|TH)"
NO_MORE = r"(?![A-Za-z0-9:%°/]|[.,][0-9])"  # after a number that is not part of a longer token

# The point of an abbreviation stays if it also ends the sentence. These capitalised words follow it within a sentence.
_WITHIN = (
    r"Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
    r"|(?:EST|EDT|CST|CDT|MST|MDT|PST|PDT|ET|CT|MT|PT|GMT|UTC|AD|BC|Eastern|Central|Mountain|Pacific)\b"
)
POINT = rf"(?:\.(?![\"'”’)\]]{{0,3}}(?:\s*\Z|\s+[\"'“‘(\[]?(?!{_WITHIN})[A-Z])))?"

# Between a determiner and a noun units are in the singular: "a $5 bill", "my 10 km race", but not "a $5 or a $10 bill".
# Elsewhere, one of these two groups or both are None.
DETERMINERS = "a|an|the|my|your|his|her|its|our|their|this|that|each|every"
_NO_NOUN = (
    "a|an|and|are|as|at|but|by|each|for|from|had|has|have|he|her|his|if|in|into|is|it|its|less|more|my|of|off|on|or|our|out|over|per"
    "|she|so|than|that|the|their|they|this|to|up|was|we|were|when|which|while|who|will|with|would|you|your|ago|apart|away|back"
    "|before|after|between|can|could|deep|did|does|down|east|extra|high|later|left|long|north|remaining|should|south|spent|tall"
    "|then|thick|through|until|west|where|wide|under|without"
)
A_NOUN = rf"\s(?!(?:{_NO_NOUN})\b)[a-z]"
BEFORE_NOUN = f"(?:((?={A_NOUN}))|)"


def behind(phrases: str) -> str:
    """Pattern of a place behind one of the phrases "due|due on|*ing" and a space, in any case; * is the rest of a word."""
    by_length: dict[int, list[str]] = {}
    for phrase in phrases.split("|"):
        end = re.escape(phrase.removeprefix("*")).replace(r"\ ", r"\s")
        by_length.setdefault(len(phrase.removeprefix("*")), []).append(end if phrase[0] == "*" else rf"\b{end}")
    looks = (rf"(?<=(?:{'|'.join(ends)})\s)" for ends in by_length.values())
    return f"(?i:{'|'.join(looks)})"


AN_ARTICLE = behind(DETERMINERS)
AFTER_ARTICLE = f"(?:({AN_ARTICLE})|)"


def any_of(words: Iterable[str]) -> str:
    """Pattern that matches any of these words, the longest first."""
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True))


# A capital after a name with a point does not prove that a sentence starts; only these words do.
OPENER = rf"[\"'”’)\]]{{0,3}}(?:\s*\Z|\s+[\"'“‘(\[]?(?:{any_of(tables.OPENERS)})\b(?!\.))"
POINT_OF_NAME = rf"(?:\.(?!{OPENER}))?"
