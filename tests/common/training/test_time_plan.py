"""The fit of a run to its time: runs of a pretended clock, to the end."""

import math
from collections.abc import Callable
from dataclasses import asdict

import pytest

from common.training.time_plan import TimePlan
from tests.common.training.points import make_state


@pytest.fixture
def now(monkeypatch) -> list[float]:
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    return clock


def train(
    plan: TimePlan, now: list[float], epoch: Callable[[int], float], report: float, done: int, end: int
) -> list[int]:
    """Run epochs up to `end` or the plan's last, as train.py does; return those that were validated."""
    validated = []
    while done < min(plan.last, end):
        now[0] += epoch(done)
        plan.end_steps(done + 1, epoch(done))
        if done % plan.interval(100) == 0 or done + 1 == plan.last:
            now[0] += report
            validated.append(done)
        plan.end_epoch()
        done += 1
    return validated


@pytest.mark.parametrize("report", [0.0, 4.0])
@pytest.mark.parametrize("slower", [1.0, 2.0, 0.5])
def test_a_run_uses_its_time_and_does_not_exceed_it(now: list[float], slower: float, report: float) -> None:
    """The first epoch takes ten times as long, and after 100 s the machine may change its speed: a faster one ends early."""
    plan, start = TimePlan(), now[0]
    plan.start(10.0, 1000, 100, 0)

    def speed(epoch: int) -> float:
        return (1.0 if now[0] < 1100 else slower) * (20 if epoch == 0 else 2)

    validated = train(plan, now, speed, report, 0, 50)
    early = plan.last
    validated += train(plan, now, speed, report, 50, 1000)
    assert early == pytest.approx(plan.last, abs=2) or slower != 1.0
    taken = now[0] - start
    least, most = (0.5, 0.7) if slower < 1 else (0.95, 1.0)  # the plan grows no more
    assert least * 600 <= taken <= most * 600
    assert validated[0] == 0 and validated[-1] == plan.last - 1 and 7 <= len(validated) <= 13
    assert plan.squeeze == plan.last / 1000


def test_the_longest_report_counts(now: list[float]) -> None:
    """Most epochs have none."""
    plan = TimePlan()
    plan.start(10.0, 1000, 100, 0)
    for done, report in enumerate((3.0, 7.0, 0.0), 1):
        now[0] += 2.0
        plan.end_steps(done, 2.0)
        now[0] += report
        plan.end_epoch()
    assert plan.report_seconds == 7.0 and plan.spent == 16.0


def test_a_slow_first_epoch_does_not_decide_for_the_others(now: list[float]) -> None:
    plan = TimePlan()
    plan.start(1.0, 1000, 100, 0)
    train(plan, now, lambda epoch: 1.0 if epoch else 25.0, 0.0, 0, 1000)
    assert plan.last == 34  # 25 s, then 33 of 1 s within 0.98 x 60 s


def test_a_resumed_run_keeps_its_plan_and_another_limit_is_fitted_at_once(now: list[float]) -> None:
    whole, part = TimePlan(), TimePlan()
    whole.start(10.0, 1000, 100, 0)
    train(whole, now, lambda epoch: 2.0, 0.0, 0, 1000)
    assert whole.last == 294 and whole.interval(1) == 1  # (0.98 x 600 s) / 2 s
    part.start(10.0, 1000, 100, 0)
    train(part, now, lambda epoch: 2.0, 0.0, 0, 100)
    now[0] += 1.5  # a save in mid-epoch
    stored = part.stored()
    now[0] += 5000  # until somebody resumes it
    resumed = TimePlan(**stored)
    resumed.start(10.0, 1000, 100, 100)
    assert resumed.last == part.last == 294 and resumed.spent == 201.5
    assert resumed.time_left(100) == pytest.approx(388 + 0.0, abs=0.1)
    for minutes, last in ((20.0, 100 + int((0.98 * 1200 - 201.5) / 2)), (3.0, 100), (None, 1000)):  # 3.0: none is left
        other = TimePlan(**stored)
        other.start(minutes, 1000, 100, 100)
        assert other.last == last
    assert other.interval(50) == 50
    assert asdict(part) == {**stored, "spent": 200.0}


def test_the_learning_rate_falls_over_the_epochs_that_fit(now: list[float]) -> None:
    """At epoch 30 of 40, where 100 were asked for, the cosine is at three quarters, and the milestone of 70 has passed at 28."""
    for schedule, expected in (("cosine", 0.1 * 0.5 * (1 + math.cos(0.75 * math.pi))), ("step", 0.1 * 0.5)):
        state = make_state(lr_schedule=schedule, epochs=100, anneal_steps=[70, 80], anneal_factor=0.5)
        state.progress.plan = TimePlan(minutes=1.0, epochs=40)
        state.progress.plan.start(1.0, 100, 1, 30)
        state.progress.epoch = 30
        assert state.learning_rate == pytest.approx(expected)
