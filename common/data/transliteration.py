"""Any text as ASCII: Unidecode's letters, and of its signs only those that stay one character, as published."""

from __future__ import annotations

import unicodedata

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


def to_ascii(text: str) -> str:
    """Transliterate text to ASCII; signs without an equal (the em dash, £, €, °, emoji) are dropped."""
    return text if text.isascii() else "".join(map(_ascii_of, unicodedata.normalize("NFC", text)))
