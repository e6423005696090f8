"""Warm start with another alphabet: each row moves with its symbol."""

import pytest
import torch

from common.errors import DataError
from common.spec import WarmStart
from tacotron2.model import Tacotron2
from tacotron2.text import symbols as built_in
from tacotron2.transfer import transfer

NAME = "embedding.weight"
SMALL = {
    "n_mel_channels": 5, "symbols_embedding_dim": 6, "encoder_n_convolutions": 1, "encoder_embedding_dim": 6,
    "attention_rnn_dim": 4, "decoder_rnn_dim": 4, "prenet_dim": 4, "postnet_embedding_dim": 4,
    "postnet_n_convolutions": 2,
}  # fmt: skip


def start(old, new, rows=None, **config) -> WarmStart:
    """Warm start from a table whose row i contains i + 1 to a new model; None selects the built-in alphabet."""
    n_old, n_new = (148 if table is None else len(table) for table in (old, new))
    model = Tacotron2(**{**SMALL, "n_symbols": n_new, **config})
    rows = n_old if rows is None else rows
    weights = {name: value + 0.1 for name, value in model.state_dict().items()}
    weights[NAME] = torch.arange(1.0, rows + 1)[:, None].expand(rows, 6).clone()
    stored, options = ({} if table is None else {"symbols": table} for table in (old, new))
    return WarmStart(weights, stored, options, model)


def test_rows_move_with_their_symbols_and_the_encoders_outputs_stay():
    """For letters of both alphabets the encoder's outputs do not depend on their ids."""
    given = start(["_", "a", "b", "C", "@AA1", "@B"], ["_", "@B", "ä", "b", "B", "c", "@AA1", "Ä", "ß"])
    before = {name: value.clone() for name, value in given.weights.items()}
    fresh = given.model.embedding.weight.detach().clone()
    weights, phrase = transfer(given)
    table = weights[NAME]
    assert table.shape == (9, 6)
    # _ and @B, b, B as b, c as C, @AA1
    assert table[[0, 1, 3, 4, 5, 6]].tolist() == [[row] * 6 for row in (1.0, 6.0, 3.0, 3.0, 4.0, 5.0)]
    assert torch.equal(table[[2, 7, 8]], fresh[[2, 7, 8]])
    assert phrase == "embedding: 4 of 9 symbols copied, 2 from their other case, 3 new (ä, Ä, ß)"
    # nothing else is touched: neither the checkpoint's weights nor the model's
    assert torch.equal(given.model.embedding.weight, fresh)
    assert all(torch.equal(given.weights[name], value) for name, value in before.items())
    assert weights.keys() == before.keys()
    assert all(weights[name] is given.weights[name] for name in weights if name != NAME)
    old, new = ["_", *"abcd "], ["_", " ", "ä", *"dcba", "ö"]
    given = start(old, new)
    before = Tacotron2(**SMALL, n_symbols=len(old)).eval()
    weights, _ = transfer(given)
    before.load_state_dict(given.weights)
    given.model.eval().load_state_dict(weights)
    text, lengths = "bad cab", torch.tensor([7])
    ids, other_ids = (torch.tensor([[table.index(c) for c in text]]) for table in (old, new))
    memory = before.encoder(before.embedding(ids), lengths, False)
    assert torch.equal(given.model.encoder(given.model.embedding(other_ids), lengths, False), memory)


def test_from_the_built_in_alphabet_and_back():
    german = ["_", *" ,.-?!'", *"abcdefghijklmnopqrstuvwxyzäöüß"]
    weights, phrase = transfer(start(None, german))
    assert weights[NAME][:34, 0].tolist() == [built_in.index(symbol) + 1 for symbol in german[:34]]
    assert phrase == "embedding: 34 of 38 symbols copied, 4 new (ä, ö, ü, ß)"
    weights, phrase = transfer(start(german, None))
    assert phrase.startswith("embedding: 34 of 148 symbols copied, 26 from their other case, 88 new ((, ), :, ;, @AA")
    assert phrase.endswith(" …)")
    assert weights[NAME][built_in.index("Q"), 0] == german.index("q") + 1
    weights, phrase = transfer(start(["_", "a", "A"], ["A", "a", "_"]))
    assert weights[NAME][:, 0].tolist() == [3.0, 2.0, 1.0]
    assert phrase == "embedding: 3 of 3 symbols copied"


@pytest.mark.parametrize("stored", [{}, {"symbols": None}, {"symbols": built_in}], ids=["old", "none", "written out"])
@pytest.mark.parametrize("options", [{}, {"symbols": None}, {"symbols": tuple(built_in)}], ids=["old", "none", "all"])
def test_the_same_alphabet_changes_nothing(stored, options):
    given = start(None, None)._replace(stored=stored, options=options)
    weights, phrase = transfer(given)
    assert weights is given.weights
    assert phrase == ""


def test_what_is_no_table_of_these_symbols_stays_or_is_an_error():
    given = start(None, ["_", "a"])
    del given.weights[NAME]
    weights, phrase = transfer(given)
    assert (weights, phrase) == (given.weights, "")
    assert NAME not in weights
    for rows in (2, 4):
        with pytest.raises(DataError, match=rf"^embedding\.weight: {rows} rows, expected 3, one for each symbol"):
            transfer(start(["_", "a", "b"], ["_", "b"], rows=rows))
    given = start(["_", "a", "b"], ["_", "b"], symbols_embedding_dim=8)  # for the error of loading
    assert transfer(given) == (given.weights, "")
