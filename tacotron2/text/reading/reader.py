"""English as it is written to English as it is read aloud, for texts at inference.

    read_english("Dr. Smith paid $3.50 at 6:45 p.m.")
    "Dr. Smith paid three dollars, fifty cents at six forty-five P M."

The cleaners of cleaners.py are those that checkpoints were trained with, and stay as published. They read "3.14" as "three point
fourteen" and drop "£": this goes before them, and leaves words and points that they leave alone.

A text is read once from left to right, by the first rule of a list that matches at a place, and no rule sees what another one
made of its own place. Then it is read again, until that changes nothing: what stood beside a number may be a word only now.
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
from tacotron2.text.reading.words import ADDRESSES, SIGNS, SPELLED, WORDS

_FRACTION = "⁄"
_BRACED = r"\{[^{}]*\}"  # ARPAbet, which is spoken as it stands
_MOST_READINGS = 10  # two are common, four are rare
_WITHOUT_SYMBOL = frozenset('"#$%&*+/<=>@[\\]^`|~')  # ASCII that is left to rules
_BRACKETS = {"{": "(", "}": ")"}  # of other scripts: these here would hold ARPAbet

# The order decides between rules that match at the same place.
_RULES: list[Rule] = [("-", rf"({_BRACED})", str), *ADDRESSES, *QUANTITIES, *WORDS, *NUMBERS]

# Where rules begin, by their letter in a rule.
_BEGINNINGS = {
    "0": "(?=[0-9])",
    "A": r"(?<![^\W\d_])(?=[A-Z])",
    "a": r"(?<![^\W\d_])(?=[^\W\d_A-Z])",
    " ": r"(?=\s)",
    "-": "(?=[^\\w\\s]|[_¹²³⁰⁴-⁹])",
}


class _Reader(NamedTuple):
    """All rules as one pattern, each a named group in it; by that name: a rule's function, and the numbers of its own groups."""

    pattern: re.Pattern[str]
    rules: dict[str, tuple[Callable[..., str], range]]

    def words(self, match: re.Match[str]) -> str:
        """What is said for a match."""
        assert match.lastgroup is not None  # the group that closed last, which is around all of a rule
        say, groups = self.rules[match.lastgroup]
        return say(*map(match.group, groups))


def read_english(text: str) -> str:
    """A text with its numbers, abbreviations and signs in words; what is in {braces} stays, and words keep their case.

    Reads American English. Never raises, and reading again what was read changes nothing.
    """
    text = _plain_signs(text)
    for _ in range(_MOST_READINGS):
        before, text = text, _read_once(text)
        if text == before:
            break
    return text


def _read_once(text: str) -> str:
    is_shouted = _is_shouted(text)
    reader = _reader(is_shouted)
    pieces: list[tuple[str, bool]] = []
    end = 0
    for match in reader.pattern.finditer(text):
        words = reader.words(match)
        pieces += [(text[end : match.start()], False), (words.upper() if is_shouted else words, True)]
        end = match.end()
    return _joined([*pieces, (text[end:], False)])


def _joined(pieces: list[tuple[str, bool]]) -> str:
    """Pieces of a text, each with whether it was read, with spaces between words that were no words before: MP3, 4x4."""
    parts: list[str] = []
    was_read = False
    for piece, is_read in pieces:
        if not piece:
            continue
        if (is_read or was_read) and parts and parts[-1][-1].isalnum() and piece[0].isalnum():
            parts.append(" ")
        parts.append(piece)
        was_read = is_read
    return "".join(parts)


@cache
def _reader(is_shouted: bool) -> _Reader:
    """The rules compiled, when the first text is read: that takes a moment, which training should not pay."""
    rules = [*_RULES, *([] if is_shouted else SPELLED), *SIGNS]
    says: dict[str, Callable[..., str]] = {}
    kinds = []
    for beginning, guard in _BEGINNINGS.items():
        patterns = []
        for beginnings, pattern, say in rules:
            if beginning in beginnings:
                name = f"rule{len(says)}"
                says[name] = say
                patterns.append(f"(?P<{name}>{pattern})")
        kinds.append(f"{guard}(?:{'|'.join(patterns)})")
    every = re.compile("|".join(kinds))
    firsts = [*every.groupindex.values(), every.groups + 1]
    own = {name: range(first + 1, after) for name, first, after in zip(says, firsts, firsts[1:])}
    return _Reader(every, {name: (say, own[name]) for name, say in says.items()})


def _is_shouted(text: str) -> bool:
    """Whether all words of a text are in capitals, so that capitals say nothing about any of them."""
    plain = re.sub(_BRACED, "", text)
    return len(re.findall(r"[A-Z]{2}\S*", plain)) > 1 and not any(character.islower() for character in plain)


def _plain_signs(text: str) -> str:
    """Digits, fractions and signs of all alphabets as those that rules know; letters stay, as cleaners transliterate them."""
    if text.isascii():
        return text
    return re.sub(rf"({_BRACED})|([0-9]?)([^\x00-\x7f])(?=([0-9]?))", _plain_sign, text)


def _plain_sign(match: re.Match[str]) -> str:
    braced, before, character, after = match.groups()
    if braced is not None:
        return braced
    plain = _plain(character)
    if _FRACTION in plain:  # ½ is 1⁄2, and 2½ 2 1⁄2
        plain = f"{' ' if before else ''}{plain}{' ' if after else ''}"
    return before + plain


def _plain(character: str) -> str:
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
    if len(twin) == 1:  # “ and ＆, with which the cleaner would leave what has no symbol
        return twin if twin in _WITHOUT_SYMBOL else _BRACKETS.get(twin, character)
    return (
        "".join(letter for letter in twin if letter not in _WITHOUT_SYMBOL)
        if _WITHOUT_SYMBOL & set(twin)
        else character
    )
