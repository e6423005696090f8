"""Training runs that are stopped at random moments, by signals or by a /dev/shm or a disk that fills up; what becomes of each.

    python -m tests.stops --trials 200 --log stops.jsonl

One trial in three stops a run at a random moment of its start, the others in the seconds after its first checkpoint. Then the run
must end by itself, all checkpoints must load, and no process may be left. A run is forked from a warm process, or begins `cold`
with its imports; a launcher's ranks always do. --log keeps a line for each trial; the same command goes on after the last of them.
Small /dev/shm and disks need root. tests/test_kills.py compares resumed runs bit for bit.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

import psutil

from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from tests.recipe import ENVIRONMENT, LAUNCHER, Process, children, flags, read_steps, start, start_ranks

REQUESTS = {"SIGTERM": 0, "SIGINT": 130, "SIGHUP": 129}  # exit codes of a run that is asked to stop, and saves
SIGNALS = (*REQUESTS, "SIGQUIT", "SIGKILL")
TARGETS = ("main", "group", "all", "rank", "loader")
FULL = ("full /dev/shm", "full disk")
LAYOUTS = {  # and how often; the last two take as long as their imports
    "one process": 3,
    "2 loaders": 5,
    "2 ranks": 3,
    "2 ranks, a loader each": 3,
    "2 loaders, cold": 1,
    "launcher of 2 ranks, a loader each": 1,
}
STARTS = {
    "2 loaders, cold": 20.0,
    "launcher of 2 ranks, a loader each": 40.0,
}  # seconds to the first checkpoint, 3 for the others
AFTER, AGAIN = 2.0, 3.0  # seconds from the first checkpoint, and from a first signal to a second one, at most
TIME_TO_FAIL, TIME_TO_END, TIME_TO_LEAVE = 3.0, 150.0, 15.0  # the longest waits
WORDS = (
    "--epochs 100000 --epochs-per-validation 3 --checkpoint-every-minutes 0.01 --keep-checkpoints 2 --timeout-minutes 1"
)
SMALL = 4 * 2**20  # bytes of a /dev/shm or a disk that fills up
APART = "STOPS_APART"  # variable of the environment: /dev/shm is small and this command's own


class Event(NamedTuple):
    """A signal, or what fills up; who gets it; the second signal, or ""."""

    name: str
    target: str = "main"
    again: str = ""

    @property
    def saves(self) -> bool:
        """True if the run must save every finished step."""
        asks = self.name in (*REQUESTS, "full /dev/shm") or self.target == "loader"
        return asks and self.again not in ("SIGINT", "SIGKILL")


class Outcome(NamedTuple):
    """What became of a stopped run; `lost` counts logged steps without a checkpoint, `broken` files, `left` processes."""

    ended: bool
    code: int | None
    saved: bool
    lost: int
    broken: int
    left: int
    traceback: bool


class Run(NamedTuple):
    """The processes that were started, the main one or the launcher first, and the folder that they train into."""

    processes: list[Process]
    folder: Path
    launched: bool

    def trainers(self) -> list[psutil.Process]:
        """List the processes that train."""
        pids = children(self.processes[0].pid) if self.launched else [process.pid for process in self.processes]
        return list(alive(pids))

    def members(self) -> list[psutil.Process]:
        """List all live processes: those of its sessions, and a launcher's, whose command lines name the folder."""
        sessions, found = {process.pid for process in self.processes}, []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if process.status() != psutil.STATUS_ZOMBIE and (
                    os.getsid(process.pid) in sessions or str(self.folder) in process.cmdline()
                ):
                    found.append(process)
        return found

    def has_saved(self) -> bool:
        """Return True once there is a checkpoint."""
        return any(self.folder.glob("checkpoint_*_last.pt"))


def alive(pids: Iterable[int]) -> Iterator[psutil.Process]:
    """Yield those of the processes that have not ended."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


@contextlib.contextmanager
def begin(event: Event, layout: str) -> Iterator[Run]:
    """Start a run that does not end by itself, in a folder, which is a small disk of its own if it is to fill up."""
    folder, is_disk = Path(tempfile.mkdtemp(prefix="stops-")), event.name == "full disk"
    if is_disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder], check=True)
    loaders = 2 if "2 loaders" in layout else int("a loader" in layout)
    words = [*flags("WaveGlow", folder, 8), *WORDS.split(), "--num-workers", loaders]
    launched = layout.startswith("launcher")
    if launched:
        processes = [start(*LAUNCHER, "train.py", *words)]
    elif layout.endswith("cold"):
        processes = [start(sys.executable, "train.py", *words, environment=ENVIRONMENT | {"COLD": "1"})]
    else:
        processes = start_ranks("train.py", *words, ranks=1 + layout.startswith("2 ranks"))
    run = Run(processes, folder, launched)
    try:
        yield run
    finally:
        for one in run.members():
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        for place in (folder, Path("/dev/shm")):
            (place / "filler").unlink(missing_ok=True)
        if is_disk:
            subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def strike(event: Event, run: Run, draw: random.Random) -> Event:
    """Send the signal, or fill the memory or the disk. Returns the event with its real target: there may be no loader yet."""
    main = run.processes[0]
    if event.name in FULL:
        place = run.folder if event.name == "full disk" else Path("/dev/shm")
        with contextlib.suppress(OSError), (place / "filler").open("wb") as file:
            file.write(bytes(SMALL))
        return event
    everyone, trainers = run.members(), run.trainers()
    loaders = [one for one in everyone if one not in trainers and one.pid != main.pid]
    chosen = {"all": everyone, "rank": [draw.choice(trainers)] if trainers else []}
    chosen |= {"loader": [draw.choice(loaders)] if loaders and run.has_saved() else []}
    victims = chosen.get(event.target, [])
    if not victims and event.target != "group":
        event, victims = event._replace(target="main"), list(alive([main.pid]))
    for number, name in enumerate(filter(None, (event.name, event.again))):
        time.sleep(draw.uniform(0, AGAIN) if number else 0)
        with contextlib.suppress(ProcessLookupError):
            if event.target == "group":
                os.killpg(main.pid, signal.Signals[name])
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                victim.send_signal(signal.Signals[name])
    return event


def trial(event: Event, layout: str, early: bool, draw: random.Random) -> tuple[Event, Outcome]:
    """Stop a run while it starts, or after its first checkpoint; return what happened, and what is there when it has ended."""
    with begin(event, layout) as run:
        main, begun = run.processes[0], time.monotonic()
        if early:
            time.sleep(draw.uniform(0, STARTS.get(layout, 3.0)))
        else:
            while not run.has_saved():
                assert main.poll() is None and time.monotonic() < begun + TIME_TO_END, main.communicate(5)
                time.sleep(0.02)
            time.sleep(draw.uniform(0, AFTER))
        event = strike(event, run, draw)
        if (
            event.name == "full /dev/shm" or event.target == "loader"
        ):  # a run goes on if its batches fit, or loaders ignore it
            with contextlib.suppress(subprocess.TimeoutExpired):
                main.wait(TIME_TO_FAIL)
            for one in run.trainers() or alive([main.pid]):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.terminate()
        errors, deadline = [], time.monotonic() + TIME_TO_END
        for process in run.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                errors.append(process.communicate(timeout=max(1.0, deadline - time.monotonic()))[1])
        ended, deadline = len(errors) == len(run.processes), time.monotonic() + TIME_TO_LEAVE
        while (left := run.members()) and time.monotonic() < deadline:
            time.sleep(0.1)
        return event, examine(run.folder, main.poll(), ended, len(left), "".join(errors))


def examine(folder: Path, code: int | None, ended: bool, left: int, err: str) -> Outcome:
    """Load all checkpoints, and compare the newest with the log."""
    steps, broken = [0], 0
    for path in folder.glob("checkpoint_*.pt"):
        try:
            steps.append(load_checkpoint(path).get("iteration", 0))
        except (DataError, OSError):
            broken += 1
    log = folder / "nvlog.json"
    logged = sum("train_iter_time" in data for _, data in read_steps(log)) if log.exists() else 0
    print(err, end="", flush=True)
    return Outcome(ended, code, max(steps) > 0, max(0, logged - max(steps)), broken, left, "Traceback" in err)


def fault(event: Event, outcome: Outcome) -> str:
    """Return what breaks a promise of docs/reliability.md, or ""."""
    wrong = [name for name in ("broken", "left", "traceback") if getattr(outcome, name)]
    wrong += [] if outcome.ended else ["hung"]
    if outcome.ended and outcome.lost and event.saves:
        wrong.append("lost")
    may_succeed = event.name in (*REQUESTS, "full /dev/shm")
    if outcome.ended and outcome.code == 0 and not (outcome.saved and may_succeed):
        wrong.append("exit code 0")
    if event.name in REQUESTS and event.target in ("main", "group", "all") and outcome.saved and event.saves:
        wrong += [] if outcome.code == REQUESTS[event.name] else [f"exit code {outcome.code}"]
    return ", ".join(wrong)


def plan(seed: int, with_full: bool) -> Iterator[tuple[Event, str, bool, random.Random]]:
    """Yield the trials without end: event, layout, whether it comes early, and the trial's random numbers."""
    events = [Event(name, target) for name in SIGNALS for target in TARGETS]
    events += [Event(name) for name in FULL for _ in range(2)] if with_full else []
    for number in count():
        draw = random.Random(f"{seed} {number}")
        turn = random.Random(f"{seed} {number // len(events)}")
        event = turn.sample(events, len(events))[number % len(events)]
        (layout,) = draw.choices(list(LAYOUTS), list(LAYOUTS.values()))
        if event.name not in FULL and draw.random() < 0.25:
            event = event._replace(again=draw.choice((event.name, "SIGINT", "SIGKILL")))
        yield event, layout, draw.random() < 1 / 3, draw


def table(rows: list[tuple[Event, Outcome]]) -> str:
    """Return the counts by signal as a table."""
    names, counts = ("ended", "saved", "lost", "broken", "left"), dict[str, Counter[str]]()
    for event, outcome in rows:
        row = counts.setdefault(event.name, Counter())
        row.update(trials=1, **{name: int(getattr(outcome, name)) for name in names})
    lines = [f"| event | {' | '.join(('trials', *names))} |", "|---" * 7 + "|"]
    lines += [f"| {name} | {' | '.join(str(row[k]) for k in ('trials', *names))} |" for name, row in counts.items()]
    faults = sum(fault(*row) != "" for row in rows)
    return "\n".join([*lines, f"{faults} faults in {len(rows)} trials"])


def main(argv: list[str] | None = None) -> int:
    """Run the trials; print a line for each fault and a table. Returns 1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="number of runs, with those in --log")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the events and moments")
    parser.add_argument("--log", type=Path, default=Path("stops.jsonl"), help="file of the trials so far")
    args = parser.parse_args(argv)
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell's background job has it ignored, its runs then too
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    is_root = os.geteuid() == 0
    if is_root and APART not in os.environ:
        mount = f'mount -t tmpfs -o size={SMALL} tmpfs /dev/shm && exec "$@"'
        command = ["unshare", "-m", "bash", "-c", mount, "_", sys.executable, "-m", "tests.stops"]
        os.execvpe("unshare", [*command, *(sys.argv[1:] if argv is None else argv)], os.environ | {APART: "1"})
    lines = args.log.read_text().splitlines() if args.log.exists() else []
    rows = [(Event(*line["event"]), Outcome(*line["outcome"])) for line in map(json.loads, lines)]
    for number, (event, layout, early, draw) in enumerate(plan(args.seed, is_root)):
        if number >= args.trials:
            break
        if number < len(rows):
            continue
        begun = time.monotonic()
        event, outcome = trial(event, layout, early, draw)
        rows.append((event, outcome))
        record = {"event": event, "layout": layout, "early": early, "outcome": outcome, "fault": fault(event, outcome)}
        with args.log.open("a") as file:
            print(json.dumps(record | {"seconds": round(time.monotonic() - begun, 1)}), file=file)
    print(table(rows))
    return int(any(fault(*row) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
