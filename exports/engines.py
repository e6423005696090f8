"""Files for other runtimes: ONNX Runtime and torch.export opened as calls, AOTInductor's packages, TensorRT's script.

A call takes tensors in the order of the file's inputs. AOTInductor compiles machine code by PyTorch's compiler and an installed C++
compiler; TensorRT builds engines from the ONNX files with trtexec, not yet tested on a GPU.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.errors import DataError
from exports.models import Call
from exports.parts import ExportPart, axis_name, program
from waveglow.config import WaveGlowConfig

TENSORRT = "TensorrtExecutionProvider"
# Never chosen by default: one builds engines for minutes, the other sends requests over the network.
BY_NAME_ONLY = (TENSORRT, "AzureExecutionProvider")
COMPILERS = ("g++", "clang++")


def open_onnx(path: Path, provider: str | None = None, **settings: Any) -> Call:
    """Open an ONNX file with ONNX Runtime, on as many threads as PyTorch has, as a call.

    Args:
        path: the file.
        provider: runs all it supports; later ones in ONNX Runtime's list run the rest. None: a GPU's if there is one, or the CPU's.
        settings: options of the provider.

    Raises:
        DataError: ONNX Runtime is missing, lacks the provider, or rejects the file.
    """
    try:
        import onnxruntime as runtime
    except ImportError:
        message = "ONNX Runtime is not installed: bash scripts/exports.sh, or pip install -r requirements/exports.txt"
        raise DataError(message) from None
    available = runtime.get_available_providers()
    provider = provider or next(name for name in available if name not in BY_NAME_ONLY)
    if provider not in available:
        raise DataError(f"{path}: needs ONNX Runtime with {provider}; the installed one has {', '.join(available)}")
    others = available[available.index(provider) + 1 :]
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; warnings are about inputs with a default
    # Each session has its own threads, which would spin between calls and take cores from the other parts and from PyTorch.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = runtime.InferenceSession(str(path), options, providers=[(provider, settings), *others])
    except Exception as error:  # its exceptions have no common class
        raise DataError(f"{path}: ONNX Runtime rejects it ({error})") from None
    names = [value.name for value in session.get_inputs()]

    def run(*inputs: Tensor) -> Any:
        arrays = {name: tensor.cpu().contiguous().numpy() for name, tensor in zip(names, inputs, strict=True)}
        outputs = [torch.from_numpy(array) for array in session.run(None, arrays)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def open_tensorrt(path: Path) -> Call:
    """Open an ONNX file with TensorRT, which keeps its engines beside it."""
    return open_onnx(path, TENSORRT, trt_engine_cache_enable=True, trt_engine_cache_path=str(path.parent))


def open_program(path: Path) -> Call:
    """Open a torch.export program."""
    return torch.export.load(path).module()


def compile_package(part: ExportPart) -> bytes:
    """Compile a part for this machine's CPU; it uses as many threads as the process that runs it."""
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


Profile = Mapping[str, tuple[int, ...]]

# The sizes of the dynamic axes that an engine supports: the smallest, the usual (for which it is fastest), the largest.
BATCHES, SYMBOLS, FRAMES = (1, 1, 16), (2, 100, 300), (8, 600, 2000)
HEAD = """#!/usr/bin/env bash
# Build TensorRT engines from the ONNX files of this directory: bash build_engines.sh [flags of trtexec, such as --fp16].
# Shapes outside these profiles need another engine. tts.onnx has no engine: ONNX Runtime runs its Loops.
set -euo pipefail
cd "$(dirname "$0")"
"""


def build_script(parts: Iterable[ExportPart], vocoder: WaveGlowConfig) -> str:
    """The trtexec commands for the parts, each with a profile of shapes."""
    samples = tuple(frames * vocoder.hop_length for frames in FRAMES)
    groups = tuple(size // vocoder.n_group for size in samples)
    profile = {"batch": BATCHES, "symbols": SYMBOLS, "frames": FRAMES, "samples": samples, "groups": groups}
    return HEAD + "\n".join(_command(part, profile) for part in parts) + "\n"


def _command(part: ExportPart, profile: Profile) -> str:
    shapes = []
    for which, flag in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        sizes = {name: _sizes(part, name, profile, which) for name in part.inputs}
        joined = ",".join(f"{name}:{'x'.join(map(str, size))}" for name, size in sizes.items() if size)
        shapes.append(f"{flag}={joined}")
    return f'trtexec --onnx={part.name}.onnx --saveEngine={part.name}.plan {" ".join(shapes)} "$@"'


def _sizes(part: ExportPart, name: str, profile: Profile, which: int) -> list[int]:
    """The shape of an input at one end of the profile."""
    axes = part.input_axes[name]
    return [
        profile[axis_name(axes[axis])][which] if axis in axes else size
        for axis, size in enumerate(part.inputs[name].shape)
    ]
