"""Elements of SSML that say how words are spoken: <phoneme>, <say-as> and <sub>, within <speak> or without it."""

from __future__ import annotations

import html
import re

from common.errors import DataError, shorten
from common.reading.ipa import to_arpabet

_ELEMENT = re.compile(r"<(phoneme|say-as|sub)(\s[^<>]{0,500})>([^<>]{0,1000})</\1\s{0,9}>", re.I)
_ATTRIBUTE = re.compile(r"([\w-]{1,40})\s{0,9}=\s{0,9}(?:\"([^\"]*)\"|'([^']*)')")
_ARPABET = frozenset(("x-arpabet", "arpabet", "cmu-arpabet", "x-cmu-arpabet"))
_SPELLED = frozenset(("characters", "character", "spell-out", "verbatim", "letters"))
_AS_WRITTEN = frozenset(
    ("time", "currency", "unit", "fraction", "address", "duration", "name", "words")
)  # read as such anyway
_MONTH_FIRST = "mdy"


def read_elements(text: str) -> tuple[str, list[str]]:
    """Replace the elements of a text by what they stand for; return it, and notes on those that have no effect.

    Raises DataError for a pronunciation with sounds that English lacks.
    """
    notes: list[str] = []

    def replace(found: re.Match[str]) -> str:
        name, content = found[1].lower(), found[3]
        attributes = {key.lower(): html.unescape(one or other) for key, one, other in _ATTRIBUTE.findall(found[2])}
        if name == "sub":
            return attributes.get("alias", found[0])
        if name == "phoneme":
            spoken = _phones(found[0], attributes)
        else:
            spoken = _say_as(
                content, attributes.get("interpret-as", "").lower(), attributes.get("format", _MONTH_FIRST)
            )
        notes.extend([] if spoken is not None else [f"<{name}> of SSML has no effect"])
        return content if spoken is None else spoken

    return (_ELEMENT.sub(replace, text) if "</" in text else text), notes


def _phones(whole: str, attributes: dict[str, str]) -> str | None:
    kind, phones = attributes.get("alphabet", "ipa").lower(), attributes.get("ph", "").strip()
    if not phones or kind not in {"ipa", *_ARPABET}:
        return None
    if kind != "ipa":
        return f"{{{' '.join(phones.upper().split())}}}"
    spoken = " ".join(to_arpabet(f"/{word}/") for word in phones.strip("/[]").split())
    if "/" in spoken:
        raise DataError(f"text: {shorten(whole)!r}: expected English sounds of the International Phonetic Alphabet")
    return spoken


def _digits(content: str) -> str:
    """Write digits one by one, in the groups in which they stand; ten alone are a telephone number of 3, 3 and 4."""
    groups = re.sub(r"(?<![0-9])([0-9]{3})([0-9]{3})([0-9]{4})(?![0-9])", r"\1 \2 \3", content.replace("+", "plus "))
    groups = re.sub(r"(?i:ext\.?|x)\s?(?=[0-9])", " extension ", groups)
    words = re.sub("[0-9]+", lambda group: " ".join(group[0]) + ",", re.sub(r"[^\w\s]", " ", groups))
    return " ".join(words.split()).removesuffix(",")


def _say_as(content: str, kind: str, order: str) -> str | None:
    """Write a content so that it is read as a kind; None for an unknown one."""
    if kind in _SPELLED:
        return " ".join(character.upper() for character in content if not character.isspace())
    if kind in ("digits", "telephone"):
        return _digits(content)
    numbers = re.findall("[0-9]+", content)
    if kind == "date" and len(numbers) == len(order) == 3 and set(order) == set(_MONTH_FIRST):
        part = dict(zip(order, numbers, strict=True))
        return f"{part['y']:0>4}-{part['m']:0>2}-{part['d']:0>2}"
    if kind == "ordinal" and len(numbers) == 1:
        return f"{numbers[0]}th"
    if kind in ("cardinal", "number") and len(numbers) == 1:
        return f"{int(numbers[0]):,}"
    return content if kind in _AS_WRITTEN | {"date", "cardinal", "number", "ordinal"} else None
