"""WN, the network inside of each coupling: dilated gated convolutions (van den Oord et al., 2016, arXiv:1609.03499)."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from common.audio.stft import SILENCE
from waveglow.composition import Upsampling
from waveglow.config import WNConfig
from waveglow.gated_layers import Inputs, Layer, gated_layers
from waveglow.int8_layers import Int8Layers, items_in_levels

# B batch, T frames, M mels, U channels of upsampled mels, K frames of a window
# g samples in a group, G groups, C channels of a flow, H channels of WN


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


def _effective(conv: nn.Module) -> tuple[Tensor, Tensor]:
    """The weight (out, in, kernel) and bias of a convolution, folded or not."""
    if isinstance(conv, WeightNormConv1d):
        return conv.weight(), conv.bias
    assert isinstance(conv, nn.Conv1d) and conv.bias is not None
    return conv.weight, conv.bias


def _composed(layer: Layer, upsampling: Upsampling) -> Layer:
    weight, bias = upsampling.before(layer.condition, layer.bias)
    return layer._replace(condition=weight, bias=bias)


class WN(nn.Module):
    """Dilated gated convolutions as in WaveNet, but not causal; `end` starts at zero, so that b = log s = 0."""

    def __init__(self, half_channels: int, condition_channels: int, config: WNConfig) -> None:
        super().__init__()
        n = config.n_channels
        self.plain = False  # how to compute, and so no part of the config
        self.in_8_bits: Int8Layers | None = None
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
        heard = half.to(self.end.weight.dtype)
        if torch.jit.is_scripting():  # TorchScript knows no function with a backward of its own
            made = self._plain_layers(heard, condition)
        else:
            made = self._plain_layers(heard, condition) if self.plain else self._fast_layers(heard, condition, steps)
        b, log_s = made.to(half.dtype).chunk(2, dim=1)
        return b, log_s

    def _plain_layers(self, half: Tensor, condition: Tensor) -> Tensor:
        """Half of the channels (B, C/2, G) and the condition -> b and log s (B, C, G), one after the other."""
        x = skip_sum = self.start(half)
        layers = zip(self.in_layers, self.cond_layers, self.res_skip_layers)
        for i, (in_layer, cond_layer, res_skip_layer) in enumerate(layers):
            res_skip = res_skip_layer(gate(in_layer(x), cond_layer(condition)))
            skip = res_skip[:, -self.n_channels :]
            skip_sum = skip if i == 0 else skip_sum + skip
            if res_skip.shape[1] > self.n_channels:  # the last layer has no residual
                x = x + res_skip[:, : self.n_channels]
        return self.end(skip_sum)

    @torch.jit.unused
    def _fast_layers(self, half: Tensor, condition: Tensor, steps: Tensor | None = None) -> Tensor:
        """The same, to rounding, by waveglow/gated_layers.py, or in 8 bits."""
        one = torch.ones_like(half[:, :1])  # whose weight is start's bias
        heard = torch.cat([half, one], dim=1).transpose(1, 2)
        x = (heard.flatten(0, 1) @ self._started().t()).unflatten(0, heard.shape[:2])
        inputs = Inputs(heard, x, condition.transpose(1, 2))
        if self.in_8_bits is not None:
            if steps is None:
                levels, steps = items_in_levels(inputs.condition, self.in_8_bits.centre)
                inputs = inputs._replace(condition=levels)
            return self.in_8_bits(inputs, steps).transpose(1, 2)
        weights = [weight for layer in self._layers() for weight in layer]
        return gated_layers(inputs, self._dilations(), weights).transpose(1, 2)

    @torch.jit.unused
    def use_int8(self, upsampling: Upsampling | None = None) -> None:
        """Run the layers' products in 8 bits from now on, with today's weights, for inference on a CPU that has them.

        With the upsampling they are composed with it: see compose.
        """
        layers: Iterable[Layer] = self._layers()
        centre = 0.0
        if upsampling is not None:
            layers = (_composed(layer, upsampling) for layer in layers)  # one at a time: they are large in float32
            centre = SILENCE / 2  # of mels: they are between silence and little above 0
        self.in_8_bits = Int8Layers(layers, self._dilations(), self.end.out_channels, centre)

    @torch.jit.unused
    def compose(self, upsampling: Upsampling) -> None:
        """Hear windows of mels from now on, for inference: the upsampling becomes part of the condition layers."""
        for i, layer in enumerate(self.cond_layers):
            weight, bias = _effective(layer)
            weight, bias = upsampling.before(weight[:, :, 0], bias)
            conv = nn.Conv1d(weight.shape[1], len(weight), 1, device="meta")
            conv.weight = nn.Parameter(weight[:, :, None], requires_grad=False)
            conv.bias = nn.Parameter(bias.repeat(len(weight) // len(bias)), requires_grad=False)
            self.cond_layers[i] = conv

    @torch.jit.unused
    def _layers(self) -> list[Layer]:
        """Each layer's weights, with those of `start` in the first and of `end` in all skips.

        Nothing is between them, and start has far fewer inputs than a layer, and end far fewer outputs than a skip.
        """
        layers: list[Layer] = []
        for parts in zip(self.in_layers, self.cond_layers, self.res_skip_layers):
            (dilated, bias), (of_condition, condition_bias), (res_skip, res_skip_bias) = map(_effective, parts)
            heard = (dilated, of_condition.squeeze(2), bias + condition_bias[: len(bias)])
            if not layers:
                heard = (self._hearing_half(heard[0]), *heard[1:])
            last = len(layers) == len(self.in_layers) - 1
            layers.append(Layer(*heard, *self._ended(res_skip.squeeze(2), res_skip_bias, last)))
        return layers

    @torch.jit.unused
    def _hearing_half(self, dilated: Tensor) -> Tensor:
        """A dilated weight (2H, H, k) -> that of what `start` hears, and of 1 (2H, C/2 + 1, k)."""
        with torch.autocast(dilated.device.type, enabled=False):
            # Flat, since matmul of more dimensions chooses by whether gradients are wanted how to add up.
            taps = dilated.transpose(1, 2)
            return (taps.flatten(0, 1) @ self._started()).unflatten(0, taps.shape[:2]).transpose(1, 2)

    @torch.jit.unused
    def _started(self) -> Tensor:
        """The weight of `start`, its bias the last column: (H, C/2 + 1)."""
        weight, bias = _effective(self.start)
        return torch.cat([weight.squeeze(2), bias[:, None]], dim=1)

    @torch.jit.unused
    def _ended(self, weight: Tensor, bias: Tensor, last: bool) -> tuple[Tensor, Tensor]:
        """A layer's weight (2H or H, H) and bias -> (H + C or C, H) and bias: its residual's, if any, and end's of its skip."""
        end, end_bias = _effective(self.end)
        sizes = len(weight) - self.n_channels, self.n_channels
        # Split, since the gradients of slices are each as large as the whole, and added up.
        (residual, skip), (residual_bias, skip_bias) = weight.split(sizes), bias.split(sizes)
        with torch.autocast(weight.device.type, enabled=False):
            skip, skip_bias = end.squeeze(2) @ skip, end.squeeze(2) @ skip_bias
        skip_bias = skip_bias + end_bias if last else skip_bias
        return torch.cat([residual, skip]), torch.cat([residual_bias, skip_bias])

    @torch.jit.unused
    def _dilations(self) -> list[int]:
        return [2**i for i in range(len(self.in_layers))]


def gate(x: Tensor, condition: Tensor) -> Tensor:
    """Gated activation of WaveNet: x and condition (B, 2H, G) -> (B, H, G)."""
    signal, opening = (x + condition).chunk(2, dim=1)
    return torch.tanh(signal) * torch.sigmoid(opening)
