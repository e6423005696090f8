"""SIGKILL to training runs, at random moments or inside a write; each run is resumed and compared with an undisturbed one.

    python -m tests.kills                          # the full counts of docs/reliability.md; takes an hour or more
    python -m tests.kills --settings amp --kills 5

Each setting trains once undisturbed. Then the same command runs with --resume-from-last again and again, and is killed each time.
After each kill all checkpoints must load, and those of complete epochs must equal the undisturbed run's, bit for bit. The next run
resumes from one of them, and its own checkpoints are compared in turn, up to the last epoch.
"""

import argparse
import os
import random
import shutil
import signal
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from common.checkpoint.files import load_checkpoint
from common.files import TEMPORARY
from tests.recipe import Process, finish, flags, read_steps, start_ranks
from tests.test_train import TIMES, differences

RANDOM_KILLS, WRITE_KILLS = 20, 50  # the full counts
EVERY_EPOCH = ["--epochs-per-checkpoint", "1", "--epochs-per-validation", "4"]
IN_MID_EPOCH = ["--checkpoint-every-minutes", "0.002"]
WRITE_SECONDS, STEP_SECONDS = 0.03, 0.05  # about the time that a write takes, or a step
OF_THE_LAUNCH = ("launch", "saved")  # entries of a checkpoint that differ between launches


class Setting(NamedTuple):
    """A model, its flags, the number of processes, and True where kills happen inside writes."""

    model: str
    words: str = ""
    processes: int = 1
    in_write: bool = False


SETTINGS = {
    "write": Setting("WaveGlow", "--wn-channels 96", in_write=True),
    "shard": Setting("WaveGlow", "--shard --num-workers 2"),
    "amp": Setting("Tacotron2", "--amp --amp-dtype bfloat16 --ema-decay 0.9 -bs 1 --grad-accumulation-steps 2"),
    "two processes": Setting("Tacotron2", "-bs 1", processes=2),
    "two processes, shard": Setting("WaveGlow", "-bs 1 --shard", processes=2),
}


class Run(NamedTuple):
    """A command that trains into a folder."""

    setting: Setting
    folder: Path
    epochs: int

    def start(self, *argv: object) -> list[Process]:
        """Start the run, or resume it. Returns its processes."""
        words = [*flags(self.setting.model, self.folder), *self.setting.words.split(), *EVERY_EPOCH, *argv]
        words += [] if self.setting.in_write else IN_MID_EPOCH
        words += ["--epochs", str(self.epochs), "--resume-from-last"]
        return start_ranks("train.py", *words, ranks=self.setting.processes)

    def checkpoints(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Load all checkpoints but the link and the best weights, from which no run resumes."""
        for path in sorted(self.folder.glob("checkpoint_*.pt")):
            if not (path.is_symlink() or "_best_" in path.name):
                yield path.name, load_checkpoint(path)

    def records(self) -> dict[Any, list[dict[str, Any]]]:
        """Read the log by step, without times and totals; a step that ran again after a kill has its records once."""
        grouped: dict[Any, list[dict[str, Any]]] = {}
        for step, data in read_steps(self.folder / "nvlog.json"):
            record = {key: value for key, value in data.items() if not TIMES.search(key)}
            if step != () and record not in grouped.setdefault(step, []):
                grouped[step].append(record)
        return grouped


class Reference(NamedTuple):
    """An undisturbed run: its checkpoints by name, and its records by step."""

    checkpoints: dict[str, dict[str, Any]]
    records: dict[Any, list[dict[str, Any]]]


def make_reference(run: Run) -> Reference:
    """Train without a fault, and keep every checkpoint."""
    finish(run.start())
    return Reference(dict(run.checkpoints()), run.records())


def compare(run: Run, reference: Reference) -> None:
    """Check that all checkpoints load, and that those of complete epochs have the reference's bits."""
    for name, checkpoint in run.checkpoints():
        if not checkpoint.get("epoch_complete", True):  # it is compared after the epoch's end
            continue
        wanted = reference.checkpoints[name]
        if "epoch_complete" not in checkpoint:  # the best weights so far
            wanted = reference.checkpoints[f"checkpoint_{run.setting.model}_{checkpoint['epoch']}.pt"]
            wanted = {"state_dict": wanted.get("ema_state_dict", wanted["state_dict"])}
        keys = [key for key in wanted if key not in OF_THE_LAUNCH]
        different = differences({key: checkpoint[key] for key in keys}, {key: wanted[key] for key in keys})
        assert different == [], f"{run.folder}/{name}: {different[:4]} of {len(different)} differ"


Wait = Callable[[Run, Process, random.Random], bool]


def count_records(run: Run) -> int:
    """Count the steps, epochs and validations in a run's log."""
    log = run.folder / "nvlog.json"
    return log.read_bytes().count(b'"step": [') if log.exists() else 0


def wait_at_random(records: int) -> Wait:
    """Return a function that waits for one of so many records and for a part of a step, or returns False at the run's end."""

    def wait(run: Run, process: Process, draw: random.Random) -> bool:
        end = count_records(run) + draw.randrange(1, records)
        while count_records(run) < end:
            if process.poll() is not None:
                return False
            time.sleep(0.002)
        time.sleep(draw.uniform(0, STEP_SECONDS))
        return process.poll() is None

    return wait


def wait_for_write(run: Run, process: Process, draw: random.Random) -> bool:
    """Wait for one of the next writes, and for a part of the time that it takes. Returns False if the run ended before."""
    seen, left = set(temporary_files(run.folder)), draw.randint(1, 4)
    while left:
        if process.poll() is not None:
            return False
        new = set(temporary_files(run.folder)) - seen
        seen |= new
        left -= bool(new)
    end = time.perf_counter() + draw.uniform(0, WRITE_SECONDS)
    while time.perf_counter() < end:  # a sleep would be longer than a write
        pass
    return True


def temporary_files(folder: Path) -> list[str]:
    """List the files that are being written."""
    return [name for name in os.listdir(folder) if TEMPORARY.fullmatch(name)]


def kill(processes: list[Process], draw: random.Random) -> None:
    """Kill all processes of a run as a power cut does, or one of several, after which the others end by themselves."""
    for process in [draw.choice(processes)] if draw.random() < 0.5 else processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait(timeout=120)


class Report:
    """Counts of a setting's kills: all, those inside a write of a file or of a link, and runs that were resumed after each."""

    def __init__(self) -> None:
        self.kills = self.files = self.links = self.runs = 0
        self.sizes: list[int] = []  # bytes of the files that were being written

    def add(self, folder: Path) -> None:
        """Count a kill, and what it left behind."""
        self.kills += 1
        for name in temporary_files(folder):
            state = (folder / name).lstat()
            is_link = stat.S_ISLNK(state.st_mode)
            self.links += is_link
            self.files += not is_link
            self.sizes += [] if is_link else [state.st_size]

    def __str__(self) -> str:
        sizes = f" ({min(self.sizes):,} to {max(self.sizes):,} bytes were written)" if self.sizes else ""
        inside = f"{self.files} inside the write of a file{sizes}, {self.links} inside that of a link"
        return f"{self.kills} kills, {inside}; {self.runs} resumed runs ended with the bits of an undisturbed one"


def attack(setting: Setting, kills: int, epochs: int, folder: Path, seed: int) -> Report:
    """Kill runs of a setting until `kills` have hit, and compare after each. Raises AssertionError where bits differ."""
    report, draw = Report(), random.Random(seed)
    reference = make_reference(Run(setting, folder / "reference", epochs))
    wait = wait_for_write if setting.in_write else wait_at_random(len(reference.records))
    hits = 0
    while hits < kills:
        run = Run(setting, folder / f"run_{report.runs}", epochs)
        while hits < kills:
            processes = run.start("--keep-checkpoints", 3)
            if not wait(run, processes[0], draw):
                finish(processes)
                break
            before = report.files + report.links
            kill(processes, draw)
            report.add(run.folder)
            hits += report.files + report.links > before if setting.in_write else 1
            compare(run, reference)
        finish(run.start("--keep-checkpoints", 3))
        compare(run, reference)
        assert run.records() == reference.records
        best = f"checkpoint_{setting.model}_best.pt"
        assert differences(dict(run.checkpoints())[best], reference.checkpoints[best]) == []
        assert run.folder.joinpath(f"checkpoint_{setting.model}_{epochs - 1}.pt").exists()
        assert temporary_files(run.folder) == []
        report.runs += 1
        shutil.rmtree(run.folder)
    return report


def main() -> None:
    """Attack the settings that are named, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), help="what to attack")
    parser.add_argument("--kills", type=int, help=f"per setting (default: {RANDOM_KILLS}; in writes {WRITE_KILLS})")
    parser.add_argument("--epochs", type=int, default=40, help="length of each run")
    parser.add_argument("--seed", type=int, default=1, help="random seed of the moments")
    args = parser.parse_args()
    for name in args.settings:
        kills = args.kills or (WRITE_KILLS if SETTINGS[name].in_write else RANDOM_KILLS)
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            print(f"{name}: {attack(SETTINGS[name], kills, args.epochs, Path(folder), args.seed)}", flush=True)


if __name__ == "__main__":
    main()
