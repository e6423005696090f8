"""Faults in mid-run end training with one message, after a save from which it goes on; a clock that jumps is none."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import psutil
import pytest
import torch

from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.run.nvlog import NvLog
from common.training.sampler import steps
from tests.recipe import (
    ENVIRONMENT,
    LAUNCHER,
    ROOT,
    Process,
    clips,
    close_terminal,
    finish,
    flags,
    largest_file,
    read_log,
    read_steps,
    start,
    start_ranks,
    succeed,
    wait_for,
    wait_for_epoch_1,
)
from tests.test_train import differences

pytestmark = pytest.mark.slow
NEEDS_PYWORLD = pytest.mark.skipif(
    find_spec("pyworld") is None, reason="pyworld, of requirements/eval.txt, is not installed"
)

FAKETIME = sorted(Path("/usr/lib").glob("**/libfaketime.so.1"))
DAY = 86_400.0  # seconds


def command(folder: Path, *words: object) -> list[object]:
    return [sys.executable, "train.py", *flags("WaveGlow", folder), *words, "--epochs", 10**5]


@pytest.mark.parametrize(
    ("launcher", "number", "code", "said"),
    [
        ([sys.executable], signal.SIGTERM, 0, "stopping after this step\n"),  # a scheduler's
        ([sys.executable], signal.SIGINT, 130, "stopping after this step; once more to stop without saving\n"),
        (LAUNCHER, signal.SIGINT, 130, ""),  # which signals both processes once more
    ],
    ids=["SIGTERM", "SIGINT", "launcher"],
)
def test_a_signal_to_all_processes_saves_once(tmp_path: Path, launcher, number, code: int, said: str) -> None:
    """Terminals and schedulers signal every process of a run, the loader's too."""
    words = [*flags("WaveGlow", tmp_path, 8), "--epochs", 10**5, "--num-workers", 1]
    process = start(*launcher, "train.py", *words)
    try:
        wait_for_epoch_1(process, tmp_path)
        family = psutil.Process(process.pid).children(recursive=True)
        os.killpg(process.pid, number)
        deadline = time.monotonic() + 120
        while number == signal.SIGTERM and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)  # a scheduler repeats it
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.send_signal(signal.SIGABRT)  # which prints the stacks of its threads
        pytest.fail(process.communicate(timeout=60)[1])
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == code and (err == said or launcher is LAUNCHER), err
    assert psutil.wait_procs(family, 60)[1] == []  # nobody is left
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert saved["iteration"] == steps_of(tmp_path)
    assert out.count(f"saved {tmp_path}/checkpoint_WaveGlow_{saved['epoch']}.pt; add --resume-from-last") == 1


@pytest.mark.parametrize(
    ("model", "during", "ranks"),
    [
        pytest.param("PulseNoise", "validation", 2, marks=NEEDS_PYWORLD),
        ("WaveGlow", "report", 1),
        ("Tacotron2", "report", 2),
    ],
)
def test_a_request_in_a_validation_or_a_report_saves_before_its_end(tmp_path: Path, model, during, ranks) -> None:
    """Docker kills ten seconds after its request. The second process is asked, while the first one evaluates."""
    (tmp_path / "many.txt").write_text((ROOT / "filelists/clock_audio_text_train_filelist.txt").read_text())
    words = ["--validation-files", tmp_path / "many.txt", "--epochs-per-validation", 1, "-bs", 1]
    if during == "report":
        words += ["--evaluate-every", 1, "--evaluate-lines", 80, "--evaluate-without", "asr", "mos", "likeness"]
    folder, log = tmp_path / "stopped", tmp_path / "stopped/nvlog.json"
    processes = start_ranks("train.py", *flags(model, folder), *words, ranks=ranks)
    try:
        wait_for(processes[0], lambda: log.exists() and '"step": [0, ' in log.read_text())
        sign = '"val_loss"' if during == "validation" else '"step": [0], "data": {"val_loss"'
        wait_for(processes[0], lambda: sign in log.read_text())
        time.sleep(1)
        processes[-1].send_signal(signal.SIGTERM)
        for process in processes:
            process.wait(timeout=120)
    finally:
        for process in processes:
            process.kill()
    outputs = finish(processes)
    saved = load_checkpoint(folder / f"checkpoint_{model}_last.pt", resuming=True)
    assert saved["iteration"] == steps_of(folder) and not saved["epoch_complete"], outputs
    assert "evaluation_" not in log.read_text() and "stopped before the end of the validation" in outputs[0][0]
    few = [*words, "--validation-files", tmp_path / "stopped/validation.txt", "--evaluate-lines", 2]
    for path in (folder, tmp_path / "whole"):
        finish(start_ranks("train.py", *flags(model, path), *few, "--epochs", 2, "--resume-from-last", ranks=ranks))
    both = [load_checkpoint(path / f"checkpoint_{model}_1.pt") for path in (folder, tmp_path / "whole")]
    assert differences(both[0]["state_dict"], both[1]["state_dict"]) == []


def test_a_killed_loader_process_ends_the_run_after_a_save(tmp_path: Path) -> None:
    process = start(*command(tmp_path, "--num-workers", 1))
    wait_for_epoch_1(process, tmp_path)
    workers = [child for child in psutil.Process(process.pid).children() if child.cmdline()[:1] == [sys.executable]]
    workers[0].send_signal(signal.SIGKILL)
    ((out, err),) = finish([process], code=1)
    assert re.fullmatch(r"error: DataLoader worker .*: killed, or out of memory; lower --num-workers 1\n", err), err
    assert "the next clips cannot be read: saved" in out
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"] > 2


def test_a_closed_terminal_ends_the_run_after_a_save(tmp_path: Path) -> None:
    code = close_terminal(command(tmp_path, "--num-workers", 1), tmp_path / "nvlog.json", '"step": [1, 0]')
    assert code == 129
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["iteration"] == steps_of(tmp_path)


def test_a_full_disk_under_tensorboard_is_an_error(tmp_path: Path, monkeypatch) -> None:
    printed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", printed.append)  # Python's prints the traceback of a thread
    with (
        largest_file(20_000),
        pytest.raises(DataError, match=rf"{tmp_path}/tb: cannot write the log \(File too large\)"),
        NvLog(tmp_path / "nvlog.json", tmp_path / "tb") as log,
    ):
        for step in range(1000):
            log.audio("a", torch.zeros(5000), step, 22050)
    assert printed == []
    assert threading.excepthook == printed.append


def test_steps_are_loaded_one_ahead_and_an_error_of_the_first_comes_without_batches() -> None:
    loaded = []

    def loader():
        for number in range(7):
            loaded.append(number)
            if number == 5:
                raise DataError("clip 5")
            yield number

    stepwise = steps(loader(), 2)
    assert next(stepwise)[::2] == ([0, 1], None)
    assert loaded == [0, 1, 2, 3]
    batches, _, fault = next(stepwise)
    assert batches == [2, 3] and str(fault) == "clip 5"
    assert list(stepwise) == []
    assert [step.batches for step in steps(iter(range(5)), 2)] == [[0, 1], [2, 3]]

    def broken():
        raise DataError("clip 0")
        yield

    (first,) = steps(broken(), 1)
    assert first.batches == [] and str(first.fault) == "clip 0"


def own_clips(folder: Path) -> list[object]:
    """Return the flag of a folder in which the clips of the tests' filelists are copies."""
    clips(folder)
    for rows in (folder / "training.txt", folder / "validation.txt"):
        for row in rows.read_text().splitlines():
            copy = folder / "own" / row.split("|")[0]
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / row.split("|")[0], copy)
    return ["--dataset-path", folder / "own"]


def steps_of(folder: Path) -> int:
    return sum("train_iter_time" in data for _, data in read_steps(folder / "nvlog.json"))


def test_a_clip_deleted_in_mid_run_ends_it_after_a_save(tmp_path: Path) -> None:
    """The next test deletes one of validation."""
    words = [*own_clips(tmp_path), "--epochs-per-validation", 1]
    process = start(*command(tmp_path, *words))
    wait_for_epoch_1(process, tmp_path)
    victim = tmp_path / "own" / (tmp_path / "training.txt").read_text().split("|")[0]
    victim.rename(tmp_path / "away.ogg")
    ((out, err),) = finish([process], code=1)
    assert err == f"error: {victim}: no such audio file\n"
    (saved,) = re.findall(rf"the next clips cannot be read: saved ({tmp_path}/checkpoint_WaveGlow_\d+\.pt);", out)
    checkpoint = load_checkpoint(Path(saved))
    assert checkpoint["iteration"] == steps_of(tmp_path)  # nothing is lost
    (tmp_path / "away.ogg").rename(victim)
    words += ["--resume-from-last", "--epochs", checkpoint["epoch"] + 1]
    assert "resuming" in succeed("train.py", *flags("WaveGlow", tmp_path), *words)


def test_sharded_processes_save_together_when_none_can_read_a_clip(tmp_path: Path) -> None:
    """They run each forward of a validation together; with one clip, the second one discards its result."""
    own, one = own_clips(tmp_path), tmp_path / "one.txt"
    one.write_text((tmp_path / "validation.txt").read_text().splitlines()[0])
    victim = tmp_path / "own" / one.read_text().split("|")[0]
    words = ["-bs", 1, "--shard", "--epochs-per-validation", 1, "--timeout-minutes", 1, "--validation-files", one]
    processes = start_ranks(*command(tmp_path, *own, *words)[1:])
    wait_for_epoch_1(processes[0], tmp_path)
    victim.unlink()
    outs, errs = zip(*finish(processes, code=1), strict=True)
    assert f"error: {victim}: no such audio file" in "".join(errs) and "Traceback" not in "".join(errs)
    assert "the next clips cannot be read: saved" in outs[0]
    checkpoint = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert checkpoint["iteration"] == steps_of(tmp_path) > 2
    assert checkpoint["epoch_complete"]


def wait_for_records(process: Process, folder: Path, days: int) -> None:
    """Wait until a run has logged steps with a clock that is so many days ahead."""

    def is_there() -> bool:
        stamp = float(read_log(folder / "nvlog.json")[-1]["timestamp"])
        return abs(stamp - time.time() - days * DAY) < DAY / 2

    wait_for(process, is_there)


@pytest.mark.skipif(not FAKETIME, reason="libfaketime is not installed: apt-get install faketime")
def test_a_clock_that_jumps_changes_no_duration(tmp_path: Path) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0")
    fake = {"LD_PRELOAD": str(FAKETIME[0]), "FAKETIME_TIMESTAMP_FILE": str(offset), "FAKETIME_NO_CACHE": "1"}
    fake["FAKETIME_DONT_FAKE_MONOTONIC"] = "1"
    words = command(tmp_path / "out", "--checkpoint-every-minutes", 100)
    process = start(*words, environment=ENVIRONMENT | fake)
    wait_for_epoch_1(process, tmp_path / "out")
    for days in (20, -20, 3):
        offset.write_text(f"{days:+}d")
        wait_for_records(process, tmp_path / "out", days)
    process.send_signal(signal.SIGTERM)
    ((out, _),) = finish([process])
    assert "still in mid-epoch" not in out  # no save by the clock
    records = read_log(tmp_path / "out" / "nvlog.json")
    stamps = [float(record["timestamp"]) for record in records]
    assert max(stamps) - min(stamps) > 39 * DAY  # the jumps took place
    elapsed = [float(record["elapsedtime"]) for record in records]
    assert elapsed == sorted(elapsed) and elapsed[-1] < 600
    seconds = [record["data"]["train_iter_time"] for record in records if "train_iter_time" in record.get("data", {})]
    assert len(seconds) >= 5 and all(0 < value < 60 for value in seconds)
