"""Word and character error rates of a transcript against the reference text.

Both are normalised first: numbers are spelled in their language, in English all that is read aloud, and the rest is small letters
without punctuation: `6:45 p.m.` becomes `six forty five p m` and `Dr.` becomes `doctor`, in Spanish `8` becomes `ocho`. Accents
that the reference leaves out do not count, as in "contrasena".
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache
from typing import Any, NamedTuple

from common.data.number_words import find_language
from common.data.transliteration import compose, to_ascii
from common.quality.evaluators import optional_import
from common.reading.multilingual import PREFIX, numbers_cleaner
from common.reading.reader import read_english

WRITTEN_OTHERWISE = {  # what the reader leaves to the cleaner, and what recognisers write in a second way
    **{"mr": "mister", "mrs": "misess", "dr": "doctor", "lt": "lieutenant", "capt": "captain", "sgt": "sergeant"},
    **{"rev": "reverend", "gen": "general", "o": "oh"},
}
ALIKE = dict.fromkeys(map(ord, "'’‘ʼ`´")) | {ord("ё"): "е"}  # apostrophes, and a letter that few Russian texts write
# Letters of scripts without spaces between words, each of which counts as a word: Thai to Khmer, kana and Chinese characters.
UNSPACED = re.compile(r"([\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff])")


class Errors(NamedTuple):
    """The number of wrong words or characters, and how many the reference has."""

    errors: int
    count: int  # type: ignore[assignment]  # hides tuple.count, which is never called

    @property
    def rate(self) -> float:
        """Errors per word or character of the reference; above 1 if much is inserted, nan if the reference is empty."""
        return self.errors / self.count if self.count else math.nan

    def cap(self) -> Errors:
        """Cap the errors at the length of the reference, which an endless line would exceed by far."""
        return self._replace(errors=min(self.errors, self.count))


def word_errors(reference: str, hypothesis: str, language: str = "en") -> Errors:
    """Count the wrong words of a hypothesis, after normalising both. Raises DataError if jiwer is not installed.

    They are the fewest substitutions, deletions and insertions (Levenshtein 1966) that turn the reference into it.
    """
    return _errors("process_words", *comparable(reference, hypothesis, language))


def character_errors(reference: str, hypothesis: str, language: str = "en") -> Errors:
    """Count the wrong characters, including spaces, as word_errors does."""
    return _errors("process_characters", *comparable(reference, hypothesis, language))


def _errors(count: str, reference: str, hypothesis: str) -> Errors:
    with optional_import():
        import jiwer
    found: Any = getattr(jiwer, count)(reference, hypothesis)
    replaced = found.substitutions + found.deletions  # of the reference
    return Errors(replaced + found.insertions, replaced + found.hits)


def comparable(reference: str, hypothesis: str, language: str) -> tuple[str, str]:
    """Normalise both sentences; a word of the hypothesis that the reference writes without accents loses them."""
    wanted, found = normalise(reference, language), normalise(hypothesis, language)
    written = set(wanted.split())
    return wanted, " ".join(word if word in written else _as_written(word, written) for word in found.split())


def _as_written(word: str, written: set[str]) -> str:
    return next((plain for plain in (_without_accents(word), to_ascii(word)) if plain in written), word)


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))


@lru_cache(maxsize=4096)  # a transcript is compared with what each of several systems says
def normalise(text: str, language: str = "en") -> str:
    """Reduce a sentence to lower-case words as they are read aloud: "5 km" is "five kilometers"."""
    if language != "en":
        speller = find_language(language)
        spell = numbers_cleaner(f"{PREFIX}{speller}") if speller else None
        letters = compose(spell(text) if spell else text).casefold().translate(ALIKE)
        letters = "".join(c if unicodedata.category(c)[0] in "LM" else " " for c in UNSPACED.sub(r" \1 ", letters))
        return " ".join(letters.split())
    text = (
        re.sub(r"(?<=[0-9MBK]) (million |billion )?dollars\b", r" \1", text) if "$" in text else text
    )  # $5 million dollars
    words = re.findall(r"[a-z]+", to_ascii(read_english(text)).lower().replace("'", ""))
    return " ".join(WRITTEN_OTHERWISE.get(word, word) for word in words)
