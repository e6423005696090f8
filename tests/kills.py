"""SIGKILL to training runs, at random moments or inside a write; each run is resumed and compared with an undisturbed one.

    python -m tests.kills                          # the full counts of docs/reliability.md; takes an hour or more
    python -m tests.kills --settings amp --kills 5

Each setting trains once undisturbed. Then the same command runs with --resume-from-last again and again, and is killed each time.
After each kill all checkpoints must load, and those of complete epochs must equal the undisturbed run's, bit for bit. The next run
resumes from such a checkpoint, and its own checkpoints are compared in turn, up to the last epoch.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

import train
from common.checkpoint.files import load_checkpoint
from common.errors import exit_on_user_error
from common.files import TEMPORARY
from tests.recipe import ROOT, flags, read_steps
from tests.test_train import TIMES, differences

RANDOM_KILLS, WRITE_KILLS = 20, 50  # the full counts
LAUNCHER = [sys.executable, "-m", "multiproc", "--nproc", "2"]
EVERY_EPOCH = ["--epochs-per-checkpoint", "1", "--epochs-per-validation", "2"]
IN_MID_EPOCH = ["--checkpoint-every-minutes", "0.005"]
WRITE_SECONDS = 0.03  # about the time that a write takes
OF_THE_LAUNCH = ("launch", "saved")  # entries of a checkpoint that differ between launches


class Setting(NamedTuple):
    """A model, its flags, the number of processes, and True where kills happen inside writes."""

    model: str
    words: str = ""
    processes: int = 1
    in_write: bool = False


SETTINGS = {
    "write": Setting("WaveGlow", "--wn-channels 96", in_write=True),
    "workers": Setting("WaveGlow", "--num-workers 2"),
    "amp": Setting("Tacotron2", "--amp --amp-dtype bfloat16"),
    "shard": Setting("WaveGlow", "--shard"),
    "ema": Setting("Tacotron2", "--ema-decay 0.9"),
    "accumulation": Setting("Tacotron2", "-bs 1 --grad-accumulation-steps 2"),
    "two processes": Setting("Tacotron2", "-bs 1", processes=2),
    "two processes, shard": Setting("WaveGlow", "-bs 1 --shard", processes=2),
}


class Run(NamedTuple):
    """A command that trains into a folder."""

    setting: Setting
    folder: Path
    epochs: int

    def words(self, keep: int | None = 3) -> list[str]:
        """Build train.py's flags, with at most `keep` checkpoints."""
        words = [*flags(self.setting.model, self.folder), *self.setting.words.split(), *EVERY_EPOCH]
        words += [] if self.setting.in_write else IN_MID_EPOCH
        words += [] if keep is None else ["--keep-checkpoints", str(keep)]
        return [*words, "--epochs", str(self.epochs), "--resume-from-last"]

    def start(self, keep: int | None = 3) -> int:
        """Start the run, or go on with it, in a process group of its own. Returns its process.

        A single process is a fork of this one, which has imported PyTorch already.
        """
        words = self.words(keep)
        child = os.fork()
        if child:
            return child
        code = 1
        try:
            os.setsid()
            output = os.open(self.folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.chdir(ROOT)
            if self.setting.processes > 1:
                os.execv(LAUNCHER[0], [*LAUNCHER, "train.py", *words])
            with exit_on_user_error():
                code = train.main(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def finish(self, keep: int | None = 3) -> None:
        """Run to the last epoch."""
        code = os.waitstatus_to_exitcode(os.waitpid(self.start(keep), 0)[1])
        assert code == 0, f"{self.folder}: exit code {code}\n{self.output()}"

    def output(self) -> str:
        """Return the end of what the runs printed."""
        return (self.folder / "output.txt").read_text()[-3000:]

    def checkpoints(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Load all checkpoints but the link."""
        for path in sorted(self.folder.glob("checkpoint_*.pt")):
            if not (path.is_symlink() or "_best_" in path.name):  # the best weights of a run that is not gone on with
                yield path.name, load_checkpoint(path)

    def records(self) -> list[tuple[Any, dict[str, Any]]]:
        """Read the log without times, and without the totals of a whole run."""
        records = [(step, data) for step, data in read_steps(self.folder / "nvlog.json") if step != ()]
        return [(step, {key: value for key, value in data.items() if not TIMES.search(key)}) for step, data in records]


class Reference(NamedTuple):
    """An undisturbed run: its checkpoints by name, its records by step, and the seconds that it took."""

    checkpoints: dict[str, dict[str, Any]]
    records: dict[Any, list[dict[str, Any]]]
    seconds: float


def make_reference(run: Run) -> Reference:
    """Train without a fault, and keep every checkpoint."""
    start = time.monotonic()
    run.finish(keep=None)
    return Reference(dict(run.checkpoints()), by_step(run.records()), time.monotonic() - start)


def by_step(records: list[tuple[Any, dict[str, Any]]]) -> dict[Any, list[dict[str, Any]]]:
    """Group records by step; a step that ran again after a kill has its records several times."""
    grouped: dict[Any, list[dict[str, Any]]] = {}
    for step, data in records:
        if data not in grouped.setdefault(step, []):
            grouped[step].append(data)
    return grouped


def compare(run: Run, reference: Reference) -> None:
    """Check that all checkpoints load, and that those of complete epochs have the reference's bits."""
    for name, checkpoint in run.checkpoints():
        if not checkpoint.get("epoch_complete", True):  # it is compared after the epoch's end
            continue
        wanted = reference.checkpoints[name]
        if "epoch_complete" not in checkpoint:  # the best weights so far
            wanted = reference.checkpoints[f"checkpoint_{run.setting.model}_{checkpoint['epoch']}.pt"]
            wanted = {"state_dict": wanted.get("ema_state_dict", wanted["state_dict"])}
        found = {key: checkpoint[key] for key in wanted if key not in OF_THE_LAUNCH}
        found |= {key: wanted[key] for key in OF_THE_LAUNCH if key in wanted}
        different = differences(found, {key: wanted[key] for key in found})
        assert different == [], f"{run.folder}/{name}: {different[:4]} of {len(different)} differ"


def wait_at_random(run: Run, process: int, draw: random.Random, seconds: float) -> bool:
    """Wait for a part of the run's time. Returns False if the run ended before."""
    end = time.monotonic() + draw.uniform(0, seconds)
    while time.monotonic() < end:
        if has_ended(process):
            return False
        time.sleep(0.002)
    return True


def wait_for_write(run: Run, process: int, draw: random.Random, seconds: float) -> bool:
    """Wait for one of the next writes, and for a part of the time that it takes. Returns False if the run ended before."""
    seen, wanted = set(temporary_files(run.folder)), draw.randint(1, 4)
    while wanted:
        if has_ended(process):
            return False
        new = set(temporary_files(run.folder)) - seen
        seen |= new
        wanted -= bool(new)
    end = time.perf_counter() + draw.uniform(0, seconds)
    while time.perf_counter() < end:  # a sleep would be longer than a write
        pass
    return True


def temporary_files(folder: Path) -> list[str]:
    """List the files that are being written."""
    return [name for name in os.listdir(folder) if TEMPORARY.fullmatch(name)]


def has_ended(process: int) -> bool:
    """Return True if a child process has ended. Its status stays to be collected."""
    return os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def kill(run: Run, process: int, draw: random.Random) -> None:
    """Kill all processes of a run as a power cut does, or one of several, after which the others end by themselves."""
    workers = children(process) if run.setting.processes > 1 else []
    if workers and draw.random() < 0.5:
        with suppress(ProcessLookupError):
            os.kill(draw.choice(workers), signal.SIGKILL)
    else:
        for victim in [process, *workers]:  # torchrun gives each of its processes a session
            with suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
    os.waitpid(process, 0)


def children(process: int) -> list[int]:
    """List the live child processes of a process."""
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


class Report:
    """Counts of a setting's kills: all, those inside a write of a file or of a link, and runs that went on from each."""

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


def attack(name: str, kills: int, epochs: int, folder: Path, seed: int) -> Report:
    """Kill runs of a setting until `kills` have hit, and compare after each. Raises AssertionError where bits differ."""
    setting, report, draw = SETTINGS[name], Report(), random.Random(seed)
    reference = make_reference(Run(setting, folder / "reference", epochs))
    wait, seconds = (wait_for_write, WRITE_SECONDS) if setting.in_write else (wait_at_random, 0.7 * reference.seconds)
    hits = 0
    while hits < kills:
        run = Run(setting, folder / f"run_{report.runs}", epochs)
        while hits < kills:
            process = run.start()
            if not wait(run, process, draw, seconds):
                assert os.waitpid(process, 0)[1] == 0, run.output()
                break
            before = report.files + report.links
            kill(run, process, draw)
            report.add(run.folder)
            hits += report.files + report.links > before if setting.in_write else 1
            compare(run, reference)
        run.finish()
        compare(run, reference)
        assert by_step(run.records()) == reference.records
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
    parser.add_argument("--settings", nargs="+", choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--kills", type=int, help=f"of each setting (default: {RANDOM_KILLS}; in writes {WRITE_KILLS})")
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    for name in args.settings:
        kills = args.kills or (WRITE_KILLS if SETTINGS[name].in_write else RANDOM_KILLS)
        with tempfile.TemporaryDirectory(prefix="kills-") as folder:
            print(f"{name}: {attack(name, kills, args.epochs, Path(folder), args.seed)}", flush=True)


if __name__ == "__main__":
    main()
