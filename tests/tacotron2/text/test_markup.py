"""The form of texts: a table of texts with their blocks and pauses, mistakes, hostile texts, and texts as published."""

import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from common.data.filelist import BadRows
from common.errors import DataError
from common.spec import SENTENCE_PAUSE
from tacotron2.data_function import encode, notes, pieces, spell, unspoken
from tacotron2.text import BUILT_IN, alphabet_of
from tacotron2.text.markup import ended_sentences, read_form
from tacotron2.text.sequence import plain_braces

CASES = [line.split("\t") for line in Path(__file__).with_name("markup_cases.tsv").read_text().splitlines()]


def written(parts: list[tuple[str, float]], lead: float) -> str:
    """Blocks as in the table: " | " between sentences, seconds in brackets for the pauses that a text demands."""
    signs = [" | " if pause == SENTENCE_PAUSE else f" ({pause:g}) " for _, pause in parts]
    if parts[-1][1] == 0.0:
        signs[-1] = ""
    joined = "".join(text + sign for (text, _), sign in zip(parts, signs, strict=True))
    return (f"({lead:g}) " if lead else "") + joined.rstrip()


@pytest.mark.parametrize(("text", "expected"), CASES, ids=[text for text, _ in CASES])
def test_a_text_has_these_blocks_and_pauses(text: str, expected: str) -> None:
    for name, character in (("\\n", "\n"), ("\\r", "\r"), ("\\u2028", "\u2028")):
        text = text.replace(name, character)
    found = pieces(text, 0, {})
    assert written([(piece.text, piece.pause) for piece in found], found[0].lead) == expected.rstrip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[pause:-1s]", "'[pause:-1s]': expected 0 to 60 s, as in [pause:0.5s]"),
        ("[pause:1e9s] [pause:61s]", "'[pause:1e9s]'"),
        ('<break time="2h"/>', '\'<break time="2h"/>\': expected 0 to 60 s, as in <break time="500ms"/>'),
        ('<break strength="huge"/>', "expected strength none, x-weak, weak, medium, strong, x-strong"),
        ('<phoneme alphabet="ipa" ph="ʁy">rue</phoneme>', "English sounds of the International Phonetic Alphabet"),
        ('<phoneme alphabet="x-arpabet" ph="HH XX">a</phoneme>', "no ARPAbet symbol 'XX'"),
        ("a [pause:60s] b" * 11, "pauses of 660 s in all, expected at most 600 s"),
        ("{x} {HH,AH0} {", "'{HH,AH0}' at character 5"),
        ("to {HH AW1 S", "'{' at character 4 (near 'to {HH AW1 S') has no closing"),
        ("{AH9} {XX} {K5}", "'{AH9}' at character 1: no ARPAbet symbol 'AH9'; '{XX}' at character 7"),
    ],
)
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(BadRows) as error:
        encode(["Fine.", text], {})
    assert list(error.value.problems) == [1] and message in error.value.problems[1]
    assert [piece.text for piece in pieces(text, 150, {})] == [text]  # for encode to refuse


@pytest.mark.parametrize("text", ["***", "* * *", "...", "-", "🙂", "", "\n\n", "---\n===", "[pause:1s]", "<br>", "{}"])
def test_a_text_without_words_has_no_pieces(text: str) -> None:
    assert pieces(text, 150, {}) == [] and spell(text, {}) == []
    assert pieces(f"One.\n\n{text}\n\nTwo.", 150, {})[1].text == "Two."


def test_what_is_left_out_is_listed() -> None:
    assert unspoken('{"a": 1} ☃', {}) == ["{", "}", "☃"]
    assert unspoken("☃\n\n***", {}) == ["☃"]
    found = notes('<speak><prosody rate="slow">A</prosody> <voice name="x">B</voice></speak>', {})
    assert found == [f"<{tag}> of SSML has no effect" for tag in ("prosody", "voice")]
    found = notes('<say-as interpret-as="mood">A</say-as> <phoneme alphabet="x-sampa" ph="A">B</phoneme>', {})
    assert found == [f"<{tag}> of SSML has no effect" for tag in ("say-as", "phoneme")]
    assert notes("<b>bold</b> and <mark>marked</mark>", {}) == []


def test_other_languages_than_the_voices_are_said_to_be_unsupported() -> None:
    spanish = {
        "text_cleaners": ["numbers_es_CO", "basic_cleaners"],
        "symbols": ["_", " ", *"abcdefghijklmnopqrstuvwxyz"],
    }
    text = '<speak xml:lang="en-US">Hi <lang xml:lang="es-ES">hola</lang> <p xml:lang=\'fr\'>oui</p></speak>'
    for options, others in (({}, ("es", "fr")), (spanish, ("en", "fr"))):
        wanted = [
            f'xml:lang="{code}" is not supported: a voice speaks the one language of its texts' for code in others
        ]
        assert notes(text, options) == wanted


@pytest.mark.parametrize("text", ["<b>Hi</b> I", "Title\n\nBody *x*", "I", "...", "&amp;", "# A\n- b"])
def test_texts_are_read_as_published_on_demand(text: str) -> None:
    """Markup is characters, a letter a letter, and nothing is cut."""
    as_published = {"text_reading": "as-published"}
    allowed = {symbol for symbol in BUILT_IN.symbols if len(symbol) == 1}
    lower = text.lower().replace("\n", " ").replace("  ", " ")
    assert "".join(spell(text, as_published)) == "".join(c for c in lower if c in allowed)
    assert [(piece.text, piece.pause) for piece in pieces(text, 150, as_published)] == [(text, 0.0)]
    with pytest.raises(DataError, match="has no closing"):
        spell("{ a", as_published)


def test_braces_are_characters_in_an_alphabet_without_arpabet() -> None:
    russian = alphabet_of(["_", *" абв"])
    assert plain_braces("{аб}", russian) == ("аб", ("{", "}"))
    with pytest.raises(DataError, match="this alphabet has no ARPAbet"):
        plain_braces("а {HH AH0}", russian)


SIGNS = (
    "<¦<!--¦<a ¦<a '\"¦</¦&¦&#¦[¦[a](¦![¦[pause:¦{¦{HH ¦}¦*¦**a¦_a¦`¦~~¦#¦# ¦>¦> ¦|¦- ¦\n¦\r¦ ¦=¦\\¦[^¦<script>¦</script ¦<sup>"
    "¦1<sup>2¦$¦$a¦\\(¦\\[¦<sub a='b'>¦==¦&lt;¦\n-¦[[a]¦(((¦]("
)


@pytest.mark.parametrize("sign", SIGNS.split("¦"))
def test_hostile_texts_take_linear_time(sign: str) -> None:
    """100 kB; 0.2 s are a tenth of what a single quadratic pattern takes."""
    text = f"Go {sign * (100_000 // len(sign))} on."
    start = time.process_time()
    for whole in (text, text.replace(sign, sign + "a" * 50, 500)):
        read_form(whole, BUILT_IN) if sign not in ("{HH ",) else None
        ended_sentences(whole, 0, True)
        ended_sentences(whole[:4096], 0, False)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("seed", range(3))
def test_sentences_of_a_stream_have_the_blocks_of_the_whole(seed: int) -> None:
    """Wherever a stream is cut, the words and the pauses within are those of the whole text."""
    draw = random.Random(seed)
    # markup that refers to other places
    elsewhere = ["script", "<!--", "{", "```", "<note", "<name>", "<y>", "[ref]", "<select>", "<div>"]
    parts = [text for text, _ in CASES if not any(word in text for word in elsewhere)]
    text = "\n".join(draw.choice(parts).replace("\\n", "\n") for _ in range(20))
    sentences = [text[start:end] for start, end in pairwise([0, *ended_sentences(text, 0, True), len(text)])]
    assert len(sentences) > 10
    whole, parts = ([c for part in texts for c in spell(part, {}) if c.isalnum()] for texts in ([text], sentences))
    assert parts == whole
