"""Open the files of an export, each as a call that takes tensors in the order of the file's inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.errors import DataError
from exports.models import Call

TENSORRT = "TensorrtExecutionProvider"
# Never chosen by default: one builds engines for minutes, the other sends requests over the network.
BY_NAME_ONLY = (TENSORRT, "AzureExecutionProvider")


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
