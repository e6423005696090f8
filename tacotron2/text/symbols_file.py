"""Read another alphabet from a UTF-8 file: one symbol a line, the padding first."""

from __future__ import annotations

import argparse
import os

from common.data.filelist import BadRows, lines_of
from common.data.transliteration import compose
from common.errors import DataError
from common.files import decode_lines
from tacotron2.text.alphabet import ARPABET, is_phone

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
