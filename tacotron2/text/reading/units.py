"""Rules of reader.py for units of measure, fractions, and numbers without context.

They come after those of quantities.py. The last rule matches any remaining digits.
"""

from __future__ import annotations

from tacotron2.text.reading.numbers import (
    cardinal,
    decimal,
    fraction,
    mixed_number,
    number_or_year,
    ordinal,
    plural,
    two_digits,
)
from tacotron2.text.reading.quantities import (
    AFTER_ARTICLE,
    BEFORE_NOUN,
    INTEGER,
    MONTH,
    NUMBER,
    POINT,
    SCALES,
    SUFFIX,
    Rule,
)
from tacotron2.text.reading.tables import UNITS, any_of

_INCH = UNITS["in"]
_POWERS = {"²": "square", "2": "square", "³": "cubic", "3": "cubic", "sq": "square", "cu": "cubic"}
_WORDS = {"s", "W", "in"}  # "s" needs a space before it, "W" no street after it, "in" a point or a direction
_SYMBOLS = any_of(UNITS.keys() - _WORDS).replace("°", r"°\s?")
_SYMBOL = rf"(?:{_SYMBOLS}|(?<=\s)s|W(?!\.?\s[A-Z0-9])|in(?=\.|\s(?:long|wide|tall|high|deep|thick|by|x)\b))"
_POWER = r"(?:\^?([23²³]))?"
_END = r"(?![A-Za-z0-9])"
_UNIT = rf"(?:(sq|cu)\.?\s)?({_SYMBOL}){_POWER}{_END}(?:/({_SYMBOLS}|s){_POWER}{_END})?(?:(?<=[A-Za-z]){POINT})?"


def _names(symbol: str) -> tuple[str, str]:
    return UNITS["".join(symbol.split())]  # "° C"


def _unit(
    prefix: str | None, symbol: str, power: str | None, per: str | None, per_power: str | None
) -> tuple[str, str]:
    """Singular and plural name of a unit, from the groups of _UNIT."""
    one, many = _names(symbol)
    if size := _POWERS.get(prefix or power or ""):
        one, many = f"{size} {one}", f"{size} {many}"
    if per:
        suffix = f" per {_names(per)[0]}" + {None: "", "2": " squared", "²": " squared"}.get(per_power, " cubed")
        one, many = one + suffix, many + suffix
    return one, many


def _quantity(
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


def _feet_and_inches(feet: str, inches: str) -> str:
    foot, inch = UNITS["ft"][feet != "1"], _INCH[inches != "1"]
    return f"{cardinal(feet)} {foot} {decimal(inches)} {inch}"


_WITH_UNITS: list[Rule] = [
    # 5'10", 5 ft 10 in
    ("0", r"([0-9]{1,3})['’′]([0-9]{1,2})(?:[\"”″]|''|(?!\w))", _feet_and_inches),
    ("0", rf"([0-9]{{1,3}})\s?ft\.?,?\s([0-9]{{1,2}}(?:\.[0-9])?)\s?in\b{POINT}", _feet_and_inches),
    # 10" x 12"
    (
        "0-",
        rf"({NUMBER})[\"″]\s?[xX×]\s?({NUMBER})[\"″]",
        lambda width, height: f"{decimal(width)} {_INCH[width != '1']} by {decimal(height)} {_INCH[height != '1']}",
    ),
    # 5 km, 5 lbs., 60 km/h, 20°C, 5 %, 100 sq. ft., a 5-mile run
    ("0-", rf"{AFTER_ARTICLE}({NUMBER})(\s?|-){_UNIT}{BEFORE_NOUN}", _quantity),
]

# --- fractions ---

_SLASH = "[/⁄]"
_BEHIND = rf"(?:{SUFFIX}s?)?(?![0-9/⁄]|[.,][0-9])"


def _fraction(numerator: str, denominator: str, noun: str | None, *unit: str | None) -> str:
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


def _mixed_quantity(whole: str, numerator: str, denominator: str, *unit: str | None) -> str:
    """Mixed number, with or without a unit: 2 1/2 and 2 1/2 lbs."""
    many = "" if unit[1] is None else " " + _unit(*unit)[1]  # type: ignore[arg-type]
    if int(numerator) < int(denominator):
        return mixed_number(whole, numerator, denominator) + many
    return f"{cardinal(whole)} {fraction(numerator, denominator)}{many}"


_FRACTIONS: list[Rule] = [
    # 2 1/2, 2-1/2 lbs.
    ("0", rf"([0-9]{{1,4}})[\s-]([0-9]{{1,3}}){_SLASH}([0-9]{{1,3}}){_BEHIND}(?:\s?{_UNIT})?", _mixed_quantity),
    # 1/2, 3/4 lb, 3/4-inch, 1/10th, 120/80, but not 2019/20
    (
        "0",
        rf"(?<![0-9]/)(?!(?:1[1-9]|20)[0-9]{{2}}/)([0-9]{{1,6}}){_SLASH}([0-9]{{1,6}}){_BEHIND}(?:((?=-[A-Za-z]))|)(?:\s?{_UNIT})?",
        _fraction,
    ),
]

# --- other numbers ---


def _decade(number: str) -> str:
    """Plural of a number: 1990s, '90s, 100s."""
    return plural(number_or_year(number).removeprefix("one "))


_OTHERS: list[Rule] = [
    # 1st, 1,000th
    ("0", rf"({INTEGER}){SUFFIX}{_END}", ordinal),
    # 1990s, '90s, 747s
    ("0-", rf"(?:(?<!\w)['’])?({INTEGER})['’]?s{_END}", _decade),
    # '98
    ("-", r"(?<!\w)['’]([0-9]{2})(?![0-9'’]|[A-Za-z])", two_digits),
    # 2.5M, 100K
    (
        "0",
        r"([0-9]{1,3}\.[0-9]{1,3}|[0-9]{3})([KMB])\b",
        lambda number, scale: f"{decimal(number)} {SCALES[scale.lower()]}",
    ),
    # 3.14, .75, 1,500, 1998
    (
        "0-",
        rf"({NUMBER})",
        lambda number: number_or_year(number) if number.isdigit() else decimal(number),
    ),
    # digits of any length
    ("0", r"([0-9]+)", cardinal),
]

# --- signs between and before numbers ---

_RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹"


def _power(minus: str, exponent: str) -> str:
    number = "".join(str(_RAISED.index(digit)) for digit in exponent)
    return f"to the minus {cardinal(number)}" if minus else f"to the {ordinal(number)}"


_SIGNS: list[Rule] = [
    # 5-3=2, 10 - 4 = 6, 5−3
    (" -", r"(?<=[0-9])\s?(?:[-–](?=\s?[0-9][0-9\s.,+*/×x–-]{0,40}=)|−)\s?(?=[0-9])", lambda: "minus"),
    # 10-20, 10 – 20, 9am-5pm, March 3 - April 5
    (
        " -",
        rf"(?:(?<=[0-9%°¢″′])|(?<=[0-9][ap]m)|(?<=[0-9]\s[ap]m)|(?<=\b[ap]\.m\.))(?:\s[-–]\s|[-–])(?=[$£€¥]?\.?[0-9]|{MONTH}\.?\s[0-9])",
        lambda: "to",
    ),
    # $1 million-$2 million
    ("-", r"(?<=[A-Za-z])[-–](?=[$£€¥][0-9])", lambda: "to"),
    # -5, -$5
    ("-", r"(?<![\w)%°.\]'’\"–-])[-−–](?=[$£€¥]?\.?[0-9])", lambda: "minus"),
    # 4x4, 3 x 5
    (" Aa", r"(?<=[0-9])\s?[xX]\s?(?=[0-9])", lambda: "by"),
    # 3x faster
    ("a", r"(?<=[0-9])x\b", lambda: "times"),
    # 10 / 2, 1/2/3
    (" ", r"(?<=[0-9])\s[/÷]\s(?=[0-9])", lambda: "divided by"),
    ("-", r"(?<=[0-9])[/⁄](?=[0-9])", lambda: "slash"),
    # 1,2 and 1.2 and 1:2, if no rule above matched the whole
    ("-", r"(?<=[0-9]),(?=[0-9])", lambda: ", "),
    ("-", r"(?<=[0-9])\.(?=[0-9])", lambda: "point"),
    ("-", r"(?<=[0-9]):(?=[0-9])", lambda: "to"),
    # 10⁶
    ("-", rf"(?<=[0-9])(⁻?)([{_RAISED}]+)(?<![0-9][²³])", _power),
    # 5 * 3, 2^3
    (" -", r"(?<=[0-9])\s?\*\s?(?=[0-9])", lambda: "times"),
    ("-", r"(?<=\w)\^(?=[\w(-])", lambda: "to the power of"),
    # #5
    ("-", r"#\s?(?=[0-9])", lambda: "number"),
    # $5/month, 60 miles/hour, 10/kg
    ("-", rf"(?<=[0-9])/({_SYMBOLS}){_END}", lambda symbol: f"per {_names(symbol)[0]}"),
    (
        "-",
        r"(?<=\w)/(?=(?:second|minute|hour|night|day|week|month|year|person|mile|gallon|unit|head|serving)\b)",
        lambda: "per",
    ),
]
NUMBERS = [*_FRACTIONS, *_WITH_UNITS, *_OTHERS, *_SIGNS]
