"""Reading aloud: a table written by hand, texts that must not change, and forms that must be read alike."""

import datetime
import importlib
import itertools
import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from common.data.filelist import read_filelist
from common.errors import DataError
from common.reading.formulas import find_formulas
from common.reading.reader import RULES, load_english, read_english, scanner
from common.reading.segments import replace
from tacotron2.data_function import unspoken
from tacotron2.text import BUILT_IN
from tacotron2.text.cleaners import english_cleaners
from tacotron2.text.markup import read_form

ROOT = Path(__file__).resolve().parents[3]
# written<TAB>spoken; lines without a tab are headings.
_LINES = Path(__file__).with_name("reading_cases.tsv").read_text(encoding="utf-8").splitlines()
CASES = [tuple(line.split("\t")) for line in _LINES if "\t" in line]
PLAIN = [row.text for path in sorted(ROOT.glob("filelists/*_audio_*.txt")) for row in read_filelist(path)]
KINDS = ("notation", "text", "capitals")
MODULES = [f"common.reading.{path.stem}" for path in sorted(RULES.parent.glob("[a-z]*.py"))]
SIGNS = "".join(map(chr, [*range(32, 127), *range(160, 256)])) + "–—‘’“”…€₹£⅓²⁶₂µ°℃′″×÷−→№ＡＢ１＆"


def test_written_text_becomes_the_spoken_text_of_the_table() -> None:
    assert len(CASES) > 950
    assert [(written, read_english(written)) for written, _ in CASES] == CASES
    assert [(written, read_english(spoken)) for written, spoken in CASES] == CASES
    assert [spoken for _, spoken in CASES if not is_pronounceable(spoken)] == []


def test_every_rule_decides_a_case() -> None:
    """A rule that decides none can be deleted: no text is known that needs it."""
    kinds = [scanner(kind) for kind in KINDS]
    texts = [replace(case, find_formulas(case), {})[0] for case, _ in CASES]
    deciding = {rule.pattern for kind in kinds for text in texts for rule, _ in kind.find(text)}
    rules = itertools.chain.from_iterable(load_english().sections.values())
    assert [rule.pattern for rule in rules if rule.pattern not in deciding] == []


def is_pronounceable(text: str) -> bool:
    """True if cleaned text contains no digit and only characters with a symbol, or signs for the list of what is left out."""
    cleaned = english_cleaners(re.sub(r"\{[^{}]*\}|[]<>#*/\\^`~=+|]", "", text))
    return all(character in BUILT_IN.character_ids and not character.isdigit() for character in cleaned)


def test_texts_of_the_embedded_clips_stay_unchanged() -> None:
    """Their recordings follow the cleaner, so reading their numbers, prices and titles must give the same words."""
    without_numbers = [text for text in PLAIN if not re.search(r"[0-9]", text)]
    assert len(PLAIN) > 450 and len(without_numbers) > 400
    assert [text for text in without_numbers if read_english(text) != text] == []
    assert [text for text in PLAIN if english_cleaners(read_english(text)) != english_cleaners(text)] == []


def test_a_long_text_is_read_like_its_sentences() -> None:
    """Rules depend on neighbouring words, but never across the end of a sentence."""
    pairs = [(f"So {written} it is.", f"So {spoken} it is.") for written, spoken in CASES if written[-1] not in ".!?"]
    # without the cases that depend on neighbouring words
    sentences = [pair for pair in pairs if read_english(pair[0]) == pair[1]]
    assert len(sentences) > 300
    text = " ".join(written for written, _ in sentences)
    assert read_english(text) == " ".join(spoken for _, spoken in sentences)


@pytest.mark.slow
def test_random_texts_are_pronounceable() -> None:
    """Random combinations of snippets of the table, signs and Unicode characters. Braces are left out: they hold ARPAbet here."""
    draw = random.Random(0)
    snippets = [part for written, _ in CASES for part in [written, *re.findall(r"\s|\w+|[^\w\s]", written)]]
    anything = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000][::7]
    texts = []
    for _ in range(300):
        texts.append("".join(draw.choice(snippets) + draw.choice(["", "", " ", "-", ". "]) for _ in range(6)))
        texts.append("".join(draw.choices(SIGNS, k=20)))
        texts.append("".join(draw.choices("ABIVXLCDMSTUF .,-/'&15s\"", k=20)))
        texts.append("".join(draw.choices(anything, k=20)))
    texts = [re.sub("[{}]", "", text) for text in texts]
    assert [text for text in texts if not is_pronounceable(read_english(text))] == []


@pytest.mark.slow
def test_reading_the_reading_changes_nothing_but_spaces() -> None:
    """Texts joined as people join them, from the first cases, so that a new case draws no others.

    About one text in a thousand is of the exception that read_english names; none of this seed.
    """
    draw = random.Random(54)
    whole = [written for written, _ in CASES[:1000] if "{" not in written]
    tokens = [token for written in whole for token in written.split()]
    texts = []
    for _ in range(500):
        first, second = draw.choice(whole), draw.choice(whole)
        texts.append(" ".join(draw.choices(tokens, k=8)))
        texts.append(f"{first}{draw.choice([', ', ' and ', '; ', '. ', ' (', ': '])}{second}")
        texts.append(f"{draw.choice('(“')}{first}{draw.choice(')”')}{draw.choice([',', '.', ''])} {second}")
    once = [read_english(text) for text in texts]
    twice = [read_english(text) for text in once]
    assert [(a, b) for a, b in zip(once, twice, strict=True) if "".join(a.split()) != "".join(b.split())] == []


PARTS = '1|1,|1.|1-|½|$1|111,|A.|"A.|—|(|{|a@|http://|Inc. '


@pytest.mark.parametrize("part", PARTS.split("|"))
def test_long_repetitions_are_converted_completely(part: str) -> None:
    once = read_english(part * 1000)
    again, words = ([c for c in text.lower() if "a" <= c <= "z"] for text in (read_english(once), once))
    assert again == words and not any(map(str.isdigit, once))


def test_braces_stay_unchanged() -> None:
    braced = "{HH AH0 L OW1}"
    assert read_english(braced) == braced
    assert read_english(f"5{braced}5 Dr. {braced} 1/2") == f"five{braced}five Dr. {braced} one half"
    for broken in ("{", "}", "5 } 6", "{5 {6}"):
        assert re.sub("[^{}]", "", read_english(broken)) == re.sub("[^{}]", "", broken)


_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
VALUES = {word: value for value, word in enumerate(_ONES + _TEENS)} | {word: 10 * i for i, word in enumerate(_TENS, 2)}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9}


def value(words: str) -> int:
    total = group = 0
    for word in re.findall("[a-z]+", words):
        if word in SCALES:
            total, group = total + group * SCALES[word], 0
        else:
            group = group * 100 if word == "hundred" else group + VALUES[word]
    return total + group


def test_numbers_read_back_to_their_value() -> None:
    numbers = [*range(1100), *range(1000, 10**6, 9973), *range(10**6, 10**9, 37**5)]
    assert [value(read_english(f"{number:,}")) for number in numbers] == numbers


def test_years_read_back_as_two_pairs() -> None:
    for year in range(1100, 2100):
        if 2000 <= year < 2010:
            assert value(read_english(str(year))) == year
        elif year % 100 == 0:
            assert read_english(str(year)) == f"{read_english(str(year // 100))} hundred"
        else:
            century, rest = read_english(str(year // 100)), read_english(str(year % 100))
            assert read_english(str(year)) == f"{century} {'oh ' if year % 100 < 10 else ''}{rest}"


def test_dates_are_read_alike_in_all_forms() -> None:
    """Names come from the calendar module and ordinals from the table: "July 4" is read like "the 4th"."""
    forms = ["%Y-%m-%d", "%m/%d/%Y", "%b %d, %Y", "%b. %d, %Y", "%B %dth, %Y", "%m-%d-%Y", "%d.%m.%Y", "%Y/%m/%d"]
    for form, days in itertools.product(forms, range(0, 366, 5)):
        date = datetime.date(2003, 1, 1) + datetime.timedelta(days)
        ordinal = read_english(f"{date.day}th")
        assert read_english(date.strftime(form)) == f"{date:%B} {ordinal}, {read_english(str(date.year))}"


def test_every_minute_of_a_day() -> None:
    for minutes in range(24 * 60):
        hour, minute = divmod(minutes, 60)
        spoken = read_english(f"{hour}:{minute:02}")
        rest = f"{'oh ' if minute < 10 else ''}{read_english(str(minute))}"
        full = "hundred" if hour > 12 else "o'clock"
        assert spoken == (f"{read_english(str(hour))} {rest if minute else full}" if minutes else "midnight")


def roman(number: int) -> str:
    numeral = ""
    for letters, worth in zip(["XC", "L", "XL", "X", "IX", "V", "IV", "I"], (90, 50, 40, 10, 9, 5, 4, 1)):
        numeral, number = numeral + letters * (number // worth), number % worth
    return numeral


def test_roman_numerals() -> None:
    assert [roman(n) for n in (4, 49, 88, 99)] == ["IV", "XLIX", "LXXXVIII", "XCIX"]
    for number in range(2, 100):
        if number != 50:  # Chapter L is a letter
            assert read_english(f"Chapter {roman(number)} of it") == f"Chapter {read_english(str(number))} of it"
    for number in range(2, 40):
        assert read_english(f"King Olaf {roman(number)}'s") == f"King Olaf the {read_english(f'{number}th')}'s"


def test_contributing_shows_lines_of_the_files_and_their_readings() -> None:
    blocks = [line[4:] for line in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines() if "\t" in line]
    files = [(RULES.with_name(name)).read_text(encoding="utf-8").splitlines() for name in ("words.tsv", "rules.tsv")]
    word, word_case, form, form_case = blocks
    assert word in files[0] and form in files[1]
    assert [read_english(case.split("\t")[0]) for case in (word_case, form_case)] == [
        case.split("\t")[1] for case in (word_case, form_case)
    ]


@pytest.mark.parametrize(
    ("line", "place", "problem"),
    [
        ("0\t[0-9]", 1, "got 2 columns"),
        ("0Z\t[0-9]\tx", 2, "got 'Z', expected places from 0"),
        ("0\t[0-9]{NOTHING}\tx", 9, "got 'NOTHING', expected a name"),
        ("0\t[0-9]{many:unit}\tx", 9, "got 'many', expected any"),
        ("0\t[0-9]{any:unity}\tx", 13, "got 'unity', expected a class"),
        ("0\t([0-9])\t{2}", 12, "got '2', expected a group from 1 to 1"),
        ("0\t([0-9])\t{1:cardinals}", 14, "got 'cardinals', expected a speaker"),
        ("0\t([0-9])([0-9])\t{:cardinal}", 18, "cardinal: too many"),
        ("0\t([0-9])\tx {1", 13, "expected {1}, {1:speaker}"),
        ("0\t{UNIT}([0-9]\tx", 9, "expected a regular expression: missing )"),
        ("=\tODD\t{UNIT}[0-9\t", 13, "expected a regular expression: unterminated character set"),
    ],
)
def test_a_mistake_in_a_rule_is_named_with_its_line_and_column(tmp_path, line: str, place: int, problem: str) -> None:
    path = tmp_path / "rules.tsv"
    lines = RULES.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, line]), encoding="utf-8")
    with pytest.raises(DataError) as error:
        load_english(path, compiles=True)
    assert str(error.value).startswith(f"{path}:{len(lines) + 1}:{place}: {problem}")


def test_the_order_of_the_file_is_the_order_of_trial() -> None:
    order = [rule.pattern for rules in load_english().sections.values() for rule in rules]
    for place in "0w_-":
        trials = [order.index(rule.pattern) for rule in scanner("text").compile(place)[1]]
        assert len(trials) > 5 and trials == sorted(trials)


NAMED = "!#$%&()*+,-./:;<=>?@[\\]^_|~`–—…•·×÷±−≈≠≤≥°§¶†‡©®™€£¥¢₹½→←↔⇒√∞∑∫∂∆♯♭♥★✓№‰"
_NEIGHBOURS = [
    "the",
    "key",
    "press",
    "or",
    "and",
    "for",
    "house",
    "x",
    "y",
    "b",
    "at",
    "Anna",
    "Oak",
    "FBI",
    "3",
    "12",
    "250",
    "1999",
    "2.5",
]


def _sounds(text: str) -> tuple[str, int]:
    """The letters of a reading, and the number of its pauses."""
    spoken = english_cleaners(read_english(text))
    return re.sub("[^a-z]", "", spoken), sum(map(spoken.count, ",.;:!?()-"))


def test_no_sign_between_words_vanishes_in_silence() -> None:
    """It is spoken, is punctuation that makes a pause, or is listed as left out."""
    draw, lost = random.Random(0), []
    for sign in NAMED * 12:
        before, after, end = draw.choices(_NEIGHBOURS, k=3)
        text = f"go {before}{draw.choice(['', ' '])}{sign}{draw.choice(['', ' '])}{after} to {end}"
        (letters, pauses), (plain, fewer) = _sounds(text), _sounds(f"go {before} {after} to {end}")
        if letters == plain and pauses <= fewer and sign not in unspoken(text, {}):
            lost.append(text)
    assert lost == []


_UNITS = "~ ` ~~~a% ```% a_ A. a- 1, 1_+_ (a_+_ a_-_ x^ $ frac{ [a]( <a_ =_ \\( a@ 1/ . [pause:".replace(
    "%", "\n"
).split(" ")


def is_linear(work: Callable[[str], object], unit: str) -> bool:
    """True if eight times the text takes about eight times as long, not sixty-four times; the bound is between them."""

    def seconds(length: int) -> float:
        start = time.process_time()
        work((unit.replace("_", " ") * length)[:length])
        return time.process_time() - start

    return any(seconds(8000) < 24 * seconds(1000) + 0.02 for _ in range(3))


@pytest.mark.parametrize("unit", _UNITS)
def test_reading_takes_linear_time(unit: str) -> None:
    read_form(read_english(unit), BUILT_IN)
    assert is_linear(lambda text: (read_form(read_english(text), BUILT_IN), read_form(text, BUILT_IN)), unit)


@pytest.mark.slow
def test_each_pattern_of_the_rules_takes_linear_time() -> None:
    """On repetitions of what it matches in the table of cases, whole and without its end."""
    slow = []
    found = {rule.pattern: match[0] for kind in KINDS for text, _ in CASES for rule, match in scanner(kind).find(text)}
    for pattern, text in found.items():
        compiled = re.compile(pattern)
        for unit in (text, text[:-1] or text, f"{text} ", text[0]):
            if not is_linear(lambda repeated, compiled=compiled: list(compiled.finditer(repeated)), unit):
                slow.append((unit, pattern))
    assert len(found) > 150 and slow == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [*MODULES, "tacotron2.text.markup", "tacotron2.text.sentences", "tacotron2.text.elements"]
)
def test_each_pattern_of_the_modules_takes_linear_time(name: str) -> None:
    patterns = [value for value in vars(importlib.import_module(name)).values() if isinstance(value, re.Pattern)]
    assert [
        (unit, pattern.pattern)
        for pattern in patterns
        for unit in _UNITS
        if not is_linear(lambda text, pattern=pattern: list(pattern.finditer(text)), unit)
    ] == []


def test_abbreviations_are_one_table() -> None:
    kinds = ["short form" in line for line in RULES.with_name("words.tsv").read_text(encoding="utf-8").splitlines()]
    assert sum(kinds) >= 300 and sum(a != b for a, b in itertools.pairwise(kinds)) == 1
