"""Measurements of clips against signals of known levels, outliers, and the picture; tests/scripts has the command."""

import itertools

import numpy as np
import pytest
from scipy import signal, stats

from common.data import report
from common.data.report import ListedClip, MeasuredClip
from scripts.dataset_report import plot_clips
from tests.sounds import RATE
from tests.sounds import tone as sine


def tone(seconds: float, amplitude: float = 0.5) -> np.ndarray:
    """A whole number of periods, so that its mean square is exactly half of its amplitude's."""
    return sine(seconds, hertz=490, amplitude=amplitude).astype(np.float32)


def clip(characters: int, seconds: float, amplitude: float = 0.5) -> MeasuredClip:
    listed = ListedClip("a.txt", 1, "a.wav", "x" * characters, "a.wav")
    return MeasuredClip(listed, report.measure(tone(seconds, amplitude), RATE))


@pytest.mark.parametrize("amplitude", [0.5, 0.01])
def test_levels_of_a_sine_a_full_square_wave_and_zeros(amplitude: float) -> None:
    sound = report.measure(tone(1.0, amplitude), RATE)
    assert sound.duration == 1.0
    assert sound.rms == pytest.approx(20 * np.log10(amplitude) - 10 * np.log10(2), abs=1e-4)
    assert sound.peak == pytest.approx(20 * np.log10(amplitude), abs=0.01)
    square = signal.square(2 * np.pi * 50 * np.arange(RATE) / RATE).astype(np.float32)
    assert report.measure(square, RATE)[1:3] == pytest.approx((0.0, 0.0), abs=0.1)  # periods are cut
    for offset in (0, 0.005):
        nothing = report.measure(np.full(RATE, offset, np.float32), RATE)
        assert (nothing.rms, nothing.peak, nothing.clipped_runs) == (-np.inf, -np.inf, 0)
        assert (nothing.leading_silence, nothing.trailing_silence) == (1.0, 1.0)
        moved = report.measure(0.5 * square + np.float32(offset), RATE)
        assert (moved.rms, moved.peak) == pytest.approx((report.measure(0.5 * square, RATE)[1:3]), abs=1e-4)


def test_runs_at_full_scale() -> None:
    samples = (np.random.default_rng(1).choice([0.2, 32767 / 32768, 32766 / 32768, -1.0], 5000)).astype(np.float32)
    at_limit = [abs(sample) >= 32767 / 32768 for sample in samples.tolist()]
    lengths = [len(list(run)) for value, run in itertools.groupby(at_limit) if value]
    wanted = [length for length in lengths if length >= 3]
    assert len(wanted) > 100
    assert report.clipped_runs(samples).tolist() == wanted
    sound = report.measure(samples, RATE)
    assert (sound.clipped_runs, sound.longest_run) == (len(wanted), max(wanted))
    assert report.clipped_runs(np.ones(7, np.float32)).tolist() == [7]
    assert report.clipped_runs(tone(0.1, 0.999)).tolist() == []
    sound = report.measure(np.array([0.5, -0.5], np.float32), RATE)  # shorter than a frame
    assert (sound.leading_silence, sound.trailing_silence) == (0.0, 0.0)


def test_outliers_are_those_beyond_5_deviations() -> None:
    values = np.random.default_rng(2).standard_t(2, 500) + 7
    found = report.outliers(values)
    distances = np.abs(values - np.median(values)) / stats.median_abs_deviation(values)
    np.testing.assert_allclose(found.deviations, distances)
    wanted = np.flatnonzero(distances > 5)
    assert 5 < len(wanted) < 100
    assert found.indices == sorted(wanted, key=lambda i: -distances[i])
    without_deviation = np.array([1.0, 2.0, 2.0, 2.0, 9.0])
    assert report.outliers(without_deviation).indices == [4, 0]  # all that differs, worst first
    assert report.outliers(np.array([3.0])).indices == []


def test_the_picture_shows_every_clip() -> None:
    clips = [clip(10 + i % 7, 0.5 + 0.02 * (i % 11), 0.1 + 0.01 * i) for i in range(40)]
    clips += [clip(12, 9.0), clip(12, 0.6, amplitude=0.0)]
    panels = {axes.get_title(): axes for axes in plot_clips(clips, "costs $5 and $6").axes}
    bars = {title: sum(bar.get_height() for bar in axes.patches) for title, axes in panels.items()}
    assert list(bars) == list(report.quantities(clips))
    assert set(bars.values()) == {42, 41} and bars["peak (dBFS)"] == 41  # silence has no level
    assert panels["duration (s)"].get_xlabel() == "outermost bars: 1 from farther out"
    assert plot_clips([clip(4, 0.5, amplitude=0.0)], "one").axes[0].patches
