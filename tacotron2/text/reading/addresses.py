"""Rules of reader.py for addresses of machines and names of files."""

from __future__ import annotations

import re

from tacotron2.text.reading import tables
from tacotron2.text.reading.numbers import digits, number_or_year
from tacotron2.text.reading.patterns import Rule, any_of

_VOWEL = re.compile("[^B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]")  # y counts as a vowel here, and so do letters with an accent
_PATH = r"[^\s{}\"<>“”]*[^\W_]"


def _address(text: str) -> str:
    """Read an address word by word, with names for the signs between."""
    parts = re.findall(r"[A-Za-z]+|[0-9]+|[^\w\s]|_|[^\W\d_]+", text)
    return " ".join(filter(None, map(_part_of_address, parts)))


def _part_of_address(part: str) -> str:
    if part.isdigit():
        return number_or_year(part) if len(part) in (1, 2, 4) and part[0] != "0" else digits(part)
    if part.isalpha():
        is_spelled = part.lower() in tables.SPELLED_IN_ADDRESSES or (len(part) < 6 and not _VOWEL.search(part))
        return " ".join(part.upper()) if is_spelled else part
    return tables.SIGNS_IN_ADDRESSES.get(part, "")


def _host(name: str, port: str, path: str | None) -> str:
    """Address of a machine with a port, digit by digit: localhost:8080."""
    groups = name.split(".")
    host = " dot ".join(map(digits, groups)) if groups[0].isdigit() else _address(name)
    return f"{host} colon {digits(port)}" + (f" {_address(path)}" if path else "")


_ENDING = any_of(tables.ENDINGS)
_LABEL = "[A-Za-z0-9-]{1,63}"
ADDRESSES: list[Rule] = [
    # john.smith@example.com
    ("@", rf"(?<![\w.+-])(\w[\w.+-]{{0,63}}@{_LABEL}(?:\.{_LABEL}){{1,5}})\b", _address),
    # localhost:8080, 0.0.0.0:9090
    (
        "@",
        rf"(?<![\w@.-])(localhost|[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}}|[A-Za-z][A-Za-z0-9-]{{0,62}}(?:\.{_LABEL}){{0,3}}\.(?:{_ENDING}))"
        rf":([0-9]{{2,5}})\b(/{_PATH})?/?",
        _host,
    ),
    # https://www.example.com/a/b?c=1: the scheme is left out
    ("@", rf"\b[Hh][Tt]{{2}}[Pp][Ss]?://({_PATH})/?", _address),
    ("@", rf"\b([Ww]{{3}}\.{_PATH})/?", _address),
    # youtu.be/abc, amazon.co.in, but not "over.it"
    (
        "@",
        rf"(?<![\w@./-])([A-Za-z0-9][A-Za-z0-9-]{{0,62}}(?:(?:\.{_LABEL}){{0,4}}\.(?:{any_of(tables.ENDINGS_AND_WORDS)})/{_PATH}"
        rf"|\.(?:co|com|org|net|ac|gov)\.[a-z]{{2}}(?:/{_PATH})?))(?![\w@-])/?",
        _address,
    ),
    # example.com/page, notes.txt, report_2023-04-01.pdf, src/main.cpp
    (
        "@",
        rf"(?<![\w@./-])([A-Za-z0-9][\w-]{{0,62}}(?:[./][\w-]{{1,63}}){{0,6}}\.(?:{_ENDING})(?:/{_PATH})?)(?![\w@-])/?",
        _address,
    ),
    # /etc/hosts, ./etc, ~/.bashrc
    ("-", r"(?<![\w/.<])((?:~|\.{1,2})?/[\w.-]*[A-Za-z][\w.-]*(?:/[\w.-]+){1,9}(?<!\.))(?![\w<>])/?", _address),
    ("-", r"(?<![\w/.<])((?:~|\.{1,2})/[\w.-]*[A-Za-z][\w-]*(?:\.\w+)*)(?![\w<>])/?", _address),
    ("-", r"(?<![\w/.<])(/(?:etc|usr|var|tmp|home|opt|dev|bin|proc|root|mnt))(?![\w<>/])/?", _address),
]
