"""Reading in the languages of num2words, by files of rules and words in languages/: numbers_CODE among the text cleaners.

Ten languages have a file of their own, a country may add to its language's (pt_BR.tsv), and the others share other.tsv, which knows
numbers, dates, times and prices. A name of a thing that is counted has a form for each number, and may have a gender, whose changes
of words are those of its number: t=tonne/tonnes|feminine. The changes "form" make a, b … of a number, the first, second … form;
"cardinal" and "ordinal" mend the words of num2words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import cache, wraps
from pathlib import Path

from common.data.number_words import find_language, in_words, library
from common.errors import UsageError
from common.reading.numbers import roman
from common.reading.rules import Rules, Scanner
from common.reading.segments import replace

PREFIX = "numbers_"
FILES = Path(__file__).with_name("languages")
SECTIONS = ("rules", "common rules", "numbers", "common numbers")  # in the order of trial
MOST_DIGITS = 15  # of a number that is read as a whole
CURRENCIES = {"R$": "BRL", "€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY"}
POINT = frozenset(
    ["am", "bn", "cy", "en", "es_CR", "es_GT", "es_NI", "fa", "fr_CH", "he", "ja", "kn", "ko", "te", "th"]
)  # 1,234.5; elsewhere 1.234,5

WHITE = re.compile(r"\s*")
SIGNS = frozenset("%&@#§")  # beside digits and the signs of Unicode's categories
CONSONANTS = "[b-df-hj-np-tv-zB-DF-HJ-NP-TV-Z]"
ABBREVIATION = re.compile(
    rf"\b(?:[^\W\d_]{{1,3}}\.){{2,}}|\b[^\W\d_]{{1,3}}\.(?=[^\S\n]+[^\W\d_A-ZÀ-ÞĀ-ŽΆ-ΏΑ-ΩЀ-Я])|\b{CONSONANTS}{{1,5}}\.(?=\s)"
)


@cache
def numbers_cleaner(name: str) -> LanguageReader | None:
    """Return the cleaner of a name; None unless it is numbers_CODE. Raises UsageError for an unknown language."""
    if not name.startswith(PREFIX):
        return None
    language = find_language(name.removeprefix(PREFIX))
    if language is None:
        known = ", ".join(sorted(library().CONVERTER_CLASSES))
        raise UsageError(f"text cleaners: got {name!r}, wanted {PREFIX}CODE with a language of num2words: {known}")
    return LanguageReader(language)


class LanguageReader:
    """Reads texts of one language as words. Raises DataError for a mistake in its file."""

    def __init__(self, language: str) -> None:
        self.code = language.partition("_")[0]  # without a country
        self._language, self._converter = language, library().CONVERTER_CLASSES[language]
        point, comma = (r"\.", ",") if language in POINT else (",", r"\.")
        speakers = (self.cardinal, self.ordinal, self.year, self.digits, self.decimal, self.price, self.minus)
        named = {speak.__name__: _if_given(speak) for speak in (*speakers, self.noun, self.counted)}
        named |= {"read": _if_given(self.__call__), "value": _if_given(_value), "roman": _if_given(_roman)}
        classes: dict[str, dict[str, str]] = {}
        rules = Rules(_files(language), classes, named, {"DECIMAL": point, "COMMA": comma})
        found = rules.load()
        self._change = rules.change
        self._nouns = {name: noun for kind in ("unit", "money", "scale") for name, noun in classes[kind].items()}
        self._scanner = Scanner(found, list(_sections(found.sections, self.code)))

    def __call__(self, text: str) -> str:
        """Return a text with words for numbers, signs and abbreviations, as far as they are known; {ARPAbet} stays."""
        return self.read_places(text, ())[0]

    def read_places(self, text: str, places: Iterable[int]) -> tuple[str, dict[int, int]]:
        """Read a text, and return the index in its words of each place, but for those in what rules replace or behind its point."""
        if not text.isascii():  # digits of all scripts
            text = re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text)
        found = list(self._scanner.read(text))
        pointed = (WHITE.match(text, end) for _, end, _ in found if text[end - 1] == ".")  # 3. Mai, z. B. hier
        within = {place for space in pointed if space for place in range(space.start(), space.end() + 1)}
        return replace(text, found, {place: place for place in places if place not in within})

    def cardinal(self, number: str) -> str:
        """Name of a whole number; of its digits, if it begins with a zero or has more than num2words can name."""
        digits = re.sub("[^0-9]", "", number)
        whole = "" if len(digits) > MOST_DIGITS or (digits[0] == "0" and len(digits) > 1) else self._words(digits)
        return self._change("cardinal", whole) or self.digits(digits)

    def ordinal(self, number: str) -> str:
        """Ordinal of a whole number."""
        return self._change("ordinal", self._words(re.sub("[^0-9]", "", number), "ordinal")) or self.cardinal(number)

    def year(self, number: str) -> str:
        """Name of a year."""
        return self._change("year", self._words(number, "year")) or self.cardinal(number)

    def digits(self, number: str) -> str:
        """Names of digits one by one, with pauses between groups."""
        groups = re.findall("[0-9]+", number)
        return ", ".join(" ".join(self._change("cardinal", self._words(d)) or d for d in group) for group in groups)

    def decimal(self, whole: str, fraction: str) -> str:
        """Name of a number with a fraction, in a language without rules for it."""
        point, words = getattr(self._converter, "pointword", ""), self.cardinal(whole)
        if isinstance(point, str) and point.isalpha():
            return f"{words} {point} {self.digits(fraction)}"
        both = self._words(f"{re.sub('[^0-9]', '', whole)}.{fraction}")
        return both if both not in ("", words) else f"{words}, {self.digits(fraction)}"

    def price(self, sign: str, whole: str, cents: str) -> str:
        """Amount of money, in a language without rules for it; where num2words lacks the currency, the sign stays."""
        digits, forms = re.sub("[^0-9]", "", whole), getattr(self._converter, "CURRENCY_FORMS", {})
        words, code = "", CURRENCIES[sign]
        if len(digits) <= MOST_DIGITS and code in forms:
            words = in_words(f"{digits}.{cents}", self._language, to="currency", currency=code)
        if words and not cents.strip("0"):  # "fünf Euro und null Cent" ends with its unit
            units = sorted({form for form in forms[code][0] if isinstance(form, str)}, key=len, reverse=True)
            found = re.match(rf".*?\b(?:{'|'.join(map(re.escape, units))})(?!\w)", words)
            words = found[0] if found else words
        return words or f"{self.decimal(whole, cents) if cents.strip('0') else self.cardinal(whole)} {sign}"

    def minus(self, sign: str) -> str:
        """The word before a negative number, with a space; the sign where there is none."""
        of_one, one = self._words("-1"), self._words("1")
        return f"{of_one.removesuffix(one).strip()} " if of_one and one and of_one.endswith(one) else sign

    def noun(self, number: str, symbol: str) -> str:
        """Name of what is counted, in the form for a number."""
        forms = self._nouns[symbol].partition("|")[0].split("/")
        return forms[min(ord(self._change("form", number)[-1]) - ord("a"), len(forms) - 1)]

    def counted(self, number: str, symbol: str) -> str:
        """Number in the gender of what it counts, and the name of that."""
        gender = self._nouns[symbol].partition("|")[2] or "counting"
        return f"{self._change(gender, self(number))} {self.noun(number, symbol)}"

    def _words(self, number: str, to: str = "cardinal") -> str:
        return in_words(number, self._language, to)


def _files(language: str) -> list[Path]:
    """The files of a language: its own, or the one of all others."""
    own = FILES / f"{language.partition('_')[0]}.tsv"
    if not own.exists():
        return [FILES / "first.tsv", FILES / "other.tsv"]
    country = FILES / f"{language}.tsv"
    return [FILES / "first.tsv", own, *([country] if country != own and country.exists() else []), FILES / "last.tsv"]


def _sections(headings: Iterable[str], language: str) -> Iterable[str]:
    """The headings of a language, in the order of trial: "rules: cs da" has rules for two languages."""
    for wanted in SECTIONS:
        for heading in headings:
            name, _, languages = heading.partition(": ")
            if name == wanted and (not languages or language in languages.split()):
                yield heading


def _if_given(speak: Callable[..., str]) -> Callable[..., str]:
    """A speaker that says nothing of a group that matched nothing."""

    @wraps(speak)
    def said(*words: str | None) -> str:
        return speak(*words) if all(words) else ""

    return said


def _value(number: str) -> str:
    return str(int(number))


def _roman(numeral: str) -> str:
    return str(roman(numeral))


def find_left(texts: Sequence[str]) -> list[str]:
    """List what is no word in texts that have been read: digits and signs, and then abbreviations, each once.

    A word with a point inside is an abbreviation (z.B.), and so is one with a point behind it if it has no vowel (Weberstr.), or if
    a small letter follows (etw. zu tun), unless the texts have it without the point, too: as a word at the end of a sentence.
    """
    joined = "\n".join(texts)
    signs = sorted({c for c in joined if unicodedata.category(c)[0] in "NS" or c in SIGNS})
    words = {word.lower() for word in re.findall(r"\b[^\W\d_]+\b(?!\.)", joined)}
    found = {short for short in ABBREVIATION.findall(joined) if short.rstrip(".").lower() not in words}
    return [*signs, *sorted(found)]
