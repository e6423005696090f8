"""A GPU of pretence: tensors that PyTorch takes for CUDA tensors and that compute on the CPU, with real numbers.

    with PretendGpu(watch) as gpu:
        x = torch.zeros(3, device="cuda")

Each tensor is a wrapper of a CPU tensor. Autograd, autocast and every `device.type` of our code see a CUDA device; each
operator below autograd goes to `watch`, then to the CPU. A CUDA graph is a list of these operators: a replay runs them on the
same memory again, without Python, as a GPU does. No driver, no GPU and no CUDA build are needed, and nothing here says how
fast a GPU is, or that its libraries accept a call: tests marked `gpu` say that, on one. PyTorch's own LSTM
stands for cuDNN's, and inference mode is no_grad.

PyTorch asks two C++ objects about CUDA: the device guard, and the hooks. This build has a null pointer and a "no" there.
Inside the context both get the table of functions of the CPU's guard, which does nothing and counts one device.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map_only

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")
MEMORY = 80 * 10**9  # bytes that the GPU claims to have
aten = torch.ops.aten

requires_pretence = pytest.mark.skipif(
    torch.version.cuda is not None or torch.version.hip is not None,
    reason="this build of PyTorch has a GPU's own guards: the tests marked gpu take a GPU",
)


class Watch(Protocol):
    """Takes each operator of the pretended GPU before it runs; raises for those that a GPU refuses."""

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], target: torch.device) -> None: ...
    def check_after_capture(self, tensors: list[Tensor]) -> None: ...

    capturing: bool


class GpuTensor(Tensor):
    """A wrapper of a CPU tensor that is on the device "cuda:0" for all but the operators themselves."""

    on_cpu: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> GpuTensor:
        wrapper: GpuTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls, real.shape, strides=real.stride(), storage_offset=real.storage_offset(), dtype=real.dtype,
            device=GPU,
        )  # fmt: skip
        wrapper.on_cpu = real
        return wrapper

    def __init__(self, real: Tensor) -> None: ...

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} on a tensor of the pretended GPU, outside of its context")

    def __tensor_flatten__(self) -> tuple[list[str], None]:  # lets Module.to swap parameters in place
        return ["on_cpu"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], *_: Any) -> GpuTensor:
        return GpuTensor(inner["on_cpu"])

    def __deepcopy__(self, memo: dict[int, Any]) -> GpuTensor:
        if id(self) not in memo:
            copied = GpuTensor(self.on_cpu.clone()).requires_grad_(self.requires_grad)
            copied._is_param = getattr(self, "_is_param", False)  # type: ignore[attr-defined]
            memo[id(self)] = copied
        return memo[id(self)]  # type: ignore[no-any-return]

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"GpuTensor({self.on_cpu})"

    def tolist(self) -> Any:
        return self.cpu().tolist()  # as C++ does it, which takes no subclass

    def data_ptr(self) -> int:
        return self.on_cpu.data_ptr()


class PretendGpu(TorchDispatchMode):
    """The context in which "cuda" is the pretended GPU."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.watch = watch
        self.tape: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] | None = None
        self.capture_mode = ""  # of the latest graph
        self.capture_device: torch.device | None = None  # of its stream
        self.created: list[weakref.ref[Tensor]] = []
        self.rng_state = torch.Generator().manual_seed(0).get_state()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> PretendGpu:
        self._stack.enter_context(_c_plus_plus_sees_cuda())
        self._stack.enter_context(torch.autograd.set_multithreading_enabled(False))
        # torch.tensor(numbers, device="cuda") makes a tensor of the CPU then, and copies it where we see it.
        self._stack.callback(torch._C._set_only_lift_cpu_tensors, torch._C._only_lift_cpu_tensors())
        torch._C._set_only_lift_cpu_tensors(True)
        for target, values in ((torch.cuda, self._cuda()), (torch.backends.cudnn, {"is_acceptable": lambda _: False})):
            self._stack.enter_context(mock.patch.multiple(target, **values))
        self._stack.enter_context(mock.patch.object(torch.inference_mode, "__enter__", _without_gradients))
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *problem: Any) -> None:
        super().__exit__(*problem)
        self._stack.close()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        target = target_of(func, args, kwargs)
        self.watch.before(func, args, kwargs, target)
        real_args, real_kwargs = tree_map_only(GpuTensor, lambda tensor: tensor.on_cpu, (args, kwargs))
        if "device" in real_kwargs:
            real_kwargs = {**real_kwargs, "device": CPU}
        real_kwargs.pop("pin_memory", None)
        output = self._run(EMULATED.get(func, func), real_args, real_kwargs, target)
        if target.type == "cpu":
            return output
        if self.tape is not None:
            self.tape.append((EMULATED.get(func, func), real_args, real_kwargs, output))
        wrapped = tree_map_only(Tensor, self._wrap, output)
        if func is aten._pack_padded_sequence.default:
            return wrapped[0], output[1]  # the batch sizes stay on the CPU
        return return_and_correct_aliasing(func, args, kwargs, wrapped) if func not in EMULATED else wrapped

    def _wrap(self, tensor: Tensor) -> GpuTensor:
        wrapped = GpuTensor(tensor)
        if self.tape is not None:
            self.created.append(weakref.ref(wrapped))
        return wrapped

    def _run(self, func: Any, args: Any, kwargs: Any, target: torch.device) -> Any:
        """Run an operator on the CPU; random numbers of the GPU come from a state of their own."""
        if target.type == "cpu" or torch.Tag.nondeterministic_seeded not in getattr(func, "tags", ()):
            return func(*args, **kwargs)
        of_cpu = torch.get_rng_state()
        torch.set_rng_state(self.rng_state)
        output = func(*args, **kwargs)
        self.rng_state = torch.get_rng_state()
        torch.set_rng_state(of_cpu)
        return output

    # --- torch.cuda ---

    def _cuda(self) -> dict[str, Any]:
        properties = SimpleNamespace(total_memory=MEMORY, name="pretended")
        nothing = {name: lambda *_, **__: None for name in ("_lazy_init", "set_device", "synchronize", "empty_cache")}
        counts = {name: lambda *_: 0 for name in ("current_device", "memory_allocated", "max_memory_allocated")} | {
            "reset_peak_memory_stats": lambda *_: None
        }
        return nothing | counts | {
            "is_available": lambda: True,
            "device_count": lambda: 1,
            "is_bf16_supported": lambda *_: True,
            "get_device_properties": lambda *_: properties,
            "get_device_name": lambda *_: properties.name,
            "get_device_capability": lambda *_: (9, 0),
            "get_arch_list": lambda: ["sm_90"],
            "get_rng_state": lambda *_: self.rng_state.clone(),
            "set_rng_state": self._set_rng_state,
            "manual_seed_all": self._seed,
            "manual_seed": self._seed,
            "Stream": lambda device: SimpleNamespace(device=device, wait_stream=lambda *_: None),
            "current_stream": lambda *_: SimpleNamespace(wait_stream=lambda *_: None),
            "stream": lambda *_: contextlib.nullcontext(),
            "CUDAGraph": lambda: Graph(self),
            "graph": lambda graph, stream=None, capture_error_mode="global": graph.capture(
                capture_error_mode, stream and stream.device
            ),
        }  # fmt: skip

    def _set_rng_state(self, state: Tensor, device: Any = None) -> None:
        self.rng_state = state.clone()

    def _seed(self, seed: int) -> None:
        self.rng_state = torch.Generator().manual_seed(seed).get_state()


def _without_gradients(mode: Any) -> None:
    """Enter inference mode as no_grad: in inference mode operators come to us whole, LSTMs too, and without autocast."""
    mode._inference_mode_context = torch.no_grad() if mode.mode else contextlib.nullcontext()
    mode._inference_mode_context.__enter__()


class Graph:
    """A CUDA graph: the operators of its capture on their tensors; a replay runs no Python of the captured work."""

    def __init__(self, gpu: PretendGpu) -> None:
        self.gpu, self.tape = gpu, []  # type: ignore[var-annotated]

    @contextlib.contextmanager
    def capture(self, mode: str, device: torch.device | None) -> Iterator[None]:
        gpu, self.gpu.capture_mode, self.gpu.capture_device = self.gpu, mode, device
        gpu.tape, gpu.created, gpu.watch.capturing = self.tape, [], True
        try:
            yield
        finally:
            gpu.tape, gpu.watch.capturing = None, False
        gc.collect()
        alive = [tensor for tensor in (reference() for reference in gpu.created) if tensor is not None]
        gpu.watch.check_after_capture(alive)

    def replay(self) -> None:
        """Run every operator again, and write each result where the first one lies."""
        for func, args, kwargs, first in self.tape:
            again = self.gpu._run(func, args, kwargs, GPU)
            for old, new in zip(tree_leaves(first), tree_leaves(again), strict=True):
                if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


def target_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    if func is aten._local_scalar_dense.default:
        return CPU
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"])
    if func is aten.copy_.default:
        return args[0].device  # type: ignore[no-any-return]
    return GPU if any(isinstance(leaf, GpuTensor) for leaf in tree_leaves((args, kwargs))) else CPU


def _fused_lstm_cell(
    inputs: Tensor, recurrent: Tensor, cell: Tensor, bias: Tensor | None = None, recurrent_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    gates = (inputs.float() + recurrent.float()) if inputs.dtype != torch.float64 else inputs + recurrent
    for extra in (bias, recurrent_bias):
        gates = gates if extra is None else gates + extra
    i, f, g, o = gates.chunk(4, dim=1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    new_cell = f * cell + i * g
    hidden = o * new_cell.tanh()
    return hidden.to(cell.dtype), new_cell.to(cell.dtype), torch.cat((i, f, g, o), dim=1).to(cell.dtype)


def _fused_lstm_cell_backward(
    d_hidden: Tensor | None, d_cell: Tensor | None, cell: Tensor, new_cell: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    i, f, g, o = workspace.chunk(4, dim=1)
    tanh = new_cell.tanh()
    total = torch.zeros_like(cell) if d_cell is None else d_cell
    d_o = torch.zeros_like(cell)
    if d_hidden is not None:
        total = total + d_hidden * o * (1 - tanh * tanh)
        d_o = d_hidden * tanh * o * (1 - o)
    parts = total * g * i * (1 - i), total * cell * f * (1 - f), total * i * (1 - g * g), d_o
    d_gates = torch.cat(parts, dim=1)
    return d_gates, total * f, d_gates.sum(0) if has_bias else None


def _softmax(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    return torch._softmax(x.float() if half_to_float else x, dim, False)


def _softmax_backward(gradient: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Tensor:
    return torch._softmax_backward_data(gradient, output, dim, output.dtype).to(dtype)


# Operators, or their arguments, that PyTorch has for CUDA alone.
EMULATED: dict[Any, Callable[..., Any]] = {
    aten._thnn_fused_lstm_cell.default: _fused_lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: _fused_lstm_cell_backward,
    aten._softmax.default: _softmax,
    aten._softmax_backward_data.default: _softmax_backward,
}

# Numbers of virtual functions in the headers c10/core/impl/DeviceGuardImplInterface.h, ATen/detail/AcceleratorHooksInterface.h
# and ATen/detail/CUDAHooksInterface.h of PyTorch 2.13. A table of functions has two entries before the first.
SET_DEVICE, GET_STREAM, DESTROY_EVENT, RECORD, BLOCK, DEVICE_COUNT = 3, 5, 11, 12, 13, 15
IS_BUILT, IS_AVAILABLE, HAS_PRIMARY_CONTEXT, HAS_CUDA = 2, 3, 4, 16
BEFORE, GUARD_FUNCTIONS, HOOKS_FUNCTIONS, DEVICE_TYPES = 2, 24, 64, 22


@contextlib.contextmanager
def _c_plus_plus_sees_cuda() -> Iterator[None]:
    """Give C++ a guard of CUDA devices and hooks that say there is one; take both away afterwards."""
    import cffi  # here, since a machine with a GPU may lack it, and does not come here

    folder = Path(torch.__file__).parent / "lib"
    c10, cpu_library = (ctypes.CDLL(str(folder / name)) for name in ("libc10.so", "libtorch_cpu.so"))
    guards = (ctypes.c_void_p * DEVICE_TYPES).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    get_hooks = cpu_library["_ZN2at6detail12getCUDAHooksEv"]
    get_hooks.restype = ctypes.c_void_p
    guard_table = _copy_of_table(guards[0], GUARD_FUNCTIONS)
    no_op, one = guard_table[BEFORE + SET_DEVICE], guard_table[BEFORE + DEVICE_COUNT]
    for event in (DESTROY_EVENT, RECORD, BLOCK):  # autograd's events between streams
        guard_table[BEFORE + event] = no_op
    ffi = cffi.FFI()
    ffi.cdef("struct stream { int8_t type, index; int64_t id; };")
    stream = ffi.new("struct stream *", {"type": 1})  # CUDA, device 0, the default stream
    get_stream = ffi.callback("struct stream(void *, int16_t)", lambda *_: stream[0])
    guard_table[BEFORE + GET_STREAM] = int(ffi.cast("intptr_t", get_stream))
    guard = ctypes.c_void_p(ctypes.addressof(guard_table) + ctypes.sizeof(ctypes.c_void_p) * BEFORE)
    hooks = ctypes.c_void_p.from_address(get_hooks())
    hooks_table = _copy_of_table(get_hooks(), HOOKS_FUNCTIONS)
    for question in (IS_BUILT, HAS_CUDA):
        hooks_table[BEFORE + question] = one
    hooks_table[BEFORE + HAS_PRIMARY_CONTEXT] = hooks_table[BEFORE + IS_AVAILABLE]  # no
    before = guards[1], hooks.value
    guards[1] = ctypes.addressof(guard)
    hooks.value = ctypes.addressof(hooks_table) + ctypes.sizeof(ctypes.c_void_p) * BEFORE
    try:
        assert torch._C._accelerator_getAccelerator() == torch.device("cuda")
        yield
    finally:
        guards[1], hooks.value = before


def _copy_of_table(thing: int, functions: int) -> Any:
    """A copy of the table of virtual functions of a C++ object."""
    table = ctypes.c_void_p.from_address(thing).value
    assert table is not None
    kind = ctypes.c_void_p * (BEFORE + functions)
    return kind(*kind.from_address(table - ctypes.sizeof(ctypes.c_void_p) * BEFORE))
