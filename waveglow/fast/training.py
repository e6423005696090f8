"""The rows "training" and "recomputed": the plain model's parameters with another forward and a hand-written backward.

The row "compiled", at the end: torch.compile, which fuses the plain equations.

The parts of the fast object own no parameters. They read those of the plain parts, which are their submodules, so that
DistributedDataParallel and FSDP act on both.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from common import precision
from common.fast import Request, shallow_copy
from common.kernels.private_ops import Processor
from waveglow.fast.gated_layers import dilations_of, gated_layers, layer_inputs, merge_weights, split_outputs
from waveglow.model import WN, Invertible1x1Conv, Upsample, WaveGlow

# B batch, T frames, M mels, G groups, C channels of a flow, N channels of the condition


def convert_for_training(model: WaveGlow, request: Request) -> WaveGlow:
    """Return a model with the same parameters and a faster forward and backward."""
    kind = RecomputedWN if request.recompute else TrainingWN
    return shallow_copy(
        model,
        type(model),
        upsample=TrainingUpsample(model.upsample),
        WN=nn.ModuleList(kind(cast(WN, wn)) for wn in model.WN),
        convinv=nn.ModuleList(MatrixProduct(cast(Invertible1x1Conv, convinv)) for convinv in model.convinv),
    ).train(model.training)


def gains(cpu: Processor, device: torch.device, half: bool) -> bool:
    """False in float32 on Zen 5: oneDNN's convolutions, which the plain model uses, outrun its matrix products there.

    Measured: 0.82 (WaveGlow-256) and 0.87 (WaveGlow-512) of the plain model's speed, where other CPUs gain 1.3 to 1.5.
    """
    return device.type != "cpu" or half or not cpu.is_zen_5


class TrainingWN(WN):
    """A plain WN computed by gated_layers."""

    def __init__(self, wn: WN) -> None:
        nn.Module.__init__(self)  # WN's own would create weights
        self.in_layers, self.res_skip_layers, self.cond_layers = wn.in_layers, wn.res_skip_layers, wn.cond_layers
        self.start, self.end = wn.start, wn.end

    def forward(self, x_a: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """One half of the channels (B, C/2, G) and the condition (B, N, G) -> shift b and log s, (B, C/2, G) each."""
        start, layers = merge_weights(self)
        inputs = layer_inputs(start, x_a.to(start.dtype), condition)
        return split_outputs(gated_layers(inputs, dilations_of(self), layers), x_a.dtype)


class RecomputedWN(TrainingWN):
    """TrainingWN that stores only its inputs and outputs and runs again in the backward: less memory, a third more work."""

    def forward(self, x_a: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """As TrainingWN's."""
        if not (self.training and torch.is_grad_enabled()):
            return super().forward(x_a, condition)
        # WN draws no random numbers, so no generator's state has to be saved.
        return cast(
            tuple[Tensor, Tensor],
            checkpoint(super().forward, x_a, condition, use_reentrant=False, preserve_rng_state=False),
        )


class TrainingUpsample(nn.Module):
    """The plain upsampling, but never in half precision on a CPU, where that takes twice as long."""

    def __init__(self, upsample: Upsample) -> None:
        super().__init__()
        self.plain = upsample

    @property
    def weight(self) -> Tensor:
        """The plain module's weight."""
        return self.plain.weight

    def forward(self, mels: Tensor, n_groups: int) -> Tensor:
        """Mels (B, M, T) -> the condition (B, N, G) with channels innermost in memory, as all flows read it."""
        with torch.autocast("cpu", enabled=False):
            condition: Tensor = self.plain(mels, n_groups)
        return condition.transpose(1, 2).contiguous().transpose(1, 2)


class MatrixProduct(Invertible1x1Conv):
    """The plain 1x1 convolution as a matrix product that keeps the input's precision."""

    def __init__(self, convinv: Invertible1x1Conv) -> None:
        nn.Module.__init__(self)  # Invertible1x1Conv's own would draw a matrix
        self.conv = convinv.conv

    def mix(self, weight: Tensor, x: Tensor) -> Tensor:
        """The product of weight (C, C) and x (B, C, G)."""
        with torch.autocast(x.device.type, enabled=False):
            return torch.matmul(weight, x)


def convert_to_compiled(model: WaveGlow, request: Request) -> WaveGlow:
    """Return a model with the same parameters whose forward and backward are compiled at their first call, once for each shape."""
    compiled = shallow_copy(model, type(model)).train(model.training)
    compiled.compile(mode=precision.COMPILE_MODES[request.compile])
    return compiled
