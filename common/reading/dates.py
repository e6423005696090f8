"""Speakers of dates and times of day."""

from __future__ import annotations

import calendar

from common.reading.numbers import MONTHS, cardinal, decimal, number_or_year, ordinal, two_digits, year


def month(name: str) -> str:
    """Full name of a month from its abbreviation or its number."""
    if name.isdigit():
        return MONTHS[int(name) - 1]
    return next(full for full in MONTHS if full[:3] == name[:3].capitalize())


def date(name: str, day: str, in_year: str | None = None, last_day: str | None = None) -> str:
    """Month and day, with a year or a last day: March 3-5."""
    until = f" to {ordinal(last_day)}" if last_day else ""
    return f"{month(name)} {ordinal(day)}{until}" + (f", {year(in_year)}" if in_year else "")


def day_of_month(first: str, second: str) -> str:
    """Month and day in digits, in either order where only one is possible: 6/15, 15/6."""
    return date(first, second) if int(first) <= 12 else date(second, first)


def numeric_date(month_number: str, day: str, number: str, written: str = "mdy") -> str:
    """Date in digits, with two-digit years between 1950 and 2049; three numbers if the month has no such day.

    `written` is the order of month, day and year in the text.
    """
    in_year = number if len(number) == 4 else f"{'19' if number >= '50' else '20'}{number}"
    if int(day) > calendar.monthrange(int(in_year), int(month_number))[1]:
        numbers = {"m": cardinal(month_number), "d": cardinal(day), "y": number_or_year(number)}
        return ", ".join(numbers[part] for part in written)
    return date(month_number, day, in_year)


def day_month(article: str | None, day: str, name: str, in_year: str | None) -> str:
    """Day before month: the 3rd of March 1998."""
    return f"{article or 'the'} {ordinal(day)} of {month(name)}" + (f", {year(in_year)}" if in_year else "")


def year_and_number(first: str, second: str) -> str:
    """Month or range of years: "2021-03" is a month; "1914-18", "2008-09" and "1999-00" are ranges."""
    if second <= first[2:] and 1 <= int(second) <= 12:
        return f"{month(second)} {year(first)}"
    century = int(first[:2]) + (second < first[2:])
    return f"{year(first)} to {year(f'{century}{second}') if second[0] == '0' else cardinal(second)}"


def moment(in_year: str, name: str, day: str, hour: str, minute: str, second: str | None, zone: str | None) -> str:
    """Read the time of a machine, 2024-05-06T07:08:09Z."""
    words = f"{numeric_date(name, day, in_year, 'ymd')}, {time(hour, minute, second)}"
    if zone in (None, "Z"):
        return words + (" U T C" if zone else "")
    hours, minutes = zone[1:3], zone[3:].lstrip(":")
    offset = cardinal(str(int(hours))) + (f" {cardinal(minutes)}" if minutes.strip("0") else "")
    return f"{words} U T C {'plus' if zone[0] == '+' else 'minus'} {offset}"


def time(
    hour: str, minute: str | None, second: str | None = None, half: str | None = None, noon: str | None = None
) -> str:
    """Time of day; `noon` is not empty if a word for the half of the day follows."""
    words = _hour_and_minute(int(hour) or (12 if half else 0), minute or "00", bool(half) or noon is not None)
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


def duration(*parts: str | None) -> str:
    """Name of a duration from its numbers and units, without the parts that are zero or missing."""
    amounts = [
        (number.lstrip("0") if number and number.strip("0.") else "", unit)
        for number, unit in zip(parts[::2], parts[1::2], strict=True)
    ]
    return " ".join(f"{decimal(number)} {unit}{'' if number == '1' else 's'}" for number, unit in amounts if number)
