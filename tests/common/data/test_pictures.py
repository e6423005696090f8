"""Pictures: what is drawn where, and files that cannot be written."""

import io

import matplotlib
import numpy as np
import pytest
import torch
from PIL import Image

from common.data.pictures import figure_pixels, plot_alignment, plot_gate, plot_mel_pair, save_figure
from common.errors import DataError


def colour_at(figure, axes, x, y):
    """The RGB drawn at the data coordinates (x, y)."""
    pixels = figure_pixels(figure)
    column, row = axes.transData.transform((x, y))
    return pixels[pixels.shape[0] - 1 - int(row), int(column)].tolist()


def colour_of(name, share):
    return list(matplotlib.colormaps[name](share, bytes=True)[:3])


def test_a_saved_picture_is_a_png_of_the_figure(tmp_path):
    mel = np.linspace(-11, 1, 80 * 30).reshape(80, 30)
    first, second = (plot_mel_pair(mel, mel[:, :20], hop_length=1, sampling_rate=1) for _ in range(2))
    save_figure(tmp_path / "new" / "a.png", first)  # drawing lays out anew
    content = (tmp_path / "new" / "a.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    pixels = np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))
    assert np.array_equal(pixels, figure_pixels(second)) and len(np.unique(pixels.reshape(-1, 3), axis=0)) > 30
    assert [entry.name for entry in (tmp_path / "new").iterdir()] == ["a.png"]


def test_the_first_symbol_and_the_first_channel_are_below_and_time_goes_right():
    weights, mel = torch.zeros(50, 10), torch.zeros(80, 30)
    weights[40, 2], weights[5, 7], mel[10, 20] = 0.8, 0.4, -4.0
    figure = plot_alignment(weights, "abcdefghij")
    shown = [colour_at(figure, figure.axes[0], *place) for place in ((40.5, 2.5), (5.5, 7.5), (20.5, 5.5))]
    assert shown == [colour_of("viridis", share) for share in (1.0, 0.5, 0.0)]
    figure = plot_mel_pair(mel, torch.full((80, 40), 4.0), hop_length=256, sampling_rate=22050)
    upper, lower = figure.axes[:2]
    frames = ((upper, 15.5, 40.5), (upper, 20.5, 10.5), (lower, 15.5, 40.5))
    shown = [colour_at(figure, axes, frame * 256 / 22050, channel) for axes, frame, channel in frames]
    assert shown == [colour_of("magma", share) for share in (0.5, 0.0, 1.0)]  # on one scale


@pytest.mark.filterwarnings("error::UserWarning", "error::RuntimeWarning")
def test_diverged_and_empty_inputs_still_draw(tmp_path):
    mel, empty, lost = np.zeros((80, 10)), np.zeros((80, 0)), np.full((80, 3), np.nan)
    mel[3, 4], mel[5, 6], mel[7, 8] = np.nan, np.inf, -2.0
    rates = {"hop_length": 1, "sampling_rate": 1}
    figure = plot_mel_pair(mel, mel, **rates)
    shown = [colour_at(figure, figure.axes[0], x + 0.5, y + 0.5) for x, y in ((4, 3), (6, 5), (8, 7))]
    assert shown == [[255, 255, 255], [255, 255, 255], colour_of("magma", 0.0)]
    drawn = [plot_mel_pair(one, lost, **rates) for one in (lost, empty)] + [plot_alignment(np.zeros((0, 2)), "hi")]
    for figure in [*drawn, plot_gate(np.zeros(0), np.zeros(0))]:
        assert figure_pixels(figure).shape[2] == 3


def test_a_failed_save_leaves_no_trace(tmp_path):
    (tmp_path / "p.png").mkdir()
    with pytest.raises(DataError, match=r"p\.png: cannot write the picture \(Is a directory\)"):
        save_figure(tmp_path / "p.png", plot_gate(np.zeros(2), np.zeros(2)))
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.png"]
