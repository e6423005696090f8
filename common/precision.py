"""Device, its memory, autocast, loss scaling, TF32 and random numbers: the only file that names cuda."""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from common.errors import UsageError
from common.kernels import private_ops
from common.kernels.packed import reads_float16

# The first release with torch.compiler.is_exporting; fully_shard and get_total_norm came one release before.
OLDEST_PYTORCH = "2.7"
NO_ROOM = (  # messages of full memory that have no exception of their own
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "_STATUS_ALLOC_FAILED",  # a GPU library without room for its own state
)
WARM_UP_CALLS = 3  # before recording a CUDA graph
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # glibc's malloc.h


def pick_device(local_rank: int = 0, cpu: bool = False) -> torch.device:
    """This process's GPU, or the CPU where there is none or it is asked for. UsageError where others have all the GPUs."""
    check_pytorch()
    if cpu or not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= gpu_count():
        raise UsageError(
            f"process {local_rank} of this machine has no GPU, there are {gpu_count()}: "
            "start as many processes as GPUs, or train on the CPU with --cpu"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def check_pytorch() -> None:
    """Raise UsageError where PyTorch is older than OLDEST_PYTORCH."""
    if torch.__version__ < f"{OLDEST_PYTORCH}.0a0":  # NVIDIA's images have such versions
        raise UsageError(
            f"PyTorch {torch.__version__} is installed, expected {OLDEST_PYTORCH} or later: install a newer one "
            "(pytorch.org has the builds for each GPU), or build the Docker image from a newer FROM_IMAGE_NAME"
        )


def default_device() -> torch.device:
    """Return the GPU that this process uses now, or the CPU where there is none."""
    return torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else torch.device("cpu")


def configure(cudnn_enabled: bool, cudnn_benchmark: bool, tf32: bool = True) -> None:
    """Set cuDNN as the flags say, and whether matrix products and convolutions round to TF32 where the GPU has it."""
    torch.backends.cudnn.enabled = cudnn_enabled
    torch.backends.cudnn.benchmark = cudnn_benchmark
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32


def keep_freed_memory(device: torch.device) -> None:
    """On a CPU, let the C library keep what tensors leave for the next ones; does nothing where that is not glibc.

    By itself it gives large blocks back to the system, which clears each page of the next one anew: up to a fifth of a large
    model's step.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if device.type == "cpu" else None
    if mallopt:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def distributed_backend(device: torch.device) -> str:
    """The collective libraries: Gloo for what lies in CPUs, and NCCL for what lies in GPUs."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def has_fast_half(device: torch.device) -> bool:
    """Whether half precision pays: on any GPU; on a CPU where oneDNN computes in bfloat16 (x86: from AVX-512 on).

    Without those instructions every number is converted, and a matrix product takes tens of times as long as in float32.
    """
    return device.type == "cuda" or private_ops.has_bfloat16()


def half_dtype(device: torch.device, wanted: bool, named: str | None = None) -> torch.dtype | None:
    """The type of mixed precision, or None for float32.

    The one named, else float16 on a GPU; on a CPU, which has no fast float16, bfloat16 where that is fast, else float32.
    """
    if not wanted:
        return None
    if named:
        return {"float16": torch.float16, "bfloat16": torch.bfloat16}[named]
    if not has_fast_half(device):
        return None
    return torch.float16 if device.type == "cuda" else torch.bfloat16


def autocast(device: torch.device, half: torch.dtype | None) -> torch.autocast:
    """Mixed precision in what half_dtype says."""
    return torch.autocast(device.type, dtype=half or torch.bfloat16, enabled=half is not None)


def half_note(device: torch.device, half: torch.dtype | None) -> str:
    """A note on the type that a request for half precision leads to; empty where it is the usual one."""
    if has_fast_half(device):
        return ""
    many_times = "this CPU has no bfloat16 instructions and would be many times slower with them emulated"
    return f"{many_times}: computing in float32" if half is None else f"{many_times.replace('would be', 'is')}"


def int8_note(device: torch.device) -> str:
    """A note where --int8 has no effect; empty elsewhere."""
    return (
        "" if reads_float16(device) else f"--int8: no effect on this {device.type.upper()}, it is for x86 CPUs (--cpu)"
    )


def grad_scaler(device: torch.device, half: torch.dtype | None) -> torch.amp.GradScaler:
    """Dynamic loss scaling where gradients are float16; bfloat16 has float32's range and needs none."""
    return torch.amp.GradScaler(device.type, enabled=half == torch.float16)


def apex_loss_scale(amp_state: dict) -> float | None:
    """The loss scale in the state that NVIDIA Apex's amp left in older checkpoints."""
    scalers = [state for name, state in amp_state.items() if name.startswith("loss_scaler")]
    return float(scalers[0]["loss_scale"]) if scalers else None


def synchronize(device: torch.device) -> None:
    """Wait for the device, so that a clock read next tells the truth."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def repeatable(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """`work`, which must read and write the same tensors at each call: on a GPU recorded as a CUDA graph, and replayed by calls.

    Recording runs the work a few times; the random numbers it draws then are not missed by what comes after.
    """
    if device.type != "cuda":
        return work
    with separate_rng(device, 0):
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # libraries set themselves up in the first calls, which cannot be recorded
            for _ in range(WARM_UP_CALLS):
                work()
        torch.cuda.current_stream(device).wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
    return graph.replay


def peak_memory(device: torch.device) -> int | None:
    """Bytes of a GPU's memory that tensors took at most since the last call; None on a CPU, which keeps no count."""
    if device.type != "cuda":
        return None
    peak = torch.cuda.max_memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    return peak


def allocated_memory(device: torch.device) -> int | None:
    """Bytes of a GPU's memory that tensors take now; None on a CPU, which keeps no count."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else None


def total_memory(device: torch.device) -> int | None:
    """Bytes of a GPU's memory in all; None on a CPU."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else None


def is_out_of_memory(error: BaseException) -> bool:
    """True for every error by which PyTorch, its libraries and Python report full memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(message in str(error) for message in NO_ROOM)


def free_cached_memory(device: torch.device) -> None:
    """Give the blocks that PyTorch holds without use back to the GPU; does nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.empty_cache()


def draw_seed() -> int:
    """A seed that nobody chose."""
    return secrets.randbelow(2**31)


def seed_everything(seed: int) -> None:
    """Seed this process's generators, on all its devices."""
    torch.manual_seed(seed)


@contextmanager
def separate_rng(device: torch.device, seed: int) -> Iterator[None]:
    """Inside, random numbers start at `seed`; afterwards the generators go on where they were."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def rng_states(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """State of the CPU's generator, and of the GPU's where this process uses one."""
    return torch.get_rng_state(), torch.cuda.get_rng_state(device) if device.type == "cuda" else None


def restore_rng_states(device: torch.device, cpu_state: Tensor, gpu_state: Tensor | None) -> None:
    """Put back what rng_states returned; a GPU's state is passed over on a CPU."""
    torch.set_rng_state(cpu_state.cpu().byte().clone())  # of a view, a row say, it would read another part
    if gpu_state is not None and device.type == "cuda":
        torch.cuda.set_rng_state(gpu_state.cpu().byte(), device)


def gpu_count() -> int:
    """GPUs this process may use."""
    return torch.cuda.device_count()
