"""Convert text to symbol ids and back. ARPAbet stands in braces: "Turn left on {HH AW1 S T AH0 N} Street." """

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from common.errors import DataError, shorten
from tacotron2.text.alphabet import ARPABET, BUILT_IN, Alphabet, is_phone
from tacotron2.text.cleaners import get_cleaner

_BRACED = re.compile(r"\{([^{}]*)\}")
_MISTAKES_SHOWN, _PHONES_SHOWN = 20, 8
_BRACES = re.compile(r"\{([^{}]*)(\}?)|\}")
_NEARLY = re.compile(r"[\w\s,;/.!?'-]*")  # of what may be meant as ARPAbet
_PHONES = frozenset(phone.rstrip("012") for phone in ARPABET)
_SHAPE = re.compile(r"[A-Z]{2}[0-9]?|[A-Z][0-9]")
_SURE = 2  # words behind an open brace that must look like ARPAbet


def plain_braces(text: str, alphabet: Alphabet) -> tuple[str, tuple[str, ...]]:
    """Remove the braces of a text that hold no ARPAbet, as those of JSON; return which of { and } there were.

    Raises DataError for braces that nearly hold ARPAbet, with their positions.
    """
    places: list[int] = []
    for braces in _BRACES.finditer(text):
        if not _is_arpabet(braces[1], braces[2]):
            places += [braces.start(), *([braces.end() - 1] if braces[2] else [])]
    characters = list(text)
    for place in places:
        characters[place] = " "
    _split_braces("".join(characters), alphabet)
    for place in places:
        is_within_word = place > 0 and text[place - 1].isalnum() and text[place + 1 : place + 2].isalnum()
        characters[place] = " " if is_within_word else ""
    return "".join(characters), tuple(dict.fromkeys(text[place] for place in places))


def _is_arpabet(content: str | None, closing: str | None) -> bool:
    """True if braces hold ARPAbet, or nearly do: then a mistake is likelier than another use of braces."""
    if not content or (closing and not _NEARLY.fullmatch(content)):
        return False
    if closing and set(content.split()) <= set(ARPABET):
        return bool(content.split())
    words = re.findall(r"[A-Za-z]+[0-9]*", content) if closing else content.split()[:_SURE]
    if closing and len(words) == 1 and _SHAPE.fullmatch(words[0]):
        return True
    phones = [word for word in words if word.rstrip("0123456789").upper() in _PHONES]
    is_clear = any(len(word) > 1 and (word.isupper() or word[-1].isdigit() or len(phones) > 1) for word in phones)
    return is_clear and len(words) <= (2 if closing else 1) * len(phones)


def _brace_mistakes(text: str, alphabet: Alphabet) -> Iterator[str]:
    unmatched = _BRACED.sub(lambda match: " " * len(match[0]), text)
    for brace in re.finditer("[{}]", unmatched):
        near = text[max(0, brace.start() - 15) : brace.start() + 25]
        partner = "closing '}'" if brace[0] == "{" else "opening '{'"
        yield f"{brace[0]!r} at character {brace.start() + 1} (near {near!r}) has no {partner} of its own"
    for braced in _BRACED.finditer(text):
        unknown = [phone for phone in braced[1].split() if phone not in alphabet.phone_ids]
        if unknown:
            names = ", ".join(repr(shorten(phone)) for phone in unknown[:_PHONES_SHOWN])
            more = f" and {len(unknown) - _PHONES_SHOWN} more" if len(unknown) > _PHONES_SHOWN else ""
            yield f"{shorten(braced[0])!r} at character {braced.start() + 1}: no ARPAbet symbol {names}{more}"


def _split_braces(text: str, alphabet: Alphabet) -> list[str]:
    """Split a text at its braces: plain text, ARPAbet, plain text, … A DataError lists the mistakes."""
    if not alphabet.phone_ids:
        return [_refuse_braces(text)]
    mistakes = list(_brace_mistakes(text, alphabet))
    if mistakes:
        raise DataError(
            f"text: {_some(mistakes)}; braces do not nest and hold ARPAbet in capitals with spaces between, "
            f"as in {{HH AH0 L OW1}}, from {alphabet.phone_list}"
        )
    return _BRACED.split(text)


def _refuse_braces(text: str) -> str:
    """Return the text. Raises DataError for braces, which an alphabet without ARPAbet cannot read."""
    braces = [f"{shorten(part[0])!r} at character {part.start() + 1}" for part in re.finditer(r"\{[^{}]*\}|[{}]", text)]
    if braces:
        raise DataError(
            f"text: {_some(braces)}: braces are for ARPAbet, and this alphabet has no ARPAbet: "
            "expected text without braces"
        )
    return text


def _some(mistakes: Sequence[str]) -> str:
    """Join the first mistakes, and the number of the others."""
    more = len(mistakes) - _MISTAKES_SHOWN
    return "; ".join([*mistakes[:_MISTAKES_SHOWN], *([f"and {more} more"] if more > 0 else [])])


def text_to_sequence(text: str, cleaner_names: str | Sequence[str], alphabet: Alphabet = BUILT_IN) -> list[int]:
    """Convert a text to symbol ids. Clean it outside its braces; drop characters that the alphabet lacks.

    Raises UsageError for an unknown cleaner, DataError for unbalanced braces and unknown ARPAbet.
    """
    clean = get_cleaner(cleaner_names)
    character_ids, phone_ids = alphabet.character_ids, alphabet.phone_ids
    ids: list[int] = []
    for i, part in enumerate(_split_braces(text, alphabet)):
        if i % 2:
            ids += [phone_ids[phone] for phone in part.split()]
        else:
            ids += [character_ids[character] for character in clean(part) if character in character_ids]
    return ids


def sequence_to_text(ids: Iterable[int], alphabet: Alphabet = BUILT_IN) -> str:
    """Convert ids to text, with neighbouring ARPAbet in one pair of braces. Raises DataError for an unknown id."""
    ids, symbols = [int(i) for i in ids], alphabet.symbols
    unknown = sorted({i for i in ids if not 0 <= i < len(symbols)})
    if unknown:
        raise DataError(f"symbol ids: got {', '.join(map(str, unknown))}, wanted 0 to {len(symbols) - 1}")
    spelling = (symbols[i] for i in ids)
    return "".join(f"{{{symbol[1:]}}}" if is_phone(symbol) else symbol for symbol in spelling).replace("}{", " ")


def dropped_symbols(text: str, cleaner_names: str | Sequence[str], alphabet: Alphabet = BUILT_IN) -> list[str]:
    """List the characters of a text that are missing from its sequence, in order. Raises the errors of text_to_sequence."""
    clean = get_cleaner(cleaner_names)
    plain = _split_braces(text, alphabet)[::2]
    cleaned = set("".join(map(clean, plain)))

    def is_lost(character: str) -> bool:
        # "$" alone has no symbol, but "$5" is read as dollars: then the cleaned text lacks "$".
        alone = set(clean(character))
        return alone.isdisjoint(alphabet.character_ids) and alone <= cleaned

    return [character for character in dict.fromkeys("".join(plain)) if is_lost(character)]
