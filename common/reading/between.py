"""Rules of reader.py for signs between and before numbers: dashes, by a table of their contexts, and signs of calculation."""

from __future__ import annotations

import re
from typing import NamedTuple

from common.reading.dates import MONTH
from common.reading.numbers import cardinal, ordinal
from common.reading.patterns import InContext, Rule, after, before
from common.reading.units import END, POWER, POWERS, SYMBOLS, unit_names


class _Dash(NamedTuple):
    """A row of the table of dashes between numbers: patterns of what surrounds one; the words for it."""

    before: str  # the end of what precedes the left number
    left: str
    sign: str
    right: str
    after: str  # the beginning of what follows the right number
    words: str


_ANY = ".*"
_MORE, _COUNT = r"[0-9.,]+", r"[0-9][0-9,]*"
_ASKED = r"(?i:solve|what is|what's|calculate|compute|evaluate|how much is)[\s:]+"
_CODED = r"(?i:version|model|figure|fig\.?|table|exhibit|apartment|apt\.?|unit)\s"
_PARTED = r"(?i:section|chapter|page|problem|exercise|question|article|part|lesson|rule)\s"
# The first row that fits decides. A range in descending order is none.
_DASHES = (
    _Dash(_ANY, _ANY, r"\s?[-–]\s?", _ANY, r"[0-9\s.,+*/×x–-]{0,40}=(?![=>])", "minus"),
    _Dash(rf"{_ASKED}|[=+*×÷]\s?|\s/\s", _ANY, r"\s?[-–]\s?", _ANY, "", "minus"),
    _Dash(r"\A", _COUNT, r"\s[-–]\s", f"<{_COUNT}", r"\Z", "minus"),
    _Dash(_CODED, _COUNT, "-", _COUNT, r"(?![\w-])", "dash"),
    _Dash(_PARTED, _COUNT, "-", f"<{_COUNT}", r"(?![\w-])", "dash"),
    _Dash(r"[A-Za-z]", _MORE, "-", _MORE, "", "-"),
    _Dash(_ANY, rf"{_MORE}%", r"\s[-–]\s", _MORE, r"(?!\s?%)", " - "),
    _Dash(_ANY, _ANY, r"\s?[-–]\s?", _ANY, "", "to"),
)
_LEFT, _RIGHT = (
    re.compile(r"\$?[0-9][0-9.,]*(?:%|°|¢|″|′|\s?[ap]\.?m\.?)?\Z"),
    re.compile(r"[$£€¥]?[0-9.][0-9,]*(?:\.[0-9]+)?"),
)


def _dash(match: re.Match[str]) -> str:
    """Words for a dash between two numbers, by the table."""
    lead, rest = before(match), after(match)
    left, right = _LEFT.search(lead), _RIGHT.match(rest)
    if left is None or right is None:
        return "to"
    for row in _DASHES:
        falls = row.right.startswith("<")
        if (
            re.search(rf"(?:{row.before})\Z", lead[: left.start()] or "")
            and re.fullmatch(row.left, left[0])
            and re.fullmatch(row.sign, match[0])
            and re.fullmatch(row.right.removeprefix("<"), right[0])
            and re.match(row.after, rest[right.end() :])
            and not (falls and _value(left[0]) <= _value(right[0]))
        ):
            return row.words
    raise AssertionError("the last row fits any dash")


def _value(number: str) -> int:
    return int(number.replace(",", ""))


def _times(match: re.Match[str]) -> str:
    return "times" if re.match(r"[0-9.,\sxX×]{1,30}=", after(match)) else "by"


_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def _power(minus: str, exponent: str) -> str:
    number = "".join(str(_RAISED.index(digit)) for digit in exponent)
    return f"to the minus {cardinal(number)}" if minus else f"to the {ordinal(number)}"


def _ratio(symbol: str, per: str, power: str | None) -> str:
    size = f"{POWERS[power]} " if power else ""
    return f"{unit_names(symbol)[1]} per {size}{unit_names(per)[0]}"


_RATIO_OF = "km|mi|m|cm|ft|kg|g|mg|µg|L|mL|ml|MB|GB|kWh"
_RATIO_TO = "h|hr|s|sec|min|kg|L|mL|ml|dL|m|cm|km"

BETWEEN_NUMBERS: list[Rule] = [
    # 5−3
    (" -", r"(?<=[0-9])\s?−\s?(?=[0-9])", lambda: "minus"),
    # 5! = 120
    ("-", r"(?<=[0-9])!(?=\s?[=+*/×÷])", lambda: "factorial"),
    # 3x - 5
    (" ", r"(?<=[0-9][a-z])\s[-–]\s(?=[0-9])", lambda: "minus"),
    # 10-20, 10 – 20, 9am-5pm, March 3 - April 5
    (
        " -",
        rf"(?:(?<=[0-9%°¢″′])|(?<=[0-9][ap]m)|(?<=[0-9]\s[ap]m)|(?<=\b[ap]\.m\.))(?:\s[-–]\s|[-–])(?=[$£€¥]?\.?[0-9]|{MONTH}\.?\s[0-9])",
        InContext(_dash),
    ),
    # $1 million-$2 million
    ("-", r"(?<=[A-Za-z])[-–](?=[$£€¥][0-9])", lambda: "to"),
    # -5, -$5
    ("-", r"(?<![\w)%°.\]'’\"–-])[-−–](?=[$£€¥]?\.?[0-9])", lambda: "minus"),
    # 4x4, 3 x 5
    (" Aa", r"(?<=[0-9])\s?[xX]\s?(?=[0-9])", InContext(_times)),
    # 3x faster
    ("a", r"(?<=[0-9])x\b(?!\s?[-+=*/–][\s0-9])", lambda: "times"),
    # 10 / 2, 1/2/3
    (" ", r"(?<=[0-9])\s[/÷]\s(?=[0-9])", lambda: "divided by"),
    ("-", r"(?<=[0-9])[/⁄](?=[0-9])", lambda: "slash"),
    # 1,2 and 1.2 and 1:2, if no rule above matched the whole
    ("-", r"(?<=[0-9]),(?=[0-9])", lambda: ", "),
    ("-", r"(?<=[0-9])\.(?=[0-9])", lambda: "point"),
    ("-", r"(?<=[0-9]):(?=[0-9])", lambda: "to"),
    # 10⁶
    ("-", rf"(?<=[0-9])(⁻?)([{_RAISED}]+)(?<![0-9][²³])", _power),
    # 5 * 3, 2**3, 2^3
    (" -", r"(?<=[0-9])\s?\*\*\s?(?=[0-9])", lambda: "to the power of"),
    (" -", r"(?<=[0-9])\s?\*\s?(?=[0-9])", lambda: "times"),
    ("-", r"(?<=\w)\^(?=[\w(-])", lambda: "to the power of"),
    # #5
    ("-", r"#\s?(?=[0-9])", lambda: "number"),
    # $5/month, 60 miles/hour, 10/kg
    ("-", rf"(?<=[0-9$£€¥])/({SYMBOLS}){END}", lambda symbol: f"per {unit_names(symbol)[0]}"),
    # km/h, kg/m³ without a number; people/km2
    ("@", rf"(?<![\w/])({_RATIO_OF})/({_RATIO_TO}){POWER}{END}(?!/)", _ratio),
    (
        "-",
        rf"(?<=[a-z]{{3}})/(km|mi|m|cm)\^?([23²³]){END}",
        lambda symbol, power: f"per {POWERS[power]} {unit_names(symbol)[0]}",
    ),
    (
        "-",
        rf"(?<=[a-z]{{3}})/(km|mi|kg|ha|hr|hrs|min|sec|mL|ml|lb){END}",
        lambda symbol: f"per {unit_names(symbol)[0]}",
    ),
    (
        "-",
        r"(?<=\w)/(?=(?:second|minute|hour|night|day|week|month|year|person|mile|gallon|unit|head|serving)\b)",
        lambda: "per",
    ),
]
