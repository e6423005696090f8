"""Rules that a GPU enforces and a CPU does not, checked at every operator of a pretended GPU (tests/pretend_gpu.py).

    rules = Rules()
    with PretendGpu(rules):
        train_step(state, batches)
    assert rules.waits == {"common/training/loop.py:_reduce": 1}

A rule that is broken raises BrokenRule at the operator. Waits of the host for the GPU are no fault: each is counted at the
line of this project that asks for it, and a test states how many it expects. `waits` counts reads of results, explicit or
within PyTorch; `uploads` counts blocking copies to the GPU, which wait for it too.
"""

import functools
import itertools
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torchgen
from torch import Tensor
from torch.utils._pytree import tree_leaves

from tests.pretend_gpu import CPU, GpuTensor
from tests.recipe import ROOT

aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
# Operators that need a number from the GPU before they can go on, on any input.
WAITING = {
    aten._local_scalar_dense.default, aten.equal.default, aten.masked_select.default, aten.nonzero.default,
    aten.repeat_interleave.Tensor, aten._linalg_check_errors.default, aten._unique2.default, aten.bincount.default,
}  # fmt: skip
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}
# Operators that take arguments in the CPU's memory: {operator: their positions}.
TAKES_CPU = {aten._pack_padded_sequence.default: {1}, aten._pack_padded_sequence_backward.default: {2}}
# cuBLAS, cuDNN and PyTorch's own fused kernels take floating-point inputs of one type alone.
ONE_TYPE = {
    aten.mm, aten.addmm, aten.addmm_, aten.bmm, aten.baddbmm, aten.baddbmm_, aten.convolution,
    aten.convolution_backward, aten._thnn_fused_lstm_cell, aten._thnn_fused_lstm_cell_backward_impl, aten._cudnn_rnn,
}  # fmt: skip
LINEAR_ALGEBRA = ("linalg", "_linalg", "lu", "cholesky", "slogdet", "inverse", "_fft", "stft")  # none in half precision
HALVES = (torch.float16, torch.bfloat16)
ON_ANY_DEVICE = {"CompositeExplicitAutograd", "CompositeExplicitAutogradNonFunctional", "CompositeImplicitAutograd"}


class BrokenRule(AssertionError):
    """An operator that a GPU refuses, or that gives other results there."""


class Rules:
    """Checks each operator, and counts waits and uploads by the place in this project that causes them."""

    def __init__(self) -> None:
        self.waits: Counter[str] = Counter()
        self.uploads: Counter[str] = Counter()
        self.capturing = False

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: torch.device) -> None:
        """Check an operator before it runs; target is the device of its outputs."""
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        on_gpu = [tensor for tensor in tensors if isinstance(tensor, GpuTensor)]
        if self.capturing and not on_gpu and target.type == "cpu":
            raise BrokenRule(f"{func} on the CPU while a graph is recorded: a replay will not run it")
        if not on_gpu and target.type == "cpu":
            return
        if func in COPIES:
            self._check_copy(func, args, kwargs, target)
            return
        if func in WAITING or (func in INDEXING and _has_mask(args)):
            self._wait(func)
        _check_devices(func, args, tensors, on_gpu)
        _check_types(func, tensors)
        _check_generator(func, kwargs)
        if not has_gpu_kernel(func.name()):
            raise BrokenRule(f"{func}: PyTorch has no such operator for a GPU")

    def check_after_capture(self, tensors: list[Tensor]) -> None:
        """Refuse tensors that were made while a graph was recorded and are still in use: the next replay overwrites them."""
        if tensors:
            shapes = ", ".join(str(tuple(tensor.shape)) for tensor in tensors[:5])
            raise BrokenRule(f"{len(tensors)} tensors of a recorded graph are still in use after it: {shapes}")

    def _check_copy(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: torch.device) -> None:
        source = args[1] if func is aten.copy_.default else args[0]
        blocking = not (args[2] if func is aten.copy_.default and len(args) > 2 else kwargs.get("non_blocking", False))
        if source.device == target:
            return
        if not blocking and target == CPU:
            raise BrokenRule(f"{func} to the CPU without waiting: its result would be read before it is there")
        if target == CPU:
            self._wait(func)
        elif blocking:
            self._refuse_while_capturing(func)
            self.uploads[place()] += 1

    def _wait(self, func: Any) -> None:
        self._refuse_while_capturing(func)
        self.waits[place()] += 1

    def _refuse_while_capturing(self, func: Any) -> None:
        if self.capturing:
            raise BrokenRule(f"{func} waits for the GPU while a graph is recorded")


def _check_devices(func: Any, args: tuple[Any, ...], tensors: list[Tensor], on_gpu: list[GpuTensor]) -> None:
    """Refuse tensors of the CPU beside those of the GPU; pointwise operators take scalars from anywhere."""
    allowed = {id(args[position]) for position in TAKES_CPU.get(func, ())}
    scalars = torch.Tag.pointwise in func.tags or func.name().startswith("aten::_foreach")
    for tensor in tensors:
        if isinstance(tensor, GpuTensor) or id(tensor) in allowed or (scalars and tensor.dim() == 0):
            continue
        if on_gpu or func not in COPIES:
            shape, other = tuple(tensor.shape), [tuple(gpu.shape) for gpu in on_gpu]
            raise BrokenRule(f"{func}: a tensor {shape} of the CPU beside {other} of the GPU")


def _check_types(func: Any, tensors: list[Tensor]) -> None:
    kinds = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    if func.overloadpacket in ONE_TYPE and len(kinds) > 1:
        raise BrokenRule(f"{func}: inputs of {sorted(map(str, kinds))}, a GPU takes one type")
    name = func.name().removeprefix("aten::")
    if name.startswith(LINEAR_ALGEBRA) and kinds & set(HALVES):
        raise BrokenRule(f"{func}: no half precision on a GPU")


def _check_generator(func: Any, kwargs: dict[str, Any]) -> None:
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type == "cpu":
        raise BrokenRule(f"{func}: a generator of the CPU for random numbers of the GPU")


def _has_mask(args: tuple[Any, ...]) -> bool:
    return any(isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])


def place() -> str:
    """The innermost function of this project that is running: its file and its name."""
    frame = sys._getframe(1)
    while frame is not None:  # type: ignore[redundant-expr]
        path = Path(frame.f_code.co_filename)
        if (
            path.is_relative_to(ROOT)
            and path.relative_to(ROOT).parts[0] != "tests"
            and "site-packages" not in path.parts
        ):
            return f"{path.relative_to(ROOT)}:{frame.f_code.co_name}"
        frame = frame.f_back  # type: ignore[assignment]
    return "outside"


class Entry(NamedTuple):
    """An operator in PyTorch's own list: keys of its kernels, the operator it shares them with, variants made from it."""

    kernels: frozenset[str]
    delegate: str
    variants: tuple[str, ...]


@functools.cache
def _native_functions() -> dict[str, Entry]:
    """PyTorch's own list of operators by name, which its package carries."""
    path = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    entries = {}
    for text in path.read_text(encoding="utf-8").split("\n- func: ")[1:]:
        fields = dict(re.findall(r"^  (structured_delegate|autogen): (.*)$", text, re.MULTILINE))
        section = text.partition("\n  dispatch:\n")[2]
        if "\n  ufunc_inner_loop:" in text:  # one formula, from which PyTorch makes kernels of the CPU and of CUDA
            section = f"    CPU, CUDA: formula\n{section}"
        names = itertools.takewhile(lambda line: line.startswith("    ") or "#" in line, section.splitlines())
        kernels = frozenset(key.strip() for line in names for key in line.partition(":")[0].split(","))
        variants = tuple(fields.get("autogen", "").replace(" ", "").split(","))
        entries[text.partition("(")[0]] = Entry(kernels, fields.get("structured_delegate", ""), variants)
    return entries


@functools.cache
def has_gpu_kernel(name: str) -> bool:
    """True where PyTorch's list has a CUDA kernel of an operator, "aten::add.Tensor", or one for all devices."""
    space, _, short = name.partition("::")
    if space != "aten":
        return space in ("prim", "prims")
    functions = _native_functions()
    if short not in functions:
        return any(short in entry.variants for entry in functions.values())
    entry = functions[short]
    if entry.delegate:
        entry = functions[entry.delegate]
    return not entry.kernels or "CUDA" in entry.kernels or bool(entry.kernels & ON_ANY_DEVICE)
