"""The start of a command, around its imports, and its end. A library must not change its process like this.

OpenMP's threads spin while they wait for each other, on a busy machine on the very cores that the awaited thread needs. Collections
of garbage walk all that is imported: a third of the time in which inference.py speaks a line.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType

from common.run.child import end_with_launcher

HOME = Path(__file__).resolve().parent.parent

SPIN_LIMIT = "GOMP_SPINCOUNT"  # read by GNU OpenMP when PyTorch is imported
SPINS = "20000"  # a fifteenth of the default, and still longer than any wait on an idle machine


def before_imports() -> None:
    """Limit the spinning of waiting threads, unless the user has set a limit, and collect no garbage until `after_imports`.

    Until then Ctrl-C ends the process with one line, as it does later. A launcher's process ends with it from here on.
    """
    sys.excepthook = _explain  # one sentence where a package is not installed
    os.environ.setdefault(SPIN_LIMIT, SPINS)
    gc.disable()
    end_with_launcher()
    prepare_streams()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        # studio.jobs blocks it until here: while Python itself starts, an interrupt is a fatal error with another exit code.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})


def after_imports() -> None:
    """Collect garbage again after `before_imports`, but for what there is by now, and none at the end of the process."""
    prepare_streams()
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    atexit.register(gc.freeze)  # Python's end would go through all objects, which takes half a second with PyTorch
    if gc.isenabled():
        return
    gc.enable()
    if not gc.get_freeze_count():  # where commands run one after another in a process, their garbage is not to stay
        gc.freeze()


def prepare_streams() -> None:
    """Let stdout take any text and any write: what its encoding lacks is escaped, and where it is closed, text goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`; the next file would get its number
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _explain(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if not isinstance(error, ModuleNotFoundError) or not package or find_spec(package) is not None:
        sys.__excepthook__(kind, error, trace)
        return
    environment = HOME / ".venv"
    advice = f"in {HOME}, `. .venv/bin/activate` chooses the project's own Python"
    if Path(sys.prefix).resolve() == environment.resolve() or not (HOME / "requirements.txt").is_file():
        advice = f"`{sys.executable} -m pip install {package}` installs it"
    elif not environment.exists():
        advice = f"in {HOME}, `bash scripts/speak.sh --install-only` and then `. .venv/bin/activate` bring all that is needed"
    print(f"error: {sys.executable} has no package {package}; {advice}", file=sys.stderr)


def _leave(*_: object) -> None:
    print("stopped", file=sys.stderr, flush=True)
    os._exit(128 + signal.SIGINT)
