"""Text to ids and back: indices in the table, braces, dropped characters, and the message for each mistake."""

import random

import pytest

from common.errors import DataError
from tacotron2.text import Alphabet, dropped_symbols, sequence_to_text, symbols, text_to_sequence

ENGLISH = ["english_cleaners"]


def test_ids_are_indices_in_the_table_and_a_dropped_character_leaves_its_spaces() -> None:
    # "a" follows the pad, the 11 punctuation marks and the 26 capitals.
    assert text_to_sequence("Cab, z.", ENGLISH) == [40, 38, 39, 6, 11, 63, 7]
    assert text_to_sequence("Cab", []) == [14, 38, 39]
    assert text_to_sequence("", ENGLISH) == []
    assert sequence_to_text(text_to_sequence('"100%", #5 & @home ~ _ ^', ENGLISH)) == "one hundred, five  home  _ "
    assert sequence_to_text(text_to_sequence("Mr. 5é", ["basic_cleaners"])) == "mr. "


def test_arpabet_stays_other_text_is_cleaned_and_empty_braces_add_no_ids() -> None:
    ids = text_to_sequence("Say 2 {HH AH0  L OW1}, Dr. {W ER1 L D}!", ENGLISH)
    hello, world = ("@HH", "@AH0", "@L", "@OW1"), ("@W", "@ER1", "@L", "@D")
    assert [symbols[i] for i in ids] == [*"say two ", *hello, *", doctor ", *world, "!"]
    assert sequence_to_text(text_to_sequence("One\ntwo {} {AH0} three{ }", ENGLISH)) == "one two  {AH0} three"


def test_sequences_become_text_and_survive_the_round_trip() -> None:
    names = ["H", "i", " ", "@HH", "@AH0", " ", "@B", "_"]
    assert sequence_to_text(symbols.index(name) for name in names) == "Hi {HH AH0} {B}_"
    assert text_to_sequence(sequence_to_text(range(148)), []) == list(range(148))
    rng = random.Random(0)
    for _ in range(200):
        ids = rng.choices(range(148), k=rng.randrange(30))
        assert text_to_sequence(sequence_to_text(ids), []) == ids


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("to {HH AW1 S", ["'{' at character 4 (near 'to {HH AW1 S') has no closing '}'"]),
        ("to HH} go", ["'}' at character 6 (near 'to HH} go') has no opening '{'"]),
        ("{HH {AW1} S}", ["'{' at character 1 ", "'}' at character 12 ", "braces do not nest"]),
        ("a {HH XX ow1}", ["'{HH XX ow1}' at character 3: no ARPAbet symbol 'XX', 'ow1'"]),
        ("} {AH9} {", ["'}' at character 1 ", "'{AH9}' at character 3: no ARPAbet symbol 'AH9'", "'{' at character 9"]),
        ("{HH,AH0}", ["no ARPAbet symbol 'HH,AH0'", "{HH AH0 L OW1}", "stress 0, 1, 2 or none AA AE", "Y Z ZH"]),
    ],
)
def test_one_error_names_all_bad_braces_with_their_positions(text: str, mistakes: list[str]) -> None:
    for function in (text_to_sequence, dropped_symbols):
        with pytest.raises(DataError) as caught:
            function(text, ENGLISH)
        message = str(caught.value)
        assert message.startswith("text: ")
        assert "\n" not in message
        for mistake in mistakes:
            assert mistake in message


def test_ids_outside_the_table_are_an_error() -> None:
    with pytest.raises(DataError, match=r"^symbol ids: got -1, 148, wanted 0 to 147$"):
        sequence_to_text([5, 148, -1, 148])
    with pytest.raises(DataError, match=r"^symbol ids: got 36, wanted 0 to 35$"):
        sequence_to_text([36], RUSSIAN)


def test_dropped_symbols_are_those_absent_from_the_sequence() -> None:
    assert dropped_symbols("Plain text, 5 of $5; naïve \u2018quote\u2019 {AH0}\n", ENGLISH) == []
    assert dropped_symbols('£5 — "5%" £', ENGLISH) == ["£", "—", '"', "%"]
    assert dropped_symbols("$5 and $x", ENGLISH) == ["$"]
    assert dropped_symbols("$5 é", ["basic_cleaners"]) == ["$", "5", "é"]


BASIC = ["basic_cleaners"]
RUSSIAN = Alphabet(("_", " ", ",", *"абвгдеёжзийклмнопрстуфхцчшщъыьэюя"))
MIXED = Alphabet(("_", "@B", "ä", "@", "@AA1", "b", " "))


def test_another_alphabet_has_its_ids_drops_other_characters_and_lists_its_arpabet() -> None:
    # "а" follows the pad, the space and the comma; "ё" is the seventh letter.
    assert text_to_sequence("Аб, ёя", BASIC, RUSSIAN) == [3, 4, 2, 1, 9, 35]
    assert sequence_to_text([3, 4, 2, 1, 9, 35], RUSSIAN) == "аб, ёя"
    assert text_to_sequence("bä@ {AA1 B} b", BASIC, MIXED) == [5, 2, 3, 6, 4, 1, 6, 5]
    assert sequence_to_text([5, 2, 3, 6, 4, 1, 6, 5, 3, 4], MIXED) == "bä@ {AA1 B} b@{AA1}"
    assert text_to_sequence("a б! c", BASIC, RUSSIAN) == [1, 4, 1]
    assert dropped_symbols("a б! 5 є", BASIC, RUSSIAN) == ["a", "!", "5", "є"]
    assert dropped_symbols("b Ä {AA1} c", BASIC, MIXED) == ["c"]
    with pytest.raises(DataError, match=r"no ARPAbet symbol 'HH'; .* as in \{HH AH0 L OW1\}, from AA1 B$"):
        text_to_sequence("b {HH B}", BASIC, MIXED)
