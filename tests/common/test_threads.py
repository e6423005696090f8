"""CPU threads beside other processes, the limit of spinning that commands alone set, and the garbage collector as they start."""

import os
import subprocess
import sys
import time

import pytest

from common.start import SPIN_LIMIT, SPINS
from common.threads import SECONDS, ThreadBalance, Usage, choose_threads, read_usage
from tests.recipe import ROOT

START = Usage(100.0, 50.0, 1000.0)


def later(idle: float, own: float, seconds: float = 2.0) -> Usage:
    """The usage some seconds after START, with so many cores idle and so many used by this process on average."""
    return Usage(START.idle + idle * seconds, START.own + own * seconds, START.clock + seconds)


@pytest.mark.parametrize("busy", range(5))
@pytest.mark.parametrize(("threads", "cores"), [(1, 1), (1, 2), (2, 2), (1, 4), (4, 4), (8, 8)])
def test_the_choice_settles_under_a_fair_scheduler(threads, cores, busy):
    """Threads share cores fairly with `busy` others: after some looks the number stays, and uses every free core."""
    for _ in range(2 * cores):
        share = min(1.0, cores / (threads + busy))
        now = later(cores - share * (threads + busy), share * threads)
        before, threads = threads, choose_threads(threads, cores, START, now)
    assert (
        threads == before == choose_threads(threads, cores + 1, START, later(0.5, threads))
    )  # half a core is too little
    assert max(1, cores - busy) <= threads <= max(1, cores - busy + 1)


def test_idle_time_and_own_time_are_those_of_the_clock():
    """A process that computes alone in one thread: its own time grows by the clock's, idle time by at most all cores'."""
    before = read_usage()
    while time.monotonic() < before.clock + 0.3:
        pass
    now = read_usage()
    elapsed = now.clock - before.clock
    assert 0 < now.own - before.own <= elapsed + 0.02
    assert 0 <= now.idle - before.idle <= elapsed * len(os.sched_getaffinity(0)) + 0.05


def test_a_balance_lowers_and_raises_the_number():
    calls: list[int] = []
    balance = ThreadBalance(2, calls.append)
    usage = read_usage()
    balance.usage = usage._replace(clock=usage.clock + 100 * SECONDS)
    assert balance.adjust() == "" and calls == []  # a second has not passed
    balance.usage = usage._replace(clock=usage.clock - 100 * SECONDS)  # neither idle nor own time since
    assert "1 of 2" in balance.adjust()
    usage = read_usage()
    balance.usage = Usage(usage.idle - 200 * SECONDS, usage.own, usage.clock - 100 * SECONDS)  # two idle cores since
    assert "2 of 2" in balance.adjust() and calls == [1, 2]


WATCH_TORCH = f"""
import gc, os, runpy, sys
class Watch:
    def find_spec(self, name, *_):
        if name == "torch":
            print(os.environ.get({SPIN_LIMIT!r}), gc.isenabled(), flush=True)
            os._exit(0)
sys.meta_path.insert(0, Watch())
sys.argv = [sys.argv[1], "--help"]
runpy.run_path(sys.argv[0], run_name={{name!r}})
"""


def limit_at_import(name: str, command: str, **variables: str) -> str:
    """The limit of spinning in the environment, and whether garbage is collected, when a file begins to import PyTorch."""
    words = [sys.executable, "-c", WATCH_TORCH.replace("{name!r}", repr(name)), command]
    environment = {key: value for key, value in os.environ.items() if key != SPIN_LIMIT} | variables
    run = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.mark.slow
def test_commands_limit_spinning_and_garbage_collection_before_pytorch_is_imported():
    for command in ("train.py", "inference.py", "evaluate.py"):
        assert limit_at_import("__main__", command) == f"{SPINS} False"
        assert limit_at_import("imported", command) == "None True"
    assert limit_at_import("__main__", command, **{SPIN_LIMIT: "7"}) == "7 False"
    assert limit_at_import("imported", "synthesizer.py") == "None True"
