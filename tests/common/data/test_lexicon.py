"""A lexicon: words in any case and in phrases, mistakes by line, and its use in a voice."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.data.lexicon import Lexicon, lexicon_of, read_lexicon
from common.errors import DataError
from common.inference.config import SynthesisConfig
from tacotron2.data_function import encode, pieces, spell, unspoken

ENTRIES = """# how we say it
Nguyen\tWin
 gif\tjif
GIF89a\tjif eighty-nine

US\tU S
New York\tthe Big Apple
C++\tsee plus plus
.NET\tdot net
data\t{D EY1 T AH0}
kg\tkilos
O’Brien\toh bryan
don't\tdo not
café au  lait\tmilky coffee
GPT-4\tthe model
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "words.tsv").write_text(ENTRIES)
    return tmp_path / "words.tsv"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Nguyen's NGUYEN nguyen", "Win's Win nguyen"),
        ("A gif, a GIF, GIFs and GIF89a.", "A jif, a jif, GIFs and jif eighty-nine."),
        ("It helps us in the US.", "It helps us in the U S."),
        ("New York New Yorker", "the Big Apple New Yorker"),
        ("C++, C and .NET", "see plus plus, C and dot net"),
        ("Data {D AE1 T AH0}", "{D EY1 T AH0} {D AE1 T AH0}"),
        ("O'Brien, O’BRIEN’s; Don’t ‘don't’", "oh bryan, oh bryan’s; do not ‘do not’"),
        ("New\u00a0York, new york, Café au\tlait", "the Big Apple, new york, milky coffee"),
        ("GPT-4. GPT-4.5, GPT-40", "the model. GPT-4.5, GPT-40"),
        ("my_data metadata 5 kg", "my_data metadata 5 kilos"),
    ],
)
def test_whole_words_are_replaced(path: Path, text: str, expected: str) -> None:
    assert read_lexicon(path)(text) == expected


def test_a_voice_says_the_words_of_its_lexicon(path: Path) -> None:
    options = {"lexicon": lexicon_of(path)}
    assert "".join(spell("Data: 5 kg\n\n<b>gif</b>", options)).startswith("@D@EY1@T@AH0: five kilos. jif")
    assert "".join(spell("5 kg", options | {"text_reading": "as-published"})) == "five kilos"
    long = pieces("The gif has 5 kg. " * 20, 40, options)
    assert len(long) == 20 and {piece.text for piece in long} == {"The jif has five kilos."}
    assert encode(["I"], {"lexicon": Lexicon({"I": "me"})})[0].shape == (1, 2)


def test_mistakes_are_named_by_line(tmp_path: Path, path: Path) -> None:
    path.write_bytes(b"one two\na\tb\tc\nx\t\n\ty\nfine\tyes\nfine\tno\n{A}\tb\nn\xff\tm\n")
    with pytest.raises(DataError) as error:
        SynthesisConfig(lexicon=path)
    lines = str(error.value).splitlines()
    assert [line.split(": ")[0] for line in lines] == [f"{path}:{number}" for number in (1, 2, 3, 4, 6, 7, 8)]
    assert "expected WRITTEN, a tab and SPOKEN" in lines[0] and f"there already, at {path}:5" in lines[4]
    with pytest.raises(DataError, match="words: no such file"):
        SynthesisConfig(lexicon=tmp_path / "words")
    with pytest.raises(DataError, match="lexicon: 'x': nothing to say"):
        SynthesisConfig(lexicon={"x": "…"})


def test_arpabet_is_checked_by_the_model(path: Path) -> None:
    path.write_text("a\tb\nword\t{W ER1 XX}\nother\t{odd}\n")
    unknown = "text: '{W ER1 XX}' at character 1: no ARPAbet symbol 'XX'"
    for lexicon, first in ((read_lexicon(path), f"{path}:2"), (Lexicon({"word": "{W ER1 XX}"}), "lexicon: 'word'")):
        with pytest.raises(DataError) as error:
            lexicon.check(lambda texts: encode(texts, {}), lambda text: unspoken(text, {}))
        assert str(error.value).startswith(f"{first}: {unknown}")
        assert str(error.value).endswith(f"{path}:3: '{{odd}}': braces without ARPAbet") == (first[0] == "/")
