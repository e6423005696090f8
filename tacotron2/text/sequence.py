"""Text to symbol ids and back. ARPAbet in braces passes through: "Turn left on {HH AW1 S T AH0 N} Street." """

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from common.errors import DataError
from tacotron2.text.alphabet import BUILT_IN, Alphabet, is_phone
from tacotron2.text.cleaners import get_cleaner

_BRACED = re.compile(r"\{([^{}]*)\}")


def _brace_mistakes(text: str, alphabet: Alphabet) -> Iterator[str]:
    unmatched = _BRACED.sub(lambda match: " " * len(match[0]), text)
    for brace in re.finditer("[{}]", unmatched):
        near = text[max(0, brace.start() - 15) : brace.start() + 25]
        partner = "closing '}'" if brace[0] == "{" else "opening '{'"
        yield f"{brace[0]!r} at character {brace.start() + 1} (near {near!r}) has no {partner} of its own"
    for braced in _BRACED.finditer(text):
        unknown = [phone for phone in braced[1].split() if phone not in alphabet.phone_ids]
        if unknown:
            yield f"{braced[0]!r} at character {braced.start() + 1}: no ARPAbet symbol {', '.join(map(repr, unknown))}"


def _split(text: str, alphabet: Alphabet) -> list[str]:
    """Plain text and the insides of braces in turn, plain text first; raises DataError that names every mistake."""
    if not alphabet.phone_ids:
        return [_without_braces(text)]
    mistakes = list(_brace_mistakes(text, alphabet))
    if mistakes:
        raise DataError(
            f"text: {'; '.join(mistakes)}; braces do not nest and hold ARPAbet in capitals with spaces between, "
            f"as in {{HH AH0 L OW1}}, from {alphabet.phones_in_words}"
        )
    return _BRACED.split(text)


def _without_braces(text: str) -> str:
    """The text itself; DataError where an alphabet without ARPAbet finds the braces that would hold some."""
    found = [f"{part[0]!r} at character {part.start() + 1}" for part in re.finditer(r"\{[^{}]*\}|[{}]", text)]
    if found:
        raise DataError(
            f"text: {'; '.join(found)}: braces are for ARPAbet, and this alphabet has no ARPAbet: "
            "expected text without braces"
        )
    return text


def text_to_sequence(text: str, cleaner_names: str | Sequence[str], alphabet: Alphabet = BUILT_IN) -> list[int]:
    """Symbol ids of text, cleaned outside its braces; characters that the alphabet lacks are dropped.

    Raises UsageError for an unknown cleaner, DataError for unbalanced braces and unknown ARPAbet.
    """
    clean = get_cleaner(cleaner_names)
    character_ids, phone_ids = alphabet.character_ids, alphabet.phone_ids
    ids: list[int] = []
    for i, part in enumerate(_split(text, alphabet)):
        if i % 2:
            ids += [phone_ids[phone] for phone in part.split()]
        else:
            ids += [character_ids[character] for character in clean(part) if character in character_ids]
    return ids


def sequence_to_text(ids: Iterable[int], alphabet: Alphabet = BUILT_IN) -> str:
    """The text that ids stand for, neighbouring ARPAbet in one pair of braces; raises DataError for an unknown id."""
    ids, symbols = [int(i) for i in ids], alphabet.symbols
    strange = sorted({i for i in ids if not 0 <= i < len(symbols)})
    if strange:
        raise DataError(f"symbol ids: got {', '.join(map(str, strange))}, wanted 0 to {len(symbols) - 1}")
    written = (symbols[i] for i in ids)
    return "".join(f"{{{symbol[1:]}}}" if is_phone(symbol) else symbol for symbol in written).replace("}{", " ")


def dropped_symbols(text: str, cleaner_names: str | Sequence[str], alphabet: Alphabet = BUILT_IN) -> list[str]:
    """The characters of text that leave no trace in its sequence, in their order; raises as text_to_sequence does."""
    clean = get_cleaner(cleaner_names)
    plain = _split(text, alphabet)[::2]
    cleaned = set("".join(map(clean, plain)))

    def is_lost(character: str) -> bool:
        # "$" alone has no symbol, but in "$5" it was spoken: then cleaned text holds it no more.
        alone = set(clean(character))
        return alone.isdisjoint(alphabet.character_ids) and alone <= cleaned

    return [character for character in dict.fromkeys("".join(plain)) if is_lost(character)]
