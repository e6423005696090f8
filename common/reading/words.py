"""Rules of reader.py for letters and signs: abbreviations, initials, symbols, addresses."""

from __future__ import annotations

import re

from common.reading import tables
from common.reading.dates import month
from common.reading.initials import INITIALS, letters
from common.reading.numbers import digits, groups_of_digits, number_or_year, ordinal
from common.reading.patterns import OPENER, POINT, POINT_OF_NAME, Rule, any_of, behind

# --- abbreviations ---

_DAY_OR_MONTH = rf"(?:{any_of([*tables.DAYS, *tables.DAYS.values(), *tables.SHORT_MONTHS])}|May|June|July)"
_STREET = (
    rf"((?!(?:{any_of(tables.OPENERS + tables.NOT_STREET_NAMES)})\b)[A-Z][a-z]+(?:['’]s)?|[0-9]{{1,3}}(?:st|nd|rd|th))"
)
_KIND = any_of(tables.STREETS)
_STATE = any_of(tables.STATES)


def _day_or_month(name: str) -> str:
    return tables.DAYS.get(name) or (name if name in tables.DAYS.values() else month(name))


def _street(name: str, kind: str) -> str:
    return f"{ordinal(name[:-2]) if name[0].isdigit() else name} {tables.STREETS[kind]}"


def _small_street(kind: str) -> str:
    return tables.STREETS[kind.capitalize()].lower()


_BEHIND_STATE = behind("|".join(f"{state}.{comma}" for state in tables.OLD_STATES for comma in ("", ",")))
_SAINTS = "louis|john|johns|paul|pauls|peter|petersburg|patrick|patricks|mary|marys|george|andrew|andrews|james|nicholas|helens"
# Behind a street without capitals: the end, or a word that is no name.
_NO_NAME = (
    r"\s*\Z|\s?[.,;:!?)]|\s(?:in|and|or|near|at|is|was|to|today|now|on|by|for|from|with|this|that|next|after|before)\b"
)

_ABBREVIATIONS: list[Rule] = [
    # Mon.-Fri., Jan-Dec
    (
        "A.",
        rf"\b({_DAY_OR_MONTH})\.?\s?[-–]\s?({_DAY_OR_MONTH})\b{POINT}",
        lambda first, last: f"{_day_or_month(first)} to {_day_or_month(last)}",
    ),
    # No. 5, p. 12, pp. 3-5, c. 1900
    (
        "n",
        rf"\b({any_of(tables.BEFORE_NUMBER)})\.\s?(?=[0-9#]|(?<=o\.\s)[A-Z]{{1,3}}-[0-9])",
        tables.BEFORE_NUMBER.__getitem__,
    ),
    (
        "n",
        rf"\b({any_of(tables.NUMBER_WITHOUT_POINT)})(?=\s[0-9])(?!\s[0-9]+(?:st|nd|rd|th)\b)",
        tables.NUMBER_WITHOUT_POINT.__getitem__,
    ),
    # No 10 Downing Street, but not "No 2 people"
    (
        "A",
        r"\bN[oO](?!\s2\s(?:is\sa|gas|levels|emissions)\b)(?=\s[0-9]{1,5}(?:\s*\Z|[.,;:!?)](?![0-9])|\s(?:[A-Z]|(?:on|in|of|for|at|is|was|seed|ranked|single|hit)\b)))",
        lambda: "Number",
    ),
    ("A", r"\bNO(?=\s2\s(?:is\sa|gas|levels|emissions)\b)", lambda: "N O"),
    ("n", rf"\b({any_of(tables.BEFORE_YEAR)})\.\s?(?=[12][0-9]{{3}}\b)", tables.BEFORE_YEAR.__getitem__),
    ("a", r"\bv(?=[0-9])", lambda: "version"),
    # 123 N. Oak Blvd.
    ("A", r"(?<=[0-9]\s)([NSEW])\.(?=\s[A-Z0-9])", tables.DIRECTIONS.__getitem__),
    (
        "A",
        rf"(?<![\w.])(?<![A-Z]\.\s)([NSEW])\.(?=\s(?:[0-9]+(?:st|nd|rd|th)|[A-Z][a-z]+\s(?:{_KIND}))\b)",
        tables.DIRECTIONS.__getitem__,
    ),
    (
        "A",
        rf"(?<=[0-9]\s)([NSEW])(?=\s(?:[A-Z][a-z]+|[0-9]{{1,3}}(?:st|nd|rd|th))\s(?:{_KIND})\b)",
        tables.DIRECTIONS.__getitem__,
    ),
    (
        "A",
        r"(?:(?<=\bI-[0-9]\s)|(?<=\bI-[0-9]{2}\s)|(?<=\bI-[0-9]{3}\s))([NSEW])\b(?!['’.])",
        tables.DIRECTIONS.__getitem__,
    ),
    # 123 Main St. Springfield: behind a house number it is a street
    ("0A", rf"(?:(?<=[0-9]\s)|(?<=\b[NSEW]\s)|(?<=\b[NSEW]\.\s)){_STREET}\s({_KIND})\b{POINT_OF_NAME}", _street),
    # on Main St. today, 42nd St, but not St. John or Dr. Smith
    (
        "0A",
        rf"\b{_STREET}\s({_KIND})(?:(?=\.(?!\s+[A-Z]))|(?=\.{OPENER})|(?![\w.'’]|\s[A-Z])){POINT_OF_NAME}",
        _street,
    ),
    # 5th Ave New York: these abbreviations have no other meaning
    ("0A", rf"\b{_STREET}\s({any_of(tables.STREETS_ANYWHERE)})\b(?!['’]){POINT_OF_NAME}", _street),
    # Boston, MA 02134; Austin, TX
    ("A", rf"\b({_STATE})(?=,?\s[0-9]{{5}}\b(?!,))", tables.STATES.__getitem__),
    (
        "0",
        rf"(?:(?<=\b(?:DC|{_STATE})\s)|(?<=\b(?:DC|{_STATE}),\s))([0-9]{{5}}(?:-[0-9]{{4}})?)(?![0-9]|,[0-9])",
        groups_of_digits,
    ),
    (
        "A",
        rf"(?<=,\s)(?!{any_of(tables.NOT_ALWAYS_STATES)})({_STATE})(?=\s*\Z|[,.;:)!?])",
        tables.STATES.__getitem__,
    ),
    # St. Louis, Mo., and Albany, N.Y.
    (
        "A",
        rf"\b((?!(?:{any_of(tables.OPENERS)})\b)[A-Z][a-z]{{2,}}),\s(?!Miss\.\s[A-Z])({any_of(tables.OLD_STATES)})(?=\.){POINT_OF_NAME}",
        lambda town, state: f"{town}, {tables.OLD_STATES[state]}",
    ),
    (
        "0",
        rf"(?=[0-9]{{5}}){_BEHIND_STATE}([0-9]{{5}}(?:-[0-9]{{4}})?)(?![0-9]|,[0-9])",
        groups_of_digits,
    ),
    # 5th Fl., Hwy 61
    ("A", r"(?<=[0-9](?:st|nd|rd|th)\s)(?:Fl|FL)\b(?:\.(?!\s*\Z|\s+[A-Z]))?", lambda: "Floor"),
    (
        "A",
        r"\b(Hwy|Rte|Rt|Expy)\b\.?(?=\s[0-9])",
        lambda road: {"Hwy": "Highway", "Expy": "Expressway"}.get(road, "Route"),
    ),
    # Mr./Mrs. Smith
    ("A", r"\b(Mr|Mrs|Ms|Dr|Prof)\.?/(Mrs|Ms|Mr|Dr|Prof)\b\.?", lambda first, last: f"{first}. or {last}."),
    # Prof. Smith, Mt. Everest, and without a point Dr Smith
    (".", rf"\b({any_of(tables.TITLES)})\.(?=\s+[A-Z{{])", tables.TITLES.__getitem__),
    ("A", rf"\b({any_of(tables.TITLES_WITHOUT_POINT)})(?=\s[A-Z][a-z])", tables.TITLES_WITHOUT_POINT.__getitem__),
    # Mon 6/3, Sat 5pm
    (
        "A",
        rf"\b({any_of(tables.DAYS)})\b(?=,?\s(?:[0-9]{{1,2}}(?:/|:|\s?[ap]m\b)|(?i:{any_of(tables.SHORT_MONTHS)}|may|june|july)\b))",
        tables.DAYS.__getitem__,
    ),
    (
        "a",
        rf"\b(mon|tues?|wed|thu(?:rs?)?|fri|sat|sun)\b\.?(?=,?\s(?:[0-9]{{1,2}}/[0-9]|(?:{any_of(tables.SHORT_MONTHS).lower()})\b\.?\s[0-9]))",
        lambda day: tables.DAYS[day.capitalize()],
    ),
    # e.g., etc., Inc., Jan.; Sun. and Sat. only before a date, as they may be words
    (".", rf"(?<![\w.])({any_of(tables.ABBREVIATIONS)})(?=\.(?!\.)){POINT}", tables.ABBREVIATIONS.__getitem__),
    (".", rf"(?<![\w.])({any_of(tables.NEVER_LAST)})\.(?!\.)", tables.NEVER_LAST.__getitem__),
    (".", rf"(?<![\w.])({any_of(tables.IN_NAMES)})(?=\.(?!\.)){POINT_OF_NAME}", tables.IN_NAMES.__getitem__),
    (".", rf"\b({any_of(tables.SHORT_MONTHS)})(?=\.){POINT}", month),
    (".", rf"\b({any_of(tables.DAYS.keys() - {'Sat', 'Sun'})})(?=\.){POINT}", tables.DAYS.__getitem__),
    (
        ".",
        rf"\b(Sat|Sun)\.(?=,|\s(?:[0-9]|(?:{any_of(tables.SHORT_MONTHS)}|May|June|July)\b))",
        tables.DAYS.__getitem__,
    ),
    # dr smith on elm dr, st louis, 12 oak st
    ("a", rf"\bst\b\.?(?=\s(?:{_SAINTS})\b)", lambda: "saint"),
    ("a", rf"(?<=[a-z]\s)(st|dr|ave|rd|blvd)\b\.?(?<!\bthe\s..)(?<!\ba\s..)(?={_NO_NAME})", _small_street),
    ("a", r"\bdr\b\.?(?=\s[a-z]{2,})", lambda: "doctor"),
    # Ali vs Frazier, Roe v. Wade
    ("a", r"\bvs\b\.?", lambda: "versus"),
    ("a", r"(?<=[a-z]\s)v\.(?=\s[A-Z])", lambda: "versus"),
    ("a", r"(?<!\bslash\s)\betc\b", lambda: "et cetera"),
    # E = mc²
    ("a", r"(?<==\s)(?!km|cm|mm|dm|nm|mi)([a-z]{2,3})(?=[²³])", " ".join),
    ("a", r"\baka\b", lambda: "also known as"),
]

# --- signs ---

_PATH = r"[\w.-]+/|(?:etc|usr|var|tmp|home|opt|dev|bin|proc|root|mnt)\b"
SIGNS: list[Rule] = [
    # dashes that the cleaner would drop: a pause within a sentence
    (" -", r"\A\s?[—―]+\s?", lambda: ""),
    (" -", r"(?<=[.,;:!?(])\s?[—―]+\s?", lambda: " "),
    (" -", r"\s?[—―]+(?=\s*\Z|\s?[.,;:!?)\"'”’])", lambda: ""),
    (" -", r"\s?[—―]+\s?", lambda: ", "),
    # hyphens stay, however many
    ("-", r"(-{2,})(?![->])", str),
    # ===== and other lines of signs
    ("-", r"(?<=\w)[=*#~_+/\\|<>^`]{3,}(?=\w)", lambda: " "),
    ("-", r"[=*#~_+/\\|<>^`]{3,}", lambda: ""),
    # he/she, and/or, w/o
    ("Aa", r"\b([Hh]e|[Ss]he|[Hh]is|[Hh]er|[Hh]im)/(he|she|his|hers?|him)\b", lambda first, last: f"{first} or {last}"),
    ("Aa", rf"(?<!\w)({any_of(tables.WITH_SLASH)})(?!\w)", tables.WITH_SLASH.__getitem__),
    ("a", r"\bw/(?=\w)", lambda: "with"),
    # this/that
    (" -", rf"(?<=\w)(?:/\s?|\s/\s?(?!{_PATH}))(?=\w)", lambda: "slash"),
    # a <= b, a -> b
    ("-", r"<=", lambda: "less than or equal to"),
    ("-", r">=", lambda: "greater than or equal to"),
    ("-", r"-+>|=>", lambda: "to"),
    ("-", r"&&", lambda: "and"),
    ("-", r"!=", lambda: "is not equal to"),
    ("-", r"=+", lambda: "equals"),
    ("-", r"(?<=\s)<(?=\s)", lambda: "less than"),
    ("-", r"(?<=\s)>(?=\s)", lambda: "greater than"),
    # p<0.05, <5 people, x > y; I <3 you
    ("-", r"(?<=\bI\s)<3\b|(?<=[a-z]{3}\s)<3(?=\s*(?:\Z|[!.]))", lambda: "heart"),
    ("-", r"<(?=\s?[-−]?[$£€]?\.?[0-9])|(?<=\b\w)<(?=\w\b(?!>))", lambda: "less than"),
    (
        "-",
        r"(?<!\A)(?<!\n)>(?=\s?[-−]?[$£€]?\.?[0-9])|>(?=[-−]?[$£€]?\.?[0-9])|(?<=\b\w)>(?=\w\b)",
        lambda: "greater than",
    ),
    # a * b; around words, as in *very*, it is left out
    (" ", r"(?<=\b\w)\s\*\s(?=\w\b)", lambda: "times"),
    ("-", r"(?<=\w\s)\*(?=\s\w)", lambda: "asterisk"),
    # C#, #topic
    ("-", r"(?<=\b[CF])#", lambda: "sharp"),
    ("-", r"#(?=[A-Za-z])", lambda: "hashtag"),
    # ~30
    ("-", r"(?<=[A-Z])~(?=[0-9])", lambda: "tilde"),
    ("-", r"(?<=[a-z]{4})(?<!met[er][er])[¹²³]", lambda: ""),
    ("-", r"~(?=\s?[$£€¥]?[0-9])", lambda: "about"),
    # names of files and variables
    ("-", r"(?<=\w)\\+|\\+(?=\w)", lambda: "backslash"),
    ("-", r"(?<=\w)_(?=\w)", lambda: "underscore"),
    (" -", r"\s?\|\s?", lambda: ", "),
    ("-", rf"([{re.escape(''.join(tables.SIGNS))}])", tables.SIGNS.__getitem__),
    # characters without a name and without a symbol; < > ® ™ stay for the list of what is left out
    ("-", r"[\"#*/\\^_`~\x00-\x08\x0e-\x1b\x7f]", lambda: ""),
]
# π, Δx, but not a word in Greek
_GREEK_LETTERS: list[Rule] = [
    ("a-", rf"([{''.join(tables.GREEK)}])(?![\u0370-\u03ff\u1f00-\u1fff]|[a-z]{{3}})", tables.GREEK.__getitem__),
]
WORDS = [*_ABBREVIATIONS, *INITIALS, *_GREEK_LETTERS]

# --- addresses of machines and names of files ---

_VOWEL = re.compile("[^B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]")  # y counts as a vowel here, and so do letters with an accent
_PLACE = r"[^\s{}\"<>“”]*[^\W_]"


def _address(text: str) -> str:
    """Read an address word by word, with names for the signs between."""
    parts = re.findall(r"[A-Za-z]+|[0-9]+|[^\w\s]|_|[^\W\d_]+", text)
    return " ".join(filter(None, map(_part_of_address, parts)))


def _part_of_address(part: str) -> str:
    if part.isdigit():
        return number_or_year(part) if len(part) in (1, 2, 4) and part[0] != "0" else digits(part)
    if part.isalpha():
        spells = part.lower() in tables.SPELLED_IN_ADDRESSES or (len(part) < 6 and not _VOWEL.search(part))
        return letters(part.upper()) if spells else part
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
        rf":([0-9]{{2,5}})\b(/{_PLACE})?/?",
        _host,
    ),
    # https://www.example.com/a/b?c=1: the scheme is left out
    ("@", rf"\b[Hh][Tt]{{2}}[Pp][Ss]?://({_PLACE})/?", _address),
    ("@", rf"\b([Ww]{{3}}\.{_PLACE})/?", _address),
    # youtu.be/abc, amazon.co.in, but not "over.it"
    (
        "@",
        rf"(?<![\w@./-])([A-Za-z0-9][A-Za-z0-9-]{{0,62}}(?:(?:\.{_LABEL}){{0,4}}\.(?:{any_of(tables.ENDINGS_AND_WORDS)})/{_PLACE}"
        rf"|\.(?:co|com|org|net|ac|gov)\.[a-z]{{2}}(?:/{_PLACE})?))(?![\w@-])/?",
        _address,
    ),
    # example.com/page, notes.txt, report_2023-04-01.pdf, src/main.cpp
    (
        "@",
        rf"(?<![\w@./-])([A-Za-z0-9][\w-]{{0,62}}(?:[./][\w-]{{1,63}}){{0,6}}\.(?:{_ENDING})(?:/{_PLACE})?)(?![\w@-])/?",
        _address,
    ),
    # /etc/hosts, ./etc, ~/.bashrc
    ("-", r"(?<![\w/.<])((?:~|\.{1,2})?/[\w.-]*[A-Za-z][\w.-]*(?:/[\w.-]+){1,9}(?<!\.))(?![\w<>])/?", _address),
    ("-", r"(?<![\w/.<])((?:~|\.{1,2})/[\w.-]*[A-Za-z][\w-]*(?:\.\w+)*)(?![\w<>])/?", _address),
    ("-", r"(?<![\w/.<])(/(?:etc|usr|var|tmp|home|opt|dev|bin|proc|root|mnt))(?![\w<>/])/?", _address),
]
