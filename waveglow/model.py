"""WaveGlow: an invertible network between audio and noise, given mels (Prenger et al., 2018, arXiv:1811.00002)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from common.errors import DataError, UsageError
from common.kernels.int8 import can_multiply
from common.precision import half_dtype
from waveglow.composition import Upsampling, frames_of, windows
from waveglow.config import WaveGlowConfig
from waveglow.int8_layers import items_in_levels
from waveglow.wn import WN, WeightNormConv1d

# B batch, N samples, T frames, M mels, U channels of upsampled mels (M, unless the config says otherwise)
# g samples in a group, G groups (N // g), C channels of a flow, H channels of WN


class WaveGlowOutput(NamedTuple):
    """What the likelihood needs: noise z (B, g, G), early channels first, and the terms of its log-determinant.

    For each flow log_s_list has log s (B, C/2, G) and log_det_W_list the scalar B * G * log|det W|.
    """

    z: Tensor
    log_s_list: list[Tensor]
    log_det_W_list: list[Tensor]


class Invertible1x1Conv(nn.Module):
    """A square matrix over the channels, at first a random rotation (Kingma and Dhariwal, 2018, arXiv:1807.03039).

    Both directions keep the input's precision, under autocast too: they are a millionth of the work, and rounding here
    would break the inverse.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size=1, bias=False)
        rotation = torch.linalg.qr(torch.randn(channels, channels)).Q
        rotation[:, 0] *= torch.linalg.det(rotation).sign()  # a reflection becomes a rotation
        with torch.no_grad():
            self.conv.weight.copy_(rotation[:, :, None])
        self.register_buffer("inverse_weight", None, persistent=False)
        self.register_load_state_dict_post_hook(_refresh_inverse)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, G) -> W x (B, C, G) and log|det W|, a scalar."""
        weight = self.conv.weight[:, :, 0].to(x.dtype)
        return _mix_channels(weight, x), torch.linalg.slogdet(weight).logabsdet

    @torch.jit.export
    def inverse(self, x: Tensor) -> Tensor:
        """(B, C, G) -> W^-1 x (B, C, G)."""
        inverse: Tensor | None = self.inverse_weight
        if inverse is None:
            inverse = self.inverted()
        return _mix_channels(inverse.to(x.dtype), x)

    def inverted(self) -> Tensor:
        """W^-1 (C, C), at least float32."""
        weight = self.conv.weight[:, :, 0]
        return torch.linalg.inv(weight.to(torch.promote_types(weight.dtype, torch.float32)))

    def store_inverse(self) -> None:
        """Keep W^-1 from now on; loading a state dict renews it, other changes of the weights do not."""
        self.inverse_weight = self.inverted().detach()


def _refresh_inverse(module: nn.Module, _incompatible_keys: Any) -> None:
    assert isinstance(module, Invertible1x1Conv)
    if module.inverse_weight is not None:
        module.store_inverse()


def _mix_channels(weight: Tensor, x: Tensor) -> Tensor:
    """weight (C, C) times x (B, C, G)."""
    if torch.jit.is_scripting():  # TorchScript knows no autocast for a device that is a variable
        return torch.matmul(weight, x)
    with torch.autocast(x.device.type, enabled=False):
        return torch.matmul(weight, x)


class WaveGlow(nn.Module):
    """WaveGlow of the sizes in its keyword arguments (WaveGlowConfig's fields, WN_config a dict).

    With `recompute`, training keeps of each flow only its inputs and outputs, and backward runs its WN once more for the
    rest: the same numbers, for a third more work, in memory that hardly grows with the flows.

    Raises:
        UsageError: sizes that cannot work, each by its flag.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.recompute, self.plain = False, False  # how to compute, and so no part of the config
        self.hears_windows = False  # whether WN hears windows of mels itself, instead of upsampled ones
        self.register_buffer("upsampling", None, persistent=False)  # of a prepared model, as the weight of a product
        self.config = WaveGlowConfig.from_dict(config)
        c = self.config
        self.n_group, self.hop_length, self.upsample_kernel_size = c.n_group, c.hop_length, c.upsample_kernel_size
        self.n_early_every, self.n_early_size, self.n_exits = c.n_early_every, c.n_early_size, c.n_exits
        # channels of each flow: n_early_size fewer after every n_early_every flows
        channels = [c.n_group - k // c.n_early_every * c.n_early_size for k in range(c.n_flows)]
        self.upsample = nn.ConvTranspose1d(
            c.n_mel_channels, c.upsampled_channels, c.upsample_kernel_size, stride=c.hop_length
        )
        self.WN = nn.ModuleList(WN(n // 2, c.upsampled_channels * c.n_group, c.WN_config) for n in channels)
        self.convinv = nn.ModuleList(Invertible1x1Conv(n) for n in channels)

    def forward(self, mels: Tensor, audio: Tensor) -> WaveGlowOutput:
        """Turn audio (B, N) and its mels (B, M, T) into noise; what is past the last whole group of samples is cut.

        Raises:
            DataError: audio shorter than one group, or mels too short for it.
        """
        n_groups = self._check_length(mels, audio)
        n_samples = n_groups * self.n_group
        frames = (n_samples + self.hop_length - 1) // self.hop_length  # later ones would touch only what is cut
        condition = self._condition(mels[:, :, :frames], n_samples)
        x = audio[:, :n_samples].reshape(-1, n_groups, self.n_group).transpose(1, 2)
        x = x.to(self.flow_dtype())
        z: list[Tensor] = []
        log_s_list: list[Tensor] = []
        log_det_W_list: list[Tensor] = []
        for k, (convinv, wn) in enumerate(zip(self.convinv, self.WN)):
            if k > 0 and k % self.n_early_every == 0:
                z.append(x[:, : self.n_early_size])
                x = x[:, self.n_early_size :]
            x, log_det = convinv(x)
            fixed, moved = x.chunk(2, dim=1)
            if torch.jit.is_scripting():  # TorchScript takes no module as an argument
                b, log_s = wn(fixed, condition)
            else:
                b, log_s = self._couple(wn, fixed, condition)
            x = torch.cat([fixed, torch.exp(log_s) * moved + b], dim=1)
            log_s_list.append(log_s)
            log_det_W_list.append(len(audio) * n_groups * log_det)  # W acts once at each time step
        z.append(x)
        return WaveGlowOutput(torch.cat(z, dim=1), log_s_list, log_det_W_list)

    @torch.jit.export
    def infer(self, mels: Tensor, sigma: float = 0.9, z: Tensor | None = None) -> Tensor:
        """Vocode mels (B, M, T) into audio (B, N), N = T * hop_length cut to whole groups, about in [-1, 1].

        Args:
            sigma: standard deviation of the noise.
            z: noise (B, g, G) in forward's layout, still to be scaled by sigma; white by default.

        Raises:
            DataError: z of another shape.
        """
        n_groups = mels.shape[2] * self.hop_length // self.n_group
        condition = self._condition(mels, n_groups * self.n_group)
        steps: Tensor | None = None
        if torch.jit.is_scripting():
            condition = condition.to(self._network_dtype())
        else:
            condition, steps = self._heard(condition)
        shape = [mels.shape[0], self.n_group, n_groups]
        if z is None:
            z = torch.randn(shape, dtype=self.flow_dtype(), device=mels.device)
        if list(z.shape) != shape:
            raise DataError(f"z of shape {list(z.shape)}, expected {shape} for mels of shape {list(mels.shape)}")
        z = sigma * z.to(self.flow_dtype())
        early = self.n_exits * self.n_early_size
        x = z[:, early:]
        last = len(self.WN) - 1
        for i, (convinv, wn) in enumerate(zip(self.convinv[::-1], self.WN[::-1])):
            fixed, moved = x.chunk(2, dim=1)
            b, log_s = wn.forward(fixed, condition, steps)  # TorchScript calls no module out of a slice
            x = torch.cat([fixed, (moved - b) * torch.exp(-log_s)], dim=1)
            x = convinv.inverse(x)  # type: ignore[operator]
            k = last - i
            if k > 0 and k % self.n_early_every == 0:
                x = torch.cat([z[:, early - self.n_early_size : early], x], dim=1)
                early -= self.n_early_size
        return x.transpose(1, 2).reshape(mels.shape[0], -1)

    @torch.jit.unused
    def use_plain(self, plain: bool = True) -> None:
        """Run WN's layers in plain PyTorch from now on: slower, and the reference of the fast way."""
        for module in (self, *self.WN):
            module.plain = plain

    @torch.jit.unused
    def prepare(self, half: bool, int8: bool = False, precompute: bool = False) -> WaveGlow:
        """Fold, and keep WN's weights in the half precision that pays on the device, if one does; return the model.

        With `int8` a CPU that can multiplies WN's layers in 8 bits, and computes the rest of WN in half precision. With
        `precompute` the upsampling becomes part of WN's layers: less work, for more memory, and infer alone is left.

        Raises:
            UsageError: precompute where a frame is no whole number of groups.
        """
        weight = self.upsample.weight
        rounded = int8 and weight.dtype == torch.float32 and can_multiply(weight.device)
        dtype = half_dtype(weight.device, half or rounded) or weight.dtype
        if precompute and (rest := self.hop_length % self.n_group):
            groups = f"--precompute: a frame of {self.hop_length} samples is groups of {self.n_group} and {rest} more"
            raise UsageError(f"{groups}, expected a multiple; leave it out")
        self.fold_weight_norm()
        upsampling: Upsampling | None = None
        if precompute:
            upsampling, self.hears_windows = Upsampling.of(self.upsample, self.n_group, dtype), True
        else:
            self.upsampling = Upsampling.of(self.upsample, math.gcd(self.hop_length, self.n_group), weight.dtype).weight
        for wn in self.WN:
            if rounded:
                wn.use_int8(upsampling)  # type: ignore[operator]
            elif upsampling is not None:
                wn.compose(upsampling)  # type: ignore[operator]
            wn.to(dtype)
        return self

    @torch.jit.unused
    def _heard(self, condition: Tensor) -> tuple[Tensor, Tensor | None]:
        """The condition (B, U * g, G) as every WN hears it: where they multiply in 8 bits, in levels, and their steps (B)."""
        first = self.WN[0]
        assert isinstance(first, WN)
        if self.plain or first.in_8_bits is None:
            return condition.to(self._network_dtype()), None
        levels, steps = items_in_levels(condition.transpose(1, 2), first.in_8_bits.centre)
        return levels.transpose(1, 2), steps

    @torch.jit.unused
    def fold_weight_norm(self) -> WaveGlow:
        """Turn this model, in place, into its inference form and return it.

        The form computes the same with plain convolutions and stored inverses of W, and has no gradients. Its state
        dict has `weight` for weight_g and weight_v, and torch.jit.script takes it.
        """
        for parent in list(self.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, WeightNormConv1d):
                    setattr(parent, name, child.folded())
                elif isinstance(child, Invertible1x1Conv):
                    child.store_inverse()
        return self.requires_grad_(False)

    @torch.jit.unused
    def _couple(self, wn: nn.Module, fixed: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """What WN says; where `recompute` is on, its inner tensors are made again in backward instead of kept."""
        if not (self.recompute and self.training and torch.is_grad_enabled()):
            return wn(fixed, condition)
        # WN draws no random numbers, so that no state of a generator has to be kept and put back.
        return checkpoint(wn, fixed, condition, use_reentrant=False, preserve_rng_state=False)

    @torch.jit.unused
    def _upsampled(self, mels: Tensor) -> Tensor:
        """Mels (B, M, T) upsampled (B, U, N or more): on a CPU never in half precision, which takes twice as long there."""
        with torch.autocast("cpu", enabled=False):
            return self.upsample(mels)

    def flow_dtype(self) -> torch.dtype:
        """The dtype that audio and noise go through the flow in: the weights', but at least float32."""
        return torch.promote_types(self.upsample.weight.dtype, torch.float32)

    def _network_dtype(self) -> torch.dtype:
        """The dtype of WN's weights: half precision in a model that was prepared for it."""
        end = self.WN[0].end
        dtype = end.weight.dtype  # type: ignore[union-attr]
        return dtype  # type: ignore[return-value]

    def _check_length(self, mels: Tensor, audio: Tensor) -> int:
        """The number of whole groups in the audio; DataError where there are none, or too few mels for them."""
        n_samples = audio.shape[1]
        covered = (mels.shape[2] - 1) * self.hop_length + self.upsample_kernel_size
        if n_samples < self.n_group:
            raise DataError(f"audio of {n_samples} samples, expected at least one group of {self.n_group}")
        if covered < n_samples:
            raise DataError(
                f"mels of {mels.shape[2]} frames reach over {covered} samples, but the audio has {n_samples}: "
                f"expected at least {(n_samples + self.hop_length - 1) // self.hop_length} frames"
            )
        return n_samples // self.n_group

    def _condition(self, mels: Tensor, n_samples: int) -> Tensor:
        """Mels (B, M, T) upsampled to n_samples and grouped like the audio: (B, U * g, G), by channel, then by sample.

        A prepared model upsamples by a product: oneDNN takes seconds for the first transposed convolution of a length. One with
        precompute leaves that to WN: the windows of mels, (B, K * M, T).
        """
        mels = mels.to(self.upsample.weight.dtype)
        if not torch.jit.is_scripting():
            if self.hears_windows:
                return windows(mels, frames_of(self.upsample)).transpose(1, 2)
            if self.upsampling is not None and not self.plain:
                return self._product(mels, n_samples)
        upsampled = (self.upsample(mels) if torch.jit.is_scripting() else self._upsampled(mels))[:, :, :n_samples]
        batch, channels = upsampled.shape[0], upsampled.shape[1]
        grouped = upsampled.reshape(batch, channels, -1, self.n_group)
        if self.plain or torch.jit.is_scripting():
            return grouped.transpose(2, 3).reshape(batch, channels * self.n_group, -1)
        return grouped.transpose(1, 2).reshape(batch, -1, channels * self.n_group).transpose(1, 2)  # channels innermost

    @torch.jit.unused
    def _product(self, mels: Tensor, n_samples: int) -> Tensor:
        """The same, by a product of each frame's window with a weight for all of its samples: on a CPU in float32 too."""
        assert self.upsampling is not None and self.upsample.bias is not None
        size = self.hop_length // len(self.upsampling)  # of the parts of a group that no frame ends within
        bias = self.upsample.bias.repeat_interleave(size).repeat(len(self.upsampling))
        with torch.autocast("cpu", enabled=False):
            upsampled = F.linear(windows(mels, frames_of(self.upsample)), self.upsampling.flatten(0, 1), bias)
        parts = upsampled.view(len(mels), -1, self.upsample.out_channels, size)[:, : n_samples // size]
        groups = parts.unflatten(1, (n_samples // self.n_group, self.n_group // size))
        return groups.transpose(2, 3).flatten(2).transpose(1, 2)  # channels innermost
