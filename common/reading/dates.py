"""Rules of reader.py for dates and times of day."""

from __future__ import annotations

import calendar

from common.reading.numbers import (
    MONTHS,
    cardinal,
    decimal,
    number_or_year,
    ordinal,
    two_digits,
    year,
)
from common.reading.patterns import DASH, NO_MORE, POINT, SUFFIX, Rule, any_of, behind
from common.reading.tables import MEASURES

_MONTH_NAMES = (
    r"Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
)
MONTH = rf"(?:{_MONTH_NAMES}|{_MONTH_NAMES.upper()})"
_DAY = r"(?:0?[1-9]|[12][0-9]|3[01])"
_MONTH_DIGITS = r"(?:0?[1-9]|1[0-2])"
_YEAR = r"[12][0-9]{3}(?![0-9]|[,.][0-9])"

# In small letters "may" and "march" are months only with an ordinal number, or behind a preposition.
_SMALL = _MONTH_NAMES.replace("Mar(?:ch)?", "Mar").replace("May|", "").lower()
_AFTER_PREPOSITION = behind("on|by|until|till|since|due|before|after")
_SMALL_MONTH = rf"(?:{_SMALL}|(?:may|march)(?=\.?\s{_DAY}(?:{SUFFIX}|,?\s{_YEAR}))|{_AFTER_PREPOSITION}(?:may|march)(?=\.?\s[0-9]))"
_ANY_MONTH = rf"(?:{MONTH}|{_SMALL})"


def month(name: str) -> str:
    """Full name of a month from its abbreviation or its number."""
    if name.isdigit():
        return MONTHS[int(name) - 1]
    return next(full for full in MONTHS if full[:3] == name[:3].capitalize())


# --- dates ---


def _date(name: str, day: str, in_year: str | None = None, last_day: str | None = None) -> str:
    until = f" to {ordinal(last_day)}" if last_day else ""
    return f"{month(name)} {ordinal(day)}{until}" + (f", {year(in_year)}" if in_year else "")


def _numeric_date(month_number: str, day: str, number: str, written: str = "mdy") -> str:
    """Date in digits, with two-digit years between 1950 and 2049; three numbers if the month has no such day.

    `written` is the order of month, day and year in the text.
    """
    in_year = number if len(number) == 4 else f"{'19' if number >= '50' else '20'}{number}"
    if int(day) > calendar.monthrange(int(in_year), int(month_number))[1]:
        numbers = {"m": cardinal(month_number), "d": cardinal(day), "y": number_or_year(number)}
        return ", ".join(numbers[part] for part in written)
    return _date(month_number, day, in_year)


def _day_month(article: str | None, day: str, name: str, in_year: str | None) -> str:
    return f"{article or 'the'} {ordinal(day)} of {month(name)}" + (f", {year(in_year)}" if in_year else "")


def _year_and_number(first: str, second: str) -> str:
    """Month or range of years: "2021-03" is a month; "1914-18", "2008-09" and "1999-00" are ranges."""
    if second <= first[2:] and 1 <= int(second) <= 12:
        return f"{month(second)} {year(first)}"
    century = int(first[:2]) + (second < first[2:])
    return f"{year(first)} to {year(f'{century}{second}') if second[0] == '0' else cardinal(second)}"


def _era(number: str, letters: str) -> str:
    return f"{year(number)} {' '.join(letters.replace('.', ''))}"


def _quarter(number: str, in_year: str) -> str:
    """Read 2Q22 as second quarter twenty twenty-two."""
    return f"{ordinal(number)} quarter {year(in_year if len(in_year) == 4 else '20' + in_year)}"


def _moment(in_year: str, name: str, day: str, hour: str, minute: str, second: str | None, zone: str | None) -> str:
    """Read the time of a machine, 2024-05-06T07:08:09Z."""
    words = f"{_numeric_date(name, day, in_year, 'ymd')}, {_time(hour, minute, second, None, None)}"
    if zone in (None, "Z"):
        return words + (" U T C" if zone else "")
    hours, minutes = zone[1:3], zone[3:].lstrip(":")
    offset = cardinal(str(int(hours))) + (f" {cardinal(minutes)}" if minutes.strip("0") else "")
    return f"{words} U T C {'plus' if zone[0] == '+' else 'minus'} {offset}"


def _span(first: str, first_day: str, dash: str, last: str, last_day: str) -> str:
    """Two dates: 7/2-7/9, 7/2 to 7/9."""
    return f"{_date(first, first_day)}{' to ' if '-' in dash or '–' in dash else dash}{_date(last, last_day)}"


# Behind these, two numbers with a slash are a date: due 12/31.
_BEFORE_DATES = behind(
    "on|by|due|due:|until|till|since|before|after|through|thru|dated|date:|date is|deadline is|deadline:|deadline of|"
    "deadline,|week of|as of|expires|exp|exp.|ends|begins|starts|opens|closes|starting|ending|beginning|arrives|"
    "arriving|leaving|scheduled for|effective|birthday is|born|today is|*day|*day,|mon|tue|wed|thu|fri|sat|sun|mon,|"
    "tue,|wed,|thu,|fri,|sat,|sun,|next|from|between|postponed to|moved to|posted|updated"
)
# Behind these they are a fraction: reduced by 1/3.
_BEFORE_PARTS = behind(
    "rose by|fell by|grew by|grow by|grows by|cut by|cuts by|shrank by|*reduced by|*reduce by|*reduces by|"
    "*increased by|*increase by|*increases by|*decreased by|*decrease by|*decreases by|*dropped by|*divided by|"
    "*divide by|*multiplied by|*multiply by|up by|down by|off by|*declined by|*shrunk by|*shrink by|*dividing by|"
    "*multiplying by|it by|them by|fall by|rise by|*times by"
)
_MEASURE = rf"(?:of|{any_of(MEASURES)})"
_NO_PART = (
    r"(?![0-9/]|[.,][0-9]|-[A-Za-z]|\s?[\"″%°]"
    rf"|\s?(?:{_MEASURE}|to the|the|as|more|less|full|empty|to [0-9]+/[0-9]+ ?{_MEASURE})\b)"
)
_EVENTS = (
    "meeting|deadline|release|appointment|game|match|session|lecture|class|event|show|flight|party|call|edition|issue|episode"
    "|update|report|concert|webinar|invoice|payment|email|e-mail|due"
)

_DATES: list[Rule] = [
    # 2024-05-06T07:08:09Z
    (
        "0",
        rf"({_YEAR})-({_MONTH_DIGITS})-({_DAY})[Tt]([01][0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9])(?:[.,][0-9]{{1,9}})?)?"
        r"(?:\s?(Z|[+-][0-9]{2}:?(?:[0-9]{2})?))?(?![\w:])",
        _moment,
    ),
    # 2021-03-04, 2021/03/04, 2021.03.04
    ("0", rf"({_YEAR})[-/]({_MONTH_DIGITS})[-/]({_DAY})(?![0-9/-])", lambda y, m, d: _numeric_date(m, d, y, "ymd")),
    (
        "0",
        rf"((?:19|20)[0-9]{{2}})\.({_MONTH_DIGITS})\.({_DAY})(?![0-9]|[.-][0-9])",
        lambda y, m, d: _numeric_date(m, d, y, "ymd"),
    ),
    # 3/4/2021 and 3/4/21: month, day, year
    ("0", rf"({_MONTH_DIGITS})/({_DAY})/([0-9]{{4}}|[0-9]{{2}})(?![0-9/])", _numeric_date),
    # 25/12/2021 can only be day, month, year
    (
        "0",
        rf"({_DAY})/({_MONTH_DIGITS})/([0-9]{{4}}|[0-9]{{2}})(?![0-9/])",
        lambda d, m, y: _numeric_date(m, d, y, "dmy"),
    ),
    # 31.12.2021: day, month, year; 12.31.2021 can only be month, day, year
    ("0", rf"({_DAY})\.({_MONTH_DIGITS})\.({_YEAR})", lambda d, m, y: _numeric_date(m, d, y, "dmy")),
    ("0", rf"({_MONTH_DIGITS})\.({_DAY})\.({_YEAR})", _numeric_date),
    # from 7/2 to 7/9, 6/28-7/15
    (
        "0",
        rf"(?=[0-9]{{1,2}}/[0-9]){behind('from|between|on|week of|dates:|open|closed|away|*day')}"
        rf"({_MONTH_DIGITS})/({_DAY})(\sto\s|\sand\s|\sthrough\s|\suntil\s|{DASH})({_MONTH_DIGITS})/({_DAY}){_NO_PART}",
        _span,
    ),
    # 11/28–12/02: one of them shows that both are dates
    (
        "0",
        rf"(?=[0-9/]{{3,5}}{DASH}[0-9/]{{3,5}}(?![0-9/]))(?=\S*\s?\S?\s?\S*/(?:1[3-9]|2[0-9]|3[01]|0))"
        rf"({_MONTH_DIGITS})/({_DAY})({DASH})({_MONTH_DIGITS})/({_DAY}){_NO_PART}",
        _span,
    ),
    # 04/2027
    ("0", r"(?<![0-9/])(0[1-9]|1[0-2])/((?:19|20)[0-9]{2})(?![0-9/-])", lambda m, y: f"{month(m)} {year(y)}"),
    # due 12/31, by 6/15, the 6/15 meeting; elsewhere it is a fraction
    (
        "0",
        rf"(?=[0-9]{{1,2}}/[0-9])(?:{_BEFORE_DATES})(?<!\b[Dd]ay\s)(?!{_BEFORE_PARTS}|(?<!n\s)9/11\b)({_MONTH_DIGITS})/({_DAY}){_NO_PART}",
        _date,
    ),
    (
        "0",
        rf"(?=[0-9]{{1,2}}/[0-9])(?:{_BEFORE_DATES})(?<!\b[Dd]ay\s)(?!{_BEFORE_PARTS})(1[3-9]|2[0-9]|3[01])/({_MONTH_DIGITS}){_NO_PART}",
        lambda d, m: _date(m, d),
    ),
    ("0", rf"({_MONTH_DIGITS})/({_DAY})(?=\s(?:{_EVENTS}|(?:at|@)\s[0-9])\b)", _date),
    # 03-04-2021, as with slashes; 15-01-2020
    ("0", rf"({_MONTH_DIGITS})-({_DAY})-({_YEAR})(?![0-9-])", _numeric_date),
    ("0", rf"({_DAY})-({_MONTH_DIGITS})-({_YEAR})(?![0-9-])", lambda d, m, y: _numeric_date(m, d, y, "dmy")),
    # Jan-15-2020, 15-Jan-2020, 15/Jan/20
    ("n", rf"\b({MONTH})[-/.]({_DAY})[-/.]({_YEAR})(?![0-9-])", _date),
    ("0", rf"({_DAY})[-/.]({_ANY_MONTH})[-/.]({_YEAR})(?![0-9-])", lambda d, m, y: _day_month(None, d, m, y)),
    # March 3, 1998; Mar. 3rd; March 3-5; june 5; but not "May 5 people come?"
    (
        "n",
        rf"\b({MONTH}|{_SMALL_MONTH})\.?\s({_DAY}){SUFFIX}?{NO_MORE}(?!\s(?:people|persons|men|women|of\s(?:us|you|them))\b)"
        rf"(?:{DASH}({_DAY}){SUFFIX}?{NO_MORE})?(?:,?\s({_YEAR})(?!-[0-9]))?",
        lambda m, d, last, y: _date(m, d, y, last),
    ),
    # 3 March 1998, 5 jan.
    (
        "0n",
        rf"(?:\b([Tt]he)\s)?({_DAY}){SUFFIX}?\s({MONTH}|{_SMALL}|(?:may|march)(?=,?\s{_YEAR}))\b{POINT}(?:,?\s({_YEAR}))?",
        _day_month,
    ),
    # the 3rd of august: in small letters the cleaner knows no abbreviation
    ("n", rf"\b(jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?(?=\s{_YEAR})", month),
    # Mar. 1998
    ("n", rf"\b({MONTH})\.?(,?)\s({_YEAR})", lambda m, comma, y: f"{month(m)}{comma} {year(y)}"),
    # 2021-03, 1914-18
    ("0", r"((?:1[1-9]|20)[0-9]{2})[-–]([0-9]{2})(?![0-9%-]|[.,/:][0-9])", _year_and_number),
    # in 1066: anywhere else, eleventh-century years are plain numbers
    (
        "0",
        rf"(?=10[0-9]{{2}}){behind('in|since|year|until|around|AD')}(10[0-9]{{2}}){NO_MORE}",
        year,
    ),
    # 44 BC, 1066 A.D.
    ("0", rf"([0-9]{{1,4}})\s?((?:BCE?|CE|AD)\b|(?:B\.C(?:\.E)?|C\.E|A\.D)(?=\.){POINT})", _era),
    # 2Q22
    ("0", r"([1-4])Q\s?['’]?(20[0-9]{2}|[0-9]{2})\b", _quarter),
]

# --- times ---

_NOON = rf"(?:\s?([AaPp])(?:\.\s?[Mm]\b{POINT}|[Mm]\b))"


def _time(hour: str, minute: str, second: str | None, half: str | None, noon: str | None) -> str:
    words = _hour_and_minute(int(hour) or (12 if half else 0), minute, bool(half) or noon is not None)
    if second and int(second):
        words += f" and {cardinal(str(int(second)))} second{'' if int(second) == 1 else 's'}"
    return words + (f" {half.upper()} M" if half else "")


def _hour_and_minute(hour: int, minute: str, has_half: bool) -> str:
    """Name of a time of day. Full hours end in o'clock, unless A M or P M follows."""
    name = cardinal(str(hour))
    if minute != "00":
        return f"{name} {two_digits(minute)}"
    if hour == 0:
        return "midnight"
    if hour > 12:
        return f"{name} hundred"
    return name if has_half else f"{name} o'clock"


_LASTING = behind("in|time of|clocked|finished|ran|lasted|lasts|for")


def _duration(*parts: tuple[str, str]) -> str:
    """Name of a duration, without the parts that are zero."""
    amounts = [(number.lstrip("0") if number.strip("0.") else "", unit) for number, unit in parts]
    return " ".join(f"{decimal(number)} {unit}{'' if number == '1' else 's'}" for number, unit in amounts if number)


_TIMES: list[Rule] = [
    # 14:30Z
    ("0", r"([01][0-9]|2[0-4]):([0-5][0-9])Z\b", lambda hour, minute: f"{_time(hour, minute, None, None, None)} U T C"),
    # durations: 2:00:35, 1:23.4, in 45:30
    (
        "0",
        r"([01]?[0-9]|2[0-4]):00:([0-5][1-9]|[1-5]0)(?![0-9]|[:.][0-9]|\s?[apAP])",
        lambda h, s: _duration((h, "hour"), (s, "second")),
    ),
    (
        "0",
        r"([0-9]{1,2}):([0-5][0-9]\.[0-9]{1,3})(?![0-9]|[:.][0-9])",
        lambda m, s: _duration((m, "minute"), (s, "second")),
    ),
    (
        "0",
        rf"(?=[0-9]{{2}}:){_LASTING}(2[5-9]|[3-9][0-9]):([0-5][0-9])(?![0-9]|[:.][0-9])",
        lambda m, s: _duration((m, "minute"), (s, "second")),
    ),
    # 6:45 p.m., 6:05, 10:00, 12:00 noon, 18:30, 2:05:30
    (
        "0",
        rf"([01]?[0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9]))?(?![0-9]|[:.][0-9])"
        rf"(?:{_NOON}|((?=\s(?:noon|midnight|hours|o['’]clock)\b))|)",
        _time,
    ),
    # 1030 am
    ("0", rf"(1[0-2]|0?[1-9])([0-5][0-9]){_NOON}", lambda hour, minute, half: _time(hour, minute, None, half, None)),
    # 0800 hours
    ("0", r"0([1-9])00(?=\s(?:hours|hrs)\b)", lambda hour: f"oh {cardinal(hour)} hundred"),
    # 6.45 p.m.
    ("0", rf"(1[0-2]|0?[1-9])\.([0-5][0-9]){_NOON}", lambda hour, minute, half: _time(hour, minute, None, half, None)),
    # 7am, 7 p.m.
    ("0", rf"(1[0-2]|0?[1-9]){_NOON}", lambda hour, half: _time(hour, "00", None, half, None)),
    # 12:00:00:00 and other groups that are not a time
    ("0", r"(?<![0-9])(?<![0-9]:)([0-9]+(?::[0-9]+){2,})", lambda number: ", ".join(map(cardinal, number.split(":")))),
    # 16:9, 1:100
    ("0", rf"([0-9]{{1,9}}):([0-9]{{1,9}}){NO_MORE}", lambda one, other: f"{cardinal(one)} to {cardinal(other)}"),
]

DATES = [*_DATES, *_TIMES]
