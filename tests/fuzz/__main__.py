"""Coverage-guided fuzzing of the readers of foreign input.

    python -m tests.fuzz text --minutes 10       # needs atheris: pip install -r tests/requirements-fuzz.txt
    python -m tests.fuzz text --input FILE       # repeats one input, without atheris

The fuzzer is a process of its own, since some findings end it: a fault in native code, or too much memory. It starts with the kept
inputs of tests/fuzz/corpus/TARGET; inputs that reach new code are stored in output/fuzz/TARGET/inputs, and findings in
findings beside it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from common.errors import DataError, UsageError, exit_on_user_error
from common.parser import Parser
from tests.fuzz.targets import LONGEST, SECONDS, TARGETS, check
from tests.recipe import ROOT

CORPUS = ROOT / "tests" / "fuzz" / "corpus"
RESIDENT_MEGABYTES = 2048  # of the fuzzer: PyTorch, all models' code, the inputs so far and the reader
# Seconds of the clock, since a busy machine is slower than its processor.
HANG = int(SECONDS * (1 + LONGEST // 1000)) * 10


class Outcome(NamedTuple):
    """Executions of a run, the edges of the program that they reached, the finding, if any, and the fuzzer's output."""

    executions: int
    edges: int
    finding: Path | None
    output: str


def fuzz(target: str, seconds: int, output: Path) -> Outcome:
    """Fuzz one target in a process of its own, until the first finding or for so many seconds."""
    found, findings = output / target / "inputs", output / target / "findings"
    for folder in (found, findings):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(findings.iterdir())
    words = f"-max_total_time={seconds} -timeout={HANG} -rss_limit_mb={RESIDENT_MEGABYTES} -max_len={LONGEST}".split()
    words += [f"-artifact_prefix={findings}/", "-print_final_stats=1", str(found), str(CORPUS / target)]
    # libFuzzer limits the peak of getrusage, which a process takes over from its parent: here from a shell, which is small.
    command = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-m", "tests.fuzz.fuzzer", target, *words]
    memory = Path("/dev/shm")
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | ({"TMPDIR": str(memory)} if memory.is_dir() else {})
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, errors="replace")
    text = done.stdout + done.stderr
    new = sorted(set(findings.iterdir()) - before)
    if done.returncode and not new:
        raise DataError(f"{target}: the fuzzer ended with exit code {done.returncode}\n{text[-3000:]}")
    executions = re.findall(r"stat::number_of_executed_units: (\d+)|^#(\d+)\s", text, re.MULTILINE)
    edges = re.findall(r" cov: (\d+)", text)
    count = max((int(one or other) for one, other in executions), default=0)
    return Outcome(count, int(edges[-1]) if edges else 0, new[0] if new else None, text)


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """The command's flags."""
    parser = Parser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS, help="the reader")
    parser.add_argument("--minutes", type=float, default=10.0, help="length of the run, if nothing is found")
    parser.add_argument("--input", type=Path, nargs="+", default=[], help="run these inputs alone")
    parser.add_argument("-o", "--output", type=Path, default=Path("output/fuzz"), help="folder of inputs and findings")
    args = parser.parse_args(argv)
    if not args.input and find_spec("atheris") is None:
        raise UsageError("atheris is not installed: pip install -r tests/requirements-fuzz.txt, or give --input")
    return args


def main(argv: list[str] | None = None) -> None:
    """Fuzz, or repeat inputs; exit code 1 with a finding."""
    args = parse_args(argv)
    for path in args.input:
        check(args.target, path.read_bytes())
        print(f"{path}: as it should be")
    if args.input:
        return
    outcome = fuzz(args.target, max(1, round(args.minutes * 60)), args.output.resolve())
    print(f"{args.target}: {outcome.executions:,} executions, {outcome.edges:,} edges")
    if outcome.finding:
        print(f"{outcome.output[-6000:]}\nrepeat it: python -m tests.fuzz {args.target} --input {outcome.finding}")
        raise SystemExit(1)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
