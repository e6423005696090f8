"""The alphabet of the transcripts, and the flags of train.py that fit it."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from common.data.transliteration import compose

PAD = "_"  # the first symbol of every alphabet
LARGEST = 200  # symbols; a writing with more has signs for syllables or words
FOREIGN = 0.01  # share of letters beyond ASCII; English texts with names such as José have fewer
RARE = 3  # occurrences; letters that are rarer are listed for a check
ENGLISH, BASIC, TRANSLITERATION = "english_cleaners", "basic_cleaners", "transliteration_cleaners"


class Alphabet(NamedTuple):
    """The cleaner that fits the texts, the symbols of --symbols-file (None: the built-in ones), and notes for people."""

    cleaner: str
    symbols: list[str] | None
    notes: list[str]


def choose_alphabet(texts: Sequence[str], language: str) -> Alphabet:
    """Choose the cleaner and the alphabet for texts in a language."""
    letters = Counter(c for text in texts for c in text if unicodedata.category(c)[0] in "LM")
    n_foreign = sum(count for letter, count in letters.items() if not letter.isascii())
    share = n_foreign / max(1, letters.total())
    if share <= FOREIGN and language == "en":
        return Alphabet(ENGLISH, None, [])
    symbols = symbols_of(texts)
    if len(symbols) > LARGEST:
        note = (
            f"the texts have {len(symbols)} different symbols, too many to learn: {TRANSLITERATION} writes them in Latin"
            " letters, without tones; better texts are in pinyin, romaji or another spelling by sound"
        )
        return Alphabet(TRANSLITERATION, None, [note])
    notes = [f"the texts are not English: their alphabet has {len(symbols)} symbols; {BASIC} keeps their letters"]
    if digits := sorted({c for text in texts for c in text if c.isdigit()}):
        notes.append(f"write numbers as words: {BASIC} does not spell the digits {' '.join(digits)}")
    counts = Counter("".join(texts).lower())
    if rare := [symbol for symbol in symbols if symbol.isalpha() and 0 < counts[symbol] < RARE]:
        notes.append(f"letters that hardly occur and cannot be learned: {' '.join(rare)}")
    return Alphabet(BASIC, symbols, notes)


def symbols_of(texts: Sequence[str]) -> list[str]:
    """Return the padding, the space, and all other characters that texts have in lower case; braces enclose ARPAbet."""
    characters = set(compose(" ".join(texts).lower())) - {PAD, " ", "{", "}"}
    return [PAD, " ", *sorted(characters)]


def symbols_file(symbols: Sequence[str]) -> bytes:
    """Write an alphabet as --symbols-file reads it, a symbol a line."""
    return "".join(f"{symbol}\n" for symbol in symbols).encode()
