"""The symbols that the encoder embeds: 148 built in, or another alphabet. A symbol's id is its index in the list."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from common.data.filelist import BadRows, lines_of
from common.data.transliteration import compose
from common.errors import DataError
from common.files import decode_lines

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


# --- another alphabet, from a UTF-8 file: one symbol a line, the padding first ---

_EXPECTED = "expected a UTF-8 text file with one symbol a line, the first of them the padding"


def symbols_file(path: str) -> list[str]:
    """Read the symbols of a file, as an argparse type. Raises ArgumentTypeError with the message of read_symbols."""
    try:
        return read_symbols(path)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def read_symbols(path: str | os.PathLike[str]) -> list[str]:
    """Read the symbols of a file, in order. A symbol is one character, or "@AA1" for ARPAbet; a line may be one space.

    Raises:
        DataError: the file is missing, has fewer than two lines, or has lines that are no symbols. It lists all mistakes.
    """
    symbols: list[str] = []
    problems: dict[int, str] = {}
    lines, undecodable = decode_lines(path, _EXPECTED, keep_blank_end=True)
    first_lines: dict[str, int] = {}
    for index, symbol in enumerate(lines):
        if index in undecodable:
            problems[index] = f"{undecodable[index]}; {_EXPECTED}"
            continue
        symbols.append(symbol)
        if problem := _problem(symbol, first_lines.setdefault(symbol, index + 1), index + 1):
            problems[index] = problem
    if len(lines) < 2:
        first_problem = f"{problems[0]}; " if problems else ""
        problems[0] = f"{first_problem}{len(lines)} line, expected at least 2 symbols: the padding and one to speak"
    with lines_of(path):
        if problems:
            raise BadRows(problems)
    return symbols


def _problem(symbol: str, first_line: int, line: int) -> str | None:
    """The mistake in a line, or None. `first_line` is the line where the symbol occurs first."""
    if not symbol:
        return "empty line, expected a symbol; the space is a line of one space"
    if first_line != line:
        return f"{symbol!r} is in line {first_line} already, expected every symbol once"
    if symbol in ("{", "}"):
        return f"{symbol!r} encloses ARPAbet in texts, expected another symbol"
    if len(symbol) == 1 or (is_phone(symbol) and symbol[1:] in ARPABET):
        return None
    composed = compose(symbol)
    hint = f"; {composed!r} is one if written as U+{ord(composed):04X}" if len(composed) == 1 else ""
    excerpt = f"{symbol[:40]!r}{' …' * (len(symbol) > 40)}"
    return f"{excerpt} has {len(symbol)} characters, expected one, or @ and ARPAbet as in @AA1{hint}"
