"""The word lists of the reader, from words.tsv: a class, a word and, where it has one, its reading on each line.

Classes of abbreviations end in the places where these are read in full:

- T before a name, with a point (the cleaner handles Mr., Dr., Gen. and others as in the training data); t without one too
- N before a number, with a point; n there without a point too; Y before a year
- L anywhere, with a point, and never at the end of a sentence; A anywhere, with a point, perhaps at the end; C likewise in names
- S behind the name of a street; s there where another street or a place may follow without a comma
"""

from __future__ import annotations

from pathlib import Path

_ROWS = [
    (*line.split("\t"), "")[:3]
    for line in Path(__file__).with_name("words.tsv").read_text(encoding="utf-8").splitlines()
]
_SHORT = "short form "


def words(kind: str) -> tuple[str, ...]:
    """The words of a class."""
    return tuple(word for own, word, _ in _ROWS if own == kind)


def readings(kind: str) -> dict[str, str]:
    """The words of a class and their readings."""
    return {word: reading for own, word, reading in _ROWS if own == kind}


def _short_forms(place: str, capitalised: bool = False) -> dict[str, str]:
    """Abbreviations of a place with their readings; `capitalised` as in names."""
    table = {word: full for kind, word, full in _ROWS if kind.startswith(_SHORT) and place in kind[len(_SHORT) :]}
    return {_capital(short): _capital(full) for short, full in table.items()} if capitalised else table


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _add_capitalised(table: dict[str, str]) -> dict[str, str]:
    """Add each entry as it is written at the start of a sentence and in capitals."""
    return {
        **{name.upper(): full for name, full in table.items() if name.isalpha() and len(name) > 1},
        **{_capital(name): _capital(full) for name, full in table.items() if len(name) > 1},
        **table,
    }


# Abbreviations by their place.
TITLES = _short_forms("T")
TITLES_WITHOUT_POINT = _short_forms("t")
BEFORE_NUMBER = _add_capitalised(_short_forms("N"))
NUMBER_WITHOUT_POINT = _add_capitalised(_short_forms("n"))
BEFORE_YEAR = {**_short_forms("Y"), "Est": "Established"}
NEVER_LAST = {name: full for name, full in _add_capitalised(_short_forms("L")).items() if not name.isupper()}
ABBREVIATIONS = _short_forms("A")
STREETS = _short_forms("S", capitalised=True)
STREETS_ANYWHERE = _short_forms("s", capitalised=True)

# Units have a singular name; the plural follows a slash where it is irregular. Some are also words: "s" needs a space before it,
# "W" no street behind it, "in" a point or a direction. The codes of currencies, before or behind an amount, have the form of units.
CODES = readings("currency")
_UNITS = {**readings("unit"), **CODES, **readings("currency behind")}
UNITS = {
    symbol: (one, many or one + "s") for symbol, (one, _, many) in ((s, n.partition("/")) for s, n in _UNITS.items())
}
WORDS_AND_UNITS = frozenset({"s", "W", "in", "A", "T"})
# The name of a currency by its sign; coins follow where prices have them.
SIGNED = {sign: tuple(names.split("/")) for sign, names in readings("sign of money").items()}

# Words around numbers: 1.2m views, 3/5 cup, 37/100 files, step 3/5.
MANY, MEASURES = words("counted in millions"), words("measure")
COUNTED, COUNTING = words("counted"), words("counting")

DAYS, SHORT_MONTHS = readings("day"), words("short month")
DIRECTIONS, STATES, OLD_STATES = readings("direction"), readings("state"), readings("old state")
IN_NAMES = {
    **_short_forms("C", capitalised=True),
    **{name: OLD_STATES[name] for name in words("old state without another meaning")},
}
# States only before a zip code: elsewhere these are words, names or degrees.
NOT_ALWAYS_STATES = words("not always a state")
OPENERS = words("opener")  # of sentences: they separate "in the U.S. He" from "the U.S. Army"
NOT_STREET_NAMES = words("no street")
BEFORE_LETTERS = words("before a letter")  # ends of words before a letter that is no initial: Vitamin C, Plan B

# Names and words around Roman numerals. After NUMBERED_TO_TEN a single V or X is a number too.
RULERS, GIVEN_NAMES, ROYAL_TITLES = words("ruler"), words("given name"), words("royal title")
AFTER_FIRST = words("after the first")  # behind "Charles I": here the numeral is meant
AFTER_PRONOUN, ADVERBS = words("after I"), words("adverb after I")  # the part I like
NUMBERED_TO_TEN, IN_ORDER = words("numbered to ten"), words("in order")
COUNTED_NOUNS = (*NUMBERED_TO_TEN, *words("numbered"))
BIBLE = readings("bible")
BOOKS = frozenset([*BIBLE.values(), *words("book")])

# Endings that mark a name as an address or a file; the second kind only with a path or behind another point.
ENDINGS, ENDINGS_AND_WORDS = words("ending"), words("ending and word")
SPELLED_IN_ADDRESSES, SIGNS_IN_ADDRESSES = words("spelled in an address"), readings("sign in an address")
SIGNS = {**readings("sign"), **{sign: names[0] for sign, names in SIGNED.items() if len(sign) == 1}}
GREEK, WITH_SLASH = readings("greek"), readings("with a slash")
IPA_VOWELS, IPA_CONSONANTS = readings("IPA vowel"), readings("IPA consonant")  # as ARPAbet
