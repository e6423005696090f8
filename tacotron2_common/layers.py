"""Layers with the published constructors; their parameters and results are those of common.layers."""

from __future__ import annotations

from common import layers
from common.audio.stft import TacotronSTFT as TacotronSTFT


class LinearNorm(layers.LinearNorm):
    """Linear layer with Xavier-uniform weights."""

    def __init__(self, in_dim: int, out_dim: int, bias: bool = True, w_init_gain: str = "linear") -> None:
        super().__init__(in_dim, out_dim, bias, w_init_gain)


class ConvNorm(layers.ConvNorm):
    """1-d convolution with Xavier-uniform weights; the default padding keeps the length."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int = 1,
        stride: int = 1,
        padding: int | None = None,
        dilation: int = 1,
        bias: bool = True,
        w_init_gain: str = "linear",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, bias, w_init_gain)
        same = dilation * (kernel_size - 1) // 2
        self.conv.stride, self.conv.dilation = (stride,), (dilation,)
        self.conv.padding = (same if padding is None else padding,)
