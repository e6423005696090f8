"""Imports of packages that may be missing, and audio brought to another rate."""

from __future__ import annotations

import importlib
import importlib.util
import sys

import numpy as np
import pytest

from common.errors import DataError
from common.quality.evaluators import at_rate, optional_import


def test_a_missing_package_is_named_with_what_installs_it() -> None:
    message = r"No module named 'no_such_evaluator'.*`bash scripts/evaluation\.sh`"
    with pytest.raises(DataError, match=message), optional_import():
        importlib.import_module("no_such_evaluator")


def test_a_stand_in_is_there_for_the_import_alone() -> None:
    with optional_import(no_such_reader={"answer": 42}):
        assert importlib.import_module("no_such_reader").answer == 42
        assert importlib.util.find_spec("no_such_reader") is not None  # libraries look whether there is one
    assert "no_such_reader" not in sys.modules
    assert importlib.util.find_spec("no_such_reader") is None


@pytest.mark.parametrize("loaded", [True, False])
def test_a_stand_in_never_hides_the_real_one(monkeypatch, loaded: bool) -> None:
    real = importlib.import_module("colorsys")
    if not loaded:
        monkeypatch.delitem(sys.modules, "colorsys")
    with optional_import(colorsys={"rgb_to_hls": None}):
        assert importlib.import_module("colorsys").rgb_to_hls(1.0, 0.0, 0.0) == real.rgb_to_hls(1.0, 0.0, 0.0)
    assert "colorsys" in sys.modules


def test_a_tone_stays_what_it_was_at_another_rate() -> None:
    def tone(rate: int) -> np.ndarray:
        return 0.5 * np.sin(2 * np.pi * 440 * np.arange(rate) / rate)

    resampled = at_rate(tone(22050), 22050, 16000)
    assert (resampled.dtype, resampled.shape) == (np.float32, (16000,))
    assert np.abs(resampled - tone(16000))[200:-200].max() < 1e-4
    above = np.sin(2 * np.pi * 10000 * np.arange(22050) / 22050)  # silent at 16 kHz, without an alias at 6 kHz
    assert np.abs(at_rate(above, 22050, 16000))[200:-200].max() < 1e-3


def test_nothing_has_any_rate() -> None:
    assert at_rate(np.zeros(0), 22050, 16000).shape == (0,)
    same = np.float32([0.1, -0.2])
    assert np.array_equal(at_rate(same, 16000, 16000), same)
