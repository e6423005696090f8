"""Rules of reader.py for units of measure, fractions, and numbers without context.

They come after those of quantities.py. The last rule matches any remaining digits.
"""

from __future__ import annotations

import re

from common.reading.numbers import (
    cardinal,
    decimal,
    fraction,
    mixed_number,
    number_or_year,
    ordinal,
    plural,
    two_digits,
)
from common.reading.patterns import (
    A_NOUN,
    AFTER_ARTICLE,
    BEFORE_NOUN,
    DETERMINERS,
    INTEGER,
    NUMBER,
    POINT,
    SUFFIX,
    InContext,
    Rule,
    after,
    any_of,
    before,
    behind,
)
from common.reading.quantities import SCALES
from common.reading.tables import COUNTED, COUNTING, DIRECTIONS, MANY, MEASURES, STREETS, UNITS, WORDS_AND_UNITS

_INCH = UNITS["in"]
POWERS = {"²": "square", "2": "square", "³": "cubic", "3": "cubic", "sq": "square", "cu": "cubic"}
_TWINS = str.maketrans("μΩ", "µΩ")  # Greek mu and omega for the signs of micro and ohm
SYMBOLS = any_of(UNITS.keys() - WORDS_AND_UNITS).replace("°", r"°\s?").replace("µ", "[µμ]").replace("Ω", "[ΩΩ]")
_WITH_UNIT = r"[0-9.,]{1,40}(?:\s?|-)[A-Za-z°%‰¢′″µμΩΩÅ]"
_AMP = r"(?=\s*\Z|[,;)]|\.\s*\Z|\s(?:fuse|breaker|circuit|current|charger|supply|max)\b)"
_SYMBOL = (
    rf"(?:{SYMBOLS}|(?<=\s)[sT]|(?<=\s)A{_AMP}|W(?!\.?\s[A-Z0-9])|in(?=\.|\s(?:long|wide|tall|high|deep|thick|by|x)\b))"
)
POWER = r"(?:\^?([23²³]))?"
END = r"(?![A-Za-z0-9])"
_UNIT = rf"(?:(sq|cu)\.?\s)?({_SYMBOL}){POWER}{END}(?:/({SYMBOLS}|s){POWER}{END})?(?:(?<=[A-Za-z]){POINT})?"


def unit_names(symbol: str) -> tuple[str, str]:
    """Singular and plural of a unit from its symbol."""
    return UNITS["".join(symbol.split()).translate(_TWINS).replace("floz", "fl oz").replace("fl.oz", "fl oz")]  # "° C"


def _power_of(unit: str, power: str | None) -> str:
    """Unit with a power: cubic meter, but second squared."""
    size = POWERS.get(power or "")
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
    if size := POWERS.get(prefix or power or ""):
        one, many = f"{size} {one}", f"{size} {many}"
    if per:
        suffix = f" per {_power_of(unit_names(per)[0], per_power)}"
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


def _durations(hours: str | None, minutes: str | None, seconds: str | None) -> str:
    """Hours, minutes and seconds beside each other: 1h 20m."""
    parts = ((hours, "hour"), (minutes, "minute"), (seconds, "second"))
    return " ".join(f"{cardinal(str(int(n)))} {unit}{'' if int(n) == 1 else 's'}" for n, unit in parts if n)


def _position(degrees: str, minutes: str, seconds: str | None, direction: str | None) -> str:
    """Latitude or longitude: 40° 26′ 46″ N."""
    words = f"{cardinal(degrees)} degree{'' if degrees == '1' else 's'} {_durations(None, minutes, None)}"
    return " ".join(
        part
        for part in (words, seconds and f"{decimal(seconds)} seconds", direction and DIRECTIONS[direction].lower())
        if part
    )


def _scientific(number: str, sign: str, power: str, *unit: str | None) -> str:
    """Number with an exponent, with or without a unit: 1e-5, 3e8 m/s."""
    words = f"{decimal(number)} E {'minus ' if sign in ('-', '−') else ''}{cardinal(str(int(power)))}"
    return words if unit[1] is None else f"{words} {_unit(*unit)[1]}"  # type: ignore[arg-type]


def _days(days: str, hours: str, minutes: str | None) -> str:
    return f"{cardinal(days)} day{'' if days == '1' else 's'} {_durations(hours, minutes, None)}"


def _mark(number: str | None, mark: str | None, other: str | None, _: str | None) -> str:
    """Inches or feet before a noun or a direction: a 27" monitor, 6' long; the noun has the unit in the singular."""
    return f"{decimal(number or other or '')} {UNITS['ft' if mark and mark in FEET else 'in'][0]}"


FEET = "'’′"
# A length of a race, and the places whose numbers have a letter.
_SCREENS = "run|runs|race|races|runner|runners|video|videos|tv|monitor|monitors|screen|screens|display|displays|resolution|camera"
_DISTANCE = (
    rf"[0-9]{{1,2}}k\s(?:{_SCREENS}|TV|TVs)\b"
    rf"|{behind('a|the|my|first')}(?:5|10|15)k(?:\s*\Z|[,.;:!?]|\s(?:and|or|in|on|this|last|next|today|for|to)\b)"
)
_PLACE = behind("gate|room|seat|seats|flat|apt|apt.|unit|row|bus|suite|locker")
_WIDE = "monitor|screen|TV|display|laptop|tablet|wheel|pipe|pizza|board|nail|rim|tire|tyre|speaker|bolt|pan|plate|cake|shelf"
_MARK = rf"([\"”″{FEET}])"

_WEATHER = re.compile(
    "bak|oven|roast|heat|cook|grill|weather|sunny|outside|degree|temp|forecast|cold|hot|warm|cool|freez|boil|fever|today|tonight|rain|snow|wind",
    re.I,
)
_LASTING = behind("took|takes|taking|after|within|every|than|wait|waits|timeout of|out in|in under")
_BANK = re.compile(r"\b(?:rates?|fed|banks?|yields?|spreads?|hike[ds]?|basis)\b", re.I)


def _degrees(match: re.Match[str]) -> str:
    """Degrees, if the number is no place's or the text is of weather, ovens or fevers: 98.6F, 29F in Boston today."""
    number, scale = match.groups()
    are_degrees = (scale == "F" and len(number) > 2) or _WEATHER.search(before(match) + after(match))
    return f"{decimal(number)} {UNITS['°' + scale][1] if are_degrees else scale}"


def _basis_points(match: re.Match[str]) -> str:
    are_points = _BANK.search(before(match) + after(match))
    one, many = ("basis point", "basis points") if are_points else UNITS["bps"]
    return f"{cardinal(match[1])} {one if match[1] == '1' else many}"


_WITH_UNITS: list[Rule] = [
    # 1h 20m, 5m 30s, 2h 5m 10s, 2d 4h
    ("0", r"([0-9]{1,4})d\s?([0-9]{1,2})h(?:\s?([0-9]{1,2})m(?:in)?)?\b", _days),
    (
        "0",
        r"([0-9]{1,4})\s?(?:h|hr|hrs)\s?([0-9]{1,2})\s?(?:m|min|mins)\b(?:\s?([0-9]{1,2})\s?(?:s|sec|secs)\b)?",
        _durations,
    ),
    ("0", r"([0-9]{1,4})\s?(?:m|min)\s?([0-9]{1,2})\s?(?:s|sec|secs)\b", lambda m, s: _durations(None, m, s)),
    # 40° 26′ N
    (
        "0",
        r"([0-9]{1,3})°\s?([0-9]{1,2})['’′](?:\s?([0-9]{1,2}(?:\.[0-9]{1,3})?)[\"”″])?(?:\s?([NSEW])\b)?",
        _position,
    ),
    # 5'10", 5 ft 10 in
    ("0", r"([0-9]{1,3})['’′]\s?([0-9]{1,2}(?:\.[0-9])?)(?:[\"”″]|''|(?!\w))", _feet_and_inches),
    # a 27" monitor, a 5' fence; 6' long
    (
        "0",
        rf"(?=[0-9.,]{{1,40}}[\"”″{FEET}])(?:{behind(f'{DETERMINERS}|two|three|four|five|six|eight|ten')}({NUMBER}){_MARK}(?=\sTVs?\b|{A_NOUN})|(?<![\"“‘'])({NUMBER})([\"”″])(?=\s(?:{_WIDE})s?\b))",
        _mark,
    ),
    (
        "0",
        rf"({NUMBER}){_MARK}(?=\s(?:tall|wide|deep|long|high|thick|in\sdiameter)\b)",
        lambda number, mark: f"{decimal(number)} {UNITS['ft' if mark in FEET else 'in'][number != '1']}",
    ),
    ("0", rf"([0-9]{{1,3}})\s?ft\.?,?\s([0-9]{{1,2}}(?:\.[0-9])?)\s?in\b{POINT}", _feet_and_inches),
    # 10" x 12"
    (
        "0-",
        rf"({NUMBER})[\"″]\s?[xX×]\s?({NUMBER})[\"″]",
        lambda width, height: f"{decimal(width)} {_INCH[width != '1']} by {decimal(height)} {_INCH[height != '1']}",
    ),
    # 1.2m views, 5M users, 3bn people, 10k, 300k, but not a 10k race, gate 101K and 221B Baker St.
    (
        "0",
        rf"(?<![A-Za-z-])([0-9]{{1,3}}(?:\.[0-9]{{1,3}})?)\s?([mMBbK]|[bmt]n)(?=\+?\s(?:{any_of(MANY)}|(?<=M\s)(?!cable|cord|hose|rope)[a-z]{{4,}})\b)",
        lambda number, scale: f"{decimal(number)} {SCALES[scale.lower()]}",
    ),
    (
        "0",
        rf"(?<![A-Za-z-])(?!{_DISTANCE})([0-9]{{1,3}}(?:\.[0-9]{{1,3}})?)(k|[bmt]n)\b",
        lambda number, scale: f"{decimal(number)} {SCALES[scale]}",
    ),
    # 1e-5
    (
        "0",
        rf"([0-9]{{1,3}}(?:\.[0-9]{{1,20}})?)[eE]([-−+]?)([0-9]{{1,3}})\b(?:\s?{_UNIT})?",
        _scientific,
    ),
    # 75F and sunny; 98.6F
    ("0", rf"(?<![A-Za-z-])(?!{_PLACE})([0-9]{{2,3}}(?:\.[0-9])?)([CF])\b(?![-+#.][A-Za-z0-9])", InContext(_degrees)),
    # took 37s, 9.81s, after 30s
    ("0", r"([0-9]{1,3}\.[0-9]{1,4}|1[1-9]|[2-9][1-9])s\b", lambda number: f"{decimal(number)} seconds"),
    (
        "0",
        rf"(?=[0-9]{{1,3}}s\b){_LASTING}([0-9]{{1,3}})s\b",
        lambda number: f"{cardinal(number)} second{'' if number == '1' else 's'}",
    ),
    # 25 bps of a bank
    ("0", r"([0-9]{1,3})\s?bps\b", InContext(_basis_points)),
    # 10' x 12'
    (
        "0",
        r"([0-9]{1,3})['’′]\s?[xX×]\s?([0-9]{1,3})['’′](?!\w)",
        lambda width, length: (
            f"{cardinal(width)} {UNITS['ft'][width != '1']} by {cardinal(length)} {UNITS['ft'][length != '1']}"
        ),
    ),
    # 5 km, 5 lbs., 60 km/h, 20°C, 5 %, 100 sq. ft., a 5-mile run
    ("0-", rf"(?={_WITH_UNIT}){AFTER_ARTICLE}({NUMBER})(\s?|-){_UNIT}{BEFORE_NOUN}", _quantity),
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


def _out_of(number: str, total: str) -> str:
    return f"{decimal(number)} out of {cardinal(total)}"


_PAIR = rf"([0-9]{{1,6}}){_SLASH}([0-9]{{1,6}})(?![0-9/⁄]|[.,][0-9]|{SUFFIX})"
_BEFORE_COUNTS = behind(
    f"{'|'.join(COUNTING)}|{'|'.join(f'{noun}:' for noun in COUNTING)}"
    "|rate it|rated it|give it|gave it|gives it|got|solid|*score of|*rating of"
)
_NO_MEASURE = rf"(?!-[A-Za-z]|\s?[\"″%°]|\s?(?:of\s|{any_of(MEASURES)}\b))"

_FRACTIONS: list[Rule] = [
    # 3/4 time
    (
        "0",
        r"([2-9]|12)/(2|4|8)(?=\s(?:time|meter|signature|beat|rhythm)\b)",
        lambda n, d: f"{cardinal(n)} {cardinal(d)}",
    ),
    # step 3/5, rated 8/10, 37/100 files, 4.5/5
    ("0", rf"(?=[0-9]{{1,6}}/)(?:{_BEFORE_COUNTS}|(?<=\[)){_PAIR}{_NO_MEASURE}", _out_of),
    (
        "0",
        rf"(?<![0-9/]){_PAIR}(?=\s(?:{any_of(COUNTED)})\b|(?<=/[0-9]{{2}})\s(?!{any_of(MEASURES)})[a-z]{{3,}}[^s\W]s\b)",
        _out_of,
    ),
    # a 5/8" bolt
    (
        "0",
        rf"(?<![0-9/])([0-9]{{1,2}}){_SLASH}([0-9]{{1,2}})(?:[\"”](?=\s[a-z])|″)",
        lambda n, d: f"{fraction(n, d)} inch",
    ),
    ("0", r"([0-9]\.[0-9])/(5|10)\b(?![.,/][0-9])", _out_of),
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
    # 1960s-80s
    (
        "0-",
        r"(?:(?<!\w)['’])?([0-9]{2}|[12][0-9]{2}0)['’]?s\s?[-–]\s?['’]?([0-9]{2}|[12][0-9]{2}0)['’]?s\b",
        lambda first, last: f"{_decade(first)} to {_decade(last)}",
    ),
    # 1st, 1,000th
    ("0", rf"({INTEGER}){SUFFIX}{END}", ordinal),
    # 1990s, '90s, 747s
    ("0-", rf"(?:(?<!\w)['’])?({INTEGER})['’]?s{END}", _decade),
    # '98
    ("-", r"(?<!\w)['’]([0-9]{2})(?![0-9'’]|[A-Za-z])", two_digits),
    # 2.5M, 100K
    (
        "0",
        rf"(?!{_PLACE})([0-9]{{1,3}}\.[0-9]{{1,3}}|[0-9]{{3}})([KMB])\b(?!\s[A-Z][a-z]+\s(?:{any_of(STREETS)}|Street|Road)\b)",
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

NUMBERS = [*_FRACTIONS, *_WITH_UNITS, *_OTHERS]
