"""Training runs that are stopped at random moments, by signals or by a /dev/shm or a disk that fills up; what becomes of each.

    python -m tests.stops --trials 100

A trial starts a run with one process, loader processes, or a launcher of two processes with a loader each, and stops it while it
starts, trains or saves. Then the run must end by itself, all checkpoints must load, and no process may be left. `lost` counts the
logged steps that no checkpoint has: none after a request to stop; after SIGKILL those since the last checkpoint. Small /dev/shm and
disks need root. `python -m tests.kills` compares resumed runs bit for bit.
"""

import argparse
import contextlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from tests.recipe import ENVIRONMENT, LAUNCHER, ROOT, flags, read_steps

LAYOUTS = {
    "one process": ([sys.executable], 0),
    "2 loaders": ([sys.executable], 2),
    "2 ranks, a loader each": (LAUNCHER, 1),
}
REQUESTS = ("SIGTERM", "SIGINT", "SIGHUP")  # to stop, after a save
EVENTS = (
    *(f"{name} to {target}" for name in (*REQUESTS, "SIGKILL") for target in ("main", "all")),
    *("SIGKILL to one", "full /dev/shm", "full disk"),
)
MOMENT, TIME_TO_FAIL, TIME_TO_END, TIME_TO_LEAVE = (
    25.0,
    20.0,
    150.0,
    15.0,
)  # seconds: the latest moment, and the longest waits
SMALL = 4 * 2**20  # bytes of a /dev/shm or a disk that fills up
IN_SMALL_MEMORY = ["unshare", "-m", "bash", "-c", f'mount -t tmpfs -o size={SMALL} tmpfs /dev/shm && exec "$@"', "_"]


class Outcome(NamedTuple):
    """What became of a stopped run; `left` counts processes, `lost` logged steps without a checkpoint, `broken` files."""

    ended: bool
    code: int | None
    saved: bool
    lost: int
    broken: int
    left: int
    traceback: bool


@contextlib.contextmanager
def folder_for(event: str) -> Iterator[Path]:
    """A temporary folder, on a small disk of its own if it is to fill up."""
    folder = Path(tempfile.mkdtemp(prefix="stops-"))
    disk = event == "full disk"
    if disk:
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        if disk:
            subprocess.run(["umount", "--lazy", folder], check=True)
        shutil.rmtree(folder)


def begin(event: str, layout: str, folder: Path) -> subprocess.Popen[str]:
    """Start a run that does not end by itself."""
    launcher, loaders = LAYOUTS[layout]
    words = [*launcher, "train.py", *flags("WaveGlow", folder, 8), "--epochs", "100000", "--num-workers", str(loaders)]
    words += ["--epochs-per-validation", "3", "--checkpoint-every-minutes", "0.05", "--keep-checkpoints", "2"]
    command = [*(IN_SMALL_MEMORY if event == "full /dev/shm" else ()), *words]
    return subprocess.Popen(
        command, cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, stdout=subprocess.DEVNULL
    )


def members(folder: Path) -> list[psutil.Process]:
    """List the live processes of the run into a folder: each has its command line."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(folder) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def strike(event: str, process: subprocess.Popen[str], folder: Path, draw: random.Random) -> None:
    """Send the signal, or fill the memory or the disk."""
    name, _, target = event.partition(" to ")
    if not target:
        place = folder if event == "full disk" else Path(f"/proc/{process.pid}/root/dev/shm")
        with contextlib.suppress(OSError), (place / "filler").open("wb") as file:
            file.write(bytes(SMALL))
        return
    everyone = members(folder) or [psutil.Process(process.pid)]
    group = {"main": [psutil.Process(process.pid)], "all": everyone, "one": [draw.choice(everyone)]}
    for victim in group[target]:
        with contextlib.suppress(psutil.NoSuchProcess):
            victim.send_signal(signal.Signals[name])


def trial(event: str, layout: str, seconds: float, draw: random.Random) -> Outcome:
    """Stop a run after so many seconds, and look at what is there when it has ended."""
    with folder_for(event) as folder:
        process = begin(event, layout, folder)
        try:
            time.sleep(seconds)
            strike(event, process, folder, draw)
            if event == "full /dev/shm":  # a run goes on if it has no loaders yet, or its batches still fit
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(TIME_TO_FAIL)
                process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                err = process.communicate(timeout=TIME_TO_END)[1]
            ended, deadline = process.poll() is not None, time.monotonic() + TIME_TO_LEAVE
            while (left := members(folder)) and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            for one in members(folder):
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        return examine(folder, process.returncode, ended, len(left), err if ended else "")


def examine(folder: Path, code: int | None, ended: bool, left: int, err: str) -> Outcome:
    """Load all checkpoints, and compare the last one with the log."""
    steps, broken = [0], 0
    for path in folder.glob("checkpoint_*.pt"):
        try:
            steps.append(load_checkpoint(path).get("iteration", 0))
        except (DataError, OSError):
            broken += 1
    log = folder / "nvlog.json"
    logged = sum("train_iter_time" in data for _, data in read_steps(log)) if log.exists() else 0
    return Outcome(ended, code, max(steps) > 0, max(0, logged - max(steps)), broken, left, "Traceback" in err)


def fault(event: str, outcome: Outcome) -> str:
    """Return what breaks a promise of docs/reliability.md, or ""."""
    wrong = [name for name in ("broken", "left", "traceback") if getattr(outcome, name)]
    wrong += [] if outcome.ended else ["hung"]
    if outcome.ended and outcome.lost and event.split()[0] in REQUESTS:
        wrong.append("lost")
    if outcome.ended and outcome.code == 0 and not (outcome.saved and event.split()[0] in ("SIGTERM", "full")):
        wrong.append("exit code 0")
    return ", ".join(wrong)


def main(argv: list[str] | None = None) -> int:
    """Run the trials, events and layouts in turn; print a line for each fault and a table. Returns 1 after a fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=100, help="number of runs")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the moments")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no trial after so many minutes")
    args = parser.parse_args(argv)
    draw, counts, faults = random.Random(args.seed), dict[str, Counter[str]](), 0
    end = time.monotonic() + 60 * args.minutes
    for number in range(args.trials):
        if time.monotonic() > end:
            break
        event = EVENTS[number % len(EVENTS)]
        layout = list(LAYOUTS)[number % len(LAYOUTS)]
        if event == "full /dev/shm" and layout == "one process":
            layout = "2 loaders"  # no batch would go through it
        seconds = draw.uniform(0, MOMENT)
        outcome = trial(event, layout, seconds, draw)
        row = counts.setdefault(event.replace(" to", ",").split(",")[0], Counter())
        row.update(trials=1, ended=outcome.ended, saved=outcome.saved, lost=outcome.lost)
        row.update(broken=outcome.broken, left=outcome.left)
        if found := fault(event, outcome):
            faults += 1
            print(f"{event}, {layout}, after {seconds:.1f} s: {found}: {outcome}", flush=True)
    names = ("trials", "ended", "saved", "lost", "broken", "left")
    print("\n".join([f"| event | {' | '.join(names)} |", "|---" * 7 + "|"]))
    for event, row in counts.items():
        print(f"| {event} | {' | '.join(str(row[name]) for name in names)} |")
    print(f"{faults} faults in {sum(row['trials'] for row in counts.values())} trials")
    return int(faults > 0)


if __name__ == "__main__":
    sys.exit(main())
