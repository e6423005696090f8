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
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.cases import QUICK
from common import precision
from common.arguments import positive
from common.errors import UsageError, exit_on_user_error
from common.files import write_text
from common.options import argument, option, parse_options

ROOT = Path(__file__).resolve().parent.parent
LAST_LINES = 20  # of a part's output
# cuBLAS needs a variable for reproducible results.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
PARTS = Path(__file__).with_name("gpu_parts.txt")
CLOCK = "--training-files filelists/clock_audio_text_train_filelist.txt"
CLOCK += " --validation-files filelists/clock_audio_text_val_filelist.txt"


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
    """All parts of gpu_parts.txt, the cheapest and most informative first; the words in braces depend on the options."""
    of_sound = [str(file) for file in gpu_tests() if "audio" in file.parts]
    others = [str(file) for file in gpu_tests() if str(file) not in of_sound]
    values = {
        **{"tests": shlex.join(others), "sound_tests": shlex.join(of_sound), "clock": CLOCK},
        **{"out": shlex.quote(str(options.output)), "cpu": "--cpu" if options.device == "cpu" else ""},
        **{"tacotron2": "", "waveglow": "", "sentence": "--wn-channels 256 --num-iters 20", "repeats": "--repeats 5"},
        "limit": "--minutes 10",
    }
    if options.quick:
        values |= {"tests": others[0], "tacotron2": QUICK.tacotron2, "sentence": "-il 12 --num-iters 2"}
        values |= {"waveglow": f"{QUICK.waveglow} --wn-channels {QUICK.inference_channels}"}
        values |= {"repeats": "--repeats 1 --quick", "limit": "--steps 2"}
    for line in PARTS.read_text(encoding="utf-8").splitlines():
        limit, name, words = line.split(" | ")
        yield GpuPart(name, tuple(shlex.split(words.format_map(values))), int(limit))


def gpu_tests() -> list[Path]:
    """The files with tests marked gpu. Collecting all tests with pytest would need everybody's packages."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [file.relative_to(ROOT) for file in files if "\n@pytest.mark.gpu\n" in file.read_text(encoding="utf-8")]


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
