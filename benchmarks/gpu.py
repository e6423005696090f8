"""Measure everything on one GPU, from the quickest part to the slowest.

    bash benchmarks/gpu.sh            # an hour
    bash benchmarks/gpu.sh 20         # at most 20 minutes
    bash benchmarks/gpu.sh 5 --device cpu --quick    # a trial with tiny models; its figures mean nothing

Each part is a command of this project with a time limit. Its last lines are in output/gpu/report.md, also if it fails or takes too
long; then the next one starts. Needs no network. A second call continues where the first one stopped.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases import QUICK
from common import precision
from common.arguments import positive
from common.checkpoint.files import last_link
from common.errors import UsageError, exit_on_user_error
from common.files import write_text
from common.options import argument, option, parse_options

ROOT = Path(__file__).resolve().parent.parent
LAST_LINES = 20  # of a part's output
# cuBLAS needs a variable for reproducible results.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
BATCHES = (1, 4, 16, 64, 128)
TINY = {"Tacotron2": QUICK.tacotron2, "WaveGlow": f"{QUICK.waveglow} --wn-channels {QUICK.inference_channels}"}
CLOCK = (
    *("--training-files", "filelists/clock_audio_text_train_filelist.txt"),
    *("--validation-files", "filelists/clock_audio_text_val_filelist.txt"),
)
ROWS = ("tacotron2-training", "waveglow-training", "tacotron2-inference", "waveglow-inference", "text-to-wav")
# Flags of train.py that choose another way or number format; a compiler takes minutes.
WAYS = {
    "tacotron2-training": ("--amp-dtype bfloat16", "--graphs", "--compile"),
    "waveglow-training": ("--amp-dtype bfloat16", "--recompute", "--compile", "--compile max-autotune"),
}


class GpuPart(NamedTuple):
    """A command, Python's words, and its time limit in seconds."""

    name: str
    words: tuple[str, ...]
    limit: int


class PartOutcome(NamedTuple):
    """How a part ended: its status (done, failed, out of time, left out), seconds and last output."""

    part: str
    status: str
    seconds: float
    output: str


@dataclass(frozen=True, kw_only=True)
class GpuOptions:
    """The command's flags."""

    device: str = option("gpu", "cpu: a trial without a GPU", choices=["gpu", "cpu"])
    quick: bool = option(False, "tiny models, to try everything once; the figures mean nothing")
    only: str = option("", "run only the parts whose names begin with this", metavar="BEGINNING")
    output: Path = option(Path("output/gpu"), "folder of report.md, results.jsonl and of the parts' files", "-o")
    minutes: int = argument("time for all parts", 60, nargs="?", type=positive)


def parts(options: GpuOptions) -> Iterator[GpuPart]:
    """All parts, the cheapest and most informative first."""
    device = ["--cpu"] * (options.device == "cpu")
    of_sound = [file for file in gpu_tests() if "audio" in file.parts]
    others = [file for file in gpu_tests() if file not in of_sound]
    tests = ("-m", "pytest", "-q", "-m", "gpu", "-p", "no:cacheprovider")
    yield GpuPart("tests", (*tests, *map(str, others[: 1 if options.quick else None])), 600)
    for number, batch in product(("--fp16", ""), BATCHES[: 2 if options.quick else None]):
        words = (
            f"-m benchmarks.latency -bs {batch} --num-iters {2 if options.quick else 20} --warmup 1 {number}".split()
        )
        words += f"{' '.join(TINY.values())} -il 12".split() if options.quick else ["--wn-channels", "256"]
        name = f"text-to-wav {number or 'tf32'} {batch}"
        yield GpuPart(name, (*words, "-o", str(options.output), *device), 240)
    yield GpuPart("tests of sound", (*tests, *map(str, of_sound)), 300)
    for amp, row in product((["--amp"], []), ROWS):
        yield _speed(options, row, *amp)
    for model, amp in product(TINY, (["--amp"], [])):
        tiny = TINY[model].split() if options.quick else []
        words = ("train.py", "-m", model, "--dry-run", "-o", str(options.output / "train"))
        words = (*words, *CLOCK, *amp, *tiny, *device)
        yield GpuPart(f"memory {model} {'float16' if amp else 'tf32'}", words, 300)
    yield from _sharpening(options, device)
    for row, ways in WAYS.items():
        for way in ways:
            yield _speed(options, row, "--amp", f"--train-flags={way}")


def _sharpening(options: GpuOptions, device: list[str]) -> Iterator[GpuPart]:
    """An epoch of a full-size WaveGlow, for a checkpoint, then ten minutes of training through its inverse."""
    folder, tiny = options.output / "train", TINY["WaveGlow"].split() if options.quick else []
    words = ("train.py", "-m", "WaveGlow", "--epochs", "1", "-o", str(folder), *CLOCK, "--amp", *tiny, *device)
    yield GpuPart("epoch WaveGlow float16", words, 300)
    words = ("-m", "scripts.sharpen_vocoder", str(last_link(folder, "WaveGlow")), CLOCK[1], *device)
    limit = ("--steps", "2") if options.quick else ("--minutes", "10")
    yield GpuPart("sharpen WaveGlow", (*words, "-o", str(folder / "sharp.pt"), *limit), 780)


def gpu_tests() -> list[Path]:
    """The files with tests marked gpu. Collecting all tests with pytest would need everybody's packages."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file.relative_to(ROOT) for file in files if "\n@pytest.mark.gpu\n" in file.read_text(encoding="utf-8")]


def _speed(options: GpuOptions, row: str, *flags: str) -> GpuPart:
    words = ["-m", "benchmarks.speed", "--rows", row, "--repeats", "1" if options.quick else "5", *flags]
    words += [*["--cpu"] * (options.device == "cpu"), *["--quick"] * options.quick]
    return GpuPart(" ".join(["speed", row, *flags]), (*words, "-o", str(options.output / "speed")), 600)


def run(part: GpuPart, limit: float) -> PartOutcome:
    """Run a part in its own process for at most `limit` seconds."""
    if limit <= 0:
        return PartOutcome(part.name, "left out", 0.0, "no time left")
    start = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *part.words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env=os.environ | ENVIRONMENT, start_new_session=True,
    )  # fmt: skip
    try:
        output, _ = process.communicate(timeout=min(limit, part.limit))
        status = "failed" if process.returncode else "done"
    except subprocess.TimeoutExpired:
        kill_group(process)
        output, _ = process.communicate()
        status = "out of time"
    except BaseException:  # Ctrl-C, which does not reach a group of its own
        kill_group(process)
        raise
    last = "\n".join(output.strip().splitlines()[-LAST_LINES:])
    return PartOutcome(part.name, status, time.monotonic() - start, last)


def kill_group(process: subprocess.Popen[str]) -> None:
    """Kill a part and the processes it started, which share a process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def read_results(path: Path) -> list[PartOutcome]:
    """The results of earlier calls; the last one of each part counts."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return list({row["part"]: PartOutcome(**row) for row in map(json.loads, lines)}.values())


def report(results: Sequence[PartOutcome]) -> str:
    sections = [f"## {part}: {status} in {seconds:.0f} s\n\n{output}\n" for part, status, seconds, output in results]
    return "\n".join(["# Measurements on a GPU\n", *sections])


def parse_args(argv: list[str]) -> GpuOptions:
    """Parse the flags. Raises UsageError if there is no GPU."""
    options = parse_options(GpuOptions, "bash benchmarks/gpu.sh", __doc__, argv)
    if options.device == "gpu" and precision.pick_device().type == "cpu":  # gpu_count has GPUs without a driver too
        raise UsageError("no GPU here: run this on a machine with one, or try it with --device cpu --quick")
    return replace(options, output=options.output.resolve())


def main(argv: list[str] | None = None) -> None:
    """Run the parts that the file of results has not yet, until the time is up, and write the report after each."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    options.output.mkdir(parents=True, exist_ok=True)
    path, page = options.output / "results.jsonl", options.output / "report.md"
    end = time.monotonic() + 60 * options.minutes
    done = {outcome.part for outcome in read_results(path) if outcome.status == "done"}
    for part in [part for part in parts(options) if part.name.startswith(options.only) and part.name not in done]:
        print(f"{part.name} ...", flush=True)
        outcome = run(part, end - time.monotonic())
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(outcome._asdict()) + "\n")
        write_text(page, report(read_results(path)))
        print(f"  {outcome.status} in {outcome.seconds:.0f} s", flush=True)
    print(f"written: {page}")


if __name__ == "__main__":
    with exit_on_user_error():
        main()
