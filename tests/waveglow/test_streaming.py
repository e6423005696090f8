"""Audio in parts: the whole audio of `infer`, cut."""

import math

import pytest
import torch
from torch import Tensor

from common.draws import Draws
from waveglow import streaming
from waveglow.streaming import draw_noise, stream


def both(model, mels: Tensor) -> tuple[list[Tensor], Tensor]:
    """The parts, and the whole of the same noise."""
    with torch.no_grad():
        torch.manual_seed(7)
        whole = model.infer(mels, sigma=0.6)
        torch.manual_seed(7)
        return list(stream(model, mels, 0.6, lambda audio: audio)), whole


@pytest.mark.parametrize("frames", [1, 7, 8, 9, 24, 61])
def test_parts_are_the_whole_with_every_frame_around_them(small_model, monkeypatch, frames):
    model = small_model()
    monkeypatch.setattr(streaming, "N_REACHES", model.config.n_flows)
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
    monkeypatch.setattr(streaming, "N_REACHES", reaches)
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
