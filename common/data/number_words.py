"""Numbers in words: inflect's engine for English, and num2words for the cleaners of other languages, such as numbers_de."""

from __future__ import annotations

from decimal import Decimal
from functools import cache, lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from common.errors import DataError

if TYPE_CHECKING:
    import inflect

MAX_DIGITS = 36  # inflect's names end before 10^36; longer numbers are read digit by digit
INSTALL = "`pip install -r requirements.txt` installs it"
OTHER_NAMES = {"nb": "no", "nn": "no", "kk": "kz"}  # of num2words
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
def library() -> Any:
    """Return num2words. Raises DataError without the package."""
    try:
        import num2words
    except ImportError:
        raise DataError(f"numbers in words need the package num2words; {INSTALL}") from None
    return num2words


def find_language(code: str) -> str | None:
    """Return num2words' name of a language, such as pt_BR for pt-br; None if it has none. Raises DataError without the package."""
    language, _, country = code.replace("-", "_").partition("_")
    language = OTHER_NAMES.get(language.lower(), language.lower())
    known = library().CONVERTER_CLASSES
    return next((name for name in (f"{language}_{country.upper()}", language) if name in known), None)


@lru_cache(maxsize=4096)  # every epoch reads the same numbers
def in_words(number: str, language: str, to: str = "cardinal", **kind: str) -> str:
    """Spell a number of ASCII digits, with a point or without, by num2words; "" where the library fails."""
    try:
        value: int | float | Decimal
        if "." not in number:
            value = int(number)
        else:  # cents are counted in decimals, in which 0.29 is exact
            value = Decimal(number) if to == "currency" else float(number)
        return str(library().num2words(value, lang=language, to=to, **kind)).strip()
    except FAULTS:
        return ""
