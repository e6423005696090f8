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
    text, origins = _replace(text, find_formulas(text), origins)
    if not text.isascii():
        text, origins = _replace(text, _normalise_signs(text), origins, divides=False)
    if _FOREIGN_NUMBER.search(text):
        text, origins = _replace(text, scanner("notation").read(text), origins)
    if _is_all_caps(text):
        found = ((start, end, words.upper()) for start, end, words in scanner("capitals").read(text))
        return _replace(text, found, origins)
    return _replace(text, scanner("text").read(text), origins)


def _replace(
    text: str, found: Iterable[tuple[int, int, str]], origins: dict[int, int], divides: bool = True
) -> tuple[str, dict[int, int]]:
    """Replace stretches of a text by words, (start, end, words), with spaces around them if they divide words: MP3, 4x4.

    Moves the places of `origins` (place: index) along. Places inside new words are left out.
    """
    parts: list[str] = []
    length, was_new, was_left_out = 0, False, False
    indices, moved = sorted(set(origins.values())), {}
    following = 0
    for start, end, words, is_new in _all_stretches(text, found, divides):
        at_start = length
        if words:
            if (is_new or was_new) and parts and _would_join(parts[-1][-1], words, was_left_out):
                parts.append(" ")
                length += 1
            was_new, was_left_out = is_new, False
            parts.append(words)
        elif is_new:  # a sign that is left out divides words, too
            was_new = was_left_out = True
        first, length = length, length + len(words)
        while following < len(indices) and indices[following] <= end:
            index = indices[following]
            if index in (start, end):
                moved[index] = at_start if index == start else length
            elif not is_new:
                moved[index] = first + index - start
            following += 1
    return "".join(parts), {place: moved[index] for place, index in origins.items() if index in moved}


def _all_stretches(
    text: str, found: Iterable[tuple[int, int, str]], divides: bool
) -> Iterator[tuple[int, int, str, bool]]:
    """Yield the stretches of a text that stay, and the new ones between; True for those that divide words."""
    done = 0
    for start, end, words in found:
        yield done, start, text[done:start], False
        yield start, end, words, divides
        done = end
    yield done, len(text), text[done:], False


def _would_join(last: str, words: str, is_left_out: bool) -> bool:
    """True if words would join what ends in `last`, or would after a sign that is left out: C".D, a./b."""
    joint = last + words[:2]
    return re.match(r"[^\W_]{2}" + (r"|\.[^\W_]|[^\W_]\.[^\W_]" if is_left_out else ""), joint) is not None


def load_english(path: Path = RULES, compiles: bool = False) -> Language:
    """The rules of English, or of another file with its words. Raises DataError for the first mistake."""
    return Rules(path, CLASSES, SPEAKERS, PATTERNS, compiles).load()


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
    plain = re.sub(_BRACED, "", text)
    words = re.findall(r"[A-Z]{2}\S*", plain)
    are_words = any(not is_spelled(word) for word in re.findall("[A-Z]{2,}", plain))  # not 12 PM ET
    return len(words) > 1 and are_words and not any(character.islower() for character in plain)


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
