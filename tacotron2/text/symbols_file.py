"""Another alphabet from a file: UTF-8, one symbol a line, the first of them the padding."""

from __future__ import annotations

import argparse
import os
import unicodedata

from common.data.filelist import BadRows, lines_of
from common.errors import DataError
from common.files import decode_lines
from tacotron2.text.alphabet import ARPABET, is_phone

_EXPECTED = "expected a UTF-8 text file with one symbol a line, the first of them the padding"


def symbols_file(path: str) -> list[str]:
    """An argparse type: the symbols in a file; ArgumentTypeError is what read_symbols says of its mistakes."""
    try:
        return read_symbols(path)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def read_symbols(path: str | os.PathLike[str]) -> list[str]:
    """The symbols in a file, in order. A line of one space is the space; "@AA1" is ARPAbet; others are one character.

    Raises:
        DataError: the file is missing, or lines are no symbols, or too few; all mistakes in one message.
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
        told = f"{problems[0]}; " if problems else ""
        problems[0] = f"{told}{len(lines)} line, expected at least 2 symbols: the padding and what is spoken"
    with lines_of(path):
        if problems:
            raise BadRows(problems)
    return symbols


def _problem(symbol: str, first_line: int, line: int) -> str | None:
    """What is wrong with the symbol in a line, the first time it comes in `first_line`; None where nothing is."""
    if not symbol:
        return "empty line, expected a symbol; the space is a line of one space"
    if first_line != line:
        return f"{symbol!r} is in line {first_line} already, expected every symbol once"
    if symbol in ("{", "}"):
        return f"{symbol!r} encloses ARPAbet in texts, expected another symbol"
    if len(symbol) == 1 or (is_phone(symbol) and symbol[1:] in ARPABET):
        return None
    composed = unicodedata.normalize("NFC", symbol)
    hint = f"; {composed!r} is one if written as U+{ord(composed):04X}" if len(composed) == 1 else ""
    shown = f"{symbol[:40]!r}{' …' * (len(symbol) > 40)}"
    return f"{shown} has {len(symbol)} characters, expected one, or @ and ARPAbet as in @AA1{hint}"
