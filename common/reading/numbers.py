"""American names of numbers, from which the rules of reader.py are built.

    cardinal("1,500")     one thousand five hundred
    decimal("3.14")       three point one four
    ordinal("22")         twenty-second
    year("1905")          nineteen oh five
    fraction("3", "4")    three quarters
    roman("VIII")         8

Numbers are strings of ASCII digits, with or without commas between thousands. text/cleaners.py differs: it follows the wording
that checkpoints were trained on. Here names contain no commas, and digits after a point are read one by one.
"""

from __future__ import annotations

import re
from functools import lru_cache

from common.data.number_words import MAX_DIGITS, inflect_engine

_DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
_IDENTIFIER_DIGITS = 10  # a number this long without commas is an identifier, not an amount

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

ROMAN = r"(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})"  # 1 to 99; also matches the empty string
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}


@lru_cache(maxsize=4096)
def _name(number: str) -> str:
    return " ".join(str(inflect_engine().number_to_words(number, andword="")).replace(",", "").split())


def digits(number: str) -> str:
    """Names of all digits, one by one; other characters are skipped."""
    return " ".join(_DIGITS[int(digit)] for digit in number if digit.isdigit())


def groups_of_digits(number: str) -> str:
    """Names of all digits, with a pause between groups: "555-1234", "+44 20 7946 0958"."""
    groups = re.findall("[0-9]+", number)
    pause = ", " if any(len(group) > 1 for group in groups) else " "
    return ("plus " if number[0] == "+" else "") + pause.join(map(digits, groups))


def cardinal(number: str) -> str:
    """Name of a whole number. With a leading zero, or too long to be an amount, it is read digit by digit."""
    plain = number.replace(",", "")
    is_identifier = plain == number and len(plain) >= _IDENTIFIER_DIGITS and not plain.endswith("000")
    if len(plain) > MAX_DIGITS or is_identifier or (len(plain) > 1 and plain[0] == "0"):
        return digits(plain)
    return _name(plain)


def decimal(number: str) -> str:
    """Name of a number, with or without decimals and a power of ten: 3.14, 1e-5."""
    plain, *power = re.split("[eE]", number)
    whole, point, rest = plain.partition(".")
    parts = [cardinal(whole) if whole else "", "point" if point else "", digits(rest)]
    for exponent in power:
        parts += ["E", "minus" if exponent[0] in "-−" else "", cardinal(exponent.lstrip("-−+0") or "0")]
    return " ".join(filter(None, parts))


def ordinal(number: str) -> str:
    """Ordinal of a whole number."""
    plain = number.replace(",", "").lstrip("0") or "0"
    if len(plain) > MAX_DIGITS:
        return f"{digits(plain[:-1])} {_name(plain[-1] + 'th')}"
    return _name(plain + "th")


def year(number: str) -> str:
    """Name of a year, four digits in pairs: nineteen hundred, nineteen oh five; other numbers as cardinals."""
    if len(number) != 4 or number[1:3] == "00" or not "1000" <= number <= "9999":
        return cardinal(number)
    century, rest = _name(number[:2]), number[2:]
    if rest == "00":
        return f"{century} hundred"
    return f"{century} oh {digits(rest[1])}" if rest[0] == "0" else f"{century} {_name(rest)}"


def is_year(number: str) -> bool:
    """True for a number that is read as a year when no context decides."""
    return len(number) == 4 and "1100" <= number <= "2099"


def number_or_year(number: str) -> str:
    """Name of a number without context, as a year or a cardinal."""
    return year(number) if is_year(number) else cardinal(number)


def two_digits(number: str) -> str:
    """Name of minutes, or of a year without its century: "05" is oh five."""
    return f"oh {digits(number[1])}" if number[0] == "0" else cardinal(number)


def plural(words: str) -> str:
    """Plural of a number in words: nineties, sixes, hundreds."""
    if words.endswith("y"):
        return words[:-1] + "ies"
    return words + ("es" if words.endswith("x") else "s")


def has_parts(denominator: int) -> bool:
    """True if English has a common name for the part: a tenth, but one over sixty-seven."""
    return 2 <= denominator <= 20 or denominator in (32, 50, 64, 100, 1000)


def fraction(numerator: str, denominator: str, attributive: bool = False) -> str:
    """Name of a fraction: three quarters, or three-quarter before a noun with a hyphen; rare ones use "over"."""
    if not has_parts(int(denominator)) or int(numerator) > 99:
        return f"{cardinal(numerator)} over {cardinal(denominator)}"
    part = {2: "half", 4: "quarter"}.get(int(denominator)) or ordinal(denominator).removeprefix("one ")
    if attributive:
        return f"{cardinal(numerator)}-{part}"
    if int(numerator) != 1:
        part = "halves" if part == "half" else part + "s"
    return f"{cardinal(numerator)} {part}"


def mixed_number(whole: str, numerator: str, denominator: str) -> str:
    """Name of a whole number and a fraction: two and a half."""
    parts = fraction(numerator, denominator)
    if int(numerator) == 1 and has_parts(int(denominator)):
        parts = parts.replace("one", "an" if parts.startswith("one e") else "a", 1)
    return f"{cardinal(whole)} and {parts}"


def number(written: str) -> str:
    """Name of a number without context, with or without decimals."""
    return number_or_year(written) if written.isdigit() else decimal(written)


def groups_of_numbers(groups: str) -> str:
    """Names of numbers with colons or dashes between."""
    return ", ".join(map(cardinal, re.split("[:–-]", groups)))


def numeral(letters: str, last: str | None = None) -> str:
    """Name of a Roman numeral, or of a range: Chapter XIV, pp. iv-vi."""
    return cardinal(str(roman(letters))) + (f" to {numeral(last)}" if last else "")


def rank(letters: str, last: str | None = None) -> str:
    """Ordinal of a Roman numeral, or of a range: VI-VII."""
    return ordinal(str(roman(letters))) + (f" to {rank(last)}" if last else "")


def roman(numeral: str) -> int:
    """Value of a Roman numeral in capitals or small letters."""
    values = [_ROMAN_VALUES[letter] for letter in numeral.upper()]
    return sum(-value if value < max(values[i:]) else value for i, value in enumerate(values))


def number_with_points(number: str) -> str:
    """Version such as "1.2.3", or with four parts an IP address."""
    parts = number.split(".")
    return " dot ".join(map(digits, parts)) if len(parts) == 4 else " point ".join(map(cardinal, parts))


def figures(number: str) -> str:
    """Digits one by one, but two as a number."""
    return digits(number) if len(number) > 2 else cardinal(number)


def pairs(number: str) -> str:
    """Four digits in pairs, ten ninety-nine; three as seven forty-seven, five as thirteen nine hundred; fewer as one number."""
    if len(number) < 3 or number.endswith("000"):
        return cardinal(number)
    if len(number) == 5:
        return f"{cardinal(number[:2])} {cardinal(number[2:])}"
    return f"{cardinal(number[:-2])} {'hundred' if number.endswith('00') else two_digits(number[-2:])}"
