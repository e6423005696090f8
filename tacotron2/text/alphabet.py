"""The symbols that the encoder embeds: 148 built in, or another alphabet. A symbol's id is its index in the list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

PAD = "_"

_PUNCTUATION = "-!'(),.:;? "
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

# CMUdict's phones; a vowel stands alone or with its stress: 0 none, 1 primary, 2 secondary.
_VOWELS = ("AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW")
_STOPS_AND_AFFRICATES = ("B", "CH", "D", "G", "JH", "K", "P", "T")
_FRICATIVES = ("DH", "F", "HH", "S", "SH", "TH", "V", "Z", "ZH")
_SONORANTS = ("L", "M", "N", "NG", "R", "W", "Y")
_CONSONANTS = _STOPS_AND_AFFRICATES + _FRICATIVES + _SONORANTS

ARPABET = sorted([*_CONSONANTS, *(vowel + stress for vowel in _VOWELS for stress in ("", "0", "1", "2"))])
ARPABET_IN_WORDS = f"{' '.join(sorted(_CONSONANTS))}, and with stress 0, 1, 2 or none {' '.join(_VOWELS)}"

symbols: list[str] = [PAD, *_PUNCTUATION, *_LETTERS, *("@" + phone for phone in ARPABET)]


@dataclass(frozen=True)
class Alphabet:
    """The symbols of texts: characters, and ARPAbet as "@AA1". The first symbol, id 0, pads batches."""

    symbols: tuple[str, ...]

    # The pad is included, because the published front end accepts a "_" in the text.
    @cached_property
    def character_ids(self) -> dict[str, int]:
        """Ids of the characters that plain text may contain."""
        return {symbol: i for i, symbol in enumerate(self.symbols) if len(symbol) == 1}

    @cached_property
    def phone_ids(self) -> dict[str, int]:
        """Ids of the ARPAbet symbols, without the "@"; empty if the alphabet has none."""
        return {symbol[1:]: i for i, symbol in enumerate(self.symbols) if is_phone(symbol)}

    @property
    def phone_list(self) -> str:
        """The alphabet's ARPAbet symbols, for an error message."""
        return ARPABET_IN_WORDS if self.phone_ids.keys() >= set(ARPABET) else " ".join(sorted(self.phone_ids))


def is_phone(symbol: str) -> bool:
    """True for an ARPAbet symbol; "@" alone is a character."""
    return len(symbol) > 1 and symbol.startswith("@")


BUILT_IN = Alphabet(tuple(symbols))


def alphabet_of(own_symbols: Sequence[str] | None) -> Alphabet:
    """The alphabet of --symbols-file; None selects the built-in one."""
    return BUILT_IN if own_symbols is None else Alphabet(tuple(own_symbols))
