"""The symbol table against the order that published checkpoints' embeddings follow, written out by hand.

Files of symbols: their content, and the message for each mistake, with file and line.
"""

from pathlib import Path

import pytest

from common.errors import DataError
from tacotron2.text import BUILT_IN, Alphabet, alphabet_of, read_symbols, symbols
from tacotron2.text.alphabet import symbols_file

ARPABET = (
    "AA AA0 AA1 AA2 AE AE0 AE1 AE2 AH AH0 AH1 AH2 AO AO0 AO1 AO2 AW AW0 AW1 AW2 AY AY0 AY1 AY2 B CH D DH "
    "EH EH0 EH1 EH2 ER ER0 ER1 ER2 EY EY0 EY1 EY2 F G HH IH IH0 IH1 IH2 IY IY0 IY1 IY2 JH K L M N NG "
    "OW OW0 OW1 OW2 OY OY0 OY1 OY2 P R S SH T TH UH UH0 UH1 UH2 UW UW0 UW1 UW2 V W Y Z ZH"
)


def test_the_built_in_alphabet_is_the_published_table_and_others_have_their_own_ids() -> None:
    assert "".join(symbols[:64]) == "_-!'(),.:;? ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
    assert symbols[64:] == ["@" + phone for phone in ARPABET.split(" ")]
    assert len(symbols) == len(set(symbols)) == 148
    assert alphabet_of(None) is BUILT_IN
    assert list(BUILT_IN.symbols) == symbols
    assert BUILT_IN.character_ids == {symbol: i for i, symbol in enumerate(symbols[:64])}
    assert BUILT_IN.phone_ids == {phone: i for i, phone in enumerate(ARPABET.split(" "), 64)}
    alphabet = alphabet_of(["#", "@B", "ж", "@", "@AA1", " "])
    assert alphabet == Alphabet(("#", "@B", "ж", "@", "@AA1", " "))
    assert alphabet.character_ids == {"#": 0, "ж": 2, "@": 3, " ": 5}
    assert alphabet.phone_ids == {"B": 1, "AA1": 4}
    assert alphabet_of(["_", "@"]).phone_ids == {}


def write_symbols(folder: Path, content: bytes | str) -> Path:
    path = folder / "symbols.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_each_line_is_a_symbol(tmp_path: Path, mark: str, end: str) -> None:
    expected = ["_", " ", ",", "а", "ё", "ß", "@", "@AA1", "@B", "\u2028", "\x0c", "\x85", "中", "😀"]
    path = write_symbols(tmp_path, mark + (end or "\n").join(expected) + end)
    assert read_symbols(path) == symbols_file(str(path)) == expected


def test_one_error_lists_all_mistakes(tmp_path: Path) -> None:
    content = "_\na\n\nab\na\n@AA9\n@aa1\n{\n й\nи\u0306\n".encode() + b"\xe4\n" + b"x \n" + b"b\r\n\r\n"
    path = write_symbols(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_symbols(path)
    one = "characters, expected one, or @ and ARPAbet as in @AA1"
    assert str(caught.value).splitlines() == [
        f"{path}:3: empty line, expected a symbol; the space is a line of one space",
        f"{path}:4: 'ab' has 2 {one}",
        f"{path}:5: 'a' is in line 2 already, expected every symbol once",
        f"{path}:6: '@AA9' has 4 {one}",
        f"{path}:7: '@aa1' has 4 {one}",
        f"{path}:8: '{{' encloses ARPAbet in texts, expected another symbol",
        f"{path}:9: ' й' has 2 {one}",
        f"{path}:10: 'и\u0306' has 2 {one}; 'й' is one if written as U+0439",
        f"{path}:11: byte 0xe4 at column 1 is not UTF-8; expected a UTF-8 text file with one symbol a line, "
        "the first of them the padding",
        f"{path}:12: 'x ' has 2 {one}",
        f"{path}:14: empty line, expected a symbol; the space is a line of one space",
    ]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("ab", "1: 'ab' has 2 characters, expected one, or @ and ARPAbet as in @AA1; 1 line, expected at least 2"),
        ("", "1: empty line, expected a symbol; the space is a line of one space; 1 line, expected at least 2"),
        ("_\ra\rb\r", "1: '_\\ra\\rb\\r' has 6 characters"),  # old Macs' ends of lines are none here
        ("_\n" + "x" * 1000, "2: '" + "x" * 40 + "' … has 1000 characters, expected one"),
    ],
    ids=["a word", "empty", "carriage returns", "another kind of file"],
)
def test_a_file_without_an_alphabet_is_an_error(tmp_path: Path, content: str, problem: str) -> None:
    path = write_symbols(tmp_path, content)
    with pytest.raises(DataError) as caught:
        read_symbols(path)
    assert str(caught.value).startswith(f"{path}:{problem}")


def test_a_wrong_file_has_a_short_list_and_an_unreadable_one_its_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"… and 4900 more lines$"):
        read_symbols(write_symbols(tmp_path, "_\n" + "a word\n" * 5000))
    with pytest.raises(DataError, match=r"none\.txt: no such file; expected a UTF-8 text file with one symbol a line"):
        read_symbols(tmp_path / "none.txt")
