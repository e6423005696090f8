"""Numbers in words: inflect's engine for English, and num2words for the cleaners of other languages, such as numbers_de.

Read are amounts of money, dates in digits, times, ordinals, years, decimals, and whole numbers with their separators. What is left,
such as % and abbreviations, is listed by `find_left`: no library knows these in forty languages.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from common.errors import DataError, UsageError

if TYPE_CHECKING:
    import inflect

MAX_DIGITS = 36  # inflect's names end before 10^36; longer numbers are read digit by digit
PREFIX = "numbers_"
INSTALL = "`pip install -r requirements.txt` installs it"
OTHER_NAMES = {"nb": "no", "nn": "no", "kk": "kz"}  # of num2words
MOST_DIGITS = 15  # of a number that is read as a whole
CURRENCIES = {"R$": "BRL", "€": "EUR", "$": "USD", "£": "GBP", "¥": "JPY"}
SIGNS = frozenset("%&@#§")  # beside digits and the signs of Unicode's categories
POINT = frozenset(
    ["am", "bn", "cy", "en", "es_CR", "es_GT", "es_NI", "fa", "fr_CH", "he", "ja", "kn", "ko", "te", "th"]
)  # 1,234.5; elsewhere 1.234,5
SPACED = frozenset(["be", "cs", "fi", "fr", "hu", "lt", "lv", "no", "pl", "ru", "sk", "sv", "uk"])  # 12 345
OWN_YEARS = frozenset(("da", "de", "nl", "no"))  # where years are read otherwise than numbers
# Signs after an ordinal. A point may end a sentence, so it takes a word in small letters, or a month, to make it one.
MONTHS = "jan|feb|mär|mar|már|apr|mai|maj|máj|jun|jún|jul|júl|aug|sep|sze|okt|nov|dez|dec"
POINTED = rf"\.(?=\s+(?:[^\W\d_A-ZÀ-ÞĀ-Ž]|(?i:{MONTHS})))"
BY_POINT = ("cs", "da", "de", "fi", "hu", "is", "lv", "no", "pl", "sk", "sl", "sr", "tr")
BY_LETTER = ("ca", "es", "it", "pt", "ro")
ORDINALS = (
    dict.fromkeys(BY_POINT, POINTED)
    | dict.fromkeys(BY_LETTER, r"\.?[ºª]")
    | {"fr": r"(?:er|re|e|[eè]me|nde?)s?\b", "nl": r"(?:st|d)?e\b", "sv": r":[ae]\b"}
)
CONSONANTS = "[b-df-hj-np-tv-zB-DF-HJ-NP-TV-Z]"
# Abbreviations, which nothing spells out: points within a word (z.B.); a point after a short word that does not end the sentence,
# since a small letter or a digit follows (p. 5); a point after letters without a vowel (Dr. Weber).
ABBREVIATION = re.compile(
    rf"\b(?:[^\W\d_]{{1,3}}\.){{2,}}|\b[^\W\d_]{{1,5}}\.(?=\s+[^\W_A-ZÀ-Þ])|\b{CONSONANTS}{{1,5}}\.(?=\s)"
)
WHITE = re.compile(r"\s*")
FAULTS = (ArithmeticError, AttributeError, LookupError, NotImplementedError, TypeError, ValueError)  # of its languages


@cache
def inflect_engine() -> inflect.engine:
    """Return the engine that names numbers, created once."""
    # Its decorator would compile each of inflect's functions anew, which takes two seconds.
    guard: Any = import_module("typeguard")
    checked, guard.typechecked = guard.typechecked, lambda function: function
    try:
        import inflect
    finally:
        guard.typechecked = checked
    return inflect.engine()


@cache
def _library() -> Any:
    try:
        import num2words
    except ImportError:
        raise DataError(f"numbers in words need the package num2words; {INSTALL}") from None
    return num2words


def find_language(code: str) -> str | None:
    """Return num2words' name of a language, such as pt_BR for pt-br; None if it has none. Raises DataError without the package."""
    language, _, country = code.replace("-", "_").partition("_")
    language = OTHER_NAMES.get(language.lower(), language.lower())
    known = _library().CONVERTER_CLASSES
    return next((name for name in (f"{language}_{country.upper()}", language) if name in known), None)


@cache
def numbers_cleaner(name: str) -> Speller | None:
    """Return the cleaner of a name; None unless it is numbers_CODE. Raises UsageError for an unknown language."""
    if not name.startswith(PREFIX):
        return None
    language = find_language(name.removeprefix(PREFIX))
    if language is None:
        known = ", ".join(sorted(_library().CONVERTER_CLASSES))
        raise UsageError(f"text cleaners: got {name!r}, wanted {PREFIX}CODE with a language of num2words: {known}")
    return Speller(language)


class Speller:
    """Spells the numbers of a text in one language."""

    def __init__(self, language: str) -> None:
        converter = _library().CONVERTER_CLASSES[language]
        self.language, self._currencies = language, getattr(converter, "CURRENCY_FORMS", {})
        self._point = getattr(converter, "pointword", "")
        point, comma = (r"\.", ",") if language in POINT else (",", r"\.")
        groups = rf"{comma}'’\u00a0\u202f" + (" " if language in SPACED else "")
        whole = rf"\d{{1,3}}(?:[{groups}]\d{{3}})+(?!\d)|\d+"
        number = rf"(?:{whole})(?:{point}\d+|{comma}\d{{1,2}}(?!\d))?"
        sign = rf"(?<![^\W\d_])(?:{'|'.join(map(re.escape, CURRENCIES))})"
        mark = ORDINALS.get(language.partition("_")[0], r"(?!)")
        self._parts = re.compile(rf"(?P<whole>{whole})(?:[.,](?P<fraction>\d+))?")
        self._tokens = re.compile(
            rf"(?P<braced>\{{[^{{}}]*\}})|(?P<price>{sign}\s?{number}|{number}\s?{sign})"
            r"|(?<!\d)(?P<date>\d{4}-\d\d-\d\d|\d{1,2}(?P<mark>[./-])\d{1,2}(?P=mark)(?:\d{4}|\d\d))(?!\d)"
            r"|(?<!\d)(?P<time>\d{1,2}:\d\d)(?!\d)"
            rf"|(?P<ordinal>\d{{1,4}})(?:{mark})|(?<!\w)(?P<minus>[-−](?=\d))|(?P<number>{number})"
        )

    def __call__(self, text: str) -> str:
        """Return a text without digits, as far as num2words knows their words; {ARPAbet} stays."""
        return self._tokens.sub(self._spell, text)

    def read_places(self, text: str, places: Iterable[int]) -> tuple[str, dict[int, int]]:
        """Spell a text, and return the index in it of each place that is in no number, nor between an ordinal and its noun."""
        spoken, last, waiting, moved = "", 0, sorted(places), dict[int, int]()
        for match in [*self._tokens.finditer(text), None]:
            start = match.start() if match else len(text)
            inside = bisect_right(waiting, start)
            moved |= {place: len(spoken) + place - last for place in waiting[:inside] if place >= last}
            if match is None:
                return spoken + text[last:], moved
            spoken += text[last:start] + self._spell(match)
            last = match.end()
            noun = WHITE.match(text, last)
            nearest = noun.end() + 1 if noun and match.lastgroup == "ordinal" else last
            waiting = [place for place in waiting[inside:] if place >= nearest]
        raise AssertionError

    def _spell(self, match: re.Match[str]) -> str:
        kind = match.lastgroup if match.lastgroup != "mark" else "date"
        token = match[str(kind)]
        if kind == "braced":
            return token
        if kind == "price":
            return self._price(token)
        if kind == "date":
            return " ".join(self._number(part.lstrip("0") or "0") for part in re.split(r"\D", token))
        if kind == "time":
            hour, minute = token.split(":")
            return " ".join(
                self._number(part.lstrip("0") or "0") for part in (hour, minute) if part != "00" or part == hour
            )
        if kind == "ordinal":
            return self._words(token, to="ordinal") or match[0].replace(token, self._number(token), 1)
        if kind == "minus":
            of_one, one = self._words("-1"), self._words("1")
            return f"{of_one.removesuffix(one).strip()} " if of_one and one and of_one.endswith(one) else match[0]
        return self._number(token)

    def _number(self, token: str) -> str:
        """Spell a number, with separators of thousands and a fraction."""
        parts = self._parts.fullmatch(token)
        assert parts
        digits, fraction = re.sub(r"\D", "", parts["whole"]), parts["fraction"]
        if len(digits) > MOST_DIGITS or (digits[0] == "0" and len(digits) > 1):
            whole = self._one_by_one(digits)
        elif self.language in OWN_YEARS and digits == token and 1100 <= int(digits) < 2100:
            whole = self._words(digits, to="year")
        else:
            whole = self._words(digits)
        return self._with_fraction(whole or self._one_by_one(digits), digits, fraction)

    def _with_fraction(self, whole: str, digits: str, fraction: str | None) -> str:
        if not fraction:
            return whole
        if isinstance(self._point, str) and self._point.isalpha():
            return f"{whole} {self._point} {self._one_by_one(fraction)}"
        words = self._words(f"{digits}.{fraction}")
        return words if words not in ("", whole) else f"{whole}, {self._one_by_one(fraction)}"

    def _price(self, token: str) -> str:
        """Spell an amount of money; where its currency has no words, the sign stays."""
        sign = next(sign for sign in CURRENCIES if sign in token)
        parts = self._parts.search(token)
        assert parts
        digits, fraction = re.sub(r"\D", "", parts["whole"]), (parts["fraction"] or "").rstrip("0")
        if len(digits) <= MOST_DIGITS and len(fraction) <= 2 and CURRENCIES[sign] in self._currencies:
            words = self._words(f"{digits}.{fraction or '00'}", to="currency", currency=CURRENCIES[sign])
            if words := words if fraction else self._without_cents(words, CURRENCIES[sign]):
                return words
        return f"{self._number(parts[0])} {sign}"

    def _without_cents(self, words: str, currency: str) -> str:
        """Cut an amount after its unit: "fünf Euro und null Cent"."""
        forms = self._currencies[currency][0]
        units = "|".join(re.escape(form) for form in sorted(set(forms), key=len, reverse=True))
        found = re.match(rf".*?\b(?:{units})(?!\w)", words)
        return found[0] if found else words

    def _one_by_one(self, digits: str) -> str:
        return " ".join(self._words(digit) or digit for digit in digits)

    def _words(self, number: str, **kind: str) -> str:
        return _in_words(number, self.language, **kind)


@lru_cache(maxsize=4096)  # every epoch reads the same numbers
def _in_words(number: str, language: str, to: str = "cardinal", **kind: str) -> str:
    """Spell a number; "" where the library fails."""
    try:
        value: int | float | Decimal
        if "." not in number:
            value = int(number)
        else:  # cents are counted in decimals, in which 0.29 is exact
            value = Decimal(number) if to == "currency" else float(number)
        return str(_library().num2words(value, lang=language, to=to, **kind)).strip()
    except FAULTS:
        return ""


def find_left(texts: Sequence[str], clean: Callable[[str], str]) -> list[str]:
    """List what is no word even in cleaned texts: digits and signs, and then abbreviations, each once."""
    cleaned = "".join(map(clean, texts))
    signs = sorted({c for c in cleaned if unicodedata.category(c)[0] in "NS" or c in SIGNS})
    short = {found for text in texts for found in ABBREVIATION.findall(text)}
    return [*signs, *sorted(short)]
