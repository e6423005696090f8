"""Plots of growth: the points, and a proportional line through our first point."""

from __future__ import annotations

import pytest

from benchmarks.growth import Growth, draw

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(("name", "line"), [("batch", [0.5, 1.0, 2.5]), ("processes", [0.5, 0.25, 0.1])])
def test_the_plot_has_both_curves_and_a_line_in_proportion(name: str, line: list[float]) -> None:
    axes = draw(Growth(name, sizes=[2, 4, 10], plain=[1.0, 2.5, 6.0], ours=[0.5, 0.9, 2.0])).axes[0]
    drawn = {curve.get_label(): list(curve.get_ydata()) for curve in axes.get_lines()}
    assert drawn.pop("plain") == [1.0, 2.5, 6.0]
    assert drawn.pop("ours") == [0.5, 0.9, 2.0]
    assert list(drawn.values()) == [pytest.approx(line)]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert all(list(curve.get_xdata()) == [2, 4, 10] for curve in axes.get_lines())
