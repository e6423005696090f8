"""Convert written English to spoken English, for texts at inference.

    read_english("Dr. Smith paid $3.50 at 6:45 p.m.")
    "Dr. Smith paid three dollars, fifty cents at six forty-five P M."

The cleaners in cleaners.py stay as published, because checkpoints were trained with them: they read "3.14" as "three point
fourteen" and drop "£". The reader therefore runs before them, and its output passes through them unchanged.

There is one pass, from left to right. At each place the first rule of rules.tsv that matches applies, and no rule reads another's
output: all look at the text as written. Before it, formulas become words; signs, and numbers in the notation of other countries,
become those of the rules.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from common.data.transliteration import to_ascii
from common.reading import dates, letters, numbers, quantities
from common.reading.formulas import find_formulas
from common.reading.ipa import IPA, to_arpabet
from common.reading.letters import is_spelled
from common.reading.rules import Language, Rules, Scanner
from common.reading.segments import replace
from common.reading.tables import CLASSES, readings

_FRACTION = "⁄"
_DIGITS = tuple("0123456789")
_FOREIGN_NUMBER = re.compile(r"[0-9][,.\s][0-9]")
_BRACED = r"\{[^{}]*\}"  # ARPAbet stays as it is
_WITHOUT_SYMBOL = frozenset('"#$%&*+/<=>@[\\]^`|~')  # ASCII characters that the rules replace
_BRACKETS = {"{": "(", "}": ")"}  # brackets of other scripts must not become braces, which enclose ARPAbet
_TWINS = readings("twin of a sign")  # for the rules, which read • as a pause


SPEAKERS: dict[str, Callable[..., str]] = {
    name: speaker
    for module in (numbers, dates, letters, quantities)
    for name, speaker in vars(module).items()
    if callable(speaker) and speaker.__module__ == module.__name__
}
PATTERNS = {"SYMBOLS": quantities.SYMBOLS, "ROMAN": numbers.ROMAN, "NO_INITIALS": letters.NO_INITIALS}
RULES = Path(__file__).with_name("rules.tsv")


def read_english(text: str) -> str:
    """Write numbers, abbreviations and signs as American English words; {braces} and the case of words stay.

    Never raises. A second call changes nothing but spaces, but for about one made-up text in a thousand: a rule may look at a
    neighbour that the first call wrote as a word, as for the dr of "15% dr -1".
    """
    return read_places(text, ())[0]


def read_places(text: str, places: Iterable[int]) -> tuple[str, dict[int, int]]:
    """Read a text as `read_english` does, and map places in it to places in the words.

    Returns the words, and for each place its index in them, except for places inside a stretch that a rule replaces.
    """
    origins = {place: place for place in places}
    if formulas := list(find_formulas(text)):
        text, origins = replace(text, formulas, origins)
    if not text.isascii():
        text, origins = replace(text, _normalise_signs(text), origins, divides=False)
    if _FOREIGN_NUMBER.search(text):
        text, origins = replace(text, scanner("notation").read(text), origins)
    if _is_all_caps(text):
        found = ((start, end, words.upper()) for start, end, words in scanner("capitals").read(text))
        return replace(text, found, origins)
    return replace(text, scanner("text").read(text), origins)


def load_english(path: Path = RULES, compiles: bool = False) -> Language:
    """The rules of English, or of another file with its words. Raises DataError for the first mistake."""
    return Rules((path,), CLASSES, SPEAKERS, PATTERNS, compiles).load()


_english = cache(load_english)


@cache
def scanner(kind: str) -> Scanner:
    """The rules for the notation of numbers, for a text, or for one in capitals."""
    headings = _english().sections.keys()
    others = {"text": {"notation", "initialisms in capitals"}, "capitals": {"notation", "initialisms"}}
    left_out = others.get(kind, headings - {kind})
    return Scanner(_english(), [heading for heading in headings if heading not in left_out])


def _is_all_caps(text: str) -> bool:
    """True if a text is all in capitals, so that capitals do not mark initialisms."""
    plain = re.sub(_BRACED, "", text) if "{" in text else text
    if not plain.isupper() or len(re.findall(r"[A-Z]{2}\S*", plain)) < 2:
        return False
    return any(not is_spelled(word) for word in re.findall("[A-Z]{2,}", plain))  # not 12 PM ET


def _normalise_signs(text: str) -> Iterator[tuple[int, int, str]]:
    """Map digits, fractions and signs of all scripts to those of the rules; letters stay, since cleaners transliterate them."""
    for match in re.finditer(rf"{_BRACED}|{IPA}|[^\x00-\x7f]", text):
        if match[0][0] == "{":
            continue
        start, end = match.span()
        plain = _normalise_character(match[0]) if len(match[0]) == 1 else to_arpabet(match[0])
        if _FRACTION in plain:  # ½ is 1⁄2, and 2½ 2 1⁄2
            before, after = (" " if text[place : place + 1] in _DIGITS else "" for place in (max(start - 1, 0), end))
            plain = f"{before}{plain}{after}"
        yield start, end, plain


def _normalise_character(character: str) -> str:
    if (digit := unicodedata.decimal(character, None)) is not None:
        return str(digit)
    if character in _TWINS:
        return _TWINS[character]
    compatible, category = unicodedata.normalize("NFKC", character), unicodedata.category(character)
    if (category == "No" and (_FRACTION in compatible or "₀" <= character <= "₉")) or (
        category == "Lm" and compatible.isascii()
    ):  # ½, H₂O, 1ˢᵗ
        return compatible
    twin = to_ascii(character)
    if len(twin) == 1:  # “ and ＆, for which the cleaner would output a character without a symbol
        return twin if twin in _WITHOUT_SYMBOL else _BRACKETS.get(twin, character)
    plain = "".join(letter for letter in twin if letter not in _WITHOUT_SYMBOL)
    return character if plain == twin else plain
