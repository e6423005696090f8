"""Rules of reader.py for dates, times, telephone numbers and other groups of digits, and money.

A rule has three parts: where it begins, a pattern, and a function from the pattern's groups to words. It begins at digits ("0"), at
capitals or small letters at the start of a word ("A", "a"), at spaces (" ") or at other signs ("-"). Rules are tried in the order
of the list, so more specific patterns come first. Every pattern reads a bounded stretch of text or consumes all that it reads, so
that time grows linearly with the length of a text.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable

from tacotron2.text.reading.numbers import (
    MONTHS,
    cardinal,
    decimal,
    digits,
    groups_of_digits,
    number_or_year,
    ordinal,
    two_digits,
    year,
)

Rule = tuple[str, str, Callable[..., str]]

# Patterns of numbers: whole ones, and those with a point.
INTEGER = r"(?:[0-9]{1,3}(?:,[0-9]{3}){1,11}(?![0-9]|,[0-9])|[0-9]{1,36}(?![0-9]))"
NUMBER = rf"(?:{INTEGER}(?:\.[0-9]{{1,40}}(?![0-9]))?|(?<![\w.])\.[0-9]{{1,40}}(?![0-9]))"
DASH = r"\s?[-–]\s?"

_MONTH_NAMES = (
    r"Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?"
    r"|Sept?(?:ember)?|Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
)
MONTH = rf"(?:{_MONTH_NAMES}|{_MONTH_NAMES.upper()})"
_DAY = r"(?:0?[1-9]|[12][0-9]|3[01])"
_MONTH_DIGITS = r"(?:0?[1-9]|1[0-2])"
_YEAR = r"[12][0-9]{3}(?![0-9]|[,.][0-9])"
SUFFIX = r"(?:st|nd|rd|th|ST|ND|RD|TH)"
NO_MORE = r"(?![A-Za-z0-9:%°/]|[.,][0-9])"  # after a number that is not part of a longer token

# The point of an abbreviation stays if it also ends the sentence. These capitalised words follow it within a sentence.
_WITHIN = (
    r"Mon|Tue|Wed|Thu|Fri|Sat|Sun|Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
    r"|(?:EST|EDT|CST|CDT|MST|MDT|PST|PDT|ET|CT|MT|PT|GMT|UTC|AD|BC|Eastern|Central|Mountain|Pacific)\b"
)
POINT = rf"(?:\.(?![\"'”’)\]]{{0,3}}(?:\s*\Z|\s+[\"'“‘(\[]?(?!{_WITHIN})[A-Z])))?"


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


_DATES: list[Rule] = [
    # 2021-03-04, 2021/03/04
    ("0", rf"({_YEAR})[-/]({_MONTH_DIGITS})[-/]({_DAY})(?![0-9/-])", lambda y, m, d: _numeric_date(m, d, y, "ymd")),
    # 3/4/2021 and 3/4/21: month, day, year
    ("0", rf"({_MONTH_DIGITS})/({_DAY})/([0-9]{{4}}|[0-9]{{2}})(?![0-9/])", _numeric_date),
    # 25/12/2021 can only be day, month, year
    (
        "0",
        rf"({_DAY})/({_MONTH_DIGITS})/([0-9]{{4}}|[0-9]{{2}})(?![0-9/])",
        lambda d, m, y: _numeric_date(m, d, y, "dmy"),
    ),
    # 31.12.2021: day, month, year
    ("0", rf"({_DAY})\.({_MONTH_DIGITS})\.({_YEAR})", lambda d, m, y: _numeric_date(m, d, y, "dmy")),
    # on 3/4: without "on" it is a fraction
    ("0", rf"(?<=\b[Oo]n\s)({_MONTH_DIGITS})/({_DAY})(?![0-9/]|[.,][0-9]|-[A-Za-z]|\sof\b)", _date),
    # 03-04-2021, as with slashes
    ("0", rf"({_MONTH_DIGITS})-({_DAY})-({_YEAR})(?![0-9-])", _numeric_date),
    # March 3, 1998; Mar. 3rd; March 3-5
    (
        "A",
        rf"\b({MONTH})\.?\s({_DAY}){SUFFIX}?{NO_MORE}(?:{DASH}({_DAY}){SUFFIX}?{NO_MORE})?(?:,?\s({_YEAR}))?",
        lambda m, d, last, y: _date(m, d, y, last),
    ),
    # 3 March 1998
    ("0Aa", rf"(?:\b([Tt]he)\s)?({_DAY}){SUFFIX}?\s({MONTH})\b{POINT}(?:,?\s({_YEAR}))?", _day_month),
    # Mar. 1998
    ("A", rf"\b({MONTH})\.?(,?)\s({_YEAR})", lambda m, comma, y: f"{month(m)}{comma} {year(y)}"),
    # 2021-03, 1914-18
    ("0", r"((?:1[1-9]|20)[0-9]{2})[-–]([0-9]{2})(?![0-9%-]|[.,/:][0-9])", _year_and_number),
    # in 1066: anywhere else, eleventh-century years are plain numbers
    (
        "0",
        rf"(?:(?<=\b[Ii]n\s)|(?<=\b[Ss]ince\s)|(?<=\b[Yy]ear\s)|(?<=\b[Uu]ntil\s)|(?<=\b[Aa]round\s)|(?<=\bAD\s))(10[0-9]{{2}}){NO_MORE}",
        year,
    ),
    # 44 BC, 1066 A.D.
    ("0", rf"([0-9]{{1,4}})\s?((?:BCE?|CE|AD)\b|(?:B\.C(?:\.E)?|C\.E|A\.D)(?=\.){POINT})", _era),
]

# --- times ---

_NOON = rf"(?:\s?([AaPp])(?:\.\s?[Mm]\b{POINT}|[Mm]\b))"


def _time(hour: str, minute: str, second: str | None, half: str | None, noon: str | None) -> str:
    words = _hour_and_minute(int(hour), minute, bool(half) or noon is not None)
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


_TIMES: list[Rule] = [
    # 6:45 p.m., 6:05, 10:00, 12:00 noon, 18:30, 2:05:30
    (
        "0",
        rf"([01]?[0-9]|2[0-4]):([0-5][0-9])(?::([0-5][0-9]))?(?![0-9]|[:.][0-9])"
        rf"(?:{_NOON}|((?=\s(?:noon|midnight|hours|o['’]clock)\b))|)",
        _time,
    ),
    # 6.45 p.m.
    ("0", rf"(1[0-2]|0?[1-9])\.([0-5][0-9]){_NOON}", lambda hour, minute, half: _time(hour, minute, None, half, None)),
    # 7am, 7 p.m.
    ("0", rf"(1[0-2]|0?[1-9]){_NOON}", lambda hour, half: _time(hour, "00", None, half, None)),
    # 12:00:00:00 and other groups that are not a time
    ("0", r"(?<![0-9])(?<![0-9]:)([0-9]+(?::[0-9]+){2,})", lambda number: ", ".join(map(cardinal, number.split(":")))),
    # 16:9, 1:100
    ("0", rf"([0-9]{{1,9}}):([0-9]{{1,9}}){NO_MORE}", lambda one, other: f"{cardinal(one)} to {cardinal(other)}"),
]

# --- digits in groups ---


def _seven_digits(prefix: str, line: str) -> str:
    """Local telephone number, "555-1234", or a range of round numbers, "500-1000"."""
    if prefix[-1] == "0" and line[-1] == "0" and line[0] != "0":
        return f"{cardinal(prefix)} to {number_or_year(line)}"
    return groups_of_digits(f"{prefix}-{line}")


def _number_with_dashes(number: str) -> str:
    """Number with dashes: "978-0-306-40615-7" digit by digit, "90-60-90" as three numbers."""
    groups = number.replace("–", "-").split("-")
    are_numbers = all(len(group) == 2 and group[0] != "0" for group in groups)
    return ", ".join(map(cardinal, groups)) if are_numbers else groups_of_digits(number)


def _number_with_points(number: str) -> str:
    """Version such as "1.2.3", or with four parts an IP address."""
    parts = number.split(".")
    return " dot ".join(map(digits, parts)) if len(parts) == 4 else " point ".join(map(cardinal, parts))


def _video_format(number: str, letter: str) -> str:
    """Video format: 720p as seven twenty P, 1080i as ten eighty I."""
    return f"{cardinal(number[:-2])} {two_digits(number[-2:])} {letter.upper()}"


_GROUPS: list[Rule] = [
    # (555) 123-4567, +1 555-123-4567, 1.555.123.4567
    (
        "0-",
        r"(\+?)((?:1[-.\s])?(?:\([0-9]{3}\)\s?[0-9]{3}[-.\s]|[0-9]{3}[-.\s][0-9]{3}[-.])[0-9]{4})(?![0-9])",
        lambda plus, number: ("plus " if plus else "") + groups_of_digits(number),
    ),
    # +44 20 7946 0958
    ("-", r"\+([0-9]{1,3}(?:[-.\s]\(?[0-9]{1,4}\)?){2,5})(?![0-9])", lambda number: f"plus {groups_of_digits(number)}"),
    # 1-800-FLOWERS
    ("0", r"1-([89])00-(?=[A-Za-z])", lambda digit: f"one {digits(digit)} hundred "),
    # 555-1234
    ("0", r"([2-9][0-9]{2})-([0-9]{4})(?![0-9-]|[.,][0-9])", _seven_digits),
    # call 911
    ("0", r"(?:(?<=\b[Cc]all\s)|(?<=\b[Dd]ial\s)|(?<=[Cc]alled\s)|(?<=[Cc]alling\s))(911)\b", digits),
    # 978-0-306-40615-7, 9-1-1
    ("0", r"([0-9]{1,7}(?:[-–][0-9]{1,7}){2,6})(?![0-9-])", _number_with_dashes),
    # 1.2.3, 192.168.0.1
    ("0", r"([0-9]{1,9}(?:\.[0-9]{1,9}){2,6})(?![0-9])", _number_with_points),
    # 24/7, 9/11, 50/50, 401(k): fixed expressions
    ("0", r"24/7(?![0-9/])", lambda: "twenty-four seven"),
    ("0", r"9/11(?![0-9/])", lambda: "nine eleven"),
    ("0", r"50/50(?![0-9/])", lambda: "fifty-fifty"),
    ("0", r"401\(?[kK]\)?(?![A-Za-z])", lambda: "four oh one K"),
    # 1080p
    ("0", r"(480|720|1080|1440|2160)([pi])\b", _video_format),
]

# --- money ---

_CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "¥": ("yen", "yen"),
    "₩": ("won", "won"),
}
_COUNTRIES = {
    "US": "U S ",
    "CA": "Canadian ",
    "C": "Canadian ",
    "AU": "Australian ",
    "A": "Australian ",
    "NZ": "New Zealand ",
    "HK": "Hong Kong ",
}
SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion", "tn": "trillion"}
_SIGN = rf"((?:{'|'.join(_COUNTRIES)})?\$|[£€¥₹₩])"
_SCALE = r"(?:[\s-]?(hundred|thousand|million|billion|trillion)\b|([KMB]|mn?|k|bn?|tn)\b)"

# Between an article and a noun units are in the singular: "a $5 bill", "a 10 km race", but not "a $5 or a $10 bill".
# Elsewhere, one of these two groups or both are None.
AFTER_ARTICLE = r"(?:((?<=\b[Aa]\s)|(?<=\b[Aa]n\s))|)"
_NO_NOUN = "a|an|and|as|at|but|by|each|for|from|if|in|is|less|more|of|on|or|per|than|the|to|was|when"
BEFORE_NOUN = rf"(?:((?=\s(?!(?:{_NO_NOUN})\b)[a-z]))|)"


def _money(
    article: str | None,
    sign: str,
    low: str,
    high: str | None = None,
    scale: str | None = None,
    short: str | None = None,
    noun: str | None = None,
) -> str:
    """Amount of money, or a range of two amounts."""
    one, many, *coins = _CURRENCIES[sign[-1]]
    is_attributive = article is not None and noun is not None
    scale = SCALES[short.lower()] if short else scale
    whole, _, rest = low.replace(",", "").partition(".")
    country = _COUNTRIES.get(sign[:-1], "")
    if coins and len(rest) == 2 and not (scale or high):
        return _notes_and_coins((whole, rest), ((country + one, country + many), tuple(coins)), is_attributive)
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


_MONEY: list[Rule] = [
    # $5, £0.50, US$20, $2.5 million, $5M, $10-20, a $5 bill
    ("A-", rf"{AFTER_ARTICLE}{_SIGN}\s?({NUMBER})(?:[kKMB]?{DASH}[$£€¥]?({NUMBER}))?{_SCALE}?{BEFORE_NOUN}", _money),
    # $-5
    ("A-", rf"{_SIGN}[-−]({NUMBER})", lambda sign, amount: f"minus {_money(None, sign, amount)}"),
    # 20€
    ("0-", rf"({NUMBER})\s?([$£€¥₹₩])(?!\s?\.?[0-9])", lambda amount, sign: _money(None, sign, amount)),
]

QUANTITIES = [*_DATES, *_GROUPS, *_TIMES, *_MONEY]
