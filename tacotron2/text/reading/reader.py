"""Convert written English to spoken English, for texts at inference.

    read_english("Dr. Smith paid $3.50 at 6:45 p.m.")
    "Dr. Smith paid three dollars, fifty cents at six forty-five P M."

The cleaners of cleaners.py stay as published, because checkpoints were trained with them. They read "3.14" as "three point
fourteen" and drop "£". So the reader runs before them, and its output passes through them unchanged.

One pass goes from left to right. At each place the first matching rule of the list applies, and no rule reads another's output.
Passes repeat until the text no longer changes, since a replaced number may turn its neighbours into words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from common.data.transliteration import to_ascii
from tacotron2.text.reading.quantities import QUANTITIES, Rule
from tacotron2.text.reading.units import NUMBERS
from tacotron2.text.reading.words import ADDRESSES, INITIALISMS, SIGNS, WORDS

_FRACTION = "⁄"
_BRACED = r"\{[^{}]*\}"  # ARPAbet stays as it is
_MAX_PASSES = 10  # two are common, four are rare
_WITHOUT_SYMBOL = frozenset('"#$%&*+/<=>@[\\]^`|~')  # ASCII characters that the rules replace
_BRACKETS = {"{": "(", "}": ")"}  # brackets of other scripts must not become braces, which enclose ARPAbet

# If several rules match at a place, the first one applies.
_RULES: list[Rule] = [("-", rf"({_BRACED})", str), *ADDRESSES, *QUANTITIES, *WORDS, *NUMBERS]

# Guards for the place where a rule may begin, by its letter.
_BEGINNINGS = {
    "0": "(?=[0-9])",
    "A": r"(?<![^\W\d_])(?=[A-Z])",
    "a": r"(?<![^\W\d_])(?=[^\W\d_A-Z])",
    " ": r"(?=\s)",
    "-": "(?=[^\\w\\s]|[_¹²³⁰⁴-⁹])",
}


class _Reader(NamedTuple):
    """All rules in one pattern with a named group each; `rules` maps the name to a function and its group numbers."""

    pattern: re.Pattern[str]
    rules: dict[str, tuple[Callable[..., str], range]]

    def replacement(self, match: re.Match[str]) -> str:
        """Spoken words for a match."""
        assert match.lastgroup is not None  # the last group to close encloses a whole rule
        to_words, groups = self.rules[match.lastgroup]
        return to_words(*map(match.group, groups))


def read_english(text: str) -> str:
    """Write numbers, abbreviations and signs as American English words; {braces} and the case of words stay.

    Never raises. A second call returns its input unchanged.
    """
    text = _normalise_signs(text)
    for _ in range(_MAX_PASSES):
        before, text = text, _read_pass(text)
        if text == before:
            break
    return text


def _read_pass(text: str) -> str:
    is_all_caps = _is_all_caps(text)
    reader = _reader(is_all_caps)
    segments: list[tuple[str, bool]] = []
    end = 0
    for match in reader.pattern.finditer(text):
        words = reader.replacement(match)
        segments += [(text[end : match.start()], False), (words.upper() if is_all_caps else words, True)]
        end = match.end()
    return _join_segments([*segments, (text[end:], False)])


def _join_segments(segments: list[tuple[str, bool]]) -> str:
    """Join segments (text, True if a rule produced it), with spaces around new words: MP3, 4x4."""
    parts: list[str] = []
    was_new = False
    for segment, is_new in segments:
        if not segment:
            continue
        if (is_new or was_new) and parts and parts[-1][-1].isalnum() and segment[0].isalnum():
            parts.append(" ")
        parts.append(segment)
        was_new = is_new
    return "".join(parts)


@cache
def _reader(is_all_caps: bool) -> _Reader:
    """Compile the rules at first use; it takes a moment, and training does not need them."""
    rules = [*_RULES, *([] if is_all_caps else INITIALISMS), *SIGNS]
    functions: dict[str, Callable[..., str]] = {}
    kinds = []
    for beginning, guard in _BEGINNINGS.items():
        patterns = []
        for beginnings, pattern, to_words in rules:
            if beginning in beginnings:
                name = f"rule{len(functions)}"
                functions[name] = to_words
                patterns.append(f"(?P<{name}>{pattern})")
        kinds.append(f"{guard}(?:{'|'.join(patterns)})")
    every = re.compile("|".join(kinds))
    firsts = [*every.groupindex.values(), every.groups + 1]
    own = {name: range(first + 1, after) for name, first, after in zip(functions, firsts, firsts[1:])}
    return _Reader(every, {name: (to_words, own[name]) for name, to_words in functions.items()})


def _is_all_caps(text: str) -> bool:
    """True if a text is all in capitals, so that capitals do not mark initialisms."""
    plain = re.sub(_BRACED, "", text)
    return len(re.findall(r"[A-Z]{2}\S*", plain)) > 1 and not any(character.islower() for character in plain)


def _normalise_signs(text: str) -> str:
    """Map digits, fractions and signs of all scripts to those of the rules; letters stay, since cleaners transliterate them."""
    if text.isascii():
        return text
    return re.sub(rf"({_BRACED})|([0-9]?)([^\x00-\x7f])(?=([0-9]?))", _normalise_match, text)


def _normalise_match(match: re.Match[str]) -> str:
    braced, before, character, after = match.groups()
    if braced is not None:
        return braced
    plain = _normalise_character(character)
    if _FRACTION in plain:  # ½ is 1⁄2, and 2½ 2 1⁄2
        plain = f"{' ' if before else ''}{plain}{' ' if after else ''}"
    return before + plain


def _normalise_character(character: str) -> str:
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    if character in "℃℉":
        return f"°{unicodedata.normalize('NFKC', character)[-1]}"
    compatible = unicodedata.normalize("NFKC", character)
    if unicodedata.category(character) == "No" and _FRACTION in compatible:
        return compatible
    if "₀" <= character <= "₉" or character == "…":  # H₂O
        return compatible
    twin = to_ascii(character)
    if len(twin) == 1:  # “ and ＆, for which the cleaner would output a character without a symbol
        return twin if twin in _WITHOUT_SYMBOL else _BRACKETS.get(twin, character)
    return (
        "".join(letter for letter in twin if letter not in _WITHOUT_SYMBOL)
        if _WITHOUT_SYMBOL & set(twin)
        else character
    )
