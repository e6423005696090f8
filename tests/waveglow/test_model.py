"""WaveGlow against its formulas: one sample, one tap, one layer at a time, in float64."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from common.errors import DataError, UsageError
from tests.waveglow.conftest import speech
from waveglow.config import WaveGlowConfig
from waveglow.model import Invertible1x1Conv, WaveGlow
from waveglow.spec import draw_noise

SMALL_WN = {"n_layers": 2, "kernel_size": 3, "n_channels": 4}


def plain_conv(weight, bias, x, dilation=1):
    """Same-length convolution of x (in, G)."""
    reach = dilation * (weight.shape[2] // 2)
    padded = np.pad(x, ((0, 0), (reach, reach)))
    taps = (weight[:, :, j] @ padded[:, j * dilation : j * dilation + x.shape[1]] for j in range(weight.shape[2]))
    return sum(taps) + bias[:, None]


def plain_wn(w, prefix, half, condition, n_layers):
    def conv(name, x, dilation=1):
        v, g = w[f"{prefix}.{name}.weight_v"], w[f"{prefix}.{name}.weight_g"]
        weight = g * v / np.sqrt((v**2).sum((1, 2), keepdims=True))
        return plain_conv(weight, w[f"{prefix}.{name}.bias"], x, dilation)

    x, skips = conv("start", half), 0.0
    n = len(x)
    for i in range(n_layers):
        h = conv(f"in_layers.{i}", x, 2**i) + conv(f"cond_layers.{i}", condition)
        y = conv(f"res_skip_layers.{i}", np.tanh(h[:n]) / (1 + np.exp(-h[n:])))
        if i < n_layers - 1:
            x, y = x + y[:n], y[n:]
        skips = skips + y
    return np.split(plain_conv(w[f"{prefix}.end.weight"], w[f"{prefix}.end.bias"], skips), 2)


def plain_forward(model, mels, audio):
    """z, log s and log|det W| of one clip: mels (M, T), audio (N,)."""
    w = {name: tensor.double().numpy() for name, tensor in model.state_dict().items()}
    c = model.config
    kernel = w["upsample.weight"].shape[2]
    channels = len(w["upsample.bias"])
    upsampled = np.zeros((channels, (mels.shape[1] - 1) * c.hop_length + kernel)) + w["upsample.bias"][:, None]
    for t in range(mels.shape[1]):
        frame = np.einsum("i,iok->ok", mels[:, t], w["upsample.weight"])
        upsampled[:, t * c.hop_length : t * c.hop_length + kernel] += frame
    n_groups = len(audio) // c.n_group
    condition = np.zeros((channels * c.n_group, n_groups))
    for channel in range(channels):
        for j in range(c.n_group):
            condition[channel * c.n_group + j] = upsampled[channel, j : len(audio) : c.n_group]
    x = np.stack([audio[j :: c.n_group] for j in range(c.n_group)])
    z, log_s_list, log_det_list = [], [], []
    for k in range(c.n_flows):
        if k in range(c.n_early_every, c.n_flows, c.n_early_every):
            z.append(x[: c.n_early_size])
            x = x[c.n_early_size :]
        mixing = w[f"convinv.{k}.conv.weight"][:, :, 0]
        x = mixing @ x
        half = len(x) // 2
        b, log_s = plain_wn(w, f"WN.{k}", x[:half], condition, c.WN_config.n_layers)
        x = np.concatenate([x[:half], np.exp(log_s) * x[half:] + b])
        log_s_list.append(log_s)
        log_det_list.append(np.log(abs(np.linalg.det(mixing))))
    return np.concatenate([*z, x]), log_s_list, log_det_list


@pytest.mark.parametrize(
    ("upsample_channels", "samples"), [(None, 80), (1, 80), (5, 80), (None, 8), (None, 33), (None, 110)]
)
def test_forward_equals_the_formulas(small_model, upsample_channels, samples):
    """Of audio that ends in the last frame, before it, and beyond it, where the frame still reaches; seven samples are no group."""
    model = small_model(upsample_channels=upsample_channels)
    assert model.upsample.weight.shape[:2] == (3, upsample_channels or 3)
    mels, audio = (tensor[..., :length] for tensor, length in zip(speech(7), (5, samples)))
    out, groups = model(mels, audio), samples // 8
    for b in range(2):
        z, log_s, log_det = plain_forward(model, mels[b].numpy(), audio[b, : 8 * groups].numpy())
        np.testing.assert_allclose(out.z[b].detach(), z, atol=1e-12)
        for k in range(5):
            np.testing.assert_allclose(out.log_s_list[k][b].detach(), log_s[k], atol=1e-12)
            assert out.log_det_W_list[k].item() == pytest.approx(2 * groups * log_det[k], rel=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-5)])
@pytest.mark.parametrize(("n_flows", "n_frames"), [(5, 1), (5, 9), (4, 2), (1, 2)])
def test_infer_inverts_forward(small_model, dtype, tolerance, n_flows, n_frames):
    """Channels leave after every second flow, but not after the last."""
    model = small_model(dtype, n_flows=n_flows)
    mels, audio = speech(n_frames, dtype=dtype)
    with torch.no_grad():
        z = model(mels, audio).z
        assert z.dtype == dtype
        assert (z - audio.reshape(2, -1, 8).transpose(1, 2)).abs().max() > 0.1  # the flow changes it
        torch.testing.assert_close(model.infer(mels, sigma=1.0, z=z), audio, atol=tolerance, rtol=0)
        torch.testing.assert_close(model.infer(mels, sigma=0.5, z=2 * z), audio, atol=tolerance, rtol=0)


def test_fresh_model_is_a_rotation():
    torch.manual_seed(0)
    model = WaveGlow(n_mel_channels=3, WN_config=SMALL_WN).double()
    for convinv in model.convinv:
        w = convinv.conv.weight[:, :, 0]
        torch.testing.assert_close(w @ w.T, torch.eye(len(w)).double(), atol=1e-6, rtol=0)
        assert torch.linalg.det(w).item() == pytest.approx(1.0, abs=1e-6)
    start = model.WN[0].start  # whose weight is the norm of its direction
    torch.testing.assert_close(start.weight_g[:, 0, 0], start.weight_v.norm(dim=(1, 2)), rtol=1e-6, atol=0)
    audio = torch.randn(2, 256).double()
    out = model(torch.randn(2, 3, 1).double(), audio)
    assert all(not s.any() for s in out.log_s_list)
    assert out.z.square().sum().item() == pytest.approx(audio.square().sum().item(), rel=1e-5)
    assert (out.z - audio.reshape(2, -1, 8).transpose(1, 2)).abs().max() > 0.5


def test_noise_has_the_standard_deviation_sigma():
    torch.manual_seed(0)
    model = WaveGlow(n_mel_channels=3, WN_config=SMALL_WN)  # fresh: a rotation of the noise
    mels = torch.zeros(1, 3, 100)
    with torch.no_grad():
        # 25,600 draws: 1 % is two standard errors
        assert model.infer(mels, sigma=0.7).std().item() == pytest.approx(0.7, rel=0.02)
        assert model.infer(mels).std().item() == pytest.approx(0.9, rel=0.02)
        assert not model.infer(mels, sigma=0.0).any()
        assert (model.infer(mels) - model.infer(mels)).abs().max() > 0.5


def test_precision_under_autocast(small_model):
    model = small_model(torch.float32)
    mels, audio = speech(4, dtype=torch.float32)
    with torch.no_grad():
        exact = model(mels, audio)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(mels, audio)
            samples = model.infer(mels, sigma=1.0, z=out.z)
            mixed = model.convinv[0](exact.z)[0]
            back = model.convinv[0].inverse(mixed)
    assert out.z.dtype == samples.dtype == out.log_s_list[0].dtype == torch.float32
    torch.testing.assert_close(back, exact.z, atol=1e-5, rtol=0)  # bfloat16 would miss by 1e-2
    assert 1e-5 < (out.z - exact.z).abs().max() < 0.1  # the networks did run in bfloat16
    assert [d.item() for d in out.log_det_W_list] == [d.item() for d in exact.log_det_W_list]


def test_lengths_that_do_not_fit_are_refused(small_model):
    model, (mels, audio) = small_model(), speech(5)
    with pytest.raises(DataError, match="audio of 7 samples, expected at least one group of 8"):
        model(mels, audio[:, :7])
    with pytest.raises(DataError, match=r"z of shape \[2, 8, 5\], expected \[2, 8, 6\]"):
        model.infer(mels[:, :, :3], z=torch.zeros(2, 8, 5))
    assert model(mels[:, :, :1], audio[:, :64]).z.shape == (2, 8, 8)  # as far as the kernel of one frame reaches
    message = "mels of 1 frames reach over 64 samples, but the audio has 72: expected at least 5"
    with pytest.raises(DataError, match=message):
        model(mels[:, :, :1], audio[:, :72])


def test_model_in_half_precision_keeps_the_flow_in_float32(small_model):
    model = small_model(torch.float32)
    mels, audio = speech(4, dtype=torch.float32)
    exact = model.infer(mels, sigma=1.0, z=model(mels, audio).z)
    half = model.to(torch.bfloat16)
    samples = half.infer(mels, sigma=1.0, z=half(mels, audio).z)
    assert samples.dtype == torch.float32
    torch.testing.assert_close(samples, exact, atol=0.1, rtol=0)


def test_default_noise_has_the_precision_of_the_flow(small_model):
    """Of a model in bfloat16 too: noise of 8 bits would be audible."""
    model = small_model(torch.bfloat16)
    mels = torch.randn(1, 3, 4).bfloat16()
    with torch.no_grad():
        torch.manual_seed(5)
        audio = model.infer(mels, sigma=0.5)
        torch.manual_seed(5)
        drawn = draw_noise(model, mels, None)
        torch.manual_seed(5)
        z = torch.randn(1, 8, 4 * 16 // 8)
        assert torch.equal(audio, model.infer(mels, sigma=0.5, z=z))
    assert drawn.dtype == torch.float32 and torch.equal(drawn, z)


def published_layout(n: int) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes, in order, of the published model of n channels."""
    rows = [("upsample.weight", (80, 80, 1024)), ("upsample.bias", (80,))]

    def add_normalised(name, out, *rest):
        rows.extend([(f"{name}.bias", (out,)), (f"{name}.weight_g", (out, 1, 1)), (f"{name}.weight_v", (out, *rest))])

    halves = [4, 4, 4, 4, 3, 3, 3, 3, 2, 2, 2, 2]
    for k, half in enumerate(halves):
        for i in range(8):
            add_normalised(f"WN.{k}.in_layers.{i}", 2 * n, n, 3)
        for i in range(8):
            add_normalised(f"WN.{k}.res_skip_layers.{i}", n if i == 7 else 2 * n, n, 1)
        for i in range(8):
            add_normalised(f"WN.{k}.cond_layers.{i}", 2 * n, 640, 1)
        add_normalised(f"WN.{k}.start", n, half, 1)
        rows.extend([(f"WN.{k}.end.weight", (2 * half, n, 1)), (f"WN.{k}.end.bias", (2 * half,))])
    return rows + [(f"convinv.{k}.conv.weight", (2 * half, 2 * half, 1)) for k, half in enumerate(halves)]


@pytest.mark.parametrize("n_channels", [256, 512])
def test_state_dict_has_the_published_layout(n_channels):
    with torch.device("meta"):
        model = WaveGlow(WN_config={"n_channels": n_channels})
    layout = [(name, tuple(tensor.shape)) for name, tensor in model.state_dict().items()]
    assert len(layout) == 938
    assert layout == published_layout(n_channels)
    # an optimizer's state goes by the parameters' order
    assert [name for name, _ in model.named_parameters()] == [name for name, _ in layout]


def test_a_published_config_gets_our_keys_defaults_and_another_models_is_refused():
    published = {"n_mel_channels": 80, "n_flows": 12, "n_group": 8, "n_early_every": 4, "n_early_size": 2}
    published |= {"WN_config": {"n_layers": 8, "kernel_size": 3, "n_channels": 512}}
    config = WaveGlowConfig.from_dict(published)
    assert config == WaveGlowConfig()
    added = {"hop_length": 256, "upsample_kernel_size": 1024, "upsample_channels": None}
    assert {**published, **added} == asdict(config)
    for changed in (
        {},
        {"hop_length": 300},
        {"upsample_channels": 8},
    ):  # the published class takes the keys without ours
        assert WaveGlowConfig.from_dict(published | changed).to_dict() == published | changed
    with pytest.raises(DataError, match="unknown keys prenet_dim, n_heads, expected n_mel_channels"):
        WaveGlow(prenet_dim=256, WN_config={"n_heads": 2})


@pytest.mark.parametrize(
    ("config", "flags"),
    [
        ({"n_group": 7}, ["--groups: 7"]),
        ({"n_early_size": 4}, ["--early-size: 4, but 2 early outputs", "--groups 8, --flows 12, --early-every 4"]),
        ({"upsample_channels": 0}, ["--upsample-channels: 0, expected a whole number of at least 1"]),
        ({"hop_length": 2048}, ["--hop-length: 2048, expected at most 1024"]),
        ({"WN_config": {"kernel_size": 4}}, ["--wn-kernel-size: 4, expected an odd number"]),
        ({"WN_config": {"n_channels": 255}}, ["--wn-channels: 255, expected an even number"]),
        ({"n_flows": 0, "n_group": 3, "WN_config": {"n_layers": -2}}, ["--flows: 0", "--groups: 3", "--wn-layers: -2"]),
    ],
)
def test_config_errors_name_every_flag_at_once(config, flags):
    with pytest.raises(UsageError) as caught:
        WaveGlow(**config)
    for flag in flags:
        assert flag in str(caught.value)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_matrix_may_turn_into_a_reflection_in_training(sign):
    layer = Invertible1x1Conv(3).double()
    weight = torch.diag(torch.tensor([sign * 2.0, 0.5, 4.0]).double())
    with torch.no_grad():
        layer.conv.weight.copy_(weight[:, :, None])
    x = torch.randn(2, 3, 5, dtype=torch.float64)
    mixed, log_det = layer(x)
    assert log_det.item() == pytest.approx(2 * np.log(2))
    torch.testing.assert_close(mixed[:, 0], sign * 2 * x[:, 0])
    torch.testing.assert_close(layer.inverse(mixed), x)
