"""Several runs in one --output, each with its own log; signals as requests to stop, and the limit of a run's time."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from common.errors import DataError
from common.run.interrupt import LAUNCHED, StopRequest
from common.run.nvlog import NvLog
from common.run.run_folder import prepare_log
from tests.recipe import read_log


class Folder:
    """One --output, and runs in it that log their name and their steps."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def run(self, model: str, name: str, first: int = 0, last: int = 2) -> str:
        """Log optimizer steps first … last - 1 as train.py does; returns what is said about older logs."""
        log, tensorboard = self.path / "nvlog.json", self.path / "tensorboard" / model
        message = prepare_log(log, tensorboard, model, first)
        with NvLog(log, tensorboard, purge_step=first + 1 if first else None) as open_log:
            open_log.parameters({"model_name": model, "run": name})
            for step in range(first, last):
                open_log.log((0, step), {"glob_iter/iters_per_epoch": f"{step}/9"})
        tensorboard.mkdir(parents=True, exist_ok=True)
        (tensorboard / f"{name} from {first}").touch()
        return message

    def runs(self) -> dict[str, list[str]]:
        return {path.name: describe_records(path) for path in sorted(self.path.glob("*.json"))}

    def curves(self) -> dict[str, list[str]]:
        folders = sorted((self.path / "tensorboard").iterdir())
        return {folder.name: sorted(file.name for file in folder.iterdir()) for folder in folders}


def describe_records(path: Path) -> list[str]:
    data = [record["data"] for record in read_log(path) if "data" in record]
    own = [item for item in data if "model_name" not in item]
    return [str(item.get("run") or item.get("glob_iter/iters_per_epoch")).removesuffix("/9") for item in own]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_two_models_in_turn_each_keep_their_log(folder: Folder) -> None:
    folder.run("A", "a")
    folder.run("B", "b")
    assert folder.runs() == {"nvlog.json": ["b", "0", "1"], "nvlog_1.json": ["a", "0", "1"]}
    assert folder.run("A", "a again", 2, 3) == (
        f"older logs: {folder.path}/nvlog.json is now {folder.path}/nvlog_2.json, "
        f"{folder.path}/nvlog_1.json is now {folder.path}/nvlog.json"
    )
    assert folder.runs() == {"nvlog.json": ["a", "0", "1", "a again", "2"], "nvlog_2.json": ["b", "0", "1"]}
    folder.run("B", "b again", 2, 3)
    assert folder.run("B", "b once more", 3, 4) == ""
    b = ["b", "0", "1", "b again", "2", "b once more", "3"]
    assert folder.runs() == {"nvlog.json": b, "nvlog_1.json": ["a", "0", "1", "a again", "2"]}
    assert folder.curves()["B"] == ["b again from 2", "b from 0", "b once more from 3"]


def test_a_fresh_run_starts_a_log_and_the_newest_is_found_by_its_own_time(folder: Folder) -> None:
    for name in ("one", "two", "three"):
        folder.run("A", name)
    assert [lines[0] for lines in folder.runs().values()] == ["three", "one", "two"]
    assert folder.curves() == {"A": ["three from 0"], "A_1": ["one from 0"], "A_2": ["two from 0"]}
    folder.run("B", "b")
    for time, number in enumerate((3, 2, 1)):  # a copy of the folder may have any times
        os.utime(folder.path / f"nvlog_{number}.json", (time, time))
    (folder.path / "nvlog_1.json").rename(folder.path / "nvlog_9.json")
    folder.run("A", "three again", 2, 3)
    assert folder.runs()["nvlog.json"] == ["three", "0", "1", "three again", "2"]


def test_a_resume_passes_over_a_run_that_ended_before_its_first_checkpoint(folder: Folder) -> None:
    folder.run("A", "long", 0, 5)
    folder.run("A", "later", 70, 71)  # a step that no log holds: on with the newest
    folder.run("A", "killed", 0, 1)
    folder.run("A", "long again", 5, 6)
    long = ["long", "0", "1", "2", "3", "4", "later", "70", "long again", "5"]
    assert folder.runs() == {"nvlog.json": long, "nvlog_2.json": ["killed", "0"]}
    curves = {"A": ["long again from 5"], "A_1": ["later from 70", "long from 0"], "A_2": ["killed from 0"]}
    assert folder.curves() == curves
    for path in folder.path.glob("*.json"):
        path.unlink()
    assert folder.run("A", "at last", 72, 73) == ""
    assert folder.curves() == curves | {"A": ["at last from 72", "long again from 5"]}


@pytest.mark.parametrize("content", ["", "notes\n", 'DLLL {"type": "LOG", "step": [], "data": {"latency": 1.0}}\n'])
def test_a_log_without_a_model_name_is_moved_aside(folder: Folder, content: str) -> None:
    folder.run("A", "a")
    (folder.path / "nvlog.json").rename(folder.path / "nvlog_1.json")
    (folder.path / "nvlog.json").write_text(content)
    folder.run("A", "a again", 2, 3)
    assert (folder.path / "nvlog_2.json").read_text() == content
    assert describe_records(folder.path / "nvlog.json") == ["a", "0", "1", "a again", "2"]
    assert folder.curves() == {"A": ["a again from 2", "a from 0"]}


@pytest.mark.parametrize("model", ["A", "B"])
def test_a_process_killed_between_two_renames_loses_nothing(folder: Folder, model: str, monkeypatch) -> None:
    folder.run("A", "a")
    folder.run("B", "b")
    rename, count = Path.rename, 0

    def rename_until_killed(path: Path, target: Path) -> Path:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename_until_killed)
        with pytest.raises(KeyboardInterrupt):
            folder.run("A", "a again", 2, 3)
    assert folder.runs() == {"nvlog_1.json": ["a", "0", "1"], "nvlog_2.json": ["b", "0", "1"]}
    folder.run(model, "again", 2, 3)
    assert folder.runs()["nvlog.json"] == [model.lower(), "0", "1", "again", "2"]
    assert sum(len(lines) for lines in folder.runs().values()) == 8


def test_published_logs_count_as_their_models_and_a_folder_may_refuse(folder: Folder, monkeypatch) -> None:
    records = [{"timestamp": "1560777134.639505", "step": "PARAMETER", "data": {"output": "output"}}]
    records += [{"type": "LOG", "step": "PARAMETER", "data": {"model_name": "A"}}, {"step": [0], "data": {}}]
    (folder.path / "nvlog.json").write_text("".join(f"DLLL {json.dumps(record)}\n" for record in records))
    assert folder.run("A", "a again", 2, 3) == ""

    def refuse(path: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "rename", refuse)
    with pytest.raises(DataError, match=r"nvlog.json: cannot move an older log aside \(Permission denied\)"):
        folder.run("A", "another")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_the_first_signal_is_a_request_and_its_echo_none(
    number: signal.Signals, code: int, monkeypatch, capsys
) -> None:
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.is_requested and stop.exit_code == 0
        signal.raise_signal(number)
        signal.raise_signal(number)  # torchrun's, moments after the terminal's
        assert stop.is_requested and stop.exit_code == code
    assert signal.getsignal(number) is before
    again = "; once more to stop without saving" if number == signal.SIGINT else ""
    assert capsys.readouterr().err == f"stopping after this step{again}\n"


@pytest.mark.parametrize(
    ("number", "last", "requested", "code"),
    [
        (signal.SIGHUP, True, True, 0),
        (signal.SIGTERM, False, True, -signal.SIGTERM),  # another command may follow
        (signal.SIGHUP, True, False, -signal.SIGHUP),
        (signal.SIGINT, True, True, -signal.SIGINT),  # without a traceback
    ],
)
def test_a_repeated_request_does_not_end_a_process_that_ends_by_itself(number, last, requested, code: int) -> None:
    """Python resets its own handlers at its end, before it frees what a large library has made."""
    kill, handler = f"signal.raise_signal({number:d})", "default_int_handler" if number == signal.SIGINT else "SIG_DFL"
    script = "import signal\nfrom common.run.interrupt import StopRequest\n"
    script += f"signal.signal({number:d}, signal.{handler})\n"
    script += f"class Late:\n    def __del__(self, signal=signal): {kill}\nlate = Late()\n"
    script += f"with StopRequest(last={last}): {kill if requested else 'pass'}\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


@pytest.mark.parametrize(
    ("launched", "number"), [(False, signal.SIGINT), (True, signal.SIGINT), (False, signal.SIGTERM)]
)
def test_a_later_ctrl_c_of_the_user_ends_the_process(monkeypatch, launched: bool, number: signal.Signals) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("os.environ", {LAUNCHED: "1"} if launched else {})
    ends = not launched and number == signal.SIGINT
    with StopRequest() as stop, pytest.raises(KeyboardInterrupt) if ends else contextlib.nullcontext():
        signal.raise_signal(signal.SIGTERM)
        now[0] += StopRequest.ECHO + 0.1
        signal.raise_signal(number)
    assert stop.signal == signal.SIGTERM
    with ThreadPoolExecutor(1) as pool:  # there are no requests outside the main thread
        assert not pool.submit(lambda: StopRequest().__enter__().is_requested).result()


def test_a_signal_while_the_terminal_is_written_to_is_a_request(monkeypatch) -> None:
    reader, writer = os.pipe()

    def interrupt_and_read() -> None:
        os.read(reader, 1)  # the pipe is full, and the main thread waits for room
        signal.pthread_kill(main, signal.SIGINT)
        while os.read(reader, 2**16):
            pass

    main, reading = threading.get_ident(), threading.Thread(target=interrupt_and_read)
    with os.fdopen(writer, "w") as terminal, StopRequest() as stop:
        monkeypatch.setattr(sys, "stderr", terminal)
        reading.start()
        print("x" * 10**6, file=terminal, flush=True)
        assert stop.is_requested
    reading.join()
