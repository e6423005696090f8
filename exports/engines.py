"""Open the files of an export: each as a call that takes tensors in the order of the file's inputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.errors import DataError
from exports.models import Part

REQUIREMENTS = "requirements-exports.txt"
CPU = ("CPUExecutionProvider",)
TENSORRT = ("TensorrtExecutionProvider", "CUDAExecutionProvider")


def open_onnx(path: Path, providers: Sequence[Any] = CPU) -> Part:
    """Open an ONNX file with ONNX Runtime, on as many threads as PyTorch has.

    Raises:
        DataError: ONNX Runtime is missing, lacks the first provider, or does not accept the file.
    """
    runtime = import_runtime()
    first = providers[0] if isinstance(providers[0], str) else providers[0][0]
    if first not in (available := runtime.get_available_providers()):
        raise DataError(f"{path}: needs ONNX Runtime with {first}, this one has {', '.join(available)}")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors; warnings are about inputs with a default
    try:
        session = runtime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # its exceptions have no common class
        raise DataError(f"{path}: ONNX Runtime does not accept it ({error})") from None
    names = [value.name for value in session.get_inputs()]

    def run(*inputs: Tensor) -> Any:
        arrays = {name: tensor.cpu().contiguous().numpy() for name, tensor in zip(names, inputs, strict=True)}
        outputs = [torch.from_numpy(array) for array in session.run(None, arrays)]
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    return run


def import_runtime() -> Any:
    """Import ONNX Runtime. Raises DataError that names the requirements file where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        raise DataError(
            f"ONNX Runtime is not installed: bash scripts/exports.sh, or pip install -r {REQUIREMENTS}"
        ) from None
    return onnxruntime


def open_program(path: Path) -> Part:
    """Open a torch.export program."""
    return torch.export.load(path).module()


def open_script(path: Path, device: torch.device) -> Any:
    """Open a TorchScript file."""
    return torch.jit.load(path, map_location=device)
