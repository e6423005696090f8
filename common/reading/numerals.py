"""Rules of reader.py for Roman numerals, and for the books of the Bible, which they number."""

from __future__ import annotations

from common.reading import tables
from common.reading.initials import initials
from common.reading.numbers import ROMAN, cardinal, ordinal, roman
from common.reading.patterns import Rule, any_of

_RULERS = any_of([*tables.RULERS, *map(str.upper, tables.RULERS)])
_TITLES = any_of([*tables.ROYAL_TITLES, *map(str.upper, tables.ROYAL_TITLES)])
_RULER = rf"(?:{_RULERS}|(?:{_TITLES})(?:\s[A-Z][A-Za-z]+){{1,3}})"
_FAMILY = rf"(?:{any_of([*tables.GIVEN_NAMES, *tables.RULERS])})(?:\s[A-Z]\.|\s[A-Z][a-z]+)?\s[A-Z][a-z]+"
_COUNTED_NOUNS = [
    *tables.COUNTED_NOUNS,
    *(word.lower() for word in tables.COUNTED_NOUNS),
    *(word.upper() for word in tables.COUNTED_NOUNS),
    *(f"{short}." for short in tables.BEFORE_NUMBER),
]
_NUMBERED_BOOKS = "Corinthians|Thessalonians|Chronicles|Maccabees|Esdras"
_CANONICAL = rf"(?=(?i:{ROMAN})(?![A-Za-z]))"
# The place of a century, or of a book; elsewhere a single I is a word.
_PLACE = rf"(?:{_CANONICAL}(?:[IVXL]{{2,}}|[VX])|(?<=\b[Tt]he\s)I|I(?=\s(?:{_NUMBERED_BOOKS})))"
_IN_ORDER = rf"(?i:{any_of(tables.IN_ORDER)})\b"


def _numbered_part(word: str, numeral: str, last: str | None = None) -> str:
    until = f" to {cardinal(str(roman(last)))}" if last else ""
    return f"{initials(tables.BEFORE_NUMBER.get(word.rstrip('.'), word))} {cardinal(str(roman(numeral)))}{until}"


def _ordinal_range(first: str, last: str | None) -> str:
    until = f" to {ordinal(str(roman(last)))}" if last else ""
    return ordinal(str(roman(first))) + until


def _ruler(name: str, numeral: str) -> str:
    return f"{name.replace('.', '')} the {ordinal(str(roman(numeral)))}"


# A single I is a word, unless its neighbours show that it is a number.
_NO_VERB = rf"(?!\s(?:{any_of(tables.AFTER_PRONOUN)})\b|['’](?!s\b))"
_AFTER_PRONOUN = rf"{_NO_VERB}(?!\s(?:{any_of(tables.ADVERBS)})\b)"
_NO_INITIAL = rf"(?!\.\s+(?!(?i:{any_of(tables.OPENERS)})\b)[A-Z])"  # Robert I. Smith
_END = r"(?=\s*\Z|['’]s\b|[.,;:!?)\]\"”–—-])"
_AFTER_FIRST = rf"(?:{_END}|(?=\s(?:{any_of(tables.AFTER_FIRST)}|\(|—|–|[a-z]+ed)\b)|(?=\s[(—–]))"
_PARTS = any_of(
    [*tables.NUMBERED_TO_TEN, *map(str.upper, tables.NUMBERED_TO_TEN), "Section", "SECTION", "Appendix", "APPENDIX"]
)
_KINDS = any_of(
    [
        "Type",
        "Phase",
        "Class",
        "Grade",
        "Stage",
        "Level",
        "Category",
        "Schedule",
        "Title",
        "Division",
        "Mark",
        "Figure",
        "Table",
        "Bowl",
        "Apollo",
        "Exhibit",
    ]
)
_SMALL_KINDS = "phase|type|class|grade|stage|level|category|schedule"
_KINDS_OF = (
    "trial|trials|study|studies|clinical|error|errors|diabetes|diabetic|diabetics|cancer|tumor|tumors|collagen|interferon|trauma"
    "|hypersensitivity|supernova|supernovae|superconductor|drug|drugs|offense|felony|civilization|disease|patients|region|railroad"
)
_CHAPTER = any_of(
    [
        "Chapter",
        "CHAPTER",
        "Volume",
        "VOLUME",
        "Canto",
        "War",
        "WAR",
        "Vol",
        "VOL",
        "Vol.",
        "VOL.",
        "Ch.",
        "Fig.",
        "Sec.",
        "Art.",
        "Pt.",
    ]
)

_ROMAN_NUMERALS: list[Rule] = [
    # XIX century, XVIII Dynasty, VI-VII centuries, the XV and XVI centuries, II Corinthians, XIXth
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
    # Henry VIII, Henry V, but not the initial in Henry V. Smith; John D. Rockefeller III
    (
        "r",
        rf"\b(?!Malcolm\sX\b)({_RULER})\s{_CANONICAL}([IVX]{{2,}}|[VX](?!\.?\s?[A-Z])|(?<=[A-Z]{{2}}\s)[VX](?=\s[A-Z]{{2}}))\b(?!\s[A-Z]\b)",
        _ruler,
    ),
    ("r", rf"\b((?:{_RULERS})\sthe)\s([IVX]{{2,}})\b", lambda name, numeral: f"{name} {ordinal(str(roman(numeral)))}"),
    ("r", rf"\b({_FAMILY}),?\s(II|III|IV)\b", _ruler),
    # Charles I of England, Queen Elizabeth I, but not "Charles I think"
    ("r", rf"\b((?:{_TITLES})\s[A-Z][A-Za-z]+(?:\s[A-Z][A-Za-z]+){{0,2}})\s(I)\b{_NO_VERB}", _ruler),
    ("r", rf"\b({_RULERS})\s(I)\b{_NO_INITIAL}{_AFTER_PRONOUN}{_AFTER_FIRST}", _ruler),
    # World War II, Chapter XIV, pp. iv-vi
    (
        "r",
        rf"\b({any_of(_COUNTED_NOUNS)})\s{_CANONICAL}([IVXLC]{{2,}}|[ivxl]{{2,}})"
        rf"(?:[-–]{_CANONICAL}([IVXLC]+|[ivxl]+))?(?![\w'’])",
        _numbered_part,
    ),
    # Act V
    ("r", rf"\b({_PARTS})\s([VX])\b{_NO_INITIAL}(?!['’]|\s[A-Z]\b)", _numbered_part),
    # Chapter I, World War I, Part I of it; a phase I trial; I and II; but not "the part I like"
    ("r", rf"\b({_CHAPTER})\s(I)\b(?!['’](?!s))", _numbered_part),
    ("r", rf"\b({_PARTS}|{_KINDS})\s(I)\b{_AFTER_PRONOUN}", _numbered_part),
    ("r", rf"\b({_SMALL_KINDS})\s(I)(?=\s(?:{_KINDS_OF})\b|[-–]|\s(?:and|or|to)\s(?:II|V|X))", _numbered_part),
    (
        "A",
        r"(?<!\b[A-Z]\s)\b(I)(?=\s?(?:[-–]|,|and|or|to|through|of|&)\s?(?:II+|IV|VI{0,3}|IX)\b)",
        lambda numeral: cardinal("1"),
    ),
    # Halo IV, Page I of II, but not "An IV drip"
    (
        "r",
        rf"\b((?!(?i:{any_of(tables.OPENERS)})\b)[A-Z]\w+)\s(IV|VI|IX|XI|XX)\b(?!['’](?!s)|[.&-][A-Z])",
        _numbered_part,
    ),
    # II, VIII, XIV elsewhere: no word looks like these
    (
        "A",
        r"(?<![\w.'’])(X{0,3}VI{2,3}|X{0,3}I{2,3}|X{1,3}(?:IX|IV|VI?)|X{2,3}I)(?![\w'’])",
        lambda numeral: cardinal(str(roman(numeral))),
    ),
]

# --- the Bible ---

_BOOK = any_of([*(f"{short}." for short in tables.BIBLE), *tables.BIBLE, *tables.BOOKS, "Jn", "Mk", "Lk"])
_SHORT_BOOKS = "Sam|Kgs|Chr|Chron|Cor|Thess|Tim|Pet|Jn|Macc"


def _verses(number: str | None, book: str, chapter: str, verse: str | None, other: str | None, last: str | None) -> str:
    """Chapter and verse: Micah 6:6-8, 1 Cor. 13:4, Gen. 1:1-2:3."""
    name = tables.BIBLE.get(book.rstrip("."), book)
    which = f"{ordinal(number if number.isdigit() else str(len(number)))} " if number else ""
    until = f" to {cardinal(other) + ' ' if other else ''}{cardinal(last)}" if last else ""
    return f"{which}{name} {cardinal(chapter)}{' ' + cardinal(verse) if verse else ''}{until}"


_BIBLE: list[Rule] = [
    (
        "0rn",
        rf"(?<![\w.])(?:([123]|I{{1,3}})\s)?({_BOOK})\s([0-9]{{1,3}}):([1-9][0-9]{{0,2}})(?:[-–](?:([0-9]{{1,3}}):)?([0-9]{{1,3}}))?(?![\w:]|[-–.,][0-9])",
        _verses,
    ),
    ("0r", rf"(?<![\w.])([123]|I{{1,3}})\s({_SHORT_BOOKS})\.?\s([0-9]{{1,3}})()()()(?![\w:]|[-–.,][0-9])", _verses),
    ("0", rf"([123])(?=\s(?:{_NUMBERED_BOOKS}|(?:Samuel|Kings|Timothy|Peter|John)\s[0-9])\b)", ordinal),
    ("A", r"\b(I{2,3})(?=\s(?:Samuel|Kings|Timothy|Peter|John)\b)", lambda numeral: ordinal(str(len(numeral)))),
]
NUMERALS = [*_BIBLE, *_ROMAN_NUMERALS]
