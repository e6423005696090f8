"""The whole recipe under one name, for programs that have a models.py, common or inference of their own.

    from tacotron2_waveglow.synthesizer import Synthesizer

Here, the recipe's `import models` means tacotron2_waveglow.models, and nothing of sys.path or of the program's modules changes. The
modules lie in this folder if pip has installed it, or beside it in a clone.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
HOME = HERE if (HERE / "models.py").is_file() else HERE.parent
__path__ = [str(HERE), str(HOME)]
LIBRARY = {
    *("common", "tacotron2", "waveglow", "pulse_noise", "exports", "serving", "studio", "scripts", "compat"),
    *("models", "data_functions", "loss_functions", "synthesizer", "train", "inference", "evaluate", "multiproc"),
    "tacotron2_common",
}  # what `import` of this package's own modules finds in it, before anything else of that name


def _import(
    name: str, variables: Any = None, local: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
) -> ModuleType:
    """What `import` calls in the recipe's modules: the built-in function, with the recipe's names under this one."""
    top = name.partition(".")[0]
    if level or top not in LIBRARY:
        return builtins.__import__(name, variables, local, fromlist or (), level)
    if fromlist:
        return builtins.__import__(f"{__name__}.{name}", variables, local, fromlist)
    import_module(f"{__name__}.{name}")
    return sys.modules[f"{__name__}.{top}"]


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        """Run the module with an `import` of its own; its functions keep it."""
        vars(module)["__builtins__"] = {**vars(builtins), "__import__": _import}
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find a module of this package."""
        spec = PathFinder.find_spec(name, path, target) if name.startswith(f"{__name__}.") else None
        if spec is not None and isinstance(spec.loader, SourceFileLoader):
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


sys.meta_path.insert(0, _Finder())
