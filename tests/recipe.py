"""Helpers for tests: tiny models, a few clips of the embedded corpus, and commands run in this process or in others."""

import atexit
import contextlib
import functools
import io
import json
import os
import pty
import re
import resource
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
import pytest
import torch

from common.run.interrupt import StopRequest
from tests.forks import ROOT, Fork, can_fork

if TYPE_CHECKING:
    from common.training.state import TrainState

Process = subprocess.Popen[str] | Fork
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
LAUNCHER = [sys.executable, "-m", "multiproc", "--nproc", "2"]
EVALUATORS = ("moonshine_onnx", "distillmos", "speechmos", "pesq", "pystoi", "pyworld", "jiwer")
VARYING = re.compile("wait|_time$|^time_left$|^planned_epochs$|_per_sec$|items/sec$")  # names of what depends on time
SHORT_CLIPS = (22, 50, 75, 21, 45, 105, 66, 28)  # numbers of corpus clips of one and a half seconds each

MODELS = {
    "Tacotron2": "--symbols-embedding-dim 16 --encoder-n-convolutions 2 --encoder-embedding-dim 16 --prenet-dim 16"
    " --attention-rnn-dim 24 --attention-dim 8 --attention-location-n-filters 4 --attention-location-kernel-size 5"
    " --decoder-rnn-dim 24 --postnet-embedding-dim 16 --postnet-n-convolutions 3 --n-frames-per-step 5"
    " --max-decoder-steps 20",
    "WaveGlow": "--flows 4 --early-every 2 --wn-channels 8 --wn-layers 2 --segment-length 4096",
}
SHARED = "--n-mel-channels 10 -bs 2 --seed 1 --cpu --epochs-per-validation 100"


class Result(NamedTuple):
    """Exit code and output of a script."""

    code: int
    out: str
    err: str


def run(script: str, *argv: object, cwd: Path = ROOT) -> Result:
    """Run a script as the command line would, but in this process. Exceptions other than an exit propagate."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    before, sys.argv = sys.argv, [script, *map(str, argv)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), _working_folder(cwd), own_signals():
            runpy.run_path(str(ROOT / script), run_name="__main__")
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    finally:
        sys.argv = before
    return Result(code, out.getvalue(), err.getvalue())


def succeed(script: str, *argv: object, cwd: Path = ROOT) -> str:
    """Run a script that must exit with 0; return its stdout."""
    result = run(script, *argv, cwd=cwd)
    assert result.code == 0, result.err
    return result.out


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Restore the handlers of signals: at its end a command may ignore them, which this process's children would inherit."""
    before = {number: signal.getsignal(number) for number in (*StopRequest.SIGNALS, signal.SIGQUIT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Refuse to write files of more bytes, as on a full disk: "File too large"."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def _working_folder(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def clips(folder: Path, training: int = 5, validation: int = 2) -> list[str]:
    """Write filelists of the embedded corpus's shortest clips; return the flags that name them."""
    rows = (ROOT / "filelists" / "clock_audio_text_train_filelist.txt").read_text().splitlines()
    rows = [rows[number - 1] for number in SHORT_CLIPS]
    argv = ["--dataset-path", str(ROOT)]
    for part, lines in (("training", rows[:training]), ("validation", rows[-validation:])):
        path = folder / f"{part}.txt"
        path.write_text("\n".join(lines) + "\n")
        argv += [f"--{part}-files", str(path)]
    return argv


def flags(model: str, folder: Path, training: int = 5) -> list[str]:
    """Build train.py's flags for a tiny model that trains on a few short clips into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    argv = ["-m", model, "-o", str(folder), *clips(folder, training), *SHARED.split()]
    return argv + MODELS.get(model, "").split()


@functools.cache
def train_tiny_model(model: str) -> Path:
    """Train a tiny model for two epochs, once per test process; no test may change the checkpoint."""
    folder = Path(tempfile.mkdtemp(prefix="recipe-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with torch.random.fork_rng():  # the numbers of a test must not depend on which test calls this first
        succeed("train.py", *flags(model, folder), "--epochs", 2)
    return folder / f"checkpoint_{model}_last.pt"


def speech_flags(folder: Path, *lines: str) -> list[object]:
    """Build inference.py's flags to speak lines with the tiny models into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "phrases.txt").write_text("".join(f"{line}\n" for line in lines or ("Two.",)))
    models = [word for model in MODELS for word in (f"--{model.lower()}", train_tiny_model(model))]
    return ["-i", folder / "phrases.txt", "-o", folder, "--cpu", *models]


def fresh_state(model: str, folder: Path, *words: object) -> "TrainState":
    """The state of a tiny model that has not trained, as train.py begins with for `flags` and these words."""
    import train  # here: tests that need it alone import all that train.py does
    from common.run.distributed import Dist
    from common.training.arguments import parse_training_arguments
    from common.training.optimization import Pace
    from models import REGISTRY

    options, spec = parse_training_arguments([*flags(model, folder), *map(str, words)], REGISTRY, "")
    return train.make_state(spec, options, Dist(0, 0, 1, torch.device("cpu")), Pace(2, 2, 4))[0]


def read_log(path: Path) -> list[dict[str, Any]]:
    """Read the records of a log, non-finite numbers as floats; the last line may be one that is being written."""
    *lines, _ = path.read_text(encoding="utf-8").split("\n")
    assert all(line.startswith("DLLL ") for line in lines)
    records = [json.loads(line.removeprefix("DLLL ")) for line in lines]
    for data in (record["data"] for record in records if "data" in record):
        data |= {name: float(value) for name, value in data.items() if value in ("NaN", "Infinity", "-Infinity")}
    return records


def read_steps(path: Path) -> list[tuple[object, dict]]:
    """Read the (step, data) of a log's records, without the flags."""
    records = [record for record in read_log(path) if record["type"] == "LOG"]
    return [(tuple(record["step"]), record["data"]) for record in records if record["step"] != "PARAMETER"]


def losses(folder: Path) -> list[tuple[Any, dict]]:
    """Records of a run's log without times and the whole run's totals."""
    records = [(step, data) for step, data in read_steps(folder / "nvlog.json") if step != ()]
    return [(step, {key: value for key, value in data.items() if not VARYING.search(key)}) for step, data in records]


def read_parameters(path: Path) -> dict[str, Any]:
    """The flags that a log's runs have recorded, by name; of several runs the last one's."""
    records = [record["data"] for record in read_log(path) if record.get("step") == "PARAMETER"]
    return {name: value for data in records for name, value in data.items()}


def folder_of_tools(folder: Path, *absent: str) -> Path:
    """Create a folder for PATH with links to all tools of the system except `absent`."""
    folder.mkdir()
    for place in ("/usr/bin", "/bin"):
        for tool in Path(place).iterdir():
            if tool.name not in absent and not (folder / tool.name).is_symlink():
                (folder / tool.name).symlink_to(tool)
    (folder / "python").unlink(missing_ok=True)
    (folder / "python").symlink_to(sys.executable)
    return folder


def start(*argv: object, environment: Mapping[str, str] | None = None) -> Process:
    """Start a command in the background, in a session of its own; the recipe's own commands are forked from a warm process."""
    words, environment = tuple(map(str, argv)), ENVIRONMENT if environment is None else environment
    if can_fork(words, environment):
        return Fork(*words, environment=environment)
    return subprocess.Popen(
        words, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def call(*argv: object, timeout: float = 600) -> Result:
    """Run a command in a process of its own to its end."""
    process = start(*argv)
    try:
        out, err = process.communicate(timeout=timeout)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode is not None
    return Result(process.returncode, out, err)


def finish(processes: list[Process], code: int = 0) -> list[tuple[str, str]]:
    """Wait for all processes of a run, which must exit with this code; return what each wrote to stdout and stderr."""
    outputs = [process.communicate(timeout=400) for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), outputs
    return outputs


def start_ranks(script: str, *argv: object, ranks: int = 2) -> list[Process]:
    """Start the processes of a run without a launcher: a single one, or distributed ones that meet at a free port."""
    if ranks == 1:
        return [start(sys.executable, script, *argv)]
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
    own = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return [start(sys.executable, script, *argv, environment=ENVIRONMENT | meeting | rank) for rank in own]


def start_nodes(*argv: object) -> list[Process]:
    """Start train.py on two nodes of one process, each with a launcher, as on two machines."""
    rendezvous = (
        f"--nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id 9 --rdzv-endpoint localhost:{free_port()}"
    )
    launcher = [sys.executable, "-m", "torch.distributed.run", *rendezvous.split()]
    return [start(*launcher, "train.py", *argv) for _ in range(2)]


def children(pid: int) -> list[int]:
    listing = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in listing.read_text().split()] if listing.exists() else []


def alive(pids: Iterable[int]) -> Iterator[psutil.Process]:
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            yield psutil.Process(pid)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def wait_for(process: Process, sign: Callable[[], bool]) -> None:
    """Wait for a sign of a process's progress, before which it must not end."""
    deadline = time.monotonic() + 600
    while not sign():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.01)


def wait_for_epoch_1(process: Process, folder: Path) -> None:
    """Wait until a training into `folder` has logged the first step of epoch 1."""
    log = folder / "nvlog.json"
    wait_for(process, lambda: log.exists() and '"step": [1, 0]' in log.read_text())


def close_terminal(argv: Iterable[object], log: Path, sign: str) -> int:
    """Run a command in a terminal that is closed once its log has a sign. Returns the exit code."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(ROOT)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup has it ignored, in tests that it starts too
        os.execv(sys.executable, [str(word) for word in argv])
    deadline = time.monotonic() + 600
    while not (log.exists() and sign in log.read_text()):
        assert time.monotonic() < deadline
        os.read(terminal, 10_000)  # a full terminal would stop the run
    os.close(terminal)  # the system sends SIGHUP, and writes to the terminal fail from now on
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def assert_spoken(text: str, samples: np.ndarray, rate: int) -> None:
    """Check by a speech recogniser that samples (N,) in [-1, 1] speak a text, but for one word in five.

    Processors round differently, and so change an unclear word of a voice. Skips the test if an evaluator is not installed.
    """
    skip_without_evaluators()
    from common.quality.moonshine import Moonshine
    from common.quality.words import word_errors

    heard = Moonshine()(samples, rate)
    assert word_errors(text, heard).rate <= 0.2, f"{text!r} was heard as {heard!r}"


def skip_without_evaluators(*others: str) -> None:
    """Skip a test if an evaluator is not installed, or one of other packages of requirements/eval.txt."""
    for name in (*EVALUATORS, *others):
        if find_spec(name) is None:  # find_spec, since importing one may need a module that only the evaluators install
            pytest.skip(f"{name}, an evaluator of requirements/eval.txt, is not installed")
