"""Speakers of money, units of measure and fractions."""

from __future__ import annotations

import re

from common.reading.numbers import cardinal, decimal, fraction, has_parts, mixed_number, number_or_year, plural
from common.reading.tables import SIGNED, UNITS, any_of, readings

_TWINS = str.maketrans("μΩ", "µΩ")  # Greek mu and omega for the signs of micro and ohm
SYMBOLS = any_of(readings("plain unit")).replace("°", r"°\s?").replace("µ", "[µμ]").replace("Ω", "[ΩΩ]")
_COUNTRIES, _SCALES, _POWERS = readings("dollar"), readings("scale"), readings("size")
_UNIT = re.compile(r"(?:(sq|cu)\.?\s)?(.+?)(?:\^?([23²³]))?")
_MARKS = readings("mark of a length")
_AROUND = 60  # characters on each side that tell of degrees
_QUOTED = 300  # characters before a mark that may open a quotation
_WEATHER = re.compile("|".join(readings("about weather")), re.I)


def american(number: str, sign: str | None = "") -> str:
    """Write 1.234,56 as 1,234.56, and 10 000 as 10,000."""
    whole, _, rest = number.partition(",")
    whole = re.sub(r"[.\s]", "", whole)
    return f"{int(whole):,}" + (f".{rest}" if rest else "") + (sign or "")


def money(
    article: str | None,
    sign: str,
    low: str,
    high: str | None = None,
    scale: str | None = None,
    short: str | None = None,
    noun: str | None = None,
) -> str:
    """Amount of money, or a range of two amounts."""
    one, many, *coins = SIGNED[sign if sign in SIGNED else sign[-1]]
    is_attributive = article is not None and noun is not None
    scale = _SCALES[short] if short else scale
    whole, _, rest = low.replace(",", "").partition(".")
    country = f"{_COUNTRIES[sign[:-1]]} " if sign[:-1] in _COUNTRIES else ""
    if coins and len(rest) == 2 and not scale and (high is None or re.search(r"\.[0-9]{2}\Z", high)):
        amount = _notes_and_coins((whole, rest), ((country + one, country + many), tuple(coins)), is_attributive)
        return f"{amount} to {money(None, sign, high)}" if high else amount
    amount = " ".join(part for part in (decimal(low), high and f"to {decimal(high)}", scale) if part)
    if is_attributive:
        return f"{amount}{'-' if amount.isalpha() and not country else ' '}{country}{one}"
    return f"{amount} {country}{one if amount == 'one' else many}"


def _notes_and_coins(numbers: tuple[str, ...], names: tuple[tuple[str, ...], ...], is_attributive: bool) -> str:
    """Read $3.50 as three dollars, fifty cents, as the cleaner does in training data; omit a part that is zero."""
    amounts = [
        f"{cardinal(str(int(number)))} {one if is_attributive or int(number) == 1 else many}"
        for number, (one, many) in zip(numbers, names, strict=True)
        if number.strip("0")
    ]
    return (" " if is_attributive else ", ").join(amounts) or f"zero {names[0][1]}"


def in_currency(code: str, number: str, scale: str | None, short: str | None) -> str:
    """Amount behind the code of its currency: USD 500."""
    scale = _SCALES[short] if short else scale
    return " ".join(part for part in (decimal(number), scale, UNITS[code][number != "1" or scale is not None]) if part)


def amount(number: str, name: str) -> str:
    """Number of something whose plural is regular."""
    return f"{decimal(number)} {name}{'' if number == '1' else 's'}"


def unit_names(written: str) -> tuple[str, str]:
    """Singular and plural of a unit: sq. ft, m², km/h, m/s²."""
    whole, _, per = written.partition("/")
    square, symbol, power = _UNIT.fullmatch(whole).groups()  # type: ignore[union-attr]  # it matches any text
    plain = "".join(symbol.split()).translate(_TWINS)  # "° C"
    names = UNITS[_MARKS.get(plain) or plain.replace("floz", "fl oz").replace("fl.oz", "fl oz")]
    size = _POWERS.get(square or power or "")
    one, many = (f"{size} {name}" if size else name for name in names)
    if not per:
        return one, many
    return f"{one} per {unit(per)}", f"{many} per {unit(per)}"


def unit(written: str) -> str:
    """Name of a unit in the singular; seconds are squared."""
    name = unit_names(written)[0]
    size, _, second = name.partition(" ")
    return f"second {'squared' if size == 'square' else 'cubed'}" if second == "second" else name


def units(written: str) -> str:
    """Name of a unit in the plural."""
    return unit_names(written)[1]


def measure(number: str, written: str) -> str:
    """Number with a unit: 5 km, 10"."""
    return f"{decimal(number)} {unit_names(written)[number != '1']}"


def quantity(article: str | None, number: str, dash: str, written: str, noun: str | None) -> str:
    """Number with a unit: 5 km as five kilometers, 5-km as five-kilometer, a 5 km run with the unit in the singular."""
    if dash == "-" or (article is not None and noun is not None):
        return f"{decimal(number)}{dash if dash == '-' else ' '}{unit_names(written)[0]}"
    return measure(number, written)


def degrees(match: re.Match[str]) -> str:
    """Degrees, if the number is no place's or the text is of weather, ovens or fevers: 98.6F, 29F in Boston today."""
    number, scale = match.groups()
    around = match.string[max(0, match.start() - _AROUND) : match.end() + _AROUND]
    are_degrees = (scale == "F" and len(number) > 2) or _WEATHER.search(around)
    return f"{decimal(number)} {units('°' + scale) if are_degrees else scale}"


def inches(match: re.Match[str]) -> str:
    """Number with the mark of an inch, 3"; without it, if the mark ends a quotation."""
    before = match.string[max(0, match.start() - _QUOTED) : match.start()]
    is_quoted = re.search(r"(?:\A|[\s(\[{=:—-])[\"“](?!\s)[^\"“”]*\Z", before) is not None
    return decimal(match[1]) if is_quoted and match[0][-1] != "″" else measure(match[1], "″")


def stars(filled: str, half: str | None) -> str:
    """Rating of a film: ***½."""
    return f"{cardinal(str(len(filled)))}{' and a half' if half else ''} stars"


def part(whole: str | None, numerator: str, denominator: str, noun: str | None, written: str | None) -> str:
    """Fraction or mixed number, with or without a unit: 1/2, 1/10th, 3/4-inch, 3/4 lb, 2 1/2 lbs."""
    if whole:
        is_mixed = int(numerator) < int(denominator)
        words = (
            mixed_number(whole, numerator, denominator)
            if is_mixed
            else f"{cardinal(whole)} {fraction(numerator, denominator)}"
        )
        return f"{words} {units(written)}" if written else words
    if numerator == denominator:
        return f"{cardinal(numerator)} out of {cardinal(denominator)}"
    first, last = int(numerator), int(denominator)
    if not written and first + last == 100:
        return f"{cardinal(numerator)} {cardinal(denominator)}"
    if not written and 9 < first < last and not has_parts(last):
        return f"{cardinal(numerator)} of {cardinal(denominator)}"
    words = fraction(numerator, denominator, attributive=noun is not None)
    if not written:
        return words
    one, many = unit_names(written)
    if int(numerator) == 1:
        return f"{words} {one}"
    article = "an" if one[0] in "aeio" or one == "hour" else "a"
    return f"{words} of {article} {one}" if int(numerator) < int(denominator) else f"{words} {many}"


def out_of(number: str, total: str) -> str:
    """Score or count with a slash: 8/10."""
    return f"{decimal(number)} out of {cardinal(total)}"


def decade(number: str) -> str:
    """Plural of a number: 1990s, '90s, 100s."""
    return plural(number_or_year(number).removeprefix("one "))
