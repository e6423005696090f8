"""WaveGlow: an invertible network between audio and noise, given mels (Prenger et al., 2018, arXiv:1811.00002)."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from common.engine.precision import half_dtype
from common.errors import DataError, UsageError
from common.sound.int8 import can_multiply
from waveglow.composition import Upsampling, frames_of, windows
from waveglow.config import WaveGlowConfig, WNConfig
from waveglow.gated_layers import Layer, gated_layers
from waveglow.int8_layers import Int8Layer, int8_layers, items_in_levels

# B batch, N samples, T frames, M mels, U channels of upsampled mels (M, unless the config says otherwise)
# g samples in a group, G groups (N // g), C channels of a flow, H channels of WN


class WaveGlowOutput(NamedTuple):
    """What the likelihood needs: noise z (B, g, G), early channels first, and the terms of its log-determinant.

    For each flow log_s_list has log s (B, C/2, G) and log_det_W_list the scalar B * G * log|det W|.
    """

    z: Tensor
    log_s_list: list[Tensor]
    log_det_W_list: list[Tensor]


class WeightNormConv1d(nn.Module):
    """Convolution with weight g * v / |v|, one norm per output channel (Salimans and Kingma, 2016, arXiv:1602.07868).

    The weight is computed afresh in each call and never stored, so that the module can be copied and pickled.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int = 1, dilation: int = 1) -> None:
        super().__init__()
        conv = nn.Conv1d(in_channels, out_channels, kernel_size)  # for its initial values
        assert conv.bias is not None
        self.dilation = dilation
        self.padding = dilation * (kernel_size - 1) // 2
        self.bias = conv.bias
        self.weight_g = nn.Parameter(conv.weight.detach().norm(dim=(1, 2), keepdim=True))
        self.weight_v = conv.weight

    def weight(self) -> Tensor:
        """The effective weight (out, in, kernel)."""
        # One fused kernel, as in torch.nn.utils; the formula in tensor operations takes three and their backward.
        return torch._weight_norm(self.weight_v, self.weight_g, 0)

    def forward(self, x: Tensor) -> Tensor:
        """(B, in, G) -> (B, out, G)."""
        return nn.functional.conv1d(x, self.weight(), self.bias, padding=self.padding, dilation=self.dilation)

    def folded(self) -> nn.Conv1d:
        """A plain convolution that computes the same."""
        out_channels, in_channels, kernel_size = self.weight_v.shape
        conv = nn.Conv1d(
            in_channels, out_channels, kernel_size, padding=self.padding, dilation=self.dilation, device="meta"
        )
        conv.weight, conv.bias = nn.Parameter(self.weight().detach()), nn.Parameter(self.bias.detach())
        return conv.train(self.training)


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


def _effective(conv: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight (out, in, kernel) and bias of a convolution, folded or not."""
    if isinstance(conv, WeightNormConv1d):
        return conv.weight(), conv.bias
    assert isinstance(conv, nn.Conv1d) and conv.bias is not None
    return conv.weight, conv.bias


class WN(nn.Module):
    """Dilated gated convolutions as in WaveNet, but not causal; `end` starts at zero, so that b = log s = 0."""

    def __init__(self, half_channels: int, condition_channels: int, config: WNConfig) -> None:
        super().__init__()
        n = config.n_channels
        self.plain = False  # how to compute, and so no part of the config
        self.in_8_bits: list[Int8Layer] | None = None
        layers = range(config.n_layers)
        self.n_channels = n
        self.in_layers = nn.ModuleList(WeightNormConv1d(n, 2 * n, config.kernel_size, dilation=2**i) for i in layers)
        self.res_skip_layers = nn.ModuleList(WeightNormConv1d(n, n if i == layers[-1] else 2 * n) for i in layers)
        self.cond_layers = nn.ModuleList(WeightNormConv1d(condition_channels, 2 * n) for _ in layers)
        self.start = WeightNormConv1d(half_channels, n)
        self.end = nn.Conv1d(n, 2 * half_channels, kernel_size=1)
        nn.init.zeros_(self.end.weight)
        nn.init.zeros_(self.end.bias)  # type: ignore[arg-type]

    def forward(self, half: Tensor, condition: Tensor, steps: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Half of the channels (B, C/2, G) and the condition (B, U * g, G) -> shift b and log s, (B, C/2, G) each.

        After use_int8 the condition may be in the levels of such steps (B), made once for all flows; after compose it is of
        windows of mels, (B, K * M, T).
        """
        x = self.start(half.to(self.end.weight.dtype))
        if torch.jit.is_scripting():  # TorchScript knows no function with a backward of its own
            made = self._plain_layers(x, condition)
        else:
            made = self._plain_layers(x, condition) if self.plain else self._fast_layers(x, condition, steps)
        b, log_s = made.to(half.dtype).chunk(2, dim=1)
        return b, log_s

    def _plain_layers(self, x: Tensor, condition: Tensor) -> Tensor:
        """x (B, H, G) and the condition -> b and log s (B, C, G) of the sum of all layers' skip outputs."""
        skip_sum = x
        layers = zip(self.in_layers, self.cond_layers, self.res_skip_layers)
        for i, (in_layer, cond_layer, res_skip_layer) in enumerate(layers):
            res_skip = res_skip_layer(gate(in_layer(x), cond_layer(condition)))
            skip = res_skip[:, -self.n_channels :]
            skip_sum = skip if i == 0 else skip_sum + skip
            if res_skip.shape[1] > self.n_channels:  # the last layer has no residual
                x = x + res_skip[:, : self.n_channels]
        return self.end(skip_sum)

    @torch.jit.unused
    def _fast_layers(self, x: Tensor, condition: Tensor, steps: Tensor | None = None) -> Tensor:
        """The same, to rounding, by waveglow/gated_layers.py, or in 8 bits."""
        x, condition = x.transpose(1, 2), condition.transpose(1, 2)
        if self.in_8_bits is not None:
            if steps is None:
                condition, steps = items_in_levels(condition)
            return int8_layers(x, condition, steps, self.in_8_bits).transpose(1, 2)
        weights = [weight for layer in self._layers() for weight in layer]
        return gated_layers(x, condition, self._dilations(), weights).transpose(1, 2)

    @torch.jit.unused
    def use_int8(self, upsampling: Upsampling | None = None, dtype: torch.dtype = torch.float32) -> None:
        """Run the layers' products in 8 bits from now on, with today's weights, for inference on a CPU that has them.

        With the upsampling they are composed with it, which is multiplied in dtype.
        """
        self.in_8_bits = []
        for layer, dilation in zip(self._layers(), self._dilations(), strict=True):
            if upsampling is not None:
                weight, bias = upsampling.before(layer.condition, layer.bias, dtype)
                layer = layer._replace(condition=weight, bias=bias)
            self.in_8_bits.append(Int8Layer(layer, dilation, self.end.out_channels))

    @torch.jit.unused
    def compose(self, upsampling: Upsampling, dtype: torch.dtype) -> None:
        """Hear windows of mels from now on, for inference: the upsampling becomes part of the layers, multiplied in dtype."""
        for i, layer in enumerate(self.cond_layers):
            weight, bias = _effective(layer)
            weight, bias = upsampling.before(weight[:, :, 0], bias, dtype)
            conv = nn.Conv1d(weight.shape[1], len(weight), 1, device="meta")
            conv.weight = nn.Parameter(weight[:, :, None], requires_grad=False)
            conv.bias = nn.Parameter(bias.repeat(len(weight) // len(bias)), requires_grad=False)
            self.cond_layers[i] = conv

    @torch.jit.unused
    def _layers(self) -> list[Layer]:
        """Each layer's weights, those of `end` in all skips: nothing is between them, and end has far fewer rows than a skip."""
        layers: list[Layer] = []
        for parts in zip(self.in_layers, self.cond_layers, self.res_skip_layers):
            (dilated, bias), (of_condition, condition_bias), (res_skip, res_skip_bias) = map(_effective, parts)
            heard = (dilated.transpose(1, 2).contiguous(), of_condition[:, :, 0], bias + condition_bias[: len(bias)])
            last = len(layers) == len(self.in_layers) - 1
            layers.append(Layer(*heard, *self._ended(res_skip[:, :, 0], res_skip_bias, last)))
        return layers

    @torch.jit.unused
    def _ended(self, weight: Tensor, bias: Tensor, last: bool) -> tuple[Tensor, Tensor]:
        """A layer's weight (2H or H, H) and bias -> (H + C or C, H) and bias: the residual's, if there is one, and end's of the skip."""
        end, end_bias = _effective(self.end)
        with torch.autocast(weight.device.type, enabled=False):
            skip, skip_bias = end[:, :, 0] @ weight[-self.n_channels :], end[:, :, 0] @ bias[-self.n_channels :]
        skip_bias = skip_bias + end_bias if last else skip_bias
        return torch.cat([weight[: -self.n_channels], skip]), torch.cat([bias[: -self.n_channels], skip_bias])

    @torch.jit.unused
    def _dilations(self) -> list[int]:
        return [2**i for i in range(len(self.in_layers))]


def gate(x: Tensor, condition: Tensor) -> Tensor:
    """Gated activation of WaveNet: x and condition (B, 2H, G) -> (B, H, G)."""
    signal, opening = (x + condition).chunk(2, dim=1)
    return torch.tanh(signal) * torch.sigmoid(opening)


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
        self.n_window_frames = 0  # of mels that WN hears itself; 0: it hears upsampled ones
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
        condition = self._condition(mels, n_groups * self.n_group).to(self._network_dtype())
        steps: Tensor | None = None
        if not torch.jit.is_scripting():
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
        self.fold_weight_norm()
        upsampling: Upsampling | None = None
        if precompute:
            if rest := self.hop_length % self.n_group:
                groups = (
                    f"--precompute: a frame of {self.hop_length} samples is groups of {self.n_group} and {rest} more"
                )
                raise UsageError(f"{groups}, expected a multiple; leave it out")
            upsampling, self.n_window_frames = Upsampling.of(self.upsample, self.n_group), frames_of(self.upsample)
        for wn in self.WN:
            if rounded:
                wn.use_int8(upsampling, dtype)  # type: ignore[operator]
            elif upsampling is not None:
                wn.compose(upsampling, dtype)  # type: ignore[operator]
            wn.to(dtype)
        return self

    @torch.jit.unused
    def _heard(self, condition: Tensor) -> tuple[Tensor, Tensor | None]:
        """The condition (B, U * g, G) as every WN hears it: where they multiply in 8 bits, in levels, and their steps (B)."""
        if self.plain or self.WN[0].in_8_bits is None:
            return condition, None
        levels, steps = items_in_levels(condition.transpose(1, 2))
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

        A model that was prepared with precompute upsamples in WN: the windows of mels that it hears, (B, K * M, T).
        """
        if self.n_window_frames > 0 and not torch.jit.is_scripting():
            return windows(mels.to(self.upsample.weight.dtype), self.n_window_frames).transpose(1, 2)
        upsampled = self.upsample(mels.to(self.upsample.weight.dtype))[:, :, :n_samples]
        batch, channels = upsampled.shape[0], upsampled.shape[1]
        grouped = upsampled.reshape(batch, channels, -1, self.n_group)
        if self.plain or torch.jit.is_scripting():
            return grouped.transpose(2, 3).reshape(batch, channels * self.n_group, -1)
        return grouped.transpose(1, 2).reshape(batch, -1, channels * self.n_group).transpose(1, 2)  # channels innermost
