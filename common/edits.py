"""What has been edited in a plain model since its fast ways were last compared with it, so that no edit stays without effect.

fast.json has digests of the plain models' files and of each function in them. A file with the same bytes has not been edited, which
takes microseconds to see. Otherwise the syntax of each function counts, without comments, docstrings and annotations. Equal results
on some batch would be no proof: they do not show an edit of dropout or of what padding does, nor one that only logs. Functions
and layers that a program has replaced since the import are found as well. `python -m scripts.verify_fast_ways` writes the digests.
"""

from __future__ import annotations

import ast
import hashlib
import json
import pkgutil
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from inspect import unwrap
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

DIGESTS = Path(__file__).with_name("fast.json")
IMPORT = "import "  # starts the entry of an imported name, which says from where
PACKAGE = __name__.removesuffix("common.edits")  # that the recipe's modules are in, with its full stop, or ""
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


@dataclass(frozen=True)
class Origin:
    """The plain code that a fast way has a second copy of: all of these modules and all layers of the model, except `free`.

    `free` are patterns of names ("Decoder.infer") and layers ("model.encoder*") that may change, since the way runs them as they
    are, or never.
    """

    modules: tuple[str, ...]
    free: tuple[str, ...] = ()

    def covers(self, name: str) -> bool:
        """True if an edit of the function, class or layer of that name would be without effect."""
        return not _matches(name, self.free)


@cache  # of the layers in a model's hundreds, most share a name
def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def find_edits(origin: Origin, model: nn.Module) -> list[str]:
    """List what has been edited in the plain code, as "tacotron2/decoder.py: Attention.forward"."""
    edits = []
    for name in origin.modules:
        file = name.replace(".", "/") + ".py"
        edits += [f"{file}: {own}" for own in _edited_names(name) if origin.covers(own)]
        edits += [f"{file}: {own}, replaced at run time" for own in _replaced_names(name) if origin.covers(own)]
    return list(dict.fromkeys(edits)) + list(_edited_layers(origin, model))


@cache
def _verified() -> dict[str, Any]:
    """The contents of fast.json; none where it was left behind, so that plain models run."""
    contents: dict[str, Any] = json.loads(DIGESTS.read_text(encoding="utf-8")) if DIGESTS.exists() else {}
    return {"files": {}, "names": {}, "layers": {}} | contents


def take_digests(modules: Iterable[str], models: Iterable[nn.Module]) -> dict[str, Any]:
    """Compute what fast.json has on these modules, and on the layers of models."""
    sources = {name: _read_source(_module(name)) for name in sorted(modules)}
    layers: dict[str, dict[str, str]] = {}
    for model in models:
        places: dict[str, set[str]] = {}
        for path, layer in model.named_modules():
            places.setdefault(_place(path), set()).add(_kind(layer))
        layers[_kind(model)] = {place: " ".join(sorted(kinds)) for place, kinds in places.items()}
    return {
        "files": {name: _digest(source) for name, source in sources.items()},
        "names": {name: names_of(source) for name, source in sources.items()},
        "layers": layers,
    }


def _module(name: str) -> ModuleType:
    return sys.modules[PACKAGE + name]


# --- the files ---


def _read_source(module: ModuleType) -> bytes:
    assert module.__file__
    return Path(module.__file__).read_bytes().replace(b"\r\n", b"\n")


def _digest(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def names_of(source: bytes) -> dict[str, str]:
    """The names that a module's source binds, methods as Class.method, with digests of their syntax or what they import."""
    forms: dict[str, str] = {}
    for statement in ast.parse(source).body:
        for name, form in _bindings(statement):
            forms[name] = forms.get(name, "") + form
    return {name: form if form.startswith(IMPORT) else _digest(form.encode()) for name, form in forms.items() if form}


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, str]]:
    """A module's statement as pairs of a name and a text; the name of a statement that binds none is ""."""
    if isinstance(statement, ast.ImportFrom):
        yield from (
            (alias.asname or alias.name, f"{IMPORT}{statement.module}.{alias.name}") for alias in statement.names
        )
    elif isinstance(statement, ast.Import):
        for alias in statement.names:
            top = alias.name.split(".")[0]  # all that `import a.b` binds is a
            yield alias.asname or top, IMPORT + (alias.name if alias.asname else top)
    elif isinstance(statement, ast.ClassDef):
        methods = [part for part in statement.body if isinstance(part, ast.FunctionDef)]
        yield from ((f"{statement.name}.{method.name}", _form(method)) for method in methods)
        statement.body = [part for part in statement.body if part not in methods]
        yield statement.name, _form(statement)
    elif isinstance(statement, ast.FunctionDef):
        yield statement.name, _form(statement)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from ((ast.unparse(target), _form(statement)) for target in targets)
    else:
        yield "", _form(statement)


def _form(node: Any) -> str:
    """A part of a syntax tree as text, the same in all versions of Python."""
    if isinstance(node, list):
        return f"[{','.join(filter(None, map(_form, node)))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return ""  # a docstring
    skipped = ("annotation", "returns") if isinstance(node, (ast.arg, ast.FunctionDef)) else ()
    # Empty fields are left out, since later versions of Python have more of them.
    fields = [(name, value) for name, value in ast.iter_fields(node) if name not in skipped and value not in (None, [])]
    return f"{type(node).__name__}({','.join(f'{name}={_form(value)}' for name, value in fields)})"


def _edited_names(module: str) -> list[str]:
    """The names that a module's file gives another meaning than before."""
    try:
        source = _read_source(_module(module))
    except OSError:
        return []  # a program without its source: nobody has edited it
    if _digest(source) == _verified()["files"].get(module):
        return []
    if module not in _verified()["names"]:
        return ["not compared yet"]
    known: dict[str, str] = _verified()["names"][module]
    try:
        found = names_of(source)
    except SyntaxError:
        found = {}  # in the middle of an edit
    # A new function is no edit until an old one calls it, but a new method may override one.
    methods = [name for name in found if name not in known and name.rpartition(".")[0] in known]
    return [name or "its statements" for name in known if found.get(name) != known[name]] + methods


# --- the running program ---


def _replaced_names(name: str) -> list[str]:
    """The names of a module that no longer have the values that its file gave them, and methods added to its layers."""
    module, known = _module(name), _verified()["names"].get(name, {})
    replaced = [own for own in known if own and not _is_original(module, own, known[own])]
    layers = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, nn.Module)]
    added = [
        f"{layer.__qualname__}.{own}"
        for layer in layers
        if layer.__module__ == module.__name__
        for own, value in vars(layer).items()
        if isinstance(_function(value), FunctionType)
    ]
    return replaced + [method for method in added if method not in known]


def _is_original(module: ModuleType, name: str, entry: str) -> bool:
    owner, _, own = name.rpartition(".")
    value = vars(vars(module).get(owner, object) if owner else module).get(own)
    if entry.startswith(IMPORT):
        source = entry.removeprefix(IMPORT)
        is_ours = PACKAGE + source.split(".")[0] in sys.modules
        return value is pkgutil.resolve_name(PACKAGE + source if is_ours else source)
    function = _function(value)
    if isinstance(function, FunctionType):
        is_its_own = function.__globals__ is vars(module) and function.__qualname__ == name
        return is_its_own and function.__code__.co_filename == module.__file__
    if isinstance(value, type):
        return value.__module__ == module.__name__ and value.__qualname__ == name
    return not owner  # a constant


def _function(value: Any) -> Any:
    """The function inside a static or class method, a property, and decorators of PyTorch's; other values as they are."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", value)
    if not isinstance(value, FunctionType):
        return value
    return unwrap(value, stop=lambda outer: not outer.__globals__["__name__"].startswith("torch."))


def _edited_layers(origin: Origin, model: nn.Module) -> Iterator[str]:
    """Layers of another class than in the plain model, and those with hooks or functions of their own."""
    tables: dict[str, dict[str, str]] = _verified()["layers"]
    known = next((tables[name] for name in map(_name, type(model).__mro__) if name in tables), {})
    for path, layer in model.named_modules():
        place, kind, attributes = _place(path), _kind(layer), vars(layer)
        if not origin.covers(place):
            continue
        name = f"model.{path}".rstrip(".")
        if kind not in known.get(place, kind).split():
            yield f"{name}, a {type(layer).__name__}"
        elif any(map(attributes.get, HOOKS)):
            yield f"{name}, which has a hook"
        elif any(map(callable, attributes.values())):
            own = next(own for own, value in attributes.items() if callable(value))
            yield f"{name}.{own}, replaced at run time"


def _place(path: str) -> str:
    """A layer's path with "model" in front, and with * for numbers."""
    return re.sub(r"\.\d+", ".*", f"model.{path}").rstrip(".")


def _kind(layer: nn.Module) -> str:
    return _name(type(layer))


def _name(kind: type) -> str:
    """A class by the name of its module, or for one of PyTorch's, which move, of its package."""
    package = "torch" if kind.__module__.startswith("torch.") else kind.__module__.removeprefix(PACKAGE)
    return f"{package}.{kind.__qualname__}"
