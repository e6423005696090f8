"""Composed accents, and transliteration to ASCII: Unidecode's letters, and only those of its signs that stay one character."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

MOST_MARKS = 30  # consecutive ones, as in UAX #15's Stream-Safe Text Format: more than any language uses

# Exceptions to Unidecode and to the rule below: umlauts are spelled out as in German, and a few signs would go wrong.
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
    from unidecode import unidecode  # imported here: most texts are ASCII, and benchmarks run without it

    category, ascii_text = unicodedata.category(character), unidecode(character)
    if category[0] in "LZ" or category == "Nd":  # letters, spaces and digits, in any script
        return ascii_text
    # An en dash or a curly quote has a one-character equivalent; signs that need more (the em dash, £, ½, …) are dropped.
    return ascii_text if category[0] == "P" and len(ascii_text) == 1 else ""


def compose(text: str) -> str:
    """Compose letters with their accents (NFC), so that steps that read single characters keep the accents.

    Normalisation takes quadratic time in the length of a run of marks, so runs longer than MOST_MARKS are composed in parts.
    """
    return text if text.isascii() else "".join(unicodedata.normalize("NFC", part) for part in _stretches(text))


def _stretches(text: str) -> Iterator[str]:
    """Yield the parts of a text, none with more than MOST_MARKS consecutive marks."""
    start = marks = 0
    for place, character in enumerate(text):
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        if marks > MOST_MARKS:
            yield text[start:place]
            start, marks = place, 1
    yield text[start:]


def to_ascii(text: str) -> str:
    """Transliterate text to ASCII; signs without an equivalent (the em dash, £, €, °, emoji) are dropped."""
    return text if text.isascii() else "".join(map(_ascii_of, compose(text)))
