"""Fast training and --recompute: the plain model's outputs and gradients, and with --recompute from far less memory."""

import pytest
import torch
from torch import Tensor, nn

from common.fast import Request
from common.kernels.private_ops import Processor
from common.run.memory import measure_peak, state_bytes
from tests.waveglow.conftest import speech
from waveglow.fast.training import TrainingWN, convert_for_training, gains
from waveglow.loss_function import WaveGlowLoss
from waveglow.model import WaveGlow

CPU = torch.device("cpu")
SPEECH = speech(5, dtype=torch.float32)


def fast(model: WaveGlow, recompute: bool = False) -> nn.Module:
    return convert_for_training(model, Request(recompute=recompute))


def step(trained: nn.Module, mels: Tensor, audio: Tensor, half: bool = False) -> list[Tensor]:
    """The loss of a step, z and the gradients of all weights."""
    trained.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        outputs = trained(mels, audio)
        loss = WaveGlowLoss(1.0)(outputs, audio)
    loss.backward()
    return [loss.detach(), outputs.z.detach(), *(p.grad for p in trained.parameters() if p.grad is not None)]


def test_float32_on_zen_5_is_left_to_the_plain_model() -> None:
    zen_5, zen_4, zen_6 = (Processor("AuthenticAMD", family) for family in (26, 25, 27))
    cpus = (zen_5, zen_4, zen_6, Processor(), Processor("GenuineIntel", 26))
    assert [gains(cpu, CPU, half=False) for cpu in cpus] == [False, True, True, True, True]
    assert all(gains(cpu, CPU, half=True) and gains(cpu, torch.device("cuda"), half=False) for cpu in cpus)


def test_bfloat16_is_near_float32(small_model) -> None:
    """Within 2^-8 times the depth of five flows; a plain step under autocast is as far."""
    model = small_model(torch.float32).train()
    exact, rounded = (step(trained, *SPEECH, half) for trained, half in ((model, False), (fast(model), True)))
    for want, got in zip(exact, rounded, strict=True):
        assert got.dtype == torch.float32
        assert (got - want).norm() <= 0.1 * want.norm()
    assert not torch.equal(exact[1], rounded[1])


@pytest.mark.parametrize("recompute", [False, True])
def test_the_parameters_are_the_plain_models_own(small_model, recompute) -> None:
    model = small_model().train()
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    trained = fast(model, recompute)
    assert [id(p) for p in trained.parameters()] == [id(p) for p in model.parameters()]
    assert trained.training and model.training
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())
    assert not any(isinstance(module, TrainingWN) for module in model.modules())
    assert trained.eval().training is False and all(not module.training for module in trained.WN)


def test_upsampling_is_in_float32_under_autocast_on_a_cpu(small_model) -> None:
    trained = fast(small_model(torch.float32))
    with torch.autocast("cpu", torch.bfloat16):
        assert trained.upsample(SPEECH[0], 10).dtype == torch.float32


@pytest.mark.parametrize(("dtype", "half"), [(torch.float32, False), (torch.float64, False), (torch.float32, True)])
def test_recomputed_loss_and_gradients_are_the_same_to_the_bit(small_model, dtype, half) -> None:
    model = small_model(dtype).train()
    (mels, audio), recomputed = speech(5, dtype=dtype), fast(model, recompute=True)
    stored = step(fast(model), mels, audio, half)
    again = step(recomputed, mels, audio, half)
    assert len(stored) == len(again) == 2 + len(list(model.parameters()))
    assert all(torch.equal(a, b) for a, b in zip(stored, again, strict=True))
    assert all(gradient.abs().max() > 0 for gradient in again[2:])


def peak_bytes(n_flows: int, recompute: bool) -> int:
    """Bytes at the highest point of a step above weights and gradients, which are there before it.

    WNs have many more channels than the flow, as those of the full size have; upsampling is no peak of its own.
    """
    wn = {"n_layers": 8, "kernel_size": 3, "n_channels": 32}
    sizes = {"n_mel_channels": 8, "hop_length": 16, "upsample_kernel_size": 64}
    model = fast(WaveGlow(n_flows=n_flows, WN_config=wn, **sizes), recompute)
    mels, audio = speech(128, dtype=torch.float32, n_mels=8)

    def work() -> None:
        WaveGlowLoss(1.0)(model(mels, audio), audio).backward()

    work()
    assert sum(p.grad.nbytes for p in model.parameters() if p.grad is not None) == state_bytes(model).gradients
    return measure_peak(CPU, work)


@pytest.mark.slow
def test_memory_hardly_grows_with_the_flows() -> None:
    few, many = peak_bytes(4, False), peak_bytes(12, False)
    assert 2.5 < many / few < 3
    few_again, many_again = peak_bytes(4, True), peak_bytes(12, True)
    assert 1 < many_again / few_again < 1.15
    # a flow still saves its 8 channels a few times over, against 32 channels a dozen times in each layer
    assert many_again - few_again < (many - few) / 40
    assert few_again < few / 2.5
