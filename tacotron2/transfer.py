"""Warm start with another alphabet: copy each symbol's row of the embedding to its new index."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from common.errors import DataError
from common.spec import Options, WarmStart
from tacotron2.text import alphabet_of

# S symbols of the old alphabet, N of the new one, E channels of an embedded symbol

EMBEDDING = "embedding.weight"
LISTED_SYMBOLS = 8  # new symbols listed in the message


def transfer(start: WarmStart) -> tuple[dict[str, Tensor], str]:
    """Adapt the weights to this run's alphabet; also return a message about the embedding's rows, "" if nothing changed.

    Rows (S, E) become rows (N, E). A symbol in both alphabets keeps its row, and a letter that the old alphabet has only in the
    other case takes that row. All other rows start as in this run's model. Raises DataError if the old alphabet and its rows differ
    in number.
    """
    old, new = (alphabet_of(options.get("symbols")).symbols for options in (start.stored, start.options))
    if old == new or EMBEDDING not in start.weights:
        return start.weights, ""
    rows, fresh = start.weights[EMBEDDING], start.model.state_dict()[EMBEDDING]
    if rows.shape[1:] != fresh.shape[1:]:
        return start.weights, ""  # other layers differ in size too; loading will name them all
    if start.stored.get("symbols") is None:
        rows = rows[: len(old)]  # of a file that has more symbols and no alphabet; the note of assumed_alphabet says so
    if len(rows) != len(old):
        raise DataError(
            f"{EMBEDDING}: {len(rows)} rows, expected {len(old)}, one for each symbol of the checkpoint's alphabet; "
            "leave it out with --ignore-layers embedding"
        )
    places = {symbol: i for i, symbol in enumerate(old)}
    same_case = {i: places[symbol] for i, symbol in enumerate(new) if symbol in places}
    # swapcase() leaves letters without case as they are; for "ß" it gives "SS", which is not a symbol
    other_case = {i: places[symbol.swapcase()] for i, symbol in enumerate(new) if symbol.swapcase() in places}
    sources = other_case | same_case
    table = fresh.detach().clone()
    table[list(sources)] = rows[list(sources.values())].to(table)
    added = [symbol for i, symbol in enumerate(new) if i not in sources]
    return start.weights | {EMBEDDING: table}, _message(len(new), len(same_case), len(sources) - len(same_case), added)


def assumed_alphabet(data: Options, config: Options) -> str:
    """Return a note on a model with more symbols than the built-in alphabet, whose file has no other; "" for other models."""
    size, rows = len(alphabet_of(None).symbols), config.get("n_symbols", 0)
    if data.get("symbols") is not None or rows <= size:
        return ""
    return f"{rows} symbols without an alphabet in the file: the first {size} are taken for the built-in ones"


def _message(symbols: int, same_case: int, from_other_case: int, added: Sequence[str]) -> str:
    parts = [f"embedding: {same_case} of {symbols} symbols copied"]
    if from_other_case:
        parts.append(f"{from_other_case} from their other case")
    if added:
        more = " …" if len(added) > LISTED_SYMBOLS else ""
        parts.append(f"{len(added)} new ({', '.join(added[:LISTED_SYMBOLS])}{more})")
    return ", ".join(parts)
