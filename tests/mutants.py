"""Mutants of the recipe's core, planted one at a time: each has to fail a test of its file.

    python -m tests.mutants                      # all of tests/mutants.txt
    python -m tests.mutants loop.py sampler.py   # those of some files
    python -m tests.mutants --sample 20          # a random choice, the same for each --seed

A section of mutants.txt begins with "== FILE < TESTS". A mutant has a line "- TEXT", which occurs once in the file, and "+ TEXT",
which replaces it; \\n is a new line. A line "= REASON" follows a mutant that changes no behaviour, which is not planted. The
command works in a copy, and fails where a mutant survives or its text is gone.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "tests" / "mutants.txt"
PRELOADED = (
    *("torch", "torch._dynamo", "torch.onnx", "torch.utils.tensorboard"),
    *("torch.distributed.fsdp", "torch.distributed.tensor"),
    *("numpy", "scipy.signal", "scipy.io.wavfile", "soundfile", "librosa.filters", "matplotlib.figure"),
    *("hypothesis", "pytest"),
)
FACTOR, MARGIN = 3, 10.0  # a mutant may take so many times as long as the file without it, and so many seconds more
PASSED, FAILED, SLOW = "passed", "failed", "took too long"


class Mutant(NamedTuple):
    """A fault: the text of a file that it replaces, and the tests to run."""

    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    reason: str = ""  # why no test can fail on it

    def __str__(self) -> str:
        return f"{self.file}: {self.old!r} -> {self.new!r}"


def read_mutants(path: Path = LIST) -> list[Mutant]:
    """Read a list of mutants, in its order."""
    mutants: list[Mutant] = []
    file, old = "", ""
    tests: tuple[str, ...] = ()
    for line in path.read_text().splitlines():
        kind, _, text = line.partition(" ")
        text = text.replace("\\n", "\n")
        if kind == "==":
            file, _, names = text.partition(" < ")
            tests = tuple(names.split())
        elif kind == "-":
            old = text
        elif kind == "+":
            mutants.append(Mutant(file, old, text, tests))
        elif kind == "=":
            mutants[-1] = mutants[-1]._replace(reason=text)
    return mutants


def copy_tree(folder: Path) -> None:
    """Copy the files of the working tree that git does not ignore."""
    words = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def run_tests(folder: Path, tests: tuple[str, ...], seconds: float | None, log: Path) -> str:
    """Run tests in a copy, in a process of their own with the libraries loaded already; up to `seconds`."""
    child = os.fork()
    if not child:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(folder)
        sys.path[:] = [str(folder), *(place for place in sys.path if Path(place or ".").resolve() != ROOT)]
        for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
            del sys.modules[name]
        os._exit(importlib.import_module("pytest").main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    start = time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if seconds is not None and time.monotonic() - start > seconds:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return SLOW
        time.sleep(0.05)
    return PASSED if os.waitstatus_to_exitcode(status) == 0 else FAILED


class Bench:
    """A copy of the recipe in which mutants are tried."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder / "recipe", folder / "log.txt"
        copy_tree(self.folder)
        self.limit = cache(self._limit)

    def _limit(self, tests: tuple[str, ...]) -> float:
        """Return the seconds that tests may take. Raises SystemExit where they fail without a mutant."""
        start = time.monotonic()
        if run_tests(self.folder, tests, None, self.log) != PASSED:
            raise SystemExit(f"{' '.join(tests)} fail without a mutant:\n{self.log.read_text()[-3000:]}")
        return MARGIN + FACTOR * (time.monotonic() - start)

    def verdict(self, mutant: Mutant) -> str:
        """Return a word on a mutant, and on a dead one the test that killed it."""
        source = (self.folder / mutant.file).read_text()
        if source.count(mutant.old) != 1 or mutant.old == mutant.new:
            return "STALE"
        result = self._plant(mutant, source, self.limit(mutant.tests))
        if result == SLOW:  # the machine may be busier than it was when these tests were timed
            result = self._plant(mutant, source, self._limit(mutant.tests))
        if result != PASSED:
            lines = self.log.read_text().splitlines()
            names = [line.split(" - ")[0] for line in lines if line.startswith(("FAILED", "ERROR"))]
            return f"killed: {names[0] if names else result}"
        return "SURVIVED"

    def _plant(self, mutant: Mutant, source: str, limit: float) -> str:
        """Run a mutant's tests with it, for at most `limit` seconds. The file has its source again afterwards."""
        path = self.folder / mutant.file
        path.write_text(source.replace(mutant.old, mutant.new))
        try:
            return run_tests(self.folder, mutant.tests, limit, self.log)
        finally:
            path.write_text(source)


def main() -> None:
    """Plant the mutants."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__, allow_abbrev=False)
    parser.add_argument("parts", nargs="*", help="parts of the names of files; all by default")
    parser.add_argument("--list", type=Path, default=LIST, help="file of mutants")
    parser.add_argument("--sample", type=int, help="number of mutants, at random")
    parser.add_argument("--seed", type=int, default=0, help="of --sample")
    args = parser.parse_args()
    mutants = [m for m in read_mutants(args.list) if not args.parts or any(part in m.file for part in args.parts)]
    mutants = [mutant for mutant in mutants if not mutant.reason]
    if args.sample is not None:
        mutants = random.Random(args.seed).sample(mutants, min(args.sample, len(mutants)))
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    for name in PRELOADED:
        importlib.import_module(name)
    alive = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(Path(folder))
        for mutant in mutants:
            start = time.monotonic()
            verdict = bench.verdict(mutant)
            alive += verdict.isupper()
            print(f"{verdict} ({time.monotonic() - start:.0f} s)  {mutant}", flush=True)
    print(f"{len(mutants)} mutants, {alive} survived or are stale")
    raise SystemExit(alive > 0)


if __name__ == "__main__":
    main()
