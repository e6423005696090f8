"""Older layouts of the weights, and audio in parts: the whole audio of `infer`, cut."""

import io
import math
import re
import warnings

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from common.draws import Draws
from common.errors import DataError
from common.kernels.private_ops import weight_norm
from tests.waveglow.conftest import speech
from waveglow import spec
from waveglow.spec import draw_noise, stream, upgrade_state_dict


def fold(weights):
    """weight = g * v / |v|, by the formula."""
    result = {}
    for name, tensor in weights.items():
        if name.endswith("weight_v"):
            norm = tensor.square().sum((1, 2), keepdim=True).sqrt()
            result[name[:-2]] = weights[name[:-1] + "g"] * tensor / norm
        elif not name.endswith("weight_g"):
            result[name] = tensor
    return result


def fuse(weights):
    result, rows = {}, {}
    for name, tensor in weights.items():
        fused = re.sub(r"cond_layers\.\d+", "cond_layer", name)
        rows.setdefault(fused, []).append(tensor)
        result[fused] = torch.cat(rows[fused]) if fused != name else tensor
    return result


def parametrize_norms(weights):
    names = {"weight_g": "parametrizations.weight.original0", "weight_v": "parametrizations.weight.original1"}
    return {re.sub("weight_[gv]$", lambda m: names[m[0]], name): tensor for name, tensor in weights.items()}


LAYOUTS = {"today's": lambda w: w, "folded": fold, "fused": fuse, "parametrized": parametrize_norms}
LAYOUTS |= {"fused and folded": lambda w: fuse(fold(w)), "fused and parametrized": lambda w: parametrize_norms(fuse(w))}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_audio_and_names_and_float16_becomes_float32(small_model, layout):
    model, other = small_model(torch.float32), small_model(torch.float32, seed=3)
    upgraded = upgrade_state_dict(LAYOUTS[layout](model.state_dict()))
    assert set(upgraded) == set(model.state_dict())
    other.load_state_dict(upgraded)
    mels, z = torch.randn(1, 3, 4), torch.randn(1, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(other.infer(mels, 0.8, z), model.infer(mels, 0.8, z), atol=2e-6, rtol=0)
    weights = {name: tensor.half() for name, tensor in model.state_dict().items()}
    upgraded = upgrade_state_dict(LAYOUTS[layout](weights))
    assert {tensor.dtype for tensor in upgraded.values()} == {torch.float32}
    assert torch.equal(upgraded["convinv.0.conv.weight"], weights["convinv.0.conv.weight"].float())


def test_folded_zeros_stay_zero_and_parts_of_a_fused_layer_own_their_memory(small_model):
    """A checkpoint of views would store the whole tensor once for each part."""
    model = small_model(torch.float32)
    weights = fold(model.state_dict())
    weights["WN.1.in_layers.0.weight"][2] = 0.0
    model.load_state_dict(upgrade_state_dict(weights))
    layer = model.WN[1].in_layers[0]
    assert not weight_norm(layer.weight_v, layer.weight_g)[2].any()
    assert model.infer(torch.zeros(1, 3, 2)).isfinite().all()
    upgraded = upgrade_state_dict(fuse(small_model(torch.float32).state_dict()))
    part = upgraded["WN.0.cond_layers.1.weight_v"]
    assert part.untyped_storage().nbytes() == 4 * part.numel()
    weights = fuse(small_model(torch.float32).state_dict())
    weights["WN.2.cond_layer.bias"] = torch.zeros(37)
    message = r"WN\.2.cond_layer\.bias: 37 rows, expected a multiple of the 3 WN\.2\.in_layers"
    with pytest.raises(DataError, match=message):
        upgrade_state_dict(weights)


def both(model, mels: Tensor) -> tuple[list[Tensor], Tensor]:
    with torch.no_grad():
        torch.manual_seed(7)
        whole = model.infer(mels, sigma=0.6)
        torch.manual_seed(7)
        return list(stream(model, mels, 0.6, lambda audio: audio)), whole


@pytest.mark.parametrize("frames", [1, 7, 8, 9, 24, 61])
def test_parts_are_the_whole_with_every_frame_around_them(small_model, monkeypatch, frames):
    model = small_model()
    monkeypatch.setattr(spec, "N_REACHES", model.config.n_flows)
    parts, whole = both(model, torch.randn(1, 3, frames, dtype=torch.float64))
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-12, atol=1e-12)
    sizes = [part.shape[1] // model.hop_length for part in parts]
    assert sum(sizes) == frames
    assert sizes[:-1] == [8, 16, 32][: len(sizes) - 1]


@pytest.mark.parametrize(("hop", "kernel", "group"), [(20, 60, 8), (12, 40, 8), (4, 20, 8), (16, 64, 12)])
def test_parts_begin_at_whole_groups_where_the_frames_around_them_are_odd(small_model, monkeypatch, hop, kernel, group):
    """2 frames are 5, 3 or 1 groups of 8 samples, 3 are 4 of 12. Another number of frames around a part would shift its noise."""
    model = small_model(hop_length=hop, upsample_kernel_size=kernel, n_group=group)
    reaches = next((n for n in (6, 7) if (n * model.config.reach + math.ceil(kernel / hop)) % 2), 6)
    monkeypatch.setattr(spec, "N_REACHES", reaches)
    parts, whole = both(model, torch.randn(1, 3, 80, dtype=torch.float64))
    assert len(parts) > 2
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=0, atol=1e-4 * whole.abs().max().item())


def test_frames_far_from_a_part_change_it_little_and_parts_have_a_greatest_length(small_model):
    """Two reaches in place of five, with weights far larger than trained ones: the audio is that of the whole to 1e-4."""
    parts, whole = both(small_model(), torch.randn(1, 3, 80, dtype=torch.float64))
    audio = torch.cat(parts, dim=1)
    assert 0 < (audio - whole).norm() < 1e-4 * whole.norm()
    model = small_model(n_flows=2, WN_config={"n_layers": 1, "kernel_size": 3, "n_channels": 2})
    parts, whole = both(model, torch.randn(1, 3, 1100, dtype=torch.float64))
    assert [part.shape[1] // model.hop_length for part in parts] == [8, 16, 32, 64, 128, 256, 256, 256, 84]
    assert sum(part.shape[1] for part in parts) == whole.shape[1]


def test_parts_are_finished_with_the_audio_around_them(small_model):
    model = small_model()
    mels = torch.randn(1, 3, 60, dtype=torch.float64)
    lengths = []

    def smooth(audio: Tensor) -> Tensor:
        lengths.append(audio.shape[1] // model.hop_length)
        return torch.nn.functional.avg_pool1d(audio, 31, stride=1, padding=15)

    with torch.no_grad():
        torch.manual_seed(7)
        whole = smooth(model.infer(mels, sigma=0.6))
        torch.manual_seed(7)
        audio = torch.cat(list(stream(model, mels, 0.6, smooth)), dim=1)
    torch.testing.assert_close(audio, whole, rtol=0, atol=1e-4 * whole.abs().max().item())
    around = 2 * model.config.reach + 4
    # the whole, then parts with the frames that exist
    assert lengths == [60, 8 + around, 8 + 16 + around, around + 32 + 4, around + 4]


def test_a_longer_clip_begins_with_the_noise_of_a_shorter_one(small_model):
    """Noise is drawn in the order of time, so that the end of a clip does not change its beginning."""
    model = small_model()
    draws = [Draws.of([(1, 0), (1, 1)], "vocoder", torch.device("cpu")) for _ in range(2)]
    shorter, longer = (draw_noise(model, torch.zeros(2, 3, frames), own) for frames, own in zip((5, 9), draws))
    assert shorter.shape == (2, 8, 10) and longer.shape == (2, 8, 18)  # a frame is 2 groups of 8
    assert torch.equal(longer[:, :, :10], shorter)
    assert shorter.unique().numel() == shorter.numel()


def test_reach_is_half_the_receptive_field_of_one_flow(small_model):
    model = small_model(n_flows=1)
    mels = torch.randn(1, 3, 60, dtype=torch.float64)
    z = torch.randn(1, 8, 120, dtype=torch.float64)
    with torch.no_grad():
        before = model.infer(mels, 1.0, z)
        z[:, :, 60:62] += 1.0  # frame 30
        moved = (model.infer(mels, 1.0, z) != before).reshape(60, 16).any(1).nonzero()[:, 0].tolist()
    assert model.config.reach == 4  # 7 groups of 8 samples are 3.5 hops of 16
    assert (moved[0], moved[-1]) == (30 - 4, 30 + 4)


SIGMA = 0.8
# Few layers, since a compiler takes time for each; all kinds of flows and layers are among them.
FEW = {"n_flows": 2, "n_early_every": 1, "WN_config": {"n_layers": 2, "kernel_size": 3, "n_channels": 6}}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_script(small_model, dtype: torch.dtype) -> None:
    model = small_model(dtype, **FEW)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(model)
        torch.jit.save(scripted, buffer := io.BytesIO())
        buffer.seek(0)
        for twin in (scripted, torch.jit.load(buffer)):
            for frames, batch in ((5, 2), (1, 1), (9, 3)):
                mels, audio = speech(frames, batch, dtype)
                expected = model(mels, audio)
                outputs = twin(mels, audio)
                torch.testing.assert_close(outputs[0], expected.z, rtol=0, atol=1e-6)
                torch.testing.assert_close(outputs[2], expected.log_det_W_list, rtol=0, atol=1e-5)
                samples = twin.infer(mels, SIGMA, expected.z)
                torch.testing.assert_close(samples, model.infer(mels, SIGMA, expected.z), rtol=0, atol=1e-6)
                assert twin.infer(mels).shape == audio.shape
            with pytest.raises(torch.jit.Error, match="expected at least one group of 8"):
                twin(mels, audio[:, :7])


@pytest.mark.slow
def test_export_of_forward_with_dynamic_batch_and_length(small_model) -> None:
    model = small_model(torch.float32, **FEW)
    batch, frames = Dim("batch", max=64), Dim("frames", max=4096)
    shapes = {"mels": {0: batch, 2: frames}, "audio": {0: batch, 1: 16 * frames}}
    program = torch.export.export(model, speech(5, 2, torch.float32), dynamic_shapes=shapes).module()
    for size in ((1, 1), (9, 3), (40, 2)):
        inputs = speech(*size, torch.float32)
        outputs, expected = program(*inputs), model(*inputs)
        torch.testing.assert_close(outputs.z, expected.z, rtol=0, atol=1e-6)
        for got, want in ((outputs.log_s_list, expected.log_s_list), (outputs.log_det_W_list, expected.log_det_W_list)):
            torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6)
