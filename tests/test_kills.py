"""SIGKILL to training runs, at random moments or inside a write, and to a launch; each run is resumed and compared.

KILLS=50 kills each setting so many times, over 40 epochs in place of 3.

Each setting trains once undisturbed. Then the same command runs with --resume-from-last again and again, and is killed each time.
After each kill all checkpoints must load, and those of complete epochs must equal the undisturbed run's, bit for bit. The next run
resumes from one of them, and its own checkpoints are compared in turn, up to the last epoch.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from common.checkpoint.files import load_checkpoint
from common.files import TEMPORARY
from tests.recipe import LAUNCHER, VARYING, Process, finish, flags, read_steps, start, start_ranks, wait_for_epoch_1
from tests.test_train import differences

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("KILLS", "0"))
EPOCHS = 40 if KILLS else 3
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
    "two processes": Setting(
        "Tacotron2",
        "--amp --amp-dtype bfloat16 --ema-decay 0.9 -bs 1 --grad-accumulation-steps 2 --shard --num-workers 1",
        processes=2,
    ),
}


class Run(NamedTuple):
    """A command that trains into a folder."""

    setting: Setting
    folder: Path

    def start(self, *argv: object) -> list[Process]:
        words = [*flags(self.setting.model, self.folder), *self.setting.words.split(), *EVERY_EPOCH, *argv]
        words += [] if self.setting.in_write else IN_MID_EPOCH
        words += ["--epochs", EPOCHS, "--resume-from-last"]
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
            record = {key: value for key, value in data.items() if not VARYING.search(key)}
            if step != () and record not in grouped.setdefault(step, []):
                grouped[step].append(record)
        return grouped


class Reference(NamedTuple):
    """An undisturbed run: its checkpoints by name, and its records by step."""

    checkpoints: dict[str, dict[str, Any]]
    records: dict[Any, list[dict[str, Any]]]


def make_reference(run: Run) -> Reference:
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
    return [name for name in os.listdir(folder) if TEMPORARY.fullmatch(name)]


def kill(processes: list[Process], draw: random.Random) -> None:
    """Kill all processes of a run as a power cut does, or one of several, after which the others end by themselves."""
    for process in [draw.choice(processes)] if draw.random() < 0.5 else processes:
        process.send_signal(signal.SIGKILL)
    for process in processes:
        process.wait(timeout=120)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_killed_runs_are_resumed_to_the_bits_of_an_undisturbed_one(setting: Setting, tmp_path: Path) -> None:
    draw, hits, kills = random.Random(3), 0, KILLS or 1 + setting.in_write
    reference = make_reference(Run(setting, tmp_path / "reference"))
    wait = wait_for_write if setting.in_write else wait_at_random(len(reference.records))
    run = Run(setting, tmp_path / "killed")
    while hits < kills:
        while hits < kills:
            processes = run.start("--keep-checkpoints", 3)
            if not wait(run, processes[0], draw):
                finish(processes)
                break
            kill(processes, draw)
            hits += bool(temporary_files(run.folder)) or not setting.in_write
            compare(run, reference)
        finish(run.start("--keep-checkpoints", 3))
        compare(run, reference)
        assert run.records() == reference.records
        best = f"checkpoint_{setting.model}_best.pt"
        assert differences(dict(run.checkpoints())[best], reference.checkpoints[best]) == []
        assert run.folder.joinpath(f"checkpoint_{setting.model}_{EPOCHS - 1}.pt").exists()
        assert temporary_files(run.folder) == []
        shutil.rmtree(run.folder)


def test_a_launch_that_is_killed_leaves_nobody(tmp_path: Path) -> None:
    """The ranks end with the launcher, and their loader processes with them."""
    launch = start(*LAUNCHER, "train.py", *flags("WaveGlow", tmp_path, 8), "--epochs", 10**5, "--num-workers", 1)
    wait_for_epoch_1(launch, tmp_path)
    family = psutil.Process(launch.pid).children(recursive=True)
    assert len(family) >= 4
    launch.kill()
    assert psutil.wait_procs(family, 60)[1] == []
