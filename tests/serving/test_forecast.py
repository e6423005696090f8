"""Waiting times against a simulation in small steps, and turns of refused clients."""

import random

import pytest

from serving.forecast import LONGEST_WAIT, Forecast, work_before


def simulated(active: list[float], waiting: list[float], places: int, step: float = 1e-3) -> float:
    """Give each active request a small share in turn until a new one has a place."""
    active, waiting, work = list(active), list(waiting), 0.0
    while True:
        while waiting and len(active) < places:
            active.append(waiting.pop(0))
        if len(active) < places:
            return work
        active = [left - step for left in active]
        work += step * len(active)
        active = [left for left in active if left > 0]


@pytest.mark.parametrize(("n_active", "n_waiting", "places"), [(0, 0, 1), (3, 0, 4), (1, 5, 1), (4, 9, 4), (4, 0, 4)])
def test_the_work_before_a_request_is_that_of_a_simulation(n_active: int, n_waiting: int, places: int) -> None:
    draw = random.Random(n_waiting)
    active, waiting = ([draw.uniform(0.1, 3) for _ in range(count)] for count in (n_active, n_waiting))
    assert work_before(active, waiting, places) == pytest.approx(simulated(active, waiting, places), abs=0.1)


def test_refused_clients_come_back_one_after_the_other() -> None:
    """At 10 seconds of audio a second, after 4 seconds, and none so late that OpenAI's clients ignore the number."""
    forecast = Forecast()
    forecast.add(600, 60)
    turns = [forecast.retry_after(4, 5.0) for _ in range(200)]
    assert turns[:5] == [4, 5, 5, 6, 6] and turns[-1] == LONGEST_WAIT and turns == sorted(turns)
    assert Forecast().retry_after(0, 1.0) == 1
    assert forecast.seconds(30) == pytest.approx(3)
    for _ in range(20):
        forecast.add(10, 10)
    assert forecast.seconds(30) == pytest.approx(30, rel=0.15)  # what was fast is forgotten
