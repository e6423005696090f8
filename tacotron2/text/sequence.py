"""Text to symbol ids and back. ARPAbet in braces passes through: "Turn left on {HH AW1 S T AH0 N} Street." """

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from common.errors import DataError
from tacotron2.text.alphabet import ARPABET_IN_WORDS, CHARACTER_IDS, PHONE_IDS, symbols
from tacotron2.text.cleaners import get_cleaner

_BRACED = re.compile(r"\{([^{}]*)\}")


def _brace_mistakes(text: str) -> Iterator[str]:
    unmatched = _BRACED.sub(lambda match: " " * len(match[0]), text)
    for brace in re.finditer("[{}]", unmatched):
        near = text[max(0, brace.start() - 15) : brace.start() + 25]
        partner = "closing '}'" if brace[0] == "{" else "opening '{'"
        yield f"{brace[0]!r} at character {brace.start() + 1} (near {near!r}) has no {partner} of its own"
    for braced in _BRACED.finditer(text):
        unknown = [phone for phone in braced[1].split() if phone not in PHONE_IDS]
        if unknown:
            yield f"{braced[0]!r} at character {braced.start() + 1}: no ARPAbet symbol {', '.join(map(repr, unknown))}"


def _split(text: str) -> list[str]:
    """Plain text and the insides of braces in turn, plain text first; raises DataError that names every mistake."""
    mistakes = list(_brace_mistakes(text))
    if mistakes:
        raise DataError(
            f"text: {'; '.join(mistakes)}; braces do not nest and hold ARPAbet in capitals with spaces between, "
            f"as in {{HH AH0 L OW1}}, from {ARPABET_IN_WORDS}"
        )
    return _BRACED.split(text)


def text_to_sequence(text: str, cleaner_names: str | Sequence[str]) -> list[int]:
    """Symbol ids of text, cleaned outside its braces; characters without a symbol are dropped.

    Raises UsageError for an unknown cleaner, DataError for unbalanced braces and unknown ARPAbet.
    """
    clean = get_cleaner(cleaner_names)
    ids: list[int] = []
    for i, part in enumerate(_split(text)):
        if i % 2:
            ids += [PHONE_IDS[phone] for phone in part.split()]
        else:
            ids += [CHARACTER_IDS[character] for character in clean(part) if character in CHARACTER_IDS]
    return ids


def sequence_to_text(ids: Iterable[int]) -> str:
    """The text that ids stand for, neighbouring ARPAbet in one pair of braces; raises DataError for an unknown id."""
    ids = [int(i) for i in ids]
    strange = sorted({i for i in ids if not 0 <= i < len(symbols)})
    if strange:
        raise DataError(f"symbol ids: got {', '.join(map(str, strange))}, wanted 0 to {len(symbols) - 1}")
    written = (symbols[i] for i in ids)
    return "".join(f"{{{symbol[1:]}}}" if symbol.startswith("@") else symbol for symbol in written).replace("}{", " ")


def dropped_symbols(text: str, cleaner_names: str | Sequence[str]) -> list[str]:
    """The characters of text that leave no trace in its sequence, in their order; raises as text_to_sequence does."""
    clean = get_cleaner(cleaner_names)
    plain = _split(text)[::2]
    cleaned = set("".join(map(clean, plain)))

    def is_lost(character: str) -> bool:
        # "$" alone has no symbol, but in "$5" it was spoken: then cleaned text holds it no more.
        alone = set(clean(character))
        return alone.isdisjoint(CHARACTER_IDS) and alone <= cleaned

    return [character for character in dict.fromkeys("".join(plain)) if is_lost(character)]
