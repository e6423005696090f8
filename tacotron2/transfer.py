"""A warm start with another alphabet: each symbol takes its row of the embedding along to its new place."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from common.errors import DataError
from common.spec import WarmStart
from tacotron2.text import alphabet_of

# S symbols of the old alphabet, N of the new one, E channels of an embedded symbol

EMBEDDING = "embedding.weight"
SHOWN = 8  # new symbols that the phrase names


def transfer(start: WarmStart) -> tuple[dict[str, Tensor], str]:
    """Weights for this run's alphabet, and a phrase on whose rows of the embedding they are; "" where nothing changed.

    Rows (S, E) become rows (N, E): a symbol keeps its row, a letter that was there in the other case takes that one's,
    and all others start as in this run's model. Raises DataError where the rows are not those of the old alphabet.
    """
    old, new = (alphabet_of(options.get("symbols")).symbols for options in (start.stored, start.options))
    if old == new or EMBEDDING not in start.weights:
        return start.weights, ""
    rows, fresh = start.weights[EMBEDDING], start.model.state_dict()[EMBEDDING]
    if rows.shape[1:] != fresh.shape[1:]:
        return start.weights, ""  # of other channels, as more layers will be: loading names them all
    if len(rows) != len(old):
        raise DataError(
            f"{EMBEDDING}: {len(rows)} rows, expected {len(old)}, one for each symbol of the checkpoint's alphabet; "
            "leave it out with --ignore-layers embedding"
        )
    places = {symbol: i for i, symbol in enumerate(old)}
    kept = {i: places[symbol] for i, symbol in enumerate(new) if symbol in places}
    # swapcase() of a letter without another case is itself, of "ß" the two letters "SS": neither is a place
    other_case = {i: places[symbol.swapcase()] for i, symbol in enumerate(new) if symbol.swapcase() in places}
    sources = other_case | kept
    table = fresh.detach().clone()
    table[list(sources)] = rows[list(sources.values())].to(table)
    added = [symbol for i, symbol in enumerate(new) if i not in sources]
    return start.weights | {EMBEDDING: table}, _phrase(len(new), len(kept), len(sources) - len(kept), added)


def _phrase(symbols: int, kept: int, from_other_case: int, added: Sequence[str]) -> str:
    parts = [f"embedding: {kept} of {symbols} symbols copied"]
    if from_other_case:
        parts.append(f"{from_other_case} from their other case")
    if added:
        more = " …" if len(added) > SHOWN else ""
        parts.append(f"{len(added)} new ({', '.join(added[:SHOWN])}{more})")
    return ", ".join(parts)
