"""Device, number formats and random states, as far as a machine without a GPU can tell."""

from __future__ import annotations

import pytest
import torch

from common.engine import precision
from common.errors import UsageError

CPU = torch.device("cpu")
GPU = torch.device("cuda", 0)


def test_a_machine_without_gpus_and_the_flag_mean_the_cpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert precision.pick_device() == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert precision.pick_device(local_rank=1, cpu=True) == CPU


def test_each_process_of_a_machine_takes_its_own_gpu(monkeypatch) -> None:
    taken = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    assert precision.pick_device(1) == torch.device("cuda", 1)
    assert taken == [torch.device("cuda", 1)]
    with pytest.raises(UsageError, match=r"process 2 of this machine has no GPU, there are 2: .*--cpu"):
        precision.pick_device(2)
    assert len(taken) == 1


def test_a_cpu_without_bfloat16_instructions_computes_in_float32(monkeypatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with precision.autocast(CPU, True):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert "no bfloat16 instructions" in precision.half_note(CPU, True)
    assert precision.half_note(CPU, False) == precision.half_note(GPU, True) == ""
    assert precision.autocast(torch.device("cpu"), False).fast_dtype == torch.bfloat16


def test_number_formats(monkeypatch) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    assert precision.half_note(CPU, True) == ""
    assert precision.autocast(CPU, True).fast_dtype == torch.bfloat16
    with precision.autocast(CPU, True):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with precision.autocast(CPU, False):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    assert not precision.grad_scaler(CPU, True).is_enabled()
    assert (precision.distributed_backend(CPU), precision.distributed_backend(GPU)) == ("gloo", "nccl")


@pytest.mark.parametrize("enabled", [False, True])
def test_cudnn_is_as_the_flags_say(enabled: bool, monkeypatch) -> None:
    for name in ("enabled", "benchmark", "allow_tf32"):
        monkeypatch.setattr(torch.backends.cudnn, name, getattr(torch.backends.cudnn, name))  # put back afterwards
    precision.configure(cudnn_enabled=enabled, cudnn_benchmark=not enabled)
    assert (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark) == (enabled, not enabled)


def test_loss_scale_of_older_checkpoints() -> None:
    state = {"loss_scaler0": {"loss_scale": 4096.0, "unskipped": 17}}
    assert precision.apex_loss_scale(state) == 4096.0
    assert precision.apex_loss_scale({}) is None


def test_random_numbers_go_on_after_a_stretch_of_their_own() -> None:
    torch.manual_seed(3)
    wanted = torch.rand(4)
    torch.manual_seed(3)
    first = torch.rand(2)
    with precision.separate_rng(CPU, 7):
        inside = torch.rand(3)
    assert torch.equal(torch.cat((first, torch.rand(2))), wanted)
    assert torch.equal(inside, torch.rand(3, generator=torch.Generator().manual_seed(7)))


def test_random_states_are_put_back() -> None:
    cpu, gpu = precision.rng_states(CPU)
    assert gpu is None
    wanted = torch.rand(5)
    precision.restore_rng_states(CPU, cpu, torch.zeros(16, dtype=torch.uint8))  # a GPU's state is passed over
    assert torch.equal(torch.rand(5), wanted)
    several = torch.stack([torch.zeros_like(cpu), cpu])  # as a checkpoint of two processes keeps them
    precision.restore_rng_states(CPU, several[1], None)
    assert torch.equal(torch.rand(5), wanted)


def test_seeds() -> None:
    precision.seed_everything(11)
    assert torch.equal(torch.rand(3), torch.rand(3, generator=torch.Generator().manual_seed(11)))
    drawn = {precision.draw_seed() for _ in range(20)}
    assert len(drawn) > 15
    assert all(0 <= seed < 2**31 for seed in drawn)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    device = precision.pick_device()
    with precision.autocast(device, True):
        assert (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).dtype == torch.float16
    assert precision.grad_scaler(device, True).is_enabled()
    cpu, gpu = precision.rng_states(device)
    wanted = torch.rand(5, device=device)
    precision.restore_rng_states(device, cpu, gpu)
    assert torch.equal(torch.rand(5, device=device), wanted)
    with precision.separate_rng(device, 1):
        torch.rand(3, device=device)
    precision.synchronize(device)
