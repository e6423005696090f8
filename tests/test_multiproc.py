"""Several processes: the launcher's arguments, and failures that can be read."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from torch.distributed.elastic.multiprocessing.subprocess_handler import SubprocessHandler
from torch.distributed.run import parse_args

import multiproc
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from common.run.distributed import session
from multiproc import torchrun_arguments
from tests.recipe import (
    LAUNCHER,
    ROOT,
    call,
    finish,
    flags,
    free_port,
    own_signals,
    read_steps,
    skip_without_evaluators,
    start_ranks,
)


@pytest.mark.parametrize(
    ("words", "gpus", "processes", "nodes", "standalone"),
    [
        ("train.py -m WaveGlow --amp", 8, "8", "1:1", True),
        ("train.py -m WaveGlow --amp", 0, "1", "1:1", True),
        ("--nproc 3 train.py -m WaveGlow", 8, "3", "1:1", True),
        ("--nproc=3 train.py", 8, "3", "1:1", True),
        ("--nproc_per_node=gpu train.py", 8, "gpu", "1:1", True),
        ("--nnodes=2 --node-rank 1 --master-addr host train.py", 4, "4", "2", False),
        ("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint host:29500 train.py", 4, "4", "2", False),
    ],
)
def test_what_torchrun_is_told(words: str, gpus: int, processes: str, nodes: str, standalone: bool) -> None:
    args = parse_args(torchrun_arguments(words.split(), gpus))
    assert (args.nproc_per_node, args.nnodes, args.standalone) == (processes, nodes, standalone)
    script = words[words.index("train.py") :].split()
    assert [args.training_script, *args.training_script_args] == script


@pytest.mark.slow
def test_one_of_two_processes_lets_the_model_speak_and_both_go_on(tmp_path: Path) -> None:
    skip_without_evaluators()
    evaluating = ["--evaluate-every", 1, "--evaluate-lines", 1, "--best-by", "mcd", "--epochs-per-validation", 1]
    evaluating += ["--evaluate-without", "asr", "mos"]
    finish(start_ranks("train.py", *flags("Tacotron2", tmp_path, 8), *evaluating, "--epochs", 2))
    found = [data["evaluation_mcd"] for _, data in read_steps(tmp_path / "nvlog.json") if "evaluation_mcd" in data]
    assert len(found) == 2  # each once
    best = load_checkpoint(tmp_path / "checkpoint_Tacotron2_best.pt")
    assert best["epoch"] == found.index(min(found)) and best["best"]["by"] == "mcd"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("sys.exit(2)", 2, "ended with exit code 2, for the reason above"),
        ("os.kill(os.getpid(), 9) if os.environ['RANK'] == '1' else time.sleep(60)", 1, "error: process 1 was ended"),
        # The launcher keeps the store, so that nobody else can take its port.
        (
            "socket.create_connection((os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT']))); print(sys.argv)",
            0,
            "",
        ),
        # A process that fails alone gives its reason before the others, which miss it, end the launch.
        (
            "with exit_on_user_error():\n    while os.environ['RANK'] == '0' and not os.path.exists(__file__ + '1'):\n"
            "        time.sleep(0.05)\n    open(__file__ + os.environ['RANK'], 'w').close()\n"
            "    time.sleep(os.environ['RANK'] == '0')\n    raise DataError(os.environ['RANK'])",
            1,
            "error: 1\n",
        ),
    ],
)
def test_the_launcher_ends_with_the_code_of_the_first_process_to_fail(
    tmp_path: Path, statement: str, code: int, message: str
) -> None:
    script = tmp_path / "script.py"
    imports = f"import os, socket, sys, time\nsys.path.append({str(ROOT)!r})\nfrom common.errors import *"
    script.write_text(f"{imports}\n{statement}\n")
    done = call(*LAUNCHER, script, "--flag")
    assert done.code == code and message in done.err and "Traceback" not in done.err, done
    assert done.out.count("'--flag'") == (0 if code else 2)


@pytest.fixture
def launcher_here(monkeypatch):
    """Handlers of signals and the environment as before, after a launcher in this process."""
    monkeypatch.setattr(os, "environ", os.environ.copy())
    with own_signals():
        yield


def signalling(name: str, code: int) -> str:
    """A script that sends its launcher a signal and ends with a code at the same one. Its sleeps are short: Python only
    looks between them at a signal that came just before one.
    """
    return (
        f"import os, signal, time\nsignal.signal(signal.{name}, lambda *_: os._exit({code}))\n"
        f"os.kill(os.getppid(), signal.{name})\nfor _ in range(1200):\n    time.sleep(0.05)\n"
    )


@pytest.mark.slow
def test_a_ctrl_c_while_processes_start_leaves_none(tmp_path: Path, monkeypatch, launcher_here) -> None:
    script, popen, started = tmp_path / "script.py", SubprocessHandler._popen, []
    script.write_text("import time\ntime.sleep(60)\n")

    def interrupted(handler: SubprocessHandler, *args: object) -> None:
        started.append(popen(handler, *args))
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SubprocessHandler, "_popen", interrupted)
    assert multiproc.main(["--nproc", "2", str(script)]) == 128 + signal.SIGINT
    assert [psutil.pid_exists(process.pid) for process in started] == [False]


@pytest.mark.slow
def test_a_ctrl_c_reaches_the_processes_though_nobody_reads_the_messages(
    tmp_path: Path, monkeypatch, launcher_here
) -> None:
    script = tmp_path / "script.py"
    script.write_text(signalling("SIGINT", 3))
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b" "):
            pass
    os.set_blocking(writer, True)
    reading = threading.Timer(50, lambda: os.read(reader, 10**6))
    reading.start()
    logger = logging.getLogger("torch.distributed")
    monkeypatch.setattr(logger, "handlers", [logging.StreamHandler(os.fdopen(writer, "w"))])
    assert multiproc.main(["--nproc", "1", str(script)]) == 128 + signal.SIGINT
    assert reading.is_alive()
    os.read(reader, 10**6)
    reading.cancel()


def test_a_process_that_does_not_end_is_killed(capsys, launcher_here) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout and process.stdout.readline()
    multiproc.end([psutil.Process(process.pid)], 0.1)
    assert process.wait(50) == -signal.SIGKILL
    assert capsys.readouterr().err == f"error: process {process.pid} did not end within 0.1 seconds: killed\n"


@pytest.mark.parametrize("number", ["0", "abc", "gpu", "-1"])
def test_a_number_of_processes_that_cannot_be_is_refused(number: str, monkeypatch, launcher_here) -> None:
    monkeypatch.setattr(multiproc, "gpu_count", lambda: 0)
    with pytest.raises(UsageError, match=f"--nproc {number}: expected a number of processes, at least 1"):
        multiproc.main([f"--nproc={number}", "train.py"])


@pytest.mark.slow
@pytest.mark.parametrize("code", [0, 3])
def test_after_sigterm_the_launcher_reports_a_process_that_did_not_save(
    tmp_path: Path, launcher_here, code: int
) -> None:
    script = tmp_path / "script.py"
    script.write_text(signalling("SIGTERM", code))
    assert multiproc.main(["--nproc", "1", str(script)]) == int(code > 0)


@pytest.mark.skipif(sys.platform != "linux", reason="what prctl does")
@pytest.mark.parametrize("launcher", ["parent", "of its parent", "ended"])
@pytest.mark.parametrize(
    "code",
    [
        "from common.start import before_imports\nbefore_imports()",
        "from common.run.child import *\nend_with_launcher()",
    ],
    ids=["a command", "a script"],
)
def test_a_process_whose_launcher_was_killed_before_it_ran_ends(launcher: str, code: str) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)  # a zombie, as where nobody waits for a launcher
    pid = {"parent": os.getpid(), "of its parent": os.getppid(), "ended": ended.pid}[launcher]
    launch = {"TORCHELASTIC_RUN_ID": "1", "LAUNCHER_ID": str(pid)}
    words = [sys.executable, "-c", f"{code}\nprint('trains')"]
    done = subprocess.run(words, env=os.environ | launch, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == ((1, "") if launcher == "ended" else (0, "trains\n")), done.stderr
    ended.wait()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict.fromkeys(("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")), "RANK=0.*, without WORLD_SIZE, MASTER_ADDR, MASTER_PORT:"),
        ({"RANK": "abc"}, "RANK=abc in the environment is of no process"),
        ({"RANK": "2"}, "RANK=2, WORLD_SIZE=2 in the environment is of no process"),
        ({"LOCAL_RANK": "-1"}, "LOCAL_RANK=-1 in"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT=http in"),
        ({"RANK": "1"}, "the processes of this run have not met at localhost:"),  # nobody is there
    ],
)  # fmt: skip
def test_variables_of_no_process_are_one_error(changes: dict[str, str | None], message: str, monkeypatch) -> None:
    """One is left over, or has a value that cannot be."""
    usual = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port())}
    for name, value in (usual | changes).items():
        monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
    with pytest.raises((UsageError, DataError), match=message), session(cpu=True, timeout=timedelta(seconds=1)):
        pass
