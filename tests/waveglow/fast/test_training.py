"""--recompute: the same numbers to the bit, from far less memory."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from common.training.memory import measure_peak, state_bytes
from tests.recipe import ROOT
from waveglow.loss_function import WaveGlowLoss
from waveglow.model import WaveGlow
from waveglow.spec import SPEC

CPU = torch.device("cpu")


def clips(n_frames: int = 5, n_mels: int = 3, hop: int = 16) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    mels = torch.randn(2, n_mels, n_frames, generator=generator)
    return mels, 0.3 * torch.randn(2, hop * n_frames, generator=generator)


def step(model: WaveGlow, recompute: bool, half: bool = False, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """The loss of a step and the gradients of all weights."""
    SPEC.prepare_training(model, {"recompute": recompute})
    model.zero_grad(set_to_none=True)
    mels, audio = (x.to(dtype) for x in clips())
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        loss = WaveGlowLoss(1.0)(model(mels, audio), audio)
    loss.backward()
    return [loss.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


@pytest.fixture
def runs():
    """runs(model) -> a list that grows with each run of one of its WNs."""

    def count(model: WaveGlow) -> list[int]:
        ran: list[int] = []
        for number, wn in enumerate(model.WN):
            wn.register_forward_pre_hook(lambda module, inputs, number=number: ran.append(number))
        return ran

    return count


@pytest.mark.parametrize(
    ("dtype", "half"), [(torch.float32, False), (torch.float64, False), (torch.float32, True)], ids=str
)
def test_loss_and_gradients_are_the_same_to_the_bit(small_model, runs, dtype, half) -> None:
    model = small_model(dtype).train()
    ran = runs(model)
    plain = step(model, False, half, dtype)
    assert ran == [0, 1, 2, 3, 4]
    again = step(model, True, half, dtype)
    assert ran[5:10] == [0, 1, 2, 3, 4]
    assert ran[10:] == [4, 3, 2, 1, 0]  # in backward
    assert len(plain) == len(again) == 1 + len(list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))
    assert all(gradient.abs().max() > 0 for gradient in again[1:])


def test_gradients_add_up_as_without(small_model) -> None:
    sums = []
    for recompute in (False, True):
        model = small_model(torch.float32).train()
        model.recompute = recompute
        for n_frames in (5, 3):
            mels, audio = clips(n_frames)
            WaveGlowLoss(1.0)(model(mels, audio), audio).backward()
        sums.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*sums, strict=True))


@pytest.mark.parametrize("training", [False, True])
def test_nothing_is_made_again_outside_of_training(small_model, runs, training: bool) -> None:
    model = small_model(torch.float32).train(training)
    model.recompute = True
    ran = runs(model)
    with torch.set_grad_enabled(not training):
        z = model(*clips()).z
    if not training:
        z.sum().backward()
    assert ran == [0, 1, 2, 3, 4]
    model.recompute = False
    assert torch.equal(model(*clips()).z, z)


def test_the_folded_model_still_scripts(small_model) -> None:
    model = small_model(torch.float32).train()
    model.recompute = True
    mels, audio = clips()
    with torch.no_grad():
        z = model(mels, audio).z
        scripted = torch.jit.script(model.fold_weight_norm())
        assert scripted.training
        torch.testing.assert_close(scripted(mels, audio)[0], z, atol=1e-6, rtol=0)
    torch.testing.assert_close(scripted(mels, audio.requires_grad_())[0], z, atol=1e-6, rtol=0)


def test_the_flag_is_about_training_only() -> None:
    parser = argparse.ArgumentParser()
    SPEC.add_training_arguments(parser)
    model = WaveGlow(n_mel_channels=2, n_flows=1, WN_config={"n_layers": 1, "n_channels": 2})
    config, names = model.config.to_dict(), list(model.state_dict())
    for words, wanted in (["--recompute"], True), ([], False):
        options = vars(parser.parse_args(words))
        SPEC.prepare_training(model, options)
        assert model.recompute is wanted
        assert "recompute" not in SPEC.config_from_options(options)
    assert (model.config.to_dict(), list(model.state_dict())) == (config, names)


# --- memory ---

CHANNEL = 2 * 256 * 4  # bytes of one channel of two clips of 256 groups


def wide(n_flows: int, recompute: bool, n_mels: int, hop: int, kernel: int) -> WaveGlow:
    """A model whose WNs have many more channels than its flow, as those of the full size."""
    wn = {"n_layers": 8, "kernel_size": 3, "n_channels": 32}
    model = WaveGlow(n_mel_channels=n_mels, n_flows=n_flows, hop_length=hop, upsample_kernel_size=kernel, WN_config=wn)
    model.recompute = recompute
    return model


def kept_bytes(n_flows: int, recompute: bool) -> int:
    """Bytes that forward keeps for backward, weights apart."""
    model = wide(n_flows, recompute, n_mels=80, hop=256, kernel=256)
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, Tensor] = {}  # holds them, so that no address comes twice

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    mels, audio = clips(8, n_mels=80, hop=256)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        WaveGlowLoss(1.0)(model(mels, audio), audio)
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in weights)


def peak_bytes(n_flows: int, recompute: bool) -> int:
    """Bytes at the highest point of a step above weights and gradients, which are there before it."""
    model = wide(n_flows, recompute, n_mels=8, hop=16, kernel=64)  # upsampling is no peak of its own
    mels, audio = clips(256, n_mels=8)

    def work() -> None:
        WaveGlowLoss(1.0)(model(mels, audio), audio).backward()

    work()
    assert sum(p.grad.nbytes for p in model.parameters() if p.grad is not None) == state_bytes(model).gradients
    return measure_peak(CPU, work)


@pytest.mark.parametrize("measure", [kept_bytes, peak_bytes])
def test_memory_hardly_grows_with_the_flows(measure) -> None:
    few, many = measure(4, False), measure(12, False)
    assert 2.5 < many / few < 3
    few_again, many_again = measure(4, True), measure(12, True)
    assert 1 < many_again / few_again < 1.15
    # what a flow still keeps, its 8 channels a few times over, against 32 channels a dozen times in each layer
    assert many_again - few_again < (many - few) / 40
    assert few_again < few / 2.5


def test_a_flow_keeps_what_its_matrix_and_its_coupling_need() -> None:
    in_channels = [kept_bytes(n, True) / CHANNEL for n in (1, 2, 4)]
    condition = 80 * 8  # shared by all flows
    flow = 8 + 8 + 4  # x for the gradient of W; W x in two halves; exp(log s) for that of one half
    for n, kept in zip((1, 2, 4), in_channels, strict=True):
        assert condition + n * flow <= kept < condition + n * flow + 12  # z, the mels and scalars


# --- several processes ---

ONE_OF_TWO = """
import sys
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from waveglow.loss_function import WaveGlowLoss
from waveglow.model import WaveGlow

def gradients(recompute, cut):
    torch.manual_seed(0)
    model = WaveGlow(n_mel_channels=3, n_flows=4, n_early_every=2, WN_config={"n_layers": 2, "n_channels": 6},
                     hop_length=16, upsample_kernel_size=64)
    for wn in model.WN:
        torch.nn.init.normal_(wn.end.weight)
    model.recompute = recompute
    if cut:
        for wn in model.WN:
            fully_shard(wn, mesh=mesh)
    trained = fully_shard(model, mesh=mesh) if cut else DistributedDataParallel(model)
    torch.manual_seed(rank)
    audio = torch.randn(2, 80)
    WaveGlowLoss(1.0)(trained(torch.randn(2, 3, 5), audio), audio).backward()
    found = [p.grad for p in model.parameters()]
    return [g.full_tensor() if isinstance(g, DTensor) else g for g in found]

rank = int(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
for cut in (False, True):
    plain, again = gradients(False, cut), gradients(True, cut)
    print(len(plain), all(torch.equal(a, b) for a, b in zip(plain, again, strict=True)), plain[0].norm().item())
torch.distributed.destroy_process_group()
"""


def test_processes_that_share_gradients_or_weights(tmp_path) -> None:
    words = [sys.executable, "-W", "ignore", "-c", ONE_OF_TWO, str(tmp_path / "meeting")]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    both = [
        subprocess.Popen([*words, rank], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment) for rank in "01"
    ]
    first, second = (process.communicate(timeout=300)[0].splitlines() for process in both)
    for line in (*first, *second):
        n_gradients, same, norm = line.split()
        assert (n_gradients, same) == ("98", "True")
        assert float(norm) == pytest.approx(float(first[0].split()[2]), rel=1e-5)  # on both, and cut or not
    assert len(first) == len(second) == 2
