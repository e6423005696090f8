"""WaveGlow: an invertible network between audio and noise, conditioned on mels (Prenger et al., 2018, arXiv:1811.00002)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.errors import DataError
from common.utils import fused_add_tanh_sigmoid_multiply as fused_add_tanh_sigmoid_multiply  # as published
from waveglow.config import WaveGlowConfig, WNConfig

# B batch, N samples, T frames, M mels, U channels of upsampled mels
# g samples in a group, G groups (N // g), C channels of a flow, H channels of WN


class WeightNormConv1d(nn.Module):
    """Same-length convolution with weight g * v / |v|, one norm per output channel (Salimans and Kingma 2016)."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1, dilation: int = 1) -> None:
        super().__init__()
        conv = nn.Conv1d(in_channels, out_channels, kernel_size)  # draws the initial values
        self.dilation, self.padding = dilation, dilation * (kernel_size - 1) // 2
        self.bias = conv.bias
        self.weight_g = nn.Parameter(conv.weight.detach().norm(dim=(1, 2), keepdim=True))
        self.weight_v = conv.weight

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, G) -> (B, out, G)."""
        norm = torch.linalg.vector_norm(self.weight_v, dim=(1, 2), keepdim=True)
        weight = self.weight_g * self.weight_v / norm
        return F.conv1d(x, weight, self.bias, padding=self.padding, dilation=self.dilation)


class WN(nn.Module):
    """The network in a coupling: gated dilated convolutions as in WaveNet (van den Oord et al. 2016), but not causal.

    `end` starts at zero, so that an untrained coupling changes nothing.
    """

    def __init__(self, half_channels: int, condition_channels: int, config: WNConfig) -> None:
        super().__init__()
        n, layers = config.n_channels, range(config.n_layers)
        self.n_channels = n
        self.in_layers = nn.ModuleList(WeightNormConv1d(n, 2 * n, config.kernel_size, dilation=2**i) for i in layers)
        self.res_skip_layers = nn.ModuleList(WeightNormConv1d(n, n if i == layers[-1] else 2 * n) for i in layers)
        self.cond_layers = nn.ModuleList(WeightNormConv1d(condition_channels, 2 * n) for _ in layers)
        self.start = WeightNormConv1d(half_channels, n)
        self.end = nn.Conv1d(n, 2 * half_channels, kernel_size=1)
        nn.init.zeros_(self.end.weight)
        nn.init.zeros_(self.end.bias)  # type: ignore[arg-type]

    def forward(self, x_a: Tensor, condition: Tensor) -> tuple[Tensor, Tensor]:
        """One half of the channels (B, C/2, G) and the condition (B, U * g, G) -> shift b and log s, (B, C/2, G) each."""
        x = self.start(x_a.to(self.end.weight.dtype))
        skips = torch.zeros_like(x)
        for in_layer, cond_layer, res_skip_layer in zip(self.in_layers, self.cond_layers, self.res_skip_layers):
            signal, gate = (in_layer(x) + cond_layer(condition)).chunk(2, dim=1)
            res_skip = res_skip_layer(torch.tanh(signal) * torch.sigmoid(gate))
            skips = skips + res_skip[:, -self.n_channels :]
            if res_skip.shape[1] > self.n_channels:  # the last layer has no residual
                x = x + res_skip[:, : self.n_channels]
        b, log_s = self.end(skips).to(x_a.dtype).chunk(2, dim=1)
        return b, log_s


class Invertible1x1Conv(nn.Module):
    """A square matrix W over the channels, initially a random rotation (Kingma and Dhariwal, 2018, arXiv:1807.03039)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, kernel_size=1, bias=False)
        rotation = torch.linalg.qr(torch.randn(channels, channels)).Q
        rotation[:, 0] *= torch.linalg.det(rotation).sign()  # turns a reflection into a rotation
        with torch.no_grad():
            self.conv.weight.copy_(rotation[:, :, None])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, G) -> W x (B, C, G) and log|det W|, a scalar."""
        weight = self.conv.weight[:, :, 0].to(x.dtype)
        return self.mix(weight, x), torch.linalg.slogdet(weight).logabsdet

    @torch.jit.export
    def inverse(self, x: Tensor) -> Tensor:
        """(B, C, G) -> W^-1 x (B, C, G)."""
        return self.mix(torch.linalg.inv(self.conv.weight[:, :, 0].to(x.dtype)), x)

    def mix(self, weight: Tensor, x: Tensor) -> Tensor:
        """The product of weight (C, C) and x (B, C, G), in x's precision."""
        # Autocast would round a matrix product, which W^-1 then does not undo; it leaves elementwise products alone.
        return (weight[:, :, None] * x[:, None]).sum(dim=2)


class Upsample(nn.Module):
    """A transposed convolution from mel frames to samples, grouped as the audio is: the condition of every WN."""

    def __init__(self, config: WaveGlowConfig) -> None:
        super().__init__()
        self.hop_length, self.n_group = config.hop_length, config.n_group
        conv = nn.ConvTranspose1d(config.n_mel_channels, config.upsampled_channels, config.upsample_kernel_size)
        self.weight, self.bias = conv.weight, conv.bias

    def forward(self, mels: Tensor, n_groups: int) -> Tensor:
        """Mels (B, M, T) -> the condition (B, U * g, G): by upsampled channel, then by sample of the group."""
        mels = mels.to(self.weight.dtype)
        upsampled = F.conv_transpose1d(mels, self.weight, self.bias, stride=self.hop_length)
        groups = upsampled.unfold(2, self.n_group, self.n_group)[:, :, :n_groups]
        return groups.transpose(2, 3).flatten(1, 2)


class WaveGlowOutput(NamedTuple):
    """The terms of the likelihood: noise z (B, g, G), early channels first, and those of its log-determinant.

    For each flow log_s_list has log s (B, C/2, G) and log_det_W_list the scalar B * G * log|det W|.
    """

    z: Tensor
    log_s_list: list[Tensor]
    log_det_W_list: list[Tensor]


class WaveGlow(nn.Module):
    """WaveGlow of the sizes in its keyword arguments (WaveGlowConfig's fields, WN_config a dict).

    Raises:
        UsageError: sizes that cannot work, each by its flag.
        DataError: unknown keys.
    """

    def __init__(self, **config: Any) -> None:
        super().__init__()
        self.config = c = WaveGlowConfig.from_dict(config)
        self.n_group, self.hop_length, self.upsample_kernel_size = c.n_group, c.hop_length, c.upsample_kernel_size
        self.n_early_every, self.n_early_size, self.n_exits = c.n_early_every, c.n_early_size, c.n_exits
        # Channels of each flow: n_early_size of them leave after every n_early_every flows.
        channels = [c.n_group - k // c.n_early_every * c.n_early_size for k in range(c.n_flows)]
        self.upsample = Upsample(c)
        self.WN = nn.ModuleList(WN(n // 2, c.upsampled_channels * c.n_group, c.WN_config) for n in channels)
        self.convinv = nn.ModuleList(Invertible1x1Conv(n) for n in channels)

    def forward(self, mels: Tensor, audio: Tensor) -> WaveGlowOutput:
        """Turn audio (B, N) with its mels (B, M, T) into noise; samples past the last whole group are cut off.

        Raises:
            DataError: audio shorter than one group, or mels too short for it.
        """
        n_groups = self._count_groups(mels, audio)
        condition = self.upsample(mels, n_groups)
        x = audio.to(self.flow_dtype()).unfold(1, self.n_group, self.n_group).transpose(1, 2)
        z: list[Tensor] = []
        log_s_list: list[Tensor] = []
        log_det_W_list: list[Tensor] = []
        for k, (convinv, wn) in enumerate(zip(self.convinv, self.WN)):
            if k > 0 and k % self.n_early_every == 0:
                z.append(x[:, : self.n_early_size])
                x = x[:, self.n_early_size :]
            x, log_det = convinv(x)
            x_a, x_b = x.chunk(2, dim=1)
            b, log_s = wn(x_a, condition)
            x = torch.cat([x_a, torch.exp(log_s) * x_b + b], dim=1)
            log_s_list.append(log_s)
            log_det_W_list.append(audio.shape[0] * n_groups * log_det)  # W acts once at each group
        z.append(x)
        return WaveGlowOutput(torch.cat(z, dim=1), log_s_list, log_det_W_list)

    @torch.jit.export
    def infer(self, mels: Tensor, sigma: float = 0.9, z: Tensor | None = None) -> Tensor:
        """Vocode mels (B, M, T) into audio (B, N), N = T * hop_length cut to whole groups, about in [-1, 1].

        Args:
            mels: log-mel frames.
            sigma: standard deviation of the noise.
            z: noise (B, g, G) in forward's layout, before its scaling by sigma; white by default.

        Raises:
            DataError: z of another shape.
        """
        n_groups = mels.shape[2] * self.hop_length // self.n_group
        condition = self.upsample(mels, n_groups)
        shape = [mels.shape[0], self.n_group, n_groups]
        if z is None:
            z = torch.randn(shape, dtype=self.flow_dtype(), device=mels.device)
        if list(z.shape) != shape:
            raise DataError(f"z of shape {list(z.shape)}, expected {shape} for mels of shape {list(mels.shape)}")
        z = sigma * z.to(self.flow_dtype())
        early = self.n_exits * self.n_early_size  # channels of z that left early and have yet to return
        x = z[:, early:]
        for i, (convinv, wn) in enumerate(zip(self.convinv[::-1], self.WN[::-1])):
            x_a, x_b = x.chunk(2, dim=1)
            b, log_s = wn.forward(x_a, condition)  # TorchScript cannot call a module out of a slice
            x = convinv.inverse(torch.cat([x_a, (x_b - b) * torch.exp(-log_s)], dim=1))  # type: ignore[operator]
            k = len(self.WN) - 1 - i
            if k > 0 and k % self.n_early_every == 0:
                x = torch.cat([z[:, early - self.n_early_size : early], x], dim=1)
                early -= self.n_early_size
        return x.transpose(1, 2).flatten(1)

    @staticmethod
    def remove_weightnorm(model: WaveGlow) -> WaveGlow:
        """Return the model as it is; inference needs no other weights. Programs written for the published class call this."""
        return model

    def flow_dtype(self) -> torch.dtype:
        """The dtype of audio and noise in the flow: the weights', but at least float32."""
        return torch.promote_types(self.upsample.weight.dtype, torch.float32)

    def _count_groups(self, mels: Tensor, audio: Tensor) -> int:
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
