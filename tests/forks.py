"""Commands in forked processes: one process imports and warms up everything once, and each command is a fork of it.

A command starts within milliseconds instead of the seconds that importing PyTorch and SciPy takes. The server has a process of its
own with a single thread, since threads do not survive a fork.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = {"train.py", "inference.py", "evaluate.py"}
MODULES = {"multiproc", "torch.distributed.run", "tests.other_system"}
LONGEST_REQUEST = 2**20


class Fork:
    """A command in a forked process, with the part of subprocess.Popen's interface that tests use."""

    def __init__(self, *argv: str, environment: Mapping[str, str]) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="fork-")
        self.files = [os.path.join(self.folder.name, name) for name in ("out", "err")]
        self.pid: int = ask(argv=argv, environment=dict(environment), files=self.files)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = ask(poll=self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + timeout if timeout else float("inf")
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for the end; return stdout and stderr."""
        self.wait(timeout)
        out, err = (Path(file).read_text() for file in self.files)
        return out, err

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def can_fork(argv: tuple[str, ...], environment: Mapping[str, str]) -> bool:
    """Return True for a command that the server has imported, in an environment that does not change its imports."""
    known = argv[0] == sys.executable and (argv[1] in SCRIPTS or (argv[1] == "-m" and argv[2] in MODULES))
    changed = {key for key, value in environment.items() if os.environ.get(key) != value}
    ours = {"OMP_NUM_THREADS", "PYTHONFAULTHANDLER", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}
    return known and changed <= ours and environment.get("OMP_NUM_THREADS", "1") == "1"


def ask(**request: Any) -> Any:
    channel = server()
    channel.send(json.dumps(request).encode())
    answer = channel.recv(LONGEST_REQUEST)
    assert answer, "the server of forks has ended"
    return json.loads(answer)


@functools.cache
def server() -> socket.socket:
    """Start the server, once for all tests of this process; it ends when this process closes the channel."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.forks", str(theirs.fileno())],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        pass_fds=[theirs.fileno()],
        start_new_session=True,
    )
    theirs.close()
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def warm_up() -> None:
    """Import all that the commands import, some of it late: train both models for an epoch, and speak."""
    import multiproc  # noqa: F401
    from tests.recipe import MODELS, flags, succeed

    with tempfile.TemporaryDirectory() as folder:
        argv: list[object] = ["-i", ROOT / "phrases" / "phrase_1_64.txt", "-o", folder, "--cpu"]
        for name in MODELS:
            succeed("train.py", *flags(name, Path(folder)), "--epochs", 1)
            argv += [f"--{name.lower()}", Path(folder) / f"checkpoint_{name}_last.pt"]
        succeed("inference.py", *argv)


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Answer requests until the channel closes. In a forked child, return its request."""
    while message := channel.recv(LONGEST_REQUEST):
        request = json.loads(message)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        else:
            answer = os.fork()
            if answer == 0:
                channel.close()
                return request
        channel.send(json.dumps(answer).encode())
    for child in psutil.Process().children(recursive=True):  # of tests that were interrupted
        child.kill()
    return None


def run_command(request: dict[str, Any]) -> None:
    """Run a command as Python's own start would; the end of the interpreter follows."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, file in enumerate(request["files"], 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    _, target, *words = request["argv"]
    if target == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [target, *words]
        runpy.run_path(str(ROOT / target), run_name="__main__")


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    connection = socket.socket(fileno=int(sys.argv[1]))
    warm_up()
    gc.freeze()  # a command's collections, and those at its end, would go through all that is imported
    if command := serve(connection):
        run_command(command)
