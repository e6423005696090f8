"""Compare the targets of python -m exports with each other and with the voice in PyTorch: python -m benchmarks.exports.

Exports the voice, or reuses the export directories of an earlier run in --output, and measures each system in its own process:
latency of one sentence, throughput of a batch, size of the files and peak memory of the process.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from benchmarks.machine import stamp
from common.arguments import HelpFormatter, positive
from common.errors import DataError, exit_on_user_error
from common.inference.config import SynthesisConfig
from common.options import add_fields, from_options, option
from common.parser import Parser
from common.tables import markdown_table
from exports import engines
from exports.manifest import NAME, read_manifest
from exports.targets import Source, export
from exports.voice import load_voice
from synthesizer import EMBEDDED, Synthesizer
from tacotron2.spec import SPEC as ACOUSTIC

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
    """A system: seconds to load and to speak one sentence, seconds of audio per second for one and for a batch, bytes."""

    loading: float
    latency: float
    one: float
    batch: float
    memory: int
    files: int


@dataclass(frozen=True, kw_only=True)
class ExportsOptions:
    """The command's flags."""

    tacotron2: Path = option(EMBEDDED / "tacotron2.safetensors", "acoustic model", metavar="CHECKPOINT")
    waveglow: Path = option(EMBEDDED / "waveglow.safetensors", "vocoder model", metavar="CHECKPOINT")
    output: Path = option(Path("output/exports"), "folder of the export directories", "-o")
    repeats: int = option(5, "timed calls, after an untimed one", type=positive)
    threads: int = option(torch.get_num_threads(), "threads of each system", type=positive)
    system: str | None = option(None, "measure only this one, in this process, and print JSON", choices=list(SYSTEMS))

    @property
    def checkpoints(self) -> tuple[Path, Path]:
        return self.tacotron2, self.waveglow


def main(argv: list[str] | None = None) -> None:
    """Export where needed, measure each system, print the table."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    torch.set_num_threads(options.threads)
    if options.system:
        print(json.dumps(measure(options.system, options)))
        return
    write_exports(options)
    print(table({name: run_process(name, options) for name in SYSTEMS}))


def write_exports(options: ExportsOptions) -> None:
    """Write the export directories that --output lacks."""
    paths = options.checkpoints
    names = " and ".join(map(str, paths))
    voice = Synthesizer.from_checkpoints(*paths, config=SynthesisConfig(plain=True), device="cpu", description=names)
    assert voice.vocoding is not None
    source = Source(voice, voice.acoustic.model, voice.vocoding.model)
    for target in dict.fromkeys(filter(None, SYSTEMS.values())):
        if not (options.output / target / NAME).exists():
            export(target, source, options.output / target, say=lambda line: None)


def run_process(name: str, options: ExportsOptions) -> Measurement:
    """Measure a system in its own process. Raises DataError with the end of its output if it fails."""
    flags = asdict(options) | {"system": name}
    argv = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    result = subprocess.run([sys.executable, "-m", "benchmarks.exports", *argv], capture_output=True, text=True)
    if result.returncode:
        raise DataError(f"{name}: {result.stderr.strip()[-500:]}")
    return Measurement(*json.loads(result.stdout.splitlines()[-1]))


def measure(system: str, options: ExportsOptions) -> Measurement:
    """Load and time a system in this process."""
    target = SYSTEMS[system]
    paths: Iterable[Path] = options.checkpoints
    if target:
        directory = options.output / target
        endings = {"torchscript": ".ts", "torch.export": ".pt2", "AOTInductor": ".pt2"}.get(system, ".onnx")
        names = [name for name in read_manifest(directory).files if name.endswith(endings)]
        paths = [directory / name for name in names if (name == SINGLE) == system.endswith(SINGLE)]
    start = time.perf_counter()
    speak = load(system, options)
    loading = time.perf_counter() - start
    speak(ONE)
    speak(BATCH)
    one, batch = (median_call(speak, texts, options.repeats) for texts in (ONE, BATCH))
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


def load(system: str, options: ExportsOptions) -> Speak:
    """A system, ready to speak; all with the same seed."""
    config, target = SynthesisConfig(plain=system == "PyTorch, plain", seed=0), SYSTEMS[system]
    if target is None:
        voice = Synthesizer.from_checkpoints(*options.checkpoints, config=config, device="cpu")
    elif system.endswith(SINGLE):
        return load_single(options.output / target)
    else:
        voice = load_voice(options.output / target, config, programs=system == "torch.export")
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


def table(numbers: dict[str, Measurement]) -> str:
    """A Markdown table, with the machine below."""
    header = ["", "loads in", "one sentence", "x real time", "batch of 4, x real time", "peak memory", "files"]
    rows = []
    for name, n in numbers.items():
        speeds = [f"{n.loading:.1f} s", f"{n.latency:.3f} s", f"{n.one:.1f}", f"{n.batch:.1f}"]
        rows.append([name, *speeds, f"{n.memory / MEGABYTE:.0f} MB", f"{n.files / MEGABYTE:.1f} MB"])
    return f"{markdown_table('<' + '>' * 6, header, rows)}\n\n{stamp()}"


def parse_args(argv: list[str]) -> ExportsOptions:
    """Parse all flags."""
    parser = Parser(
        prog="python -m benchmarks.exports",
        usage="%(prog)s [flags]  (-h lists them)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    add_fields(parser, ExportsOptions)
    return from_options(ExportsOptions, vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
