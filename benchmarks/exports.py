"""Compare the targets of python -m exports with each other and with the voice in PyTorch: python -m benchmarks.exports.

Exports the voice, or takes the export directories of an earlier run in --output, and measures each system in a process of its own:
latency of one sentence, throughput of a batch, size of the files, and the process's largest memory. The embedded voice speaks
through its WaveGlow; other checkpoints as inference.py takes them.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.machine import cpu_name
from common.arguments import HelpFormatter, positive
from common.errors import DataError, exit_on_user_error
from common.inference.config import SynthesisConfig
from common.parser import Parser
from common.tables import markdown_table
from exports import engines
from exports.manifest import NAME, read_manifest
from exports.targets import Source, export
from exports.voice import load_voice
from synthesizer import EMBEDDED, Synthesizer
from tacotron2.spec import SPEC as ACOUSTIC
from waveglow.spec import SPEC as VOCODER

ONE = ["Every morning the old ferry leaves the harbour at first light and carries the market people across the bay."]
BATCH = [
    *ONE,
    "It waits on the far side.",
    "Then the bells of the town call everyone home again.",
    "The trains leave at ten.",
]
SINGLE = "tts.onnx"
SYSTEMS = {  # name: the export that it runs, if any
    "PyTorch, plain": None,
    "PyTorch, prepared": None,
    "torchscript": "torchscript",
    "torch.export": "torchscript",
    "AOTInductor": "aotinductor",
    "onnx": "onnx",
    f"onnx, {SINGLE}": "onnx",
    "onnx-int8": "onnx-int8",
    f"onnx-int8, {SINGLE}": "onnx-int8",
}
MEGABYTE = 1e6

Speak = Callable[[list[str]], float]  # texts -> seconds of audio


class Measurement(NamedTuple):
    """One system's numbers: seconds of loading and of one sentence, and seconds of audio a second; bytes."""

    loading: float
    latency: float
    one: float
    batch: float
    memory: int
    files: int


def main(argv: list[str] | None = None) -> None:
    """Export where needed, measure each system, print the table."""
    args = parse_args(sys.argv[1:] if argv is None else argv)
    torch.set_num_threads(args.threads)
    if args.system:
        print(json.dumps(measure(args)))
        return
    write_exports(args)
    numbers = {name: run_process(name, args) for name in SYSTEMS}
    print(table(numbers, args.threads))


def checkpoints(args: argparse.Namespace) -> tuple[Path, Path]:
    """The checkpoints that flags name, or else the embedded ones."""
    acoustic, vocoder = (
        (getattr(args, spec.flag) or EMBEDDED / f"{spec.flag}.safetensors") for spec in (ACOUSTIC, VOCODER)
    )
    return acoustic, vocoder


def write_exports(args: argparse.Namespace) -> None:
    """Write the export directories that --output lacks."""
    paths = checkpoints(args)
    names = " and ".join(map(str, paths))
    voice = Synthesizer.from_checkpoints(*paths, config=SynthesisConfig(plain=True), device="cpu", description=names)
    assert voice.vocoding is not None
    source = Source(voice, voice.acoustic.model, voice.vocoding.model)
    for target in dict.fromkeys(filter(None, SYSTEMS.values())):
        if not (args.output / target / NAME).exists():
            export(target, source, args.output / target, say=lambda line: None)


def run_process(name: str, args: argparse.Namespace) -> Measurement:
    """Measure a system in its own process. Raises DataError with the end of its output where it fails."""
    words = [sys.executable, "-m", "benchmarks.exports", "--system", name, "-o", str(args.output)]
    words += ["--repeats", str(args.repeats), "--threads", str(args.threads)]
    for spec, path in zip((ACOUSTIC, VOCODER), checkpoints(args), strict=True):
        words += [f"--{spec.flag}", str(path)]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode:
        raise DataError(f"{name}: {result.stderr.strip()[-500:]}")
    return Measurement(*json.loads(result.stdout.splitlines()[-1]))


def measure(args: argparse.Namespace) -> Measurement:
    """Load and time the system of this process."""
    target = SYSTEMS[args.system]
    paths: Iterable[Path] = checkpoints(args)
    if target:
        directory = args.output / target
        endings = {"torchscript": ".ts", "torch.export": ".pt2", "AOTInductor": ".pt2"}.get(args.system, ".onnx")
        names = [name for name in read_manifest(directory).files if name.endswith(endings)]
        paths = [directory / name for name in names if (name == SINGLE) == args.system.endswith(SINGLE)]
    start = time.perf_counter()
    speak = load(args, target)
    loading = time.perf_counter() - start
    speak(ONE)
    speak(BATCH)
    one, batch = (median_call(speak, texts, args.repeats) for texts in (ONE, BATCH))
    files = sum(path.stat().st_size for path in paths)
    return Measurement(loading, one[0], one[1], batch[1], peak_memory(), files)


def peak_memory() -> int:
    """The largest memory of this process in bytes. getrusage would count the parent's, which a new process begins with (Linux)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def median_call(speak: Speak, texts: list[str], repeats: int) -> tuple[float, float]:
    """The median seconds of a call, and its seconds of audio a second."""
    times, audio = [], 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        audio = speak(texts)
        times.append(time.perf_counter() - start)
    return statistics.median(times), audio / statistics.median(times)


def load(args: argparse.Namespace, target: str | None) -> Speak:
    """A system, ready to speak; all with the same seed."""
    config = SynthesisConfig(plain=args.system == "PyTorch, plain", seed=0)
    if target is None:
        voice = Synthesizer.from_checkpoints(*checkpoints(args), config=config, device="cpu")
    elif args.system.endswith(SINGLE):
        return load_single(args.output / target)
    else:
        voice = load_voice(args.output / target, config, programs=args.system == "torch.export")
    rate = voice.audio.sampling_rate
    return lambda texts: sum(len(speech.audio) for speech in voice.speak(texts)) / rate


def load_single(directory: Path) -> Speak:
    """Load the single file, with the text front end."""
    options: dict[str, Any] = read_manifest(directory).options
    session = engines.open_session(directory / SINGLE)
    encode = ACOUSTIC.inference.encode  # type: ignore[union-attr]

    def speak(texts: list[str]) -> float:
        ids, lengths = encode(texts, options)
        _, samples, *_ = session.run(None, {"ids": ids.numpy(), "lengths": lengths.numpy()})
        return float(samples.sum()) / options["sampling_rate"]

    return speak


def table(numbers: dict[str, Measurement], threads: int) -> str:
    """Write a Markdown table, with the machine below."""
    header = ["", "loads in", "one sentence", "x real time", "batch of 4, x real time", "peak memory", "files"]
    rows = []
    for name, n in numbers.items():
        speeds = [f"{n.loading:.1f} s", f"{n.latency:.3f} s", f"{n.one:.1f}", f"{n.batch:.1f}"]
        rows.append([name, *speeds, f"{n.memory / MEGABYTE:.0f} MB", f"{n.files / MEGABYTE:.1f} MB"])
    note = f"{cpu_name()}, {threads} threads, PyTorch {torch.__version__}, {datetime.date.today().isoformat()}"
    return f"{markdown_table('<' + '>' * 6, header, rows)}\n\n{note}"


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Parse all flags."""
    parser = Parser(
        prog="python -m benchmarks.exports",
        usage="%(prog)s [flags]  (-h lists them)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    add = parser.add_argument
    for spec in (ACOUSTIC, VOCODER):
        add(f"--{spec.flag}", type=Path, metavar="CHECKPOINT", help=f"{spec.role} model (default: the embedded one)")
    add("-o", "--output", type=Path, default=Path("output/exports"), help="folder of the export directories")
    add("--repeats", type=positive, default=5, help="calls that are timed, after one that is not")
    add("--threads", type=positive, default=torch.get_num_threads(), help="threads of each system")
    add("--system", choices=list(SYSTEMS), help="measure this one alone, in this process, and print JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
