"""Measure everything on one GPU, from the quickest part to the slowest, and write the results into docs/performance.md.

    bash benchmarks/gpu.sh            # an hour
    bash benchmarks/gpu.sh 20         # at most 20 minutes
    bash benchmarks/gpu.sh 5 --device cpu --quick    # a trial with tiny models; its figures mean nothing

Each part runs in its own process with a time limit; a part that fails or takes too long is recorded, and the next one starts.
Results are appended to output/gpu/results.jsonl as they come. Needs no network. Missing packages are listed first, with the parts
that have to be left out. A second call continues where the first one stopped.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.sizes import MARK, QUICK
from common import precision
from common.arguments import positive
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import atomic_write
from common.options import add_fields, from_options, option
from common.parser import Parser
from common.run.nvlog import read_log
from common.tables import markdown_table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BEGIN, END = "<!-- figures of benchmarks/gpu.sh begin -->", "<!-- figures of benchmarks/gpu.sh end -->"
EVERYWHERE = ("numpy", "tqdm", "safetensors")
SOUND, TESTS = ("soundfile", "librosa", "matplotlib"), ("pytest", "scipy")
MODELS, NUMBERS = ("Tacotron2", "WaveGlow"), ("float16", "tf32", "bfloat16", "float32")
WAYS = {"Tacotron2": ("--graphs", "--compile"), "WaveGlow": ("--compile", "--compile max-autotune", "--recompute")}
# cuBLAS needs a variable for reproducible results.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
BATCHES = (1, 4, 16, 64, 128)
LATENCIES = ("latency", "p90_latency", "samples_per_sec", "rtf")  # of the benchmark's log
INFERENCE_ROWS = ("tacotron2-inference", "waveglow-inference", "text-to-wav")
SPEED_ROWS = (*INFERENCE_ROWS, "tacotron2-training", "waveglow-training", "first-sound")


@dataclass(frozen=True, kw_only=True)
class GpuPart:
    """A command, its time limit in seconds, the packages it needs, and the file with its figures if they are not in its output."""

    name: str
    words: tuple[str, ...]
    limit: int
    needs: tuple[str, ...] = ()
    figures: Path | None = None


class PartOutcome(NamedTuple):
    """How a part ended: its status (done, failed, out of time, left out), seconds, figures and last output."""

    part: str
    status: str
    seconds: float
    figures: Any
    output: str


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """The command's flags."""

    device: str = option("gpu", "cpu: a trial without a GPU", choices=["gpu", "cpu"])
    quick: bool = option(False, "tiny models, to try everything once; the figures mean nothing")
    only: str = option("", "run only the parts whose names begin with this", metavar="BEGINNING")
    output: Path = option(Path("output/gpu"), "folder of results.jsonl and of the parts' files", "-o")
    page: Path | None = option(None, "page to write (default: docs/performance.md; for a trial, a copy in --output)")
    minutes: int = 60

    @property
    def is_trial(self) -> bool:
        return self.quick or self.device == "cpu"


def parts(options: GpuOptions) -> Iterator[GpuPart]:
    """All parts, the cheapest and most informative first."""
    device = ["--cpu"] * (options.device == "cpu")
    quick = ["--quick"] * options.quick
    tests = ("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider")
    of_sound = [file for file in gpu_tests() if "audio" in file.parts]
    others = (
        [Path("tests/common/test_precision.py")] if options.quick else [f for f in gpu_tests() if f not in of_sound]
    )
    own = ["-m", "benchmarks.gpu_parts"]
    more = [*device, *quick, "-o", str(options.output)]
    yield GpuPart(name="machine", words=(*own, "machine", *more), limit=120)
    yield GpuPart(name="tests", words=(*tests, *map(str, others)), limit=600, needs=TESTS)
    formats = {
        "training": NUMBERS,
        "profile": NUMBERS[:1],
        "resume": ("tf32", "float16"),
        "two-processes": ("float32",),
    }
    for part, numbers in formats.items():
        for number, model in product(numbers, MODELS):
            words = (*own, part, "--model", model, "--numbers", number, *more)
            yield GpuPart(name=f"{part} {model} {number}", words=words, limit=300)
    yield from _latencies(options, device)
    yield GpuPart(name="tests of sound", words=(*tests, *map(str, of_sound)), limit=300, needs=(*TESTS, *SOUND))
    yield GpuPart(name="loaders", words=("-m", "benchmarks.loaders", *quick), limit=300, needs=SOUND)
    for model, ways in WAYS.items():
        for way in ways:  # a compiler takes minutes
            words = (*own, "way", "--model", model, f"--way={way}", *more)
            yield GpuPart(name=f"way {way} {model} float16", words=words, limit=600)
    yield from _rows(options, [*device, *quick])


def gpu_tests() -> list[Path]:
    """The files with tests marked gpu. Collecting all tests with pytest would need everybody's packages."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file.relative_to(ROOT) for file in files if "\n@pytest.mark.gpu\n" in file.read_text(encoding="utf-8")]


def _latencies(options: GpuOptions, device: Sequence[str]) -> Iterator[GpuPart]:
    """The parts that time text to wav, by batch size."""
    for number in ("fp16", "fp32"):
        for batch in BATCHES[: 2 if options.quick else None]:
            log, iterations = f"latency_{number}_{batch}.json", 2 if options.quick else 20
            words = f"-m benchmarks.latency -bs {batch} --num-iters {iterations} --warmup 1 --log-file {log}".split()
            words += ["-o", str(options.output), *device, *["--fp16"] * (number == "fp16")]
            tiny = f"{QUICK.tacotron2} {QUICK.waveglow} --wn-channels 8 -il 12"
            words += tiny.split() if options.quick else ["--wn-channels", "256"]
            figures = options.output / log
            yield GpuPart(name=f"text-to-wav {number} {batch}", words=tuple(words), limit=240, figures=figures)


def _rows(options: GpuOptions, flags: Sequence[str]) -> Iterator[GpuPart]:
    """The rows of benchmarks.speed, each against the plain models."""
    repeats = 1 if options.quick else 5
    for amp in (True, False):
        for row in SPEED_ROWS:
            folder = options.output / f"speed_{row}{'_amp' if amp else ''}"
            words = f"-m benchmarks.speed --rows {row} --repeats {repeats}".split()
            words += ["-o", str(folder), *["--amp"] * amp, *flags]
            needs = SOUND if row == "first-sound" else ()  # inference.py writes files
            name = f"speed {row} {'float16' if amp else 'tf32'}"
            yield GpuPart(name=name, words=tuple(words), limit=600, needs=needs, figures=folder / "speed.json")


def missing(names: Sequence[str]) -> list[str]:
    """The packages among these that are not installed."""
    return [name for name in dict.fromkeys(names) if find_spec(name) is None]


def run(part: GpuPart, limit: float) -> PartOutcome:
    """Run a part in its own process for at most `limit` seconds."""
    if absent := missing(part.needs):
        return PartOutcome(part.name, "left out", 0.0, None, f"not installed: {', '.join(absent)}")
    if limit <= 0:
        return PartOutcome(part.name, "left out", 0.0, None, "no time left")
    start, limit = time.monotonic(), min(limit, part.limit)
    if part.figures:
        part.figures.unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, *part.words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | ENVIRONMENT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        kill_group(process)
        output, _ = process.communicate()
        return PartOutcome(part.name, "out of time", time.monotonic() - start, None, output[-2000:])
    except BaseException:  # Ctrl-C, which does not reach a group of its own
        kill_group(process)
        raise
    seconds = time.monotonic() - start
    if process.returncode:
        return PartOutcome(part.name, "failed", seconds, None, output[-4000:])
    return PartOutcome(part.name, "done", seconds, read_figures(part, output), output[-500:])


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a part and the processes it started, which share a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_figures(part: GpuPart, output: str) -> Any:
    """Figures by name: of a part's file (rows of speed.json, or totals of a log), or of the last marked line of its output.

    Without a marked line, the last one is a summary. None if there is no file or no totals.
    """
    if part.figures is None:
        lines = output.strip().splitlines()
        marked = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
        return json.loads(marked[-1]) if marked else {"summary": lines[-1] if lines else ""}
    if not part.figures.exists():
        return None
    if part.figures.name == "speed.json":
        rows = json.loads(part.figures.read_text(encoding="utf-8"))["rows"]
        return {row["name"]: f"{row['ours']:.4g} {row['unit']}, {row['ratio']:.2f} × reference" for row in rows}
    totals = [record["data"] for record in read_log(part.figures) if record.get("step") == []]
    return {name: totals[-1][name] for name in LATENCIES} if totals else None


def read_results(path: Path) -> list[dict[str, Any]]:
    """The results of earlier calls; the last one of each part counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list({row["part"]: row for row in map(json.loads, lines)}.values())


def write_page(page: Path, source: Path, results: Sequence[Mapping[str, Any]]) -> None:
    """Write a copy of `source` whose section between BEGIN and END has the results, a row a part."""
    before, begin, rest = source.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{source}: expected the comments {BEGIN} and {END}")
    rows = [(row["part"], text_of(row["figures"]) if row["status"] == "done" else row["status"]) for row in results]
    table = markdown_table("<<", ("part", "result"), rows) if rows else "Not measured yet."
    with atomic_write(page) as file:
        file.write("".join([before, BEGIN, "\n\n", table, "\n\n", END, after]).encode())


def text_of(figures: Any) -> str:
    """A cell of figures: names with their values, numbers with three digits or as whole ones."""
    if isinstance(figures, Mapping):
        return ", ".join(f"{name} {text_of(value)}" for name, value in figures.items())
    if isinstance(figures, list):
        return "; ".join(map(text_of, figures))
    if isinstance(figures, (int, float)) and abs(figures) >= 1000:
        return f"{figures:,.0f}"
    return f"{figures:.3g}" if isinstance(figures, float) else str(figures)


def parse_args(argv: list[str]) -> GpuOptions:
    """Parse the flags. Raises UsageError if there is no GPU."""
    parser = Parser(
        prog="bash benchmarks/gpu.sh",
        description=(__doc__ or "").partition("\n")[0],
    )
    parser.add_argument("minutes", nargs="?", type=positive, default=GpuOptions.minutes, help="time for all parts")
    add_fields(parser, GpuOptions)
    options = from_options(GpuOptions, vars(parser.parse_args(argv)))
    if options.device == "gpu" and precision.pick_device().type == "cpu":  # gpu_count has GPUs without a driver too
        raise UsageError("no GPU here: run this on a machine with one, or try it with --device cpu --quick")
    return replace(options, output=options.output.resolve())


def main(argv: list[str] | None = None) -> None:
    """Measure part by part, then write the page."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    if absent := missing(EVERYWHERE):
        raise DataError(f"not installed: {', '.join(absent)}; no part can run without them")
    wanted = [part for part in parts(options) if part.name.startswith(options.only)]
    if absent := missing([name for part in wanted for name in part.needs]):
        stopped = [part.name for part in wanted if missing(part.needs)]
        print(f"not installed: {', '.join(absent)}; left out: {', '.join(stopped)}", flush=True)
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "results.jsonl"
    measure(wanted, path, options)
    page = options.page or (options.output / "performance.md" if options.is_trial else PAGE)
    write_page(page, PAGE, read_results(path))
    print(f"written: {page}; all figures: {path}")


def measure(wanted: Sequence[GpuPart], path: Path, options: GpuOptions) -> None:
    """Run the parts that the file of results has not yet, until the time is up, and append each outcome to it."""
    end = time.monotonic() + 60 * options.minutes
    done = {row["part"] for row in read_results(path) if row["status"] == "done"}
    with path.open("a", encoding="utf-8") as file:
        for part in [part for part in wanted if part.name not in done]:
            print(f"{part.name} ...", flush=True)
            outcome = run(part, end - time.monotonic())
            file.write(json.dumps(outcome._asdict()) + "\n")
            file.flush()
            reason = "" if outcome.status == "done" else f": {outcome.output.strip().splitlines()[-1:] or ['']}"
            print(f"  {outcome.status} in {outcome.seconds:.0f} s{reason}", flush=True)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
