"""Speakers of money, units of measure and fractions."""

from __future__ import annotations

import re

from common.reading.context import after, before
from common.reading.numbers import cardinal, decimal, fraction, mixed_number, number_or_year, plural
from common.reading.tables import SIGNED, UNITS, any_of, readings

_TWINS = str.maketrans("μΩ", "µΩ")  # Greek mu and omega for the signs of micro and ohm
SYMBOLS = any_of(readings("plain unit")).replace("°", r"°\s?").replace("µ", "[µμ]").replace("Ω", "[ΩΩ]")
_COUNTRIES, _SCALES, _POWERS = readings("dollar"), readings("scale"), readings("size")
_FEET = "'’′"
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
    scale = _SCALES[short.lower()] if short else scale
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
    scale = _SCALES[short.lower()] if short else scale
    return " ".join(part for part in (decimal(number), scale, UNITS[code][number != "1" or scale is not None]) if part)


def indian(number: str) -> str:
    """Write 1,00,000 as 100,000."""
    return american(number.replace(",", ""))


def scale(short: str) -> str:
    """Name of a power of ten: million for M."""
    return _SCALES[short.lower()]


def unit(symbol: str) -> str:
    """Name of a unit in the singular."""
    return unit_names(symbol)[0]


def amount(number: str, name: str) -> str:
    """Number of something whose plural is regular."""
    return f"{decimal(number)} {name}{'' if number == '1' else 's'}"


def length(number: str, mark: str) -> str:
    """Length in feet or inches, by a mark or a symbol."""
    return f"{decimal(number)} {UNITS['ft' if mark in _FEET or mark == 'ft' else 'in'][number != '1']}"


def unit_names(symbol: str) -> tuple[str, str]:
    """Singular and plural of a unit from its symbol."""
    return UNITS["".join(symbol.split()).translate(_TWINS).replace("floz", "fl oz").replace("fl.oz", "fl oz")]  # "° C"


def _power_of(unit: str, power: str | None) -> str:
    """Unit with a power: cubic meter, but second squared."""
    size = _POWERS.get(power or "")
    return (
        f"{unit} {'squared' if size == 'square' else 'cubed'}"
        if size and unit == "second"
        else f"{size or ''} {unit}".lstrip()
    )


def _unit(
    prefix: str | None, symbol: str, power: str | None, per: str | None, per_power: str | None
) -> tuple[str, str]:
    """Singular and plural name of a unit, from the groups of _UNIT."""
    one, many = unit_names(symbol)
    if size := _POWERS.get(prefix or power or ""):
        one, many = f"{size} {one}", f"{size} {many}"
    if per:
        suffix = f" per {_power_of(unit_names(per)[0], per_power)}"
        one, many = one + suffix, many + suffix
    return one, many


def quantity(
    article: str | None,
    number: str,
    dash: str,
    prefix: str | None,
    symbol: str,
    power: str | None,
    per: str | None,
    per_power: str | None,
    noun: str | None,
) -> str:
    """Number with a unit: 5 km as five kilometers, 5-km as five-kilometer."""
    one, many = _unit(prefix, symbol, power, per, per_power)
    if dash == "-":
        return f"{decimal(number)}-{one}"
    is_single = number == "1" or (article is not None and noun is not None)
    return f"{decimal(number)} {one if is_single else many}"


def feet_and_inches(feet: str, inches: str) -> str:
    """Height or length: 5'10"."""
    foot, inch = UNITS["ft"][feet != "1"], UNITS["in"][inches != "1"]
    return f"{cardinal(feet)} {foot} {decimal(inches)} {inch}"


def scientific(number: str, sign: str, power: str, *unit: str | None) -> str:
    """Number with an exponent, with or without a unit: 1e-5, 3e8 m/s."""
    words = f"{decimal(number)} E {'minus ' if sign in ('-', '−') else ''}{cardinal(str(int(power)))}"
    return words if unit[1] is None else f"{words} {_unit(*unit)[1]}"  # type: ignore[arg-type]


def mark(number: str | None, mark: str | None, other: str | None, _: str | None) -> str:
    """Inches or feet before a noun or a direction: a 27" monitor, 6' long; the noun has the unit in the singular."""
    return f"{decimal(number or other or '')} {UNITS['ft' if mark and mark in _FEET else 'in'][0]}"


def degrees(match: re.Match[str]) -> str:
    """Degrees, if the number is no place's or the text is of weather, ovens or fevers: 98.6F, 29F in Boston today."""
    number, scale = match.groups()
    are_degrees = (scale == "F" and len(number) > 2) or _WEATHER.search(before(match) + after(match))
    return f"{decimal(number)} {UNITS['°' + scale][1] if are_degrees else scale}"


def part(numerator: str, denominator: str, noun: str | None, *unit: str | None) -> str:
    """Fraction, with or without a unit: 1/2, 1/10th, 3/4-inch and 3/4 lb."""
    words = fraction(numerator, denominator, attributive=noun is not None)
    if numerator == denominator:
        return f"{cardinal(numerator)} out of {cardinal(denominator)}"
    if unit[1] is None:
        return words
    one, many = _unit(*unit)  # type: ignore[arg-type]  # unit[1], the symbol, is a str here
    if int(numerator) == 1:
        return f"{words} {one}"
    article = "an" if one[0] in "aeio" or one == "hour" else "a"
    return f"{words} of {article} {one}" if int(numerator) < int(denominator) else f"{words} {many}"


def mixed_quantity(whole: str, numerator: str, denominator: str, *unit: str | None) -> str:
    """Mixed number, with or without a unit: 2 1/2 and 2 1/2 lbs."""
    many = "" if unit[1] is None else " " + _unit(*unit)[1]  # type: ignore[arg-type]
    if int(numerator) < int(denominator):
        return mixed_number(whole, numerator, denominator) + many
    return f"{cardinal(whole)} {fraction(numerator, denominator)}{many}"


def out_of(number: str, total: str) -> str:
    """Score or count with a slash: 8/10."""
    return f"{decimal(number)} out of {cardinal(total)}"


def decade(number: str) -> str:
    """Plural of a number: 1990s, '90s, 100s."""
    return plural(number_or_year(number).removeprefix("one "))
