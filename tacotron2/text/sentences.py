"""Cut long texts into pieces: sentences, and parts of sentences that are too long.

    cut_text("Dr. Who, at 5 p.m. on Monday. Really?", limit=30)
    [Piece("Dr. Who, at 5 p.m. on Monday.", 0.35), Piece("Really?", 0.35)]

Attention is trained on clips of some seconds; on a text of a minute it fails. Memory grows with the longest text of a batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from common.spec import Piece
from tacotron2.text.reading import tables

# Seconds of silence after a piece, by the mark at its end; a cut between two words adds none.
SENTENCE_PAUSE, CLAUSE_PAUSE, COMMA_PAUSE = 0.35, 0.25, 0.15

_BRACED = re.compile(r"\{[^{}]*\}")
_CLOSING = r"[\"'”’»)\]]*"
_NOT_IN_RUN = r"(?<![.!?…])(?<![.!?…]\s)"  # a trial from each point of a long run would take quadratic time
_SENTENCE = re.compile(rf"{_NOT_IN_RUN}([.!?…](?:\s?[.!?…])*){_CLOSING}(?=\s)|[。！？｡]+[」』”’）]*")
_CLAUSE = re.compile(rf"[;:]{_CLOSING}(?=\s)|[；：]|\s?[—―]+|(?<!-)--+(?![->])|(?<![0-9\s])\s[-–](?=\s)")
_COMMA = re.compile(rf",{_CLOSING}(?=\s)|[，、]")
_SPACE = re.compile(r"\s+")
_UNIT = re.compile(r"\{[^{}]*\}|.", re.DOTALL)  # a character, or the ARPAbet in braces
LONGEST_UNCUT = 1000  # characters without a place to cut at, beyond which any place will do

_LONGEST_WORD = 24  # characters, searched before a point
_WORD_BEFORE = re.compile(r"[\w.&'’-]*\Z")
_WORD_AFTER = re.compile(r"\s+[\"'“‘«(\[]*([^\s\"'”’»)\],;:!?]*)")
_INITIALS = re.compile(r"(?:[A-Za-z]{1,2}\.)+[A-Za-z]{1,2}|[A-Z]")  # p.m., U.S., Ph.D. and J. R. R.

# Words whose point does not end a sentence; they match in capitals too.
_TITLES = ("Mr", "Mrs", "Dr", "Drs", "Gen", "Maj", "Rev", "Lt", "Hon", "Sgt", "Capt", "Col", "Ft")
_NEVER_LAST = frozenset({*tables.TITLES, *_TITLES, *tables.NEVER_LAST, "vs", "v"})
_BEFORE_NUMBERS = frozenset({*tables.BEFORE_NUMBER, *tables.BEFORE_YEAR})
_SELDOM_LAST = frozenset(
    {*tables.ABBREVIATIONS, *tables.IN_NAMES, *tables.DAYS, *tables.SHORT_MONTHS, *tables.STREETS, "al"}
)
_OPENERS = frozenset(tables.OPENERS)


def cut_text(text: str, limit: int, read_aloud: Callable[[str], str] = str) -> list[Piece]:
    """Cut a text longer than `limit` characters into its sentences; a limit of 0 turns this off.

    A sentence that is still too long is halved near its middle, repeatedly: at ; : or a dash, else at a comma, else at a space.
    Words of up to 1000 characters and {ARPAbet} stay whole. Every piece of them has a letter or a digit, unless the whole text has
    none.

    Args:
        read_aloud: converts written to spoken text. The limit counts spoken characters. A text is converted before it is cut at
            commas or spaces, so that "$5 million" stays in one piece.
    """
    if not limit or len(read_aloud(text)) <= limit:
        return [Piece(text, 0.0)]
    ends = sentence_ends(text)
    sentences = (text[start:end].strip() for start, end in zip([0, *ends], [*ends, len(text)]))
    return [piece for sentence in sentences for piece in _shorten(sentence, SENTENCE_PAUSE, limit, read_aloud)]


def _shorten(text: str, pause: float, limit: int, read_aloud: Callable[[str], str]) -> Iterator[Piece]:
    """Yield the parts of a sentence, each within the limit; `pause` follows the last one."""
    spoken = read_aloud(text)
    if len(spoken) <= limit:
        yield Piece(text, pause)
        return
    levels = (text, _CLAUSE, CLAUSE_PAUSE), (spoken, _COMMA, COMMA_PAUSE), (spoken, _SPACE, 0.0)
    for written, mark, own_pause in levels:
        if places := _cut_places(written, mark):
            place = min(places, key=lambda place: abs(2 * place - len(written)))
            read = read_aloud if mark is _CLAUSE else str
            yield from _shorten(written[:place].strip(), own_pause, limit, read)
            yield from _shorten(written[place:].strip(), pause, limit, read)
            return
    if len(spoken) <= LONGEST_UNCUT:
        yield Piece(spoken, pause)
        return
    start = 0
    for unit in _UNIT.finditer(spoken):
        if unit.end() - start >= LONGEST_UNCUT:
            yield Piece(spoken[start : unit.end()], 0.0)
            start = unit.end()
    if start < len(spoken):
        yield Piece(spoken[start:], pause)


def _cut_places(text: str, mark: re.Pattern[str]) -> list[int]:
    """Places after a mark where a text may be cut: words precede and follow each."""
    masked = _mask_arpabet(text)
    word_places = [i for i, character in enumerate(masked) if character.isalnum()] or [0]
    return [match.end() for match in mark.finditer(masked) if word_places[0] < match.end() <= word_places[-1]]


def sentence_ends(text: str) -> list[int]:
    """List the ends of all sentences but the last: words precede and follow each."""
    masked = _mask_arpabet(text)
    last = max((i for i, character in enumerate(masked) if character.isalnum()), default=0)
    ends, position, has_words = [], 0, False
    for match in _SENTENCE.finditer(masked):
        has_words = has_words or any(map(str.isalnum, masked[position : match.end()]))
        position = match.end()
        if has_words and position <= last and _is_end(masked, match):
            ends.append(position)
            has_words = False
    return ends


def _is_end(text: str, match: re.Match[str]) -> bool:
    """True if . ! or ? ends a sentence, rather than an abbreviation or a quotation within one."""
    after = _WORD_AFTER.match(text, match.end())
    if match[1] is None or after is None:  # a script without spaces
        return True
    following = after[1]
    if following[:1].islower() or following[:1] in ("-", "–", "—"):
        return False
    if match[1] != ".":
        return True
    before = _WORD_BEFORE.search(text[max(0, match.start() - _LONGEST_WORD) : match.start()])
    assert before is not None  # the pattern also matches the empty string
    word = before[0].lstrip("'’-&.")
    if _is_in(word, _NEVER_LAST) or (_is_in(word, _BEFORE_NUMBERS) and following[:1] in tuple("0123456789#")):
        return False
    return not (_INITIALS.fullmatch(word) or _is_in(word, _SELDOM_LAST)) or _is_in(following, _OPENERS)


def _is_in(word: str, words: frozenset[str]) -> bool:
    return word in words or (word.isupper() and (word.capitalize() in words or word.lower() in words))


def _mask_arpabet(text: str) -> str:
    """Replace {ARPAbet} by letters of the same length, so that it contains no marks."""
    return _BRACED.sub(lambda match: "X" * len(match[0]), text)
