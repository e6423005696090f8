"""Measures that select checkpoints: one line that does not stop does not outweigh nine better ones."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from common.quality.report import Line, System, capped_error_rate
from common.quality.words import Errors, word_errors
from common.training.checkup import BEST_BY, measures_of, selecting_measures
from common.training.state import Best
from common.training.validation import update_best

# Ten lines of ten words. Nine of `adapted` are right, and one does not stop; half of the words of `early` are wrong.
ADAPTED = [Errors(0, 10)] * 9 + [Errors(310, 10)]
EARLY = [Errors(5, 10)] * 10


def system(counts: list[Errors]) -> System:
    return System("checkup", [Line("", np.zeros(0), "", {}, {"wer": count}, {}) for count in counts], 1.0)


def test_a_line_that_does_not_stop_weighs_as_much_as_a_line_without_a_right_word() -> None:
    early, adapted = measures_of(system(EARLY)), measures_of(system(ADAPTED))
    assert (early["wer"], adapted["wer"]) == pytest.approx((0.5, 3.1))  # the usual rate, in the log and in reports
    assert (early["wer_capped"], adapted["wer_capped"]) == pytest.approx((0.5, 0.1))
    state: Any = SimpleNamespace(best=Best(by="wer"), epoch=0)
    for state.epoch, found in enumerate((early, adapted)):
        update_best(state, selecting_measures(found)["wer"])
    assert state.best.epoch == 1


def test_the_best_value_of_a_measure_has_its_unit() -> None:
    """train.py multiplies by the sign to compare, and once more to print and log the value itself."""
    assert {abs(sign) for sign in BEST_BY.values()} == {1.0}


def test_without_insertions_both_rates_are_equal() -> None:
    some = system([Errors(1, 4), Errors(3, 3), Errors(0, 0)])
    assert measures_of(some)["wer"] == measures_of(some)["wer_capped"] == pytest.approx(4 / 7)


def test_nothing_is_selected_by_words_that_are_not_counted() -> None:
    nothing = System("checkup", [Line("One.", np.zeros(0), "", {"focus": 0.5}, {}, {})], 1.0)
    assert math.isnan(capped_error_rate(nothing))
    assert selecting_measures(measures_of(nothing)) == {"focus": 0.5}


def test_insertions_are_capped_and_other_errors_are_not() -> None:
    pytest.importorskip("jiwer", reason="the edit distance of requirements/eval.txt")
    assert word_errors("It is noon.", f"it is noon {'uh ' * 300}").cap() == Errors(3, 3)
    assert word_errors("It is noon.", "it was noon").cap() == Errors(1, 3)
