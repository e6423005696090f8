"""The 148 symbols that the encoder embeds; a symbol's id is its place in the list."""

from __future__ import annotations

PAD = "_"

_PUNCTUATION = "-!'(),.:;? "
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# CMUdict's phones; a vowel stands bare or with its stress: 0 none, 1 primary, 2 secondary.
_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_STOPS_AND_AFFRICATES = ("B", "CH", "D", "G", "JH", "K", "P", "T")
_FRICATIVES = ("DH", "F", "HH", "S", "SH", "TH", "V", "Z", "ZH")
_SONORANTS = ("L", "M", "N", "NG", "R", "W", "Y")
_CONSONANTS = _STOPS_AND_AFFRICATES + _FRICATIVES + _SONORANTS

ARPABET = sorted([*_CONSONANTS, *(vowel + stress for vowel in _VOWELS for stress in ("", "0", "1", "2"))])
ARPABET_IN_WORDS = f"{' '.join(sorted(_CONSONANTS))}, and with stress 0, 1, 2 or none {' '.join(_VOWELS)}"

symbols: list[str] = [PAD, *_PUNCTUATION, *_LETTERS, *("@" + phone for phone in ARPABET)]

# The pad is among them: the published front end lets a "_" in the text through, and text_to_sequence follows it.
CHARACTER_IDS = {symbol: i for i, symbol in enumerate(symbols) if len(symbol) == 1}
PHONE_IDS = {symbol[1:]: i for i, symbol in enumerate(symbols) if symbol.startswith("@")}
