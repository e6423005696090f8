"""Start one process per GPU: `python -m multiproc train.py …` is `torchrun --nproc-per-node gpu train.py …`.

Flags before the script go to torchrun (`python -m multiproc --nnodes 2 --node-rank 0 … train.py …`); `--nproc N` sets the number of
processes, as a machine without a GPU requires. The exit code is that of the first process to fail, or 0 after SIGTERM, if every
process has finished its step and the main one has saved. With `--max-restarts N`, the loss of a process makes all of them start
again from the last checkpoint; on several nodes this takes a name for the launch (--rdzv-id), or train.py --resume-from-last.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import gc
import logging
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from threading import Thread

import psutil
from torch.distributed.elastic.multiprocessing.api import SignalException, SubprocessContext
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun
from torch.distributed.run import parse_args

from common.errors import UsageError, exit_on_user_error, require_posix
from common.precision import gpu_count
from common.run.child import LAUNCHER_ID
from common.run.interrupt import StopRequest
from common.system import signals

TIME_TO_SAVE = 90  # seconds for processes to finish their step and save after a stop signal
TIME_TO_END = 30.0  # the same for processes that torchrun has left
TIME_TO_LOG = 1.0  # seconds for torchrun's last messages


def torchrun_arguments(argv: list[str], gpus: int) -> list[str]:
    """torchrun's arguments for multiproc's: on one node a free port, and one process per GPU (or one) unless told otherwise."""
    script = next((i for i, word in enumerate(argv) if word.endswith(".py")), len(argv))
    flags = [word.replace("--nproc=", "--nproc-per-node=") for word in argv[:script]]
    flags = ["--nproc-per-node" if flag == "--nproc" else flag for flag in flags]
    names = {flag.split("=")[0].replace("_", "-") for flag in flags}
    if "--nproc-per-node" not in names:
        flags += ["--nproc-per-node", str(max(1, gpus))]
    if not names & {"--nnodes", "--rdzv-endpoint", "--master-addr", "--standalone"}:
        flags = ["--standalone", *flags]
    return flags + argv[script:]


def describe_end(exit_code: int) -> str:
    """Describe how a process ended; a negative code is the number of the signal that ended it."""
    if exit_code >= 0:
        return f"ended with exit code {exit_code}, for the reason above"
    name = signal.Signals(-exit_code).name if -exit_code in set(signal.Signals) else "of the system"
    reason = ": killed by a user, or by the system for lack of memory" if -exit_code in signals("SIGKILL") else ""
    return f"was ended by signal {-exit_code} ({name}){reason}"


@contextmanager
def log_aside(logger: logging.Logger) -> Iterator[None]:
    """Have a thread write a logger's messages. torchrun's come before it signals or kills, and perhaps nobody reads them."""
    handlers, lines = logger.handlers, SimpleQueue[logging.LogRecord]()
    listener = QueueListener(lines, *handlers)
    listener.start()
    logger.handlers = [QueueHandler(lines)] if handlers else []
    try:
        yield
    finally:
        logger.handlers = handlers
        last = Thread(target=listener.stop, daemon=True)
        last.start()
        last.join(TIME_TO_LOG)


def end(processes: Sequence[psutil.Process], seconds: float = TIME_TO_END) -> None:
    """Send SIGTERM to leaders of process groups, and kill the groups of those that have not ended after `seconds`."""
    for number in StopRequest.SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(processes, seconds)[1]:
        print(f"error: process {process.pid} did not end within {seconds:g} seconds: killed", file=sys.stderr)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def check_processes(word: str, gpus: int) -> None:
    """Raise UsageError for a number of processes that torchrun answers with a traceback."""
    if not (word in ("auto", "cpu") or (word == "gpu" and gpus) or (word.isdecimal() and int(word))):
        raise UsageError(f"--nproc {word}: expected a number of processes, at least 1, or gpu where there are GPUs")


def all_ended_well() -> bool:
    """Return True if every process has ended with exit code 0; torchrun tells no codes after a signal."""
    # torchrun keeps its processes in a local variable of a function that has ended with an exception, and hands them to nobody:
    # the garbage collector still knows the object.
    launches = [found for found in gc.get_objects() if type(found) is SubprocessContext]
    codes = {handler.proc.poll() for launch in launches for handler in launch.subprocess_handlers.values()}
    return codes == {0}


def main(argv: list[str]) -> int:
    """Run the script in every process; returns the exit code. Raises UsageError."""
    require_posix("python -m multiproc")
    gpus = gpu_count()
    arguments = torchrun_arguments(argv, gpus)
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(TIME_TO_SAVE))
    os.environ[LAUNCHER_ID] = str(os.getpid())
    parsed = parse_args(arguments)
    check_processes(parsed.nproc_per_node, gpus)
    if not parsed.standalone:
        # A separate store for each restart: in a shared one, processes would find the addresses of nodes that have left. One
        # node has the launcher's: of a separate store the port is chosen, and may be taken, long before the store begins.
        os.environ.setdefault("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    if parsed.nproc_per_node.isdecimal():  # otherwise torchrun gives each process one thread, with a long warning
        threads = max(1, (os.cpu_count() or 1) // max(1, int(parsed.nproc_per_node)))
        os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    others = psutil.Process().children()
    try:
        with log_aside(logging.getLogger("torch.distributed")):
            torchrun(arguments)
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        print(f"error: process {rank} {describe_end(failure.exitcode)}", file=sys.stderr)
        return failure.exitcode if failure.exitcode > 0 else 1
    except SignalException as error:
        if error.sigval != signal.SIGTERM:
            return 128 + int(error.sigval)  # as train.py by itself
        return 0 if all_ended_well() else 1
    finally:
        # torchrun leaves processes after a third signal, and after one while it starts them.
        if left := [process for process in psutil.Process().children() if process not in others]:
            end(left)
    return 0


if __name__ == "__main__":
    try:
        with exit_on_user_error():
            code = main(sys.argv[1:])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    sys.stdout.flush()
    # After a signal, threads that torchrun leaves behind sometimes abort an interpreter that exits normally.
    os._exit(code)
