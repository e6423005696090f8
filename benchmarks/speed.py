"""Time training and synthesis against plain references: one table.

    python -m benchmarks.speed                                   # full-size models, random weights; many minutes on a CPU
    python -m benchmarks.speed --rows waveglow-training --amp    # one row
    python -m benchmarks.speed --rows waveglow-training --train-flags=--compile    # another way to train, against the plain one

Each row runs in its own process. Reference and ours alternate; a figure is the median of --repeats calls after a warm-up. The
references are the same models with --plain or, for Tacotron 2's inference, the plain decoder as TorchScript. On a CPU they always
compute in float32, as the published recipe has no other precision there.
Files in --output: speed.md and speed.json.
Ctrl-C ends the run with the table of the rows measured so far and exit code 130.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import signal
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing

from benchmarks.cases import CPU, GPU, QUICK, ROWS, Case, MakeCase, Setting
from benchmarks.latency import describe
from common import precision
from common.arguments import positive
from common.errors import INTERRUPTED, DataError, exit_on_user_error, explain_refusal
from common.files import write_text, writing
from common.inference.vocoders import time_call
from common.options import option, parse_options
from common.tables import markdown_table

TITLES = ("measurement", "reference", "ours", "ratio")


@dataclass(frozen=True, kw_only=True)
class CaseRow:
    """Figures of a case in its unit; more of it is faster."""

    name: str
    unit: str
    reference: float
    ours: float
    ms_each: bool = False

    @property
    def ratio(self) -> float:
        """Speed of ours relative to the reference."""
        return self.ours / self.reference

    def cells(self) -> list[str]:
        return [self.name, self._figure(self.reference), self._figure(self.ours), f"{self.ratio:.2f}"]

    def _figure(self, value: float) -> str:
        each = f" ({1000 / value:.3g} ms each)" if self.ms_each else ""
        return f"{value:,.0f} {self.unit}{each}" if value >= 1000 else f"{value:.3g} {self.unit}{each}"

    def record(self) -> dict[str, Any]:
        fields = ("name", "unit", "reference", "ours", "ratio")
        return {name: getattr(self, name) for name in fields}


def markdown(machine: Mapping[str, Any], rows: Sequence[CaseRow]) -> str:
    place = "{device}, {threads} threads of {cpu}, PyTorch {torch}, {date}".format_map(machine)
    return f"{place}\n\n{markdown_table('<' + '>' * (len(TITLES) - 1), TITLES, [row.cells() for row in rows])}"


def write_report(folder: Path, machine: Mapping[str, Any], rows: Sequence[CaseRow]) -> None:
    """Write speed.md and speed.json. Raises DataError if a file cannot be written."""
    content = {"machine": machine, "rows": [row.record() for row in rows]}
    for name, text in (("speed.md", markdown(machine, rows)), ("speed.json", json.dumps(content, indent=2))):
        with writing(folder / name):
            write_text(folder / name, f"{text}\n")


def main(argv: list[str] | None = None) -> None:
    """Measure, print the table, write the files."""
    args = parse_args(sys.argv[1:] if argv is None else argv)
    torch.set_num_threads(args.threads)
    device = precision.pick_device(cpu=args.cpu)
    prepare(device)
    with explain_refusal(f"--output: {args.output}: cannot be created"):
        args.output.mkdir(parents=True, exist_ok=True)
    if args.amp and (note := precision.half_note(device, precision.half_dtype(device, True))):
        log_progress(f"--amp: {note}")
    machine, rows, interrupted = describe(device), list[CaseRow](), False
    sizes = CPU if device.type == "cpu" else GPU
    setting = Setting(QUICK if args.quick else sizes, device, args.amp, args.train_flags)
    try:
        for make in (make for name in args.rows for make in ROWS[name](setting)):
            rows.append(measure_in_process(make, device, args.repeats))
            log_progress("  " + " | ".join(rows[-1].cells()[1:]))
    except KeyboardInterrupt:
        interrupted = True
    if rows:
        print(markdown(machine, rows))
        write_report(args.output, machine, rows)
    else:
        print("stopped before the first row was measured")
    if interrupted:
        sys.exit(INTERRUPTED)


def measure_in_process(make: MakeCase, device: torch.device, repeats: int) -> CaseRow:
    """Run measure_case in a new process and return its row. Raises DataError if the process dies, for example for lack of memory.

    Only the calling process handles Ctrl-C; it terminates the other one.
    """
    context = torch.multiprocessing.get_context("spawn")
    results, row_sender = context.Pipe(duplex=False)
    words = (make, device, repeats, torch.get_num_threads(), row_sender)
    process = context.Process(target=measure_case, args=words, daemon=True)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # the new process inherits this
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, handler)
    row_sender.close()
    try:
        row: CaseRow = results.recv()
        return row
    except EOFError:
        process.join()
        raise DataError(f"a row's process ended with code {process.exitcode} before the row was measured") from None
    except KeyboardInterrupt:
        process.terminate()
        raise
    finally:
        process.join()


def measure_case(make: MakeCase, device: torch.device, repeats: int, threads: int, row_sender: Connection) -> None:
    """Build a case, log its name, time both calls, and send its row. Runs in its own process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # an exit ends child processes and removes temporary files
    torch.set_num_threads(threads)
    prepare(device)
    case = make()
    log_progress(f"{case.name} ...")
    row_sender.send(measure_row(case, device, repeats))


def measure_row(case: Case, device: torch.device, repeats: int) -> CaseRow:
    """Time both calls of a case after a warm-up call each."""
    case.reference()
    case.ours()
    calls = (case.reference, case.ours)  # alternately
    pairs = [[time_call(call, device)[1] for call in calls] for _ in range(repeats)]
    reference, ours = map(statistics.median, zip(*pairs, strict=True))
    figures = {name: case.amount / seconds for name, seconds in (("reference", reference), ("ours", ours))}
    return CaseRow(name=case.name, unit=case.unit, ms_each=case.ms_each, **figures)


def prepare(device: torch.device) -> None:
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    precision.seed_everything(0)


def log_progress(line: str) -> None:
    """Print a line of progress to stderr; stdout is for the table."""
    print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True, kw_only=True)
class SpeedOptions:
    """The command's flags."""

    rows: list[str] = option(
        list(ROWS),
        f"rows to measure, among {', '.join(ROWS)} (default: all)",
        nargs="+",
        choices=list(ROWS),
        metavar="ROW",
    )
    train_flags: str = option(
        "",
        "further flags of train.py for our way to train, such as --train-flags='--amp-dtype bfloat16'",
        metavar="FLAGS",
    )
    repeats: int = option(3, "number of measured calls of each kind", type=positive)
    threads: int = option(torch.get_num_threads(), "number of CPU threads (default: as PyTorch chooses)", type=positive)
    amp: bool = option(False, "use mixed precision in training and half precision from text to sound")
    cpu: bool = option(False, "use the CPU even if there is a GPU")
    quick: bool = option(False, "use tiny models to check that everything works; the figures mean nothing")
    output: Path = option(Path("output/bench"), "output folder; created if missing", "-o")


def parse_args(argv: list[str]) -> SpeedOptions:
    return parse_options(SpeedOptions, "python -m benchmarks.speed", (__doc__ or "").partition("\n")[0], argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
