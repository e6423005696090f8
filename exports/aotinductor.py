"""AOTInductor packages of a voice's parts: machine code from PyTorch's compiler, built with an installed C++ compiler."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.errors import DataError
from exports.models import Call
from exports.parts import Part, program

COMPILERS = ("g++", "clang++")


def compile_package(part: Part) -> bytes:
    """Compile a part for this machine's CPU; it uses as many threads as the process that runs it.

    Raises DataError if no C++ compiler is installed.
    """
    if missing := missing_compiler():
        raise DataError(f"aotinductor: {missing}")
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / f"{part.name}.pt2")
        settings = {"cpp.dynamic_threads": True}
        torch._inductor.aoti_compile_and_package(program(part), package_path=path, inductor_configs=settings)
        return Path(path).read_bytes()


def missing_compiler() -> str:
    """An error message if no C++ compiler is installed, else ""."""
    found = any(map(shutil.which, COMPILERS))
    return "" if found else f"no C++ compiler, expected one of {', '.join(COMPILERS)}: apt install g++"


def open_package(path: Path) -> Call:
    """Open a package as a call. Raises DataError if it does not run here, for example on a CPU with fewer instructions."""
    try:
        package = torch._inductor.aoti_load_package(str(path))
    except RuntimeError as error:
        raise DataError(f"{path}: PyTorch cannot load it ({error}); export again on this machine") from None

    def run(*inputs: Tensor) -> Any:
        # Packages assume the strides of the example inputs.
        outputs = package(*(tensor.contiguous() for tensor in inputs))
        return outputs[0] if isinstance(outputs, (tuple, list)) and len(outputs) == 1 else outputs

    return run
