"""Long texts to pieces that are spoken one after the other: sentences, and parts of those that are too long for one.

    pieces("Dr. Who, at 5 p.m. on Monday. Really?", limit=30)
    [Piece("Dr. Who, at 5 p.m. on Monday.", 0.35), Piece("Really?", 0.35)]

An attention that has learnt clips of some seconds loses its place in a minute of text, and memory grows with the longest text of
a batch: sentences are what both are made for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from common.spec import Piece
from tacotron2.text.reading import tables

# Seconds of silence after a piece, by what ended it; a cut between two words has none.
SENTENCE_PAUSE, CLAUSE_PAUSE, COMMA_PAUSE = 0.35, 0.25, 0.15

_BRACED = re.compile(r"\{[^{}]*\}")
_CLOSING = r"[\"'”’»)\]]*"
_SENTENCE = re.compile(rf"([.!?…](?:\s?[.!?…])*){_CLOSING}(?=\s)|[。！？｡]+[」』”’）]*")
_CLAUSE = re.compile(rf"[;:]{_CLOSING}(?=\s)|[；：]|\s?[—―]+|(?<!-)--+(?![->])|(?<![0-9\s])\s[-–](?=\s)")
_COMMA = re.compile(rf",{_CLOSING}(?=\s)|[，、]")
_SPACE = re.compile(r"\s+")

_LONGEST_WORD = 24  # characters that are looked at before a point
_WORD_BEFORE = re.compile(r"[\w.&'’-]*\Z")
_WORD_AFTER = re.compile(r"\s+[\"'“‘«(\[]*([^\s\"'”’»)\],;:!?]*)")
_INITIALS = re.compile(r"(?:[A-Za-z]{1,2}\.)+[A-Za-z]{1,2}|[A-Z]")  # p.m., U.S., Ph.D. and J. R. R.

# What a point behind these says. Words of either case are found in capitals too.
_TITLES = ("Mr", "Mrs", "Dr", "Drs", "Gen", "Maj", "Rev", "Lt", "Hon", "Sgt", "Capt", "Col", "Ft")
_NEVER_LAST = frozenset({*tables.TITLES, *_TITLES, *tables.NEVER_LAST, "vs", "v"})
_BEFORE_NUMBERS = frozenset({*tables.COUNTED, *tables.BEFORE_YEAR})
_SELDOM_LAST = frozenset(
    {*tables.ABBREVIATIONS, *tables.IN_NAMES, *tables.DAYS, *tables.SHORT_MONTHS, *tables.STREETS, "al"}
)
_OPENERS = frozenset(tables.OPENERS)


def pieces(text: str, limit: int, aloud: Callable[[str], str] = str) -> list[Piece]:
    """A text's sentences, where it is longer than `limit` characters; a limit of 0 is none, and leaves it whole.

    A sentence that is itself longer is cut near its middle, and its parts again: at ; : or a dash, else at a comma, else between
    two words. Words and {ARPAbet} stay whole, however long. No piece is without a letter or a digit, unless the text is.

    Args:
        aloud: how a text is read; lengths are those of texts as read, and what has to be cut at commas or spaces is read first, so
            that "$5 million" is not parted.
    """
    if not limit or len(aloud(text)) <= limit:
        return [Piece(text, 0.0)]
    ends = list(_ends(text))
    sentences = (text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)]))
    return [piece for sentence in sentences for piece in _parts(sentence, SENTENCE_PAUSE, limit, aloud)]


def _parts(text: str, pause: float, limit: int, aloud: Callable[[str], str]) -> Iterator[Piece]:
    """A sentence in parts that are short enough, the last with this pause."""
    spoken = aloud(text)
    if len(spoken) <= limit:
        yield Piece(text, pause)
        return
    levels = (text, _CLAUSE, CLAUSE_PAUSE), (spoken, _COMMA, COMMA_PAUSE), (spoken, _SPACE, 0.0)
    for written, mark, own_pause in levels:
        if places := _places(written, mark):
            place = min(places, key=lambda place: abs(2 * place - len(written)))
            read = aloud if mark is _CLAUSE else str
            yield from _parts(written[:place].strip(), own_pause, limit, read)
            yield from _parts(written[place:].strip(), pause, limit, read)
            return
    yield Piece(spoken, pause)


def _places(text: str, mark: re.Pattern[str]) -> list[int]:
    """Where a text may be cut behind a mark: with something to say on either side."""
    masked = _masked(text)
    said = [i for i, character in enumerate(masked) if character.isalnum()] or [0]
    return [match.end() for match in mark.finditer(masked) if said[0] < match.end() <= said[-1]]


def _ends(text: str) -> Iterator[int]:
    """Where sentences end, but for the last: with something to say on either side."""
    masked = _masked(text)
    last = max((i for i, character in enumerate(masked) if character.isalnum()), default=0)
    looked_at, has_words = 0, False
    for match in _SENTENCE.finditer(masked):
        has_words = has_words or any(map(str.isalnum, masked[looked_at : match.end()]))
        looked_at = match.end()
        if has_words and looked_at <= last and _is_end(masked, match):
            yield looked_at
            has_words = False


def _is_end(text: str, match: re.Match[str]) -> bool:
    """Whether a sentence ends at . ! or ?, rather than an abbreviation or a quotation that it goes on after."""
    after = _WORD_AFTER.match(text, match.end())
    if match[1] is None or after is None:  # in scripts without spaces
        return True
    following = after[1]
    if following[:1].islower() or following[:1] in ("-", "–", "—"):
        return False
    if match[1] != ".":
        return True
    before = _WORD_BEFORE.search(text[max(0, match.start() - _LONGEST_WORD) : match.start()])
    assert before is not None  # it matches nothing as well
    word = before[0].lstrip("'’-&.")
    if _among(word, _NEVER_LAST) or (_among(word, _BEFORE_NUMBERS) and following[:1] in tuple("0123456789#")):
        return False
    return not (_INITIALS.fullmatch(word) or _among(word, _SELDOM_LAST)) or _among(following, _OPENERS)


def _among(word: str, words: frozenset[str]) -> bool:
    return word in words or (word.isupper() and (word.capitalize() in words or word.lower() in words))


def _masked(text: str) -> str:
    """A text with its ARPAbet as so many letters, of which none is a mark."""
    return _BRACED.sub(lambda braced: "X" * len(braced[0]), text)
