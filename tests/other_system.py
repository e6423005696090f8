"""Run a command without what Windows or macOS lacks: python -m tests.other_system windows|macos (SCRIPT | -m MODULE) [flags].

Other packages are imported before, since theirs is another code on those systems. Child processes that the command starts with
sys.executable run the same way.
"""

import asyncio
import ctypes
import fcntl
import multiprocessing
import os
import runpy
import select
import shlex
import shutil
import signal
import sys
import tempfile
from multiprocessing import popen_fork, resource_tracker
from pathlib import Path
from types import ModuleType
from typing import Any

# Missing on Windows. SIGCHLD stays, since PyTorch's loader sets it wherever sys.platform is not Windows.
OF_OS = "sched_getaffinity O_NOFOLLOW O_NONBLOCK O_CLOEXEC pread pwrite killpg getpgid getpgrp setsid getuid geteuid sysconf"
OF_SIGNAL = "SIGHUP SIGKILL SIGQUIT pthread_sigmask"


def take_away(name: str) -> None:
    """Change this process to one on another system, as far as this project's code can tell."""
    import librosa  # noqa: F401
    import psutil  # noqa: F401
    import soundfile  # noqa: F401
    import torch._dynamo
    import torch.distributed.run
    import torch.profiler
    import torch.utils.data
    import torch.utils.tensorboard  # noqa: F401

    resource_tracker.ensure_running()  # of multiprocessing on POSIX
    del os.sched_getaffinity
    multiprocessing.set_start_method("spawn", force=True)
    if name == "macos":
        return
    sys.modules["fcntl"] = sys.modules["resource"] = None  # type: ignore[assignment]
    for owner, names in ((os, OF_OS), (signal, OF_SIGNAL), (select, "poll")):
        for each in names.split():
            if hasattr(owner, each):
                delattr(owner, each)
    popen_fork.Popen.kill = popen_fork.Popen.terminate = end_process  # type: ignore[method-assign]
    sys.modules["msvcrt"] = make_msvcrt()
    os.symlink = refuse
    for each in ("replace", "rename", "unlink", "remove"):
        setattr(os, each, of_closed_files(getattr(os, each)))
    os.open, os.kill = without_folders(os.open), without_zero(os.kill)
    ctypes.CDLL = OnlyNamed  # type: ignore[misc]
    vars(shutil)["_use_fd_functions"] = False  # decided at its import


def end_process(process: popen_fork.Popen) -> None:
    """End a process as Windows does: at once, whatever it handles or ignores."""
    process._send_signal(9)  # type: ignore[attr-defined]


def make_msvcrt() -> ModuleType:
    """The locks of msvcrt on top of flock: of an open file, and PermissionError where another has it."""

    def locking(descriptor: int, mode: int, count: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PermissionError(13, "Permission denied") from None

    module = ModuleType("msvcrt")
    vars(module).update(LK_NBLCK=2, locking=locking)
    return module


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(22, "A required privilege is not held by the client")


def of_closed_files(function: Any) -> Any:
    """A function of os that refuses paths of files that this process has open, as Windows does."""

    def checked(*paths: Any, **keywords: Any) -> Any:
        wanted = {os.path.realpath(path) for path in paths if isinstance(path, (str, os.PathLike))}
        for descriptor in os.listdir("/proc/self/fd"):
            if os.path.realpath(f"/proc/self/fd/{descriptor}") in wanted:
                raise PermissionError(13, "The process cannot access the file", str(paths[0]))
        return function(*paths, **keywords)

    return checked


def without_folders(function: Any) -> Any:
    def checked(path: Any, *rest: Any, **keywords: Any) -> Any:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", str(path))
        return function(path, *rest, **keywords)

    return checked


def without_zero(function: Any) -> Any:
    def checked(process: int, number: int) -> None:
        assert number, "on Windows, signal 0 is Ctrl-C"
        function(process, number)

    return checked


class OnlyNamed(ctypes.CDLL):
    """Libraries with a name: the process itself is none."""

    def __init__(self, name: Any, *rest: Any, **keywords: Any) -> None:
        if name is None:
            raise TypeError("LoadLibrary() argument 1 must be str, not None")
        super().__init__(name, *rest, **keywords)


def forget_ours() -> None:
    """Have this project's modules imported anew, on that system, by a process that was forked from one of this system."""
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name != "__main__" and file.startswith(f"{Path.cwd()}/") and "site-packages" not in file:
            del sys.modules[name]


def main(name: str, script: str, *argv: str) -> None:
    forget_ours()
    asyncio.new_event_loop().close()  # imports what it needs
    with tempfile.TemporaryDirectory() as folder:
        take_away(name)
        python = Path(folder, "python")
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tests.other_system {name} "$@"\n')
        python.chmod(0o755)
        sys.executable = str(python)
        sys.path.insert(0, str(Path.cwd()))
        if script == "-m":
            sys.argv = list(argv)
            runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
        else:
            sys.argv = [script, *argv]
            runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
