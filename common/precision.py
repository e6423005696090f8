"""Device, its memory, autocast, loss scaling, TF32 and random numbers: the only file that names cuda."""

from __future__ import annotations

import os
import platform
import re
import secrets
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from common.errors import UsageError
from common.kernels import private_ops
from common.kernels.packed import reads_float16
from common.system import c_function, usable_cores
from common.threads import FIXED, ThreadBalance

# The first release with torch.compiler.is_exporting; fully_shard and get_total_norm came one release before.
OLDEST_PYTORCH = "2.7"
NO_ROOM = (  # messages for full memory that have no exception class of their own
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "_ALLOC_FAILED",  # a GPU library without room for its own state
    "CUDA error: out of memory",  # a GPU's driver without room for a kernel's code, a graph or a process
)
# oneDNN's message when there is no room for the code or the scratch space of the algorithm it chose.
NO_ROOM_AT_END = "could not create a primitive"
CUBLAS_WORKSPACE, REPEATABLE_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG", ":4096:8"  # one of two values that repeat results
NOT_DETERMINISTIC = "does not have a deterministic implementation"  # follows the operator in PyTorch's message
VISIBLE_GPUS = "CUDA_VISIBLE_DEVICES"
NVIDIA_DRIVER = (Path("/proc/driver/nvidia/version"), Path("/usr/lib/wsl/lib/nvidia-smi"))  # on Linux, in WSL 2
REINSTALL = "delete .venv and install another build with TORCH (README.md, Systems)"
# torch.compile's modes for the values of --compile: for a whole model, and for a step of a loop, where replaying graphs that the
# compiler recorded would overwrite the states of earlier steps.
COMPILE_MODES = {"default": "default", "max-autotune": "max-autotune"}
LOOP_COMPILE_MODES = {"default": "default", "max-autotune": "max-autotune-no-cudagraphs"}
WARM_UP_CALLS = 3  # calls before a CUDA graph is captured
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8  # glibc's malloc.h


def pick_device(local_rank: int = 0, cpu: bool = False) -> torch.device:
    """Return this process's GPU, or the CPU where there is no GPU or `cpu` is set; a note tells why a GPU is not used.

    Raises UsageError with too few GPUs, and for one that this build of PyTorch has no code for.
    """
    check_pytorch()
    if cpu or not gpu_is_usable():
        return torch.device("cpu")
    if local_rank >= gpu_count():
        raise UsageError(
            f"process {local_rank} of this machine has no GPU, there are {gpu_count()}: "
            "start as many processes as GPUs, or train on the CPU with --cpu"
        )
    device = torch.device("cuda", local_rank)
    check_gpu(torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device), torch.cuda.get_arch_list())
    torch.cuda.set_device(device)
    return device


def gpu_is_usable() -> bool:
    """Return True if PyTorch can use a GPU. Prints a note to stderr, once, where there is one that it cannot use."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's own words, with the place in its code
        usable = torch.cuda.is_available()
    if not usable and any(file.exists() for file in NVIDIA_DRIVER):
        print_once(f"note: running on the CPU: {why_no_gpu()}")
    return usable


def why_no_gpu() -> str:
    """Tell why PyTorch cannot use a machine's NVIDIA GPU, and the way out."""
    if torch.version.cuda is None:
        return f"PyTorch {torch.__version__} is a build without CUDA; {REINSTALL}"
    if os.environ.get(VISIBLE_GPUS, "0").strip() in ("", "-1"):
        return f"{VISIBLE_GPUS} hides the GPU"
    try:
        torch.cuda.init()
    except RuntimeError as error:  # such as a driver older than the build
        return f"{str(error).splitlines()[0]} PyTorch {torch.__version__} needs a driver for CUDA {torch.version.cuda}; {REINSTALL}"
    return f"PyTorch {torch.__version__} finds no GPU; look at nvidia-smi"


@cache
def print_once(note: str) -> None:
    """Print a note to stderr, the first time that it comes."""
    print(note, file=sys.stderr)


def check_gpu(name: str, capability: tuple[int, int], architectures: Sequence[str]) -> None:
    """Raise UsageError for a GPU that a build of PyTorch has no code for.

    Args:
        name: of the GPU.
        capability: its compute capability, (7, 0) for a V100.
        architectures: those of the build: sm_70 runs on 7.x, and compute_70, which is compiled at the start, on later ones too.
    """
    for architecture in architectures:
        kind, _, number = architecture.partition("_")
        major, minor = divmod(int(re.sub(r"\D", "", number)), 10)
        if (kind == "sm" and major == capability[0] and minor <= capability[1]) or (
            kind == "compute" and (major, minor) <= capability
        ):
            return
    if architectures:
        raise UsageError(
            f"{name}: PyTorch {torch.__version__} has no code for its compute capability {capability[0]}.{capability[1]}, "
            f"only for {', '.join(architectures)}; {REINSTALL}, or use the CPU with --cpu"
        )


def check_pytorch() -> None:
    """Raise UsageError where PyTorch is older than OLDEST_PYTORCH."""
    if torch.__version__ < f"{OLDEST_PYTORCH}.0a0":  # versions in NVIDIA's images are like 2.7.0a0
        raise UsageError(
            f"PyTorch {torch.__version__} is installed, expected {OLDEST_PYTORCH} or later: install a newer one "
            "(pytorch.org has the builds for each GPU), or build the Docker image from a newer FROM_IMAGE_NAME"
        )


def default_device() -> torch.device:
    """Return the GPU that this process uses now, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def configure(cudnn_enabled: bool, cudnn_benchmark: bool, tf32: bool = True) -> None:
    """Set cuDNN's switches, and TF32 for matrix products and convolutions."""
    torch.backends.cudnn.enabled = cudnn_enabled
    torch.backends.cudnn.benchmark = cudnn_benchmark
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Context in which a GPU repeats results bit for bit, if `wanted`; to be entered before the first product on a GPU.

    Raises UsageError if an operator has no deterministic algorithm on the device.
    """
    if not wanted:
        yield
        return
    os.environ.setdefault(CUBLAS_WORKSPACE, REPEATABLE_WORKSPACE)
    options: Any = torch.utils.deterministic
    before = torch.are_deterministic_algorithms_enabled(), options.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True)
    options.fill_uninitialized_memory = False  # no code reads memory that it has not written
    try:
        yield
    except RuntimeError as error:
        if NOT_DETERMINISTIC not in str(error):
            raise
        operator = str(error).split(NOT_DETERMINISTIC)[0].strip()
        raise UsageError(
            f"--deterministic: {operator} has no deterministic algorithm here; leave the flag out"
        ) from None
    finally:
        torch.use_deterministic_algorithms(before[0])
        options.fill_uninitialized_memory = before[1]


def keep_freed_memory(device: torch.device) -> None:
    """On a CPU, make glibc's malloc reuse freed memory; does nothing with other C libraries.

    By default malloc returns large blocks to the system, which then clears every page again: up to a fifth of a large model's step.
    """
    mallopt = c_function("mallopt") if device.type == "cpu" else None
    if mallopt:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_ARENA_MAX, 1)  # for all threads: each would keep what it has freed to itself


def balance_threads(device: torch.device, fixed: bool = False) -> ThreadBalance | None:
    """Return the object that adapts PyTorch's threads to the load; None on a GPU, and if the user fixed their number."""
    if fixed or device.type != "cpu" or FIXED in os.environ:
        return None
    return ThreadBalance(torch.get_num_threads(), torch.set_num_threads)


def distributed_backend(device: torch.device) -> str:
    """Return the backends of collectives: Gloo for tensors on CPUs, NCCL for tensors on GPUs."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def has_fast_half(device: torch.device) -> bool:
    """Return True where half precision is fast: on a GPU, or on a CPU with fast instructions for bfloat16.

    Without them each number is converted, and a matrix product takes tens of times as long as in float32.
    """
    return device.type == "cuda" or private_ops.has_bfloat16()


def half_dtype(device: torch.device, wanted: bool, named: str | None = None) -> torch.dtype | None:
    """Return the dtype of mixed precision, or None for float32.

    It is the one `named`; by default float16 on a GPU, and on a CPU bfloat16 where that is fast, otherwise float32.
    """
    if not wanted:
        return None
    if named:
        return {"float16": torch.float16, "bfloat16": torch.bfloat16}[named]
    if not has_fast_half(device):
        return None
    return torch.float16 if device.type == "cuda" else torch.bfloat16


def autocast(device: torch.device, half: torch.dtype | None) -> torch.autocast:
    """Return the context of mixed precision in `half`, a result of half_dtype."""
    return torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None)


def half_note(device: torch.device, half: torch.dtype | None) -> str:
    """Return a note if half precision is slow on this CPU, else ""."""
    if has_fast_half(device):
        return ""
    slow = "bfloat16 is slower than float32 on this CPU"
    return f"{slow}: computing in float32" if half is None else slow


def int8_note(device: torch.device) -> str:
    """Return a note if --int8 has no effect on this device, else ""."""
    return (
        "" if reads_float16(device) else f"--int8: no effect on this {device.type.upper()}, it is for x86 CPUs (--cpu)"
    )


def grad_scaler(device: torch.device, half: torch.dtype | None) -> torch.amp.GradScaler:
    """Return dynamic loss scaling, enabled for float16 only: bfloat16 has the range of float32."""
    return torch.amp.GradScaler(device.type, enabled=half == torch.float16)


def apex_loss_scale(checkpoint: Mapping[str, Any]) -> float | None:
    """Return the loss scale in NVIDIA Apex's amp state of an older checkpoint, None without one."""
    scalers = [state for name, state in (checkpoint.get("amp") or {}).items() if name.startswith("loss_scaler")]
    return float(scalers[0]["loss_scale"]) if scalers else None


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished, so that a clock read next includes all its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def repeatable(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """Capture `work` as a CUDA graph and return its replay; on a CPU return `work` itself.

    `work` must read and write the same tensors at each call. The capture runs it a few times and leaves the random state unchanged.
    """
    if device.type != "cuda":
        return work
    with separate_rng(device, 0):
        stream = _recording_stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # libraries initialise in their first calls, which a graph cannot capture
            for _ in range(WARM_UP_CALLS):
                work()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        # By default a CUDA call from any thread ends the recording, such as a loader that pins memory, or a server. PyTorch's own
        # stream for graphs belongs to the current device and would record nothing on another one.
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            work()
    return graph.replay


@cache
def _recording_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream for all recordings on a device: the libraries' workspaces belong to one stream."""
    return torch.cuda.Stream(device)


def peak_memory(device: torch.device) -> int | None:
    """Return the peak bytes of tensors on a GPU since the last call; None on a CPU, where PyTorch does not count them."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


def allocated_memory(device: torch.device) -> int | None:
    """Return the bytes of tensors on a GPU now; None on a CPU, where PyTorch does not count them."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def total_memory(device: torch.device) -> int | None:
    """Return the bytes of a GPU's memory; None on a CPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def device_name(device: torch.device) -> str:
    """Return the name of a GPU, or of the processor and the number of cores that this process may use."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{private_ops.processor().name or platform.machine()}, {len(usable_cores())} cores"


def is_out_of_memory(error: BaseException) -> bool:
    """True for any error with which PyTorch, its libraries or Python report full memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    message = str(error)
    no_room = any(words in message for words in NO_ROOM) or message.endswith(NO_ROOM_AT_END)
    return isinstance(error, RuntimeError) and no_room


def free_cached_memory(device: torch.device) -> None:
    """Return blocks that PyTorch holds unused to the GPU; on a CPU, return those that glibc's malloc holds to the system."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    elif trim := c_function("malloc_trim"):
        trim(0)


def draw_seed() -> int:
    """Draw a seed from the system's random numbers."""
    return secrets.randbelow(2**31)


def seed_everything(seed: int) -> None:
    """Seed the generators of this process on all devices."""
    torch.manual_seed(seed)


@contextmanager
def separate_rng(device: torch.device, seed: int) -> Iterator[None]:
    """Context with generators seeded by `seed`; their previous states return at its end."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def rng_states(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Return the states of the CPU's generator and of the GPU's; None for the latter on a CPU."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def restore_rng_states(device: torch.device, cpu_state: Tensor, gpu_state: Tensor | None) -> None:
    """Restore the states that rng_states returned; on a CPU the GPU's is ignored."""
    torch.set_rng_state(cpu_state.cpu().byte().clone())  # clone: set_rng_state reads a view's storage from its start
    if gpu_state is not None and device.type == "cuda":
        torch.cuda.set_rng_state(gpu_state.cpu().byte(), device)


def gpu_count() -> int:
    """Return the number of GPUs that this process may use."""
    return torch.cuda.device_count()


def only_gpu(index: int) -> dict[str, str]:
    """Return the environment variable that limits a process to one of this process's GPUs."""
    visible = os.environ.get(VISIBLE_GPUS, "")
    names = [name.strip() for name in visible.split(",")] if visible.strip() else []
    return {VISIBLE_GPUS: names[index] if index < len(names) else str(index)}
