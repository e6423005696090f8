"""Edits of plain models: each is found, whatever it does, and the plain model runs; what is no edit is none."""

import ast
import functools
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from torch import nn

import tacotron2.decoder
from common import edits
from common.edits import DIGESTS, names_of
from common.fast import Accelerated, Request, accelerate
from models import REGISTRY, get_model
from scripts.verify_fast_ways import digests_now, plain_models
from tacotron2.decoder import Attention, Decoder
from tacotron2.fast.training import TrainingDecoder
from waveglow.model import WN, WaveGlow

SIZES: dict[str, dict[str, Any]] = {
    "Tacotron2": {"symbols_embedding_dim": 8, "encoder_embedding_dim": 8, "attention_rnn_dim": 8, "decoder_rnn_dim": 8},
    "WaveGlow": {"n_flows": 2, "WN_config": {"n_layers": 2, "kernel_size": 3, "n_channels": 8}},
}
MODULES = sorted(json.loads(DIGESTS.read_text())["names"])


def test_the_digests_are_those_of_the_plain_models() -> None:
    assert digests_now(plain_models()) == json.loads(DIGESTS.read_text()), "run python -m scripts.verify_fast_ways"


@pytest.mark.parametrize("module", MODULES)
def test_an_edit_of_any_function_is_found_by_its_name(module: str) -> None:
    source = inspect.getsource(sys.modules[module])
    known, tree = names_of(source.encode()), ast.parse(source)
    owners = {method: part for part in tree.body if isinstance(part, ast.ClassDef) for method in part.body}
    functions = [node for node in [*tree.body, *owners] if isinstance(node, ast.FunctionDef)]
    assert functions
    for function in functions:
        owner = owners.get(function)
        name = f"{owner.name}.{function.name}" if owner else function.name
        function.body.append(ast.parse("print(1)").body[0])
        found = names_of(ast.unparse(tree).encode())
        assert {own for own in known | found if known.get(own) != found.get(own)} == {name}
        function.body.pop()


@pytest.mark.parametrize(
    ("old", "new", "edited"),
    [
        ('    """Two steps."""\n', "", []),
        ("    return x + 1", "    # why\n\n    return (x +\n            1)  # more", []),
        ("def f(x: int) -> int", "def f(x: float) -> float", []),
        ("A = 3", "A = 3\nimport math\ndef g(): return A", ["g", "math"]),  # of no effect until others use them
        ("A = 3", "A = 4", ["A"]),
        ("x + 1", "x - 1", ["f"]),
        ("x: int)", "x: int = 5)", ["f"]),
        ("return 2 * x", "return x * 2", ["C.m"]),
        ("class C(", "class C(B, ", ["C"]),
        ("from a.b import c", "from a.d import c", ["c"]),
        ("    @p\n", "", ["C.m"]),
        ("A = 3", "A = 3\nA += 1", [""]),
    ],
)
def test_what_is_an_edit(old: str, new: str, edited: list[str]) -> None:
    source = '''"""A module."""
from a.b import c
import d.e
A = 3
def f(x: int) -> int:
    """Two steps."""
    return x + 1
class C(D):
    """A class."""
    k: int = 1
    @p
    def m(self, x):
        return 2 * x
'''
    assert source.count(old) == 1
    before, after = names_of(source.encode()), names_of(source.replace(old, new).encode())
    assert sorted(name for name in before | after if before.get(name) != after.get(name)) == edited
    assert before["c"] == "import a.b.c" and before["d"] == "import d"


def taken(name: str, phase: Any, change: Callable[[Any], object] = lambda model: None) -> tuple[Accelerated, nn.Module]:
    """What `accelerate` makes of a model with a change."""
    model = get_model(name, SIZES[name])
    change(model)
    return accelerate(model, REGISTRY[name].fast_ways, phase, Request(half=name == "WaveGlow")), model


def uniform(self: Attention, hidden: Any, history: Any, memory: Any) -> Any:
    return torch.softmax(history[:, 0].masked_fill(memory.padding, float("-inf")), dim=1)


class MyAttention(nn.Module):
    forward = uniform


class MyDecoder(Decoder):
    pass


def swap_class(model: Any) -> None:
    model.decoder.__class__ = MyDecoder


CHANGES: list[tuple[Callable[[Any], object], str]] = [
    (lambda model: setattr(model.decoder, "attention_layer", MyAttention()), "model.decoder.attention_layer, a MyAttention"),
    (lambda model: setattr(model.decoder, "attention_rnn", nn.GRUCell(264, 8)), "model.decoder.attention_rnn, a GRUCell"),
    (lambda model: model.decoder.attention_layer.v.register_forward_hook(print), "model.decoder.attention_layer.v, which has"),
    (lambda model: setattr(model.decoder, "step", MethodType(print, model)), "model.decoder.step, replaced at run time"),
    (swap_class, "model.decoder, a MyDecoder"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), CHANGES)
@pytest.mark.parametrize("phase", ["training", "inference"])
def test_layers_that_a_program_replaces(change: Callable[[Any], object], words: str, phase: str) -> None:
    (result, note), model = taken("Tacotron2", phase, change)
    assert result is model and words in note and "times as long on a CPU" in note


@pytest.mark.parametrize(
    ("name", "owner", "attribute", "words"),
    [
        ("Tacotron2", Attention, "forward", "tacotron2/decoder.py: Attention.forward, replaced at run time"),
        ("Tacotron2", Decoder, "__call__", "tacotron2/decoder.py: Decoder.__call__, replaced at run time"),
        ("Tacotron2", tacotron2.decoder, "Memory", "tacotron2/decoder.py: Memory, replaced at run time"),
        ("WaveGlow", WN, "forward", "waveglow/model.py: WN.forward, replaced at run time"),
    ],
)
def test_functions_that_a_program_replaces(
    monkeypatch: pytest.MonkeyPatch, name: str, owner: Any, attribute: str, words: str
) -> None:
    for phase in ("training", "inference"):
        assert taken(name, phase)[0].note == ""
    monkeypatch.setattr(owner, attribute, functools.wraps(getattr(owner, attribute))(lambda *inputs: None))
    for phase in ("training", "inference"):
        (result, note), model = taken(name, phase)
        assert result is model and words in note


def test_decorated_functions_are_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoder.infer has PyTorch's decorator no_grad already; training does not have it a second time."""
    infer = Decoder.infer
    monkeypatch.setattr(Decoder, "infer", functools.wraps(infer)(lambda *inputs: infer(*inputs)))
    assert "decoder.py: Decoder.infer, replaced" in taken("Tacotron2", "inference")[0].note
    assert taken("Tacotron2", "training")[0].note == ""


def test_training_stays_fast_where_it_runs_what_was_changed() -> None:
    calls: list[int] = []
    accelerated, _ = taken(
        "Tacotron2", "training", lambda model: model.register_forward_hook(lambda *_: calls.append(1))
    )
    fast, note = accelerated
    assert note == "" and isinstance(fast.decoder, TrainingDecoder)
    fast.eval()(torch.ones(1, 3, dtype=torch.int64), torch.tensor([3]), torch.zeros(1, 80, 2), torch.tensor([2]))
    assert calls == [1]


def test_a_module_that_was_never_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("common.edits.DIGESTS", Path("absent.json"))
    monkeypatch.setattr("common.edits._verified", edits._verified.__wrapped__)  # reads the file anew
    (result, note), model = taken("WaveGlow", "inference")
    assert result is model and isinstance(model, WaveGlow) and "waveglow/model.py: not compared yet" in note
