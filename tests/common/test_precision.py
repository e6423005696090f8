"""Device, number formats and random states, as far as a machine without a GPU can tell."""

import contextlib
import re
from unittest import mock

import pytest
import torch
from torch.torch_version import TorchVersion

from common import precision
from common.errors import UsageError

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


def test_the_device_is_the_cpu_or_each_process_s_own_gpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert precision.pick_device() == CPU
    taken = []
    answers = {"is_available": lambda: True, "device_count": lambda: 2, "set_device": taken.append}
    answers |= {"get_device_name": str, "get_device_capability": lambda _: (9, 0), "get_arch_list": lambda: ["sm_90"]}
    for name, answer in answers.items():
        monkeypatch.setattr(torch.cuda, name, answer)
    assert precision.pick_device(local_rank=1, cpu=True) == CPU
    assert precision.pick_device(1) == torch.device("cuda", 1)
    assert taken == [torch.device("cuda", 1)]
    with pytest.raises(UsageError, match=r"process 2 of this machine has no GPU, there are 2: .*--cpu"):
        precision.pick_device(2)
    assert len(taken) == 1


def test_a_cpu_without_bfloat16_instructions_computes_in_float32(monkeypatch) -> None:
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: False)
    assert precision.half_dtype(CPU, True) is None
    assert precision.half_note(CPU, None) == "bfloat16 is slower than float32 on this CPU: computing in float32"
    # whoever names a type gets it, and is told
    assert precision.half_dtype(CPU, True, "bfloat16") == torch.bfloat16
    assert precision.half_note(CPU, torch.bfloat16) == "bfloat16 is slower than float32 on this CPU"
    assert precision.half_note(GPU, torch.float16) == ""


def test_number_formats_and_the_loss_scale_of_older_checkpoints(monkeypatch) -> None:
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: True)
    assert precision.half_note(CPU, torch.bfloat16) == ""
    for device, wanted, named, dtype in (
        (CPU, False, "float16", None),
        (CPU, True, None, torch.bfloat16),
        (CPU, True, "float16", torch.float16),
        (GPU, True, None, torch.float16),
        (GPU, True, "bfloat16", torch.bfloat16),
    ):
        assert precision.half_dtype(device, wanted, named) == dtype
    for dtype in (torch.bfloat16, torch.float16):
        with precision.autocast(CPU, dtype):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == dtype
        assert precision.grad_scaler(CPU, dtype).is_enabled() == (dtype == torch.float16)
    with precision.autocast(CPU, None):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert not precision.grad_scaler(CPU, None).is_enabled()
    assert precision.distributed_backend(CPU) == "gloo"
    assert precision.distributed_backend(GPU) == "cpu:gloo,cuda:nccl"
    state = {"amp": {"loss_scaler0": {"loss_scale": 4096.0, "unskipped": 17}}}
    assert precision.apex_loss_scale(state) == 4096.0
    assert precision.apex_loss_scale({}) is None


@pytest.mark.parametrize("enabled", [False, True])
def test_cudnn_is_as_the_flags_say(enabled: bool, monkeypatch) -> None:
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    for name in ("enabled", "benchmark", "allow_tf32"):
        monkeypatch.setattr(cudnn, name, getattr(cudnn, name))  # put back afterwards
    before = matmul.allow_tf32  # which monkeypatch cannot put back
    try:
        precision.configure(cudnn_enabled=enabled, cudnn_benchmark=not enabled, tf32=enabled)
        assert (cudnn.enabled, cudnn.benchmark) == (enabled, not enabled)
        assert cudnn.allow_tf32 == matmul.allow_tf32 == enabled
        precision.configure(cudnn_enabled=enabled, cudnn_benchmark=not enabled)
        assert cudnn.allow_tf32 and matmul.allow_tf32  # unless told otherwise
    finally:
        matmul.allow_tf32 = before


def test_random_numbers_go_on_after_a_stretch_of_their_own_and_states_are_put_back() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    first = torch.rand(2)
    with precision.separate_rng(CPU, 7):
        inside = torch.rand(3)
    assert torch.equal(torch.cat((first, torch.rand(2))), wanted)
    assert torch.equal(inside, torch.rand(3, generator=torch.Generator().manual_seed(7)))
    cpu, gpu = precision.rng_states(CPU)
    assert gpu is None
    wanted = torch.rand(5)
    precision.restore_rng_states(CPU, cpu, torch.zeros(16, dtype=torch.uint8))  # a GPU's state is passed over
    assert torch.equal(torch.rand(5), wanted)
    precision.seed_everything(11)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(11)))
    drawn = {precision.draw_seed() for _ in range(20)}
    assert len(drawn) > 15 and all(0 <= seed < 2**31 for seed in drawn)


@pytest.mark.gpu
def test_on_a_gpu_work_is_recorded_and_replayed_with_new_random_numbers() -> None:
    device = precision.pick_device()
    with precision.autocast(device, precision.half_dtype(device, True)):
        assert (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).dtype == torch.float16
    assert precision.grad_scaler(device, torch.float16).is_enabled()
    cpu, gpu = precision.rng_states(device)
    wanted = torch.rand(5, device=device)
    precision.restore_rng_states(device, cpu, gpu)
    assert torch.equal(torch.rand(5, device=device), wanted)
    with precision.separate_rng(device, 1):
        torch.rand(3, device=device)
    precision.synchronize(device)
    source, drawn = torch.zeros(4, device=device), torch.zeros(4, device=device)
    again = precision.repeatable(lambda: torch.add(source, torch.rand(4, device=device), out=drawn), device)
    seen = []
    for start in (10.0, 10.0, 20.0):
        source.fill_(start)
        again()
        seen.append(drawn.cpu())
    assert [int(numbers[0]) for numbers in seen] == [10, 10, 20]
    assert not torch.equal(seen[0], seen[1])


OLD = ("2.5.1+cu124", "2.5.0a0+e000cf0ad9.nv24.10", "1.13.0", "2.6.0")  # alphas lack a part


@pytest.mark.parametrize("version", [*OLD, "2.7.0", "2.7.0a0+ecf3bae40a.nv25.02", "2.7.1+cu126", "2.10.1", "3.0.0"])
def test_an_older_pytorch_is_refused_by_name(version: str, monkeypatch) -> None:
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    refusal = rf"PyTorch {re.escape(version)} is installed, expected 2\.7 or later"
    with pytest.raises(UsageError, match=refusal) if version in OLD else contextlib.nullcontext():
        assert precision.pick_device(cpu=True) == CPU


VISIBLE = [(None, 1, "1"), ("", 0, "0"), ("2, 5", 1, "5"), ("GPU-a,GPU-b", 0, "GPU-a")]


@pytest.mark.parametrize(("visible", "index", "name"), VISIBLE)
def test_one_gpu_of_those_that_this_process_may_use(monkeypatch, visible: str | None, index: int, name: str) -> None:
    monkeypatch.delenv(precision.VISIBLE_GPUS, raising=False)
    if visible is not None:
        monkeypatch.setenv(precision.VISIBLE_GPUS, visible)
    assert precision.only_gpu(index) == {precision.VISIBLE_GPUS: name}


TURING_AND_LATER = ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"]  # PyTorch 2.13 with CUDA 13


@pytest.mark.parametrize(
    ("capability", "architectures", "fits"),
    [
        ((7, 0), TURING_AND_LATER, False),  # V100
        ((7, 5), TURING_AND_LATER, True),
        ((8, 9), TURING_AND_LATER, True),  # runs the code of 8.6
        ((6, 1), ["sm_50", "sm_60", "sm_70"], True),
        ((13, 0), ["sm_120", "compute_120"], True),
        ((10, 3), ["sm_100a"], True),
        ((7, 0), [], True),  # a build that does not say
    ],
)
def test_a_gpu_without_code_in_this_build_is_refused(capability, architectures, fits: bool) -> None:
    with contextlib.nullcontext() if fits else pytest.raises(UsageError, match=r"^Card: .*TORCH.*--cpu"):
        precision.check_gpu("Card", capability, architectures)


@pytest.mark.parametrize(
    ("cuda", "visible", "words"),
    [
        (None, None, "is a build without CUDA; delete .venv"),
        ("13.0", "", "CUDA_VISIBLE_DEVICES hides the GPU"),
        ("13.0", None, "needs a driver for CUDA 13.0"),
    ],
)
def test_the_cpu_is_not_taken_silently_where_there_is_a_driver(monkeypatch, tmp_path, capsys, cuda, visible, words):
    if torch.cuda.is_available():
        pytest.skip("a usable GPU is here")
    precision.print_once.cache_clear()
    monkeypatch.setattr(precision, "NVIDIA_DRIVER", (tmp_path,))
    monkeypatch.setattr(torch.version, "cuda", cuda)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    said = "The NVIDIA driver on your system is too old (found version 12020).\nMore words."
    monkeypatch.setattr(torch.cuda, "init", mock.Mock(side_effect=RuntimeError(said)))
    for _ in range(2):
        assert precision.pick_device() == CPU
    told = capsys.readouterr().err
    assert told.startswith("note: running on the CPU: ") and words in told and told.count("\n") == 1
    assert precision.pick_device(cpu=True) == CPU and capsys.readouterr().err == ""
