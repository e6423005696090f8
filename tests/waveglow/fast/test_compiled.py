"""Channels innermost against the plain model, without the compiler, which tests/test_fast_ways.py runs on the plain layers."""

import torch
from torch import Tensor, nn

from common.fast import Request
from waveglow.fast.compiled import ChannelsLastConv1d, convert_to_channels_last, with_channels_last
from waveglow.model import WaveGlow


def test_layers_with_channels_innermost_are_the_plain_ones() -> None:
    """Outputs and every gradient in float64; the parameters are the plain model's own."""
    torch.manual_seed(1)
    config = {"n_layers": 3, "n_channels": 8, "kernel_size": 3}
    plain = WaveGlow(n_mel_channels=6, n_flows=4, n_early_every=2, WN_config=config).double()
    for wn in plain.WN:
        nn.init.normal_(wn.end.weight, std=0.05)
    last = with_channels_last(plain)
    compiled = convert_to_channels_last(plain, Request(compile="max-autotune"))
    assert isinstance(compiled.WN[0].in_layers[0], ChannelsLastConv1d)
    assert compiled._compiled_call_impl is not None and plain._compiled_call_impl is None
    assert all(a is b for a, b in zip(last.parameters(), plain.parameters(), strict=True))
    assert isinstance(last.WN[0].in_layers[0], ChannelsLastConv1d)
    mels, audio = torch.randn(2, 6, 5).double(), 0.3 * torch.randn(2, 5 * 256).double()

    def results(model: nn.Module) -> list[Tensor]:
        z, *logs = model(mels, audio)
        loss = z.square().sum() - sum(log.sum() for log in (*logs[0], *logs[1]))
        return [z, *torch.autograd.grad(loss, list(plain.parameters()))]

    for got, want in zip(results(last), results(plain), strict=True):
        assert (got - want).abs().max() <= 1e-9 * want.abs().max().clamp(min=1e-3)
    conv = ChannelsLastConv1d(4, 6, kernel_size=3, dilation=2)
    output = conv(torch.randn(2, 4, 9))
    assert output.shape == (2, 6, 9) and output.stride(1) == 1
