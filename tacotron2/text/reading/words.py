"""Rules of reader.py for letters and signs: addresses, abbreviations, initials, Roman numerals, symbols."""

from __future__ import annotations

import re

from tacotron2.text.reading import tables
from tacotron2.text.reading.numbers import ROMAN, cardinal, digits, groups_of_digits, number_or_year, ordinal, roman
from tacotron2.text.reading.quantities import POINT, Rule, month
from tacotron2.text.reading.tables import any_of

# --- addresses of the internet ---

_VOWEL = re.compile("[^B-DF-HJ-NP-TV-XZb-df-hj-np-tv-xz]")  # y counts as a vowel here, and so do letters with an accent
_PATH = r"[^\s{}\"<>“”]*[^\W_]"


def _address(text: str) -> str:
    """Read an address word by word, with names for the signs between."""
    parts = re.findall(r"[A-Za-z]+|[0-9]+|[^\w\s]|_|[^\W\d_]+", text)
    return " ".join(filter(None, map(_part_of_address, parts)))


def _part_of_address(part: str) -> str:
    if part.isdigit():
        return number_or_year(part) if len(part) in (1, 2, 4) else digits(part)
    if part.isalpha():
        is_spelled = part.lower() in tables.SPELLED_IN_ADDRESSES or (len(part) < 6 and not _VOWEL.search(part))
        return " ".join(part.upper()) if is_spelled else part
    return tables.SIGNS_IN_ADDRESSES.get(part, "")


ADDRESSES: list[Rule] = [
    # john.smith@example.com
    ("0Aa", r"(?<![\w.+-])(\w[\w.+-]{0,63}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,5})\b", _address),
    # https://www.example.com/a/b?c=1: the scheme is left out
    ("Aa", rf"\b[Hh][Tt]{{2}}[Pp][Ss]?://({_PATH})/?", _address),
    ("Aa", rf"\b([Ww]{{3}}\.{_PATH})/?", _address),
    # example.com/page, notes.txt
    (
        "0Aa",
        r"(?<![\w@.-])([A-Za-z0-9][A-Za-z0-9-]{0,62}(?:\.[A-Za-z0-9-]{1,63}){0,4}"
        rf"\.(?:{any_of(tables.ENDINGS)})(?:/{_PATH})?)(?![\w@-])/?",
        _address,
    ),
]

# --- abbreviations ---

_DAY_OR_MONTH = rf"(?:{any_of([*tables.DAYS, *tables.DAYS.values(), *tables.SHORT_MONTHS])}|May|June|July)"
# A capital after a name with a point does not prove that a sentence starts; only these words do.
_OPENER = rf"[\"'”’)\]]{{0,3}}(?:\s*\Z|\s+[\"'“‘(\[]?(?:{any_of(tables.OPENERS)})\b(?!\.))"
_POINT_OF_NAME = rf"(?:\.(?!{_OPENER}))?"
_STREET = rf"((?!(?:{any_of(tables.OPENERS + tables.NOT_STREET_NAMES)})\b)[A-Z][a-z]+|[0-9]{{1,3}}(?:st|nd|rd|th))"
_KIND = any_of(tables.STREETS)
_STATE = any_of(tables.STATES)


def _day_or_month(name: str) -> str:
    return tables.DAYS.get(name) or (name if name in tables.DAYS.values() else month(name))


def _street(name: str, kind: str) -> str:
    return f"{ordinal(name[:-2]) if name[0].isdigit() else name} {tables.STREETS[kind]}"


_ABBREVIATIONS: list[Rule] = [
    # Mon.-Fri., Jan-Dec
    (
        "A",
        rf"\b({_DAY_OR_MONTH})\.?\s?[-–]\s?({_DAY_OR_MONTH})\b{POINT}",
        lambda first, last: f"{_day_or_month(first)} to {_day_or_month(last)}",
    ),
    # No. 5, p. 12, pp. 3-5, c. 1900
    ("Aa", rf"\b({any_of(tables.BEFORE_NUMBER)})\.\s?(?=[0-9#])", tables.BEFORE_NUMBER.__getitem__),
    ("Aa", rf"\b({any_of(tables.BEFORE_YEAR)})\.\s?(?=[12][0-9]{{3}}\b)", tables.BEFORE_YEAR.__getitem__),
    ("a", r"\bv(?=[0-9])", lambda: "version"),
    # 123 N. Oak Blvd.
    ("A", r"(?<=[0-9]\s)([NSEW])\.(?=\s[A-Z0-9])", tables.DIRECTIONS.__getitem__),
    ("A", rf"(?<=[0-9]\s)([NSEW])(?=\s[A-Z][a-z]+\s(?:{_KIND})\b)", tables.DIRECTIONS.__getitem__),
    # 123 Main St. Springfield: behind a house number it is a street
    ("0A", rf"(?:(?<=[0-9]\s)|(?<=\b[NSEW]\s)|(?<=\b[NSEW]\.\s)){_STREET}\s({_KIND})\b{_POINT_OF_NAME}", _street),
    # on Main St. today, 42nd St, but not St. John or Dr. Smith
    (
        "0A",
        rf"\b{_STREET}\s({_KIND})(?:(?=\.(?!\s+[A-Z]))|(?=\.{_OPENER})|(?![\w.'’]|\s[A-Z])){_POINT_OF_NAME}",
        _street,
    ),
    # 5th Ave New York: these abbreviations have no other meaning
    ("0A", rf"\b{_STREET}\s(Ave|Rd|Blvd|Hwy|Pkwy)\b(?!['’]){_POINT_OF_NAME}", _street),
    # Boston, MA 02134; Austin, TX
    ("A", rf"\b({_STATE})(?=\s[0-9]{{5}}\b(?!,))", tables.STATES.__getitem__),
    ("0", rf"(?<=\b(?:DC|{_STATE})\s)([0-9]{{5}}(?:-[0-9]{{4}})?)(?![0-9]|,[0-9])", groups_of_digits),
    (
        "A",
        rf"(?<=,\s)(?!{any_of(tables.NOT_ALWAYS_STATES)})({_STATE})(?=\s*\Z|[,.;:)!?])",
        tables.STATES.__getitem__,
    ),
    # Prof. Smith, Mt. Everest, and without a point Dr Smith
    ("A", rf"\b({any_of(tables.TITLES)})\.(?=\s+[A-Z{{])", tables.TITLES.__getitem__),
    ("A", rf"\b({any_of(tables.TITLES_WITHOUT_POINT)})(?=\s[A-Z][a-z])", tables.TITLES_WITHOUT_POINT.__getitem__),
    # e.g., etc., Inc., Jan.; Sun. and Sat. only before a date, as they may be words
    ("a", rf"(?<![\w.])({any_of(tables.ABBREVIATIONS)})(?=\.(?!\.)){POINT}", tables.ABBREVIATIONS.__getitem__),
    ("Aa", rf"(?<![\w.])({any_of(tables.NEVER_LAST)})\.(?!\.)", tables.NEVER_LAST.__getitem__),
    ("A", rf"(?<![\w.])({any_of(tables.IN_NAMES)})(?=\.(?!\.)){_POINT_OF_NAME}", tables.IN_NAMES.__getitem__),
    ("A", rf"\b({any_of(tables.SHORT_MONTHS)})(?=\.){POINT}", month),
    ("A", rf"\b({any_of(tables.DAYS.keys() - {'Sat', 'Sun'})})(?=\.){POINT}", tables.DAYS.__getitem__),
    (
        "A",
        rf"\b(Sat|Sun)\.(?=,|\s(?:[0-9]|(?:{any_of(tables.SHORT_MONTHS)}|May|June|July)\b))",
        tables.DAYS.__getitem__,
    ),
    # Ali vs Frazier, Roe v. Wade
    ("a", r"\bvs\b\.?", lambda: "versus"),
    ("a", r"(?<=[a-z]\s)v\.(?=\s[A-Z])", lambda: "versus"),
    ("a", r"\betc\b", lambda: "et cetera"),
    ("a", r"\baka\b", lambda: "also known as"),
]

# --- initials ---

_NO_INITIALS = "MR|MRS|MS|DR|ST|MT|JR|SR|FT|LT|NTH|PSST|TSK|PFFT|S?HM+|SHH*|[BG]RR+|MM+|ZZ+"
_NOT_AFTER = "".join(rf"(?<!{word}\s)" for word in tables.BEFORE_LETTERS)


def _letters(word: str, ending: str | None = None) -> str:
    """Spell letter by letter: F B I, and C D's for CDs."""
    return " ".join(word) + ("'s" if ending else "")


_INITIALS: list[Rule] = [
    # U.S., J.R.R. Tolkien
    (
        "A",
        rf"(?<![A-Za-z.])((?:[A-Z]\.)+[A-Z])(?![A-Za-z]){_POINT_OF_NAME}",
        lambda word: _letters(word.replace(".", "")),
    ),
    # a.m., p.m. without a time
    ("a", rf"(?<![\w.])([ap])\.\s?m(?=\.){POINT}", lambda half: f"{half.upper()} M"),
    # AT&T, R&B
    (
        "A",
        r"\b([A-Z]{1,3})&([A-Z]{1,3})(['’]?s)?(?![A-Za-z])",
        lambda first, last, ending: f"{_letters(first)} and {_letters(last, ending)}",
    ),
    # Ph.D., LL.D., PhD, iOS, mRNA
    ("A", rf"\b(Ph|LL|Ed|Sc)\.\s?([BD])(?![A-Za-z]){_POINT_OF_NAME}", lambda *words: _letters("".join(words).upper())),
    ("A", r"\bPhD(s)?\b", lambda ending: _letters("PHD", ending)),
    ("a", r"\b(iOS|mRNA|tRNA)\b", lambda word: _letters(word.upper())),
]
# Not applied to texts in capitals, where any word may look like an initialism.
INITIALISMS: list[Rule] = [
    # George W. Bush, but not a sentence that ends in Plan B.
    ("A", rf"(?<![\w.'’])(?<![A-Z]\s){_NOT_AFTER}([A-HJ-Z])\.(?=\s[A-Z])(?!{_OPENER})", lambda letter: letter),
    ("A", r"(?<![A-Za-z.])OK(?![A-Za-z])", lambda: "okay"),
    ("A", r"(?<![A-Za-z.])WW(I{1,2})(?![A-Za-z])", lambda number: f"World War {cardinal(str(len(number)))}"),
    # CO2, PS5
    ("A", r"(?<![A-Za-z.])([A-Z]{2})(?=[0-9])", _letters),
    # FBI, FBI's, CDs
    (
        "A",
        rf"(?<![A-Za-z.])({any_of(tables.SPELLED_WORDS)}|(?!(?:{_NO_INITIALS})(?![A-Za-z]))[B-DF-HJ-NP-TV-XZ]{{2,6}})"
        r"(['’]?s)?(?![A-Za-z])",
        _letters,
    ),
]

# --- Roman numerals ---

_RULER = rf"(?:{any_of(tables.RULERS)}|(?:{any_of(tables.ROYAL_TITLES)})\s[A-Z][a-z]+)"
_COUNTED_NOUNS = [
    *tables.COUNTED_NOUNS,
    *(word.lower() for word in tables.COUNTED_NOUNS),
    *(f"{short}." for short in tables.BEFORE_NUMBER),
]
_CANONICAL = rf"(?=(?i:{ROMAN})(?![A-Za-z]))"
_PLACE = rf"(?:{_CANONICAL}(?:[IVXL]{{2,}}|[VX])|(?<=\b[Tt]he\s)I)"  # of centuries; elsewhere a single I is a word
_IN_ORDER = rf"(?i:{any_of(tables.IN_ORDER)})\b"


def _numbered_part(word: str, numeral: str, last: str | None = None) -> str:
    until = f" to {cardinal(str(roman(last)))}" if last else ""
    return f"{tables.BEFORE_NUMBER.get(word.rstrip('.'), word)} {cardinal(str(roman(numeral)))}{until}"


def _ordinal_range(first: str, last: str | None) -> str:
    until = f" to {ordinal(str(roman(last)))}" if last else ""
    return ordinal(str(roman(first))) + until


_ROMAN_NUMERALS: list[Rule] = [  # never a single I, which is a word
    # XIX century, XVIII Dynasty, VI-VII centuries, the XV and XVI centuries, XIXth
    (
        "A",
        rf"(?<![\w.'’])({_PLACE})(?:\s?[-–]\s?({_PLACE}))?"
        rf"(?=[\s-]{_IN_ORDER}|,?\s(?:and|or|to|through)\s(?:the\s)?{_PLACE}[\s-]{_IN_ORDER})",
        _ordinal_range,
    ),
    (
        "A",  # in small letters: LIST is a word
        rf"(?<![\w.'’])(?={ROMAN}(?:st|nd|rd|th)\b)([IVXL]{{2,}}|[VX])(?:st|nd|rd|th)(?!['’])",
        lambda numeral: ordinal(str(roman(numeral))),
    ),
    # Henry VIII, Henry V, but not the initial in Henry V. Smith
    (
        "A",
        rf"\b({_RULER})\s{_CANONICAL}([IVX]{{2,}}|[VX](?!\.?\s?[A-Z]))\b(?!\s[A-Z]\b)",
        lambda name, numeral: f"{name} the {ordinal(str(roman(numeral)))}",
    ),
    # World War II, Chapter XIV, pp. iv-vi
    (
        "Aa",
        rf"\b({any_of(_COUNTED_NOUNS)})\s{_CANONICAL}([IVXLC]{{2,}}|[ivxl]{{2,}})"
        rf"(?:[-–]{_CANONICAL}([IVXLC]+|[ivxl]+))?(?![\w'’])",
        _numbered_part,
    ),
    # Act V
    ("A", rf"\b({any_of(tables.NUMBERED_TO_TEN)})\s([VX])\b(?!\.\s?[A-Z]|['’]|\s[A-Z]\b)", _numbered_part),
    # II, VIII, XIV elsewhere: no word looks like these
    (
        "A",
        r"(?<![\w.'’])(X{0,3}VI{2,3}|X{0,3}I{2,3}|X{1,3}(?:IX|IV|VI?)|X{2,3}I)(?![\w'’])",
        lambda numeral: cardinal(str(roman(numeral))),
    ),
]

# --- signs ---

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
    (" -", r"(?<=\w)\s?/\s?(?=\w)", lambda: "slash"),
    # a <= b, a -> b
    ("-", r"<=", lambda: "less than or equal to"),
    ("-", r">=", lambda: "greater than or equal to"),
    ("-", r"-+>", lambda: "to"),
    ("-", r"!=", lambda: "is not equal to"),
    ("-", r"=+", lambda: "equals"),
    ("-", r"(?<=\s)<(?=\s)", lambda: "less than"),
    ("-", r"(?<=\s)>(?=\s)", lambda: "greater than"),
    # a * b; around words, as in *very*, it is left out
    (" ", r"(?<=\b\w)\s\*\s(?=\w\b)", lambda: "times"),
    ("-", r"(?<=\w\s)\*(?=\s\w)", lambda: "asterisk"),
    # C#, #topic
    ("-", r"(?<=\b[CF])#", lambda: "sharp"),
    ("-", r"#(?=[A-Za-z])", lambda: "hashtag"),
    # ~30
    ("-", r"~(?=\s?[$£€¥]?[0-9])", lambda: "about"),
    # names of files and variables
    ("-", r"(?<=\w)\\+|\\+(?=\w)", lambda: "backslash"),
    ("-", r"(?<=\w)_(?=\w)", lambda: "underscore"),
    (" -", r"\s?\|\s?", lambda: ", "),
    ("-", rf"([{re.escape(''.join(tables.SIGNS))}])", tables.SIGNS.__getitem__),
    # characters without a name and without a symbol
    ("-", r"[\"#*/<>\\^_`~®™\x00-\x08\x0e-\x1b\x7f]", lambda: ""),
]
WORDS = [*_ROMAN_NUMERALS, *_ABBREVIATIONS, *_INITIALS]
