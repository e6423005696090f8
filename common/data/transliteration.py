"""Any text with composed accents, or as ASCII: Unidecode's letters, and of its signs only those that stay one character."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

MOST_MARKS = 30  # in a row, as in the Stream-Safe Text Format of UAX #15: more than any language writes

# Where the rule below and Unidecode fall short: umlauts are spelled out as in German, and a few signs mislead them.
_EXCEPTIONS = {
    **{"ä": "ae", "ö": "oe", "ü": "ue", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"},
    **{"´": "'", "−": "-", "×": "x"},
    **{"¡": "", "¿": "", "¶": ""},
}


def _ascii_of(character: str) -> str:
    if character.isascii():
        return character
    if character in _EXCEPTIONS:
        return _EXCEPTIONS[character]
    from unidecode import unidecode  # here, as most texts are ASCII, and benchmarks run where it is not installed

    category, ascii_text = unicodedata.category(character), unidecode(character)
    if category[0] in "LZ" or category == "Nd":  # letters, spaces and digits, in any script
        return ascii_text
    # An en dash or a curly quote has a twin of one character; a sign that needs more (the em dash, £, ½, …) is dropped.
    return ascii_text if category[0] == "P" and len(ascii_text) == 1 else ""


def compose(text: str) -> str:
    """Compose letters with their accents (NFC), so that a letter keeps its accent in all steps that read single characters.

    The time for a run of marks grows with the square of its length. Longer runs than MOST_MARKS are composed in parts.
    """
    return text if text.isascii() else "".join(unicodedata.normalize("NFC", part) for part in _stretches(text))


def _stretches(text: str) -> Iterator[str]:
    """Yield the parts of a text, none of them with more than MOST_MARKS marks in a row."""
    start = marks = 0
    for place, character in enumerate(text):
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks > MOST_MARKS:
            yield text[start:place]
            start, marks = place, 1
    yield text[start:]


def to_ascii(text: str) -> str:
    """Transliterate text to ASCII; signs without an equal (the em dash, £, €, °, emoji) are dropped."""
    return text if text.isascii() else "".join(map(_ascii_of, compose(text)))
