"""A pronouncing dictionary in CMUdict's format, as the published recipe reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tacotron2.text.alphabet import ARPABET as valid_symbols

_ENTRY = re.compile(r"(['A-Z][^\s(]*)(?:\(\d+\))?\s+(.+)")


class CMUDict:
    """Pronunciations of words, by their capitals; entries with other symbols than valid_symbols are left out.

    Without `keep_ambiguous`, words with several pronunciations are left out, too.
    """

    def __init__(self, file_or_path: str | os.PathLike[str] | Iterable[str], keep_ambiguous: bool = True) -> None:
        if isinstance(file_or_path, (str, os.PathLike)):
            file_or_path = Path(file_or_path).read_text(encoding="latin-1").splitlines()
        known, entries = set(valid_symbols), dict[str, list[str]]()
        for line in file_or_path:
            entry = _ENTRY.match(line)
            if entry and known.issuperset(entry[2].split()):
                entries.setdefault(entry[1], []).append(entry[2].strip())
        self._entries = {word: found for word, found in entries.items() if keep_ambiguous or len(found) == 1}

    def __len__(self) -> int:
        return len(self._entries)

    def lookup(self, word: str) -> list[str] | None:
        """Return the pronunciations of a word in ARPAbet, or None."""
        return self._entries.get(word.upper())
