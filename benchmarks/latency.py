"""Time speech synthesis as in the published latency tables: repeated runs of text -> mels -> audio -> denoised audio.

    python -m benchmarks.latency --wn-channels 256 --fp16 -bs 4             # full-size models with random weights
    python -m benchmarks.latency --tacotron2 T --waveglow W                 # trained ones
    python -m benchmarks.latency --wn-channels 256 --cpu --num-iters 5

A model without a checkpoint gets random weights, which run at the same speed. A random gate is meaningless, so the decoder then
runs for --mel-frames; the default is the published tables' ratio of 602 frames (6.99 s) to 128 characters. (LJSpeech has 5.7
frames per character.) A trained gate ends each clip.

The table lists the latency of a batch from text to sound, its percentiles, and samples of sound per second; per clip, the mel
frames, the seconds, and RTF as in the published tables: seconds of sound / latency, above 1 if faster than real time. Throughput
and RTF are ratios of averages. FP32 is TF32 on GPUs that have it. The log has a record of every iteration, and the averages under
the empty step. Ctrl-C ends the run with the table of the iterations so far and exit code 130.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import datetime
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from common import precision
from common.arguments import add_audio_arguments, add_retired_arguments, given_options, log_path, positive, seed
from common.audio.stft import AudioConfig
from common.draws import Draws
from common.errors import INTERRUPTED, UsageError, exit_on_user_error
from common.fast import Request
from common.files import move_aside
from common.inference.arguments import (
    add_voice_arguments,
    named_checkpoints,
    own_flags,
    synthesis_config,
    vocoder_flags,
)
from common.inference.config import DENOISING_STRENGTH, SIGMA, SynthesisConfig
from common.inference.stages import mels_from_texts, prepare_model
from common.inference.vocoders import LoadedModel, Vocoder, time_call
from common.kernels.private_ops import processor
from common.options import NOT_NEGATIVE, add_fields, flag_of, from_options, option
from common.parser import Parser
from common.run.nvlog import Log, NvLog
from common.spec import ModelSpec, Options
from common.tables import markdown_table
from models import REGISTRY, get_model
from synthesizer import Checkpoint, Synthesizer, load

# B batch, T frames

# No digits, abbreviations or signs that a cleaner would change, so each character is one symbol.
SENTENCE = (
    "Every morning the old ferry leaves the harbour at first light, carries the market people across the bay, "
    "and waits on the far side until the bells of the town have called everyone home again. "
)
FRAMES_PER_CHARACTER = 4.7  # of the published tables: 602 frames for 128 characters
ITERATIONS_GPU, ITERATIONS_CPU = 1000, 10
PERCENTILES = (50, 90, 95, 99)


class Iteration(NamedTuple):
    """One batch: seconds from text to sound, mel frames of all clips, and the stages' figures for the log."""

    latency: float
    frames: int
    numbers: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class LatencyOptions:
    """The flags of the measurement itself."""

    batch_size: int = option(1, "texts per batch", "-bs", type=positive)
    input_length: int = option(128, "characters of each text", "-il", type=positive)
    num_iters: int | None = option(
        None, f"measured iterations (default: {ITERATIONS_GPU} on a GPU, {ITERATIONS_CPU} on a CPU)", type=positive
    )
    warmup: int = option(3, "iterations before the measured ones")
    mel_frames: int | None = option(
        None,
        f"mel frames of each text when the decoder has random weights (default: {FRAMES_PER_CHARACTER} per character)",
        type=positive,
    )


def main(argv: list[str] | None = None) -> None:
    """Build or load the models, measure, print the table."""
    args, given = parse_args(sys.argv[1:] if argv is None else argv)
    device = precision.pick_device(cpu=args.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    precision.seed_everything(args.seed)
    args.num_iters = args.num_iters or (ITERATIONS_CPU if device.type == "cpu" else ITERATIONS_GPU)
    options, config = from_options(LatencyOptions, vars(args)), synthesis_config(args, given, REGISTRY.values())
    acoustic, vocoding = (get_ready(role, vars(args), config, device) for role in ("acoustic", "vocoder"))
    voice = Synthesizer(acoustic, vocoding, config, device)
    texts = [sentence(args.input_length)] * args.batch_size
    path = log_path(args.output, args.log_file)
    older = move_aside(path)
    with NvLog(path) as log:
        if older:
            log.say(f"older logs: {path} is now {older}")
        log.parameters(own_flags(args, REGISTRY.values()) | voice.settings())
        if args.int8 and (note := precision.int8_note(device)):
            log.say(note)
        done, interrupted = measure(lambda: synthesise(texts, acoustic, voice.vocoder, device, args.fp16), options, log)
        flags = [select_spec(role, vars(args)).flag for role in ("acoustic", "vocoder")]
        weights = ", ".join(f"{flag}: {getattr(args, flag) or 'random weights'}" for flag in flags)
        report(done, options, voice.audio, weights, precision_name(device, args.fp16, args.int8), log)
    if interrupted:
        sys.exit(INTERRUPTED)


def select_spec(role: str, options: Options) -> ModelSpec:
    """Select the model of a role: the one with a checkpoint, or else the first; --vocoder decides between several."""
    specs = [spec for spec in REGISTRY.values() if spec.role == role]
    specs = [spec for spec in specs if spec.flag == options["vocoder"]] or specs
    return next((spec for spec in specs if options[spec.flag]), specs[0])


def get_ready(role: str, options: Options, config: SynthesisConfig, device: torch.device) -> LoadedModel:
    """Load a role's model from its checkpoint, or build it with random weights and a gate that never fires."""
    spec = select_spec(role, options)
    if path := options[spec.flag]:
        return load(Checkpoint(spec, path), config, device)
    endless = {"gate_threshold": 1.0, "max_decoder_steps": decoder_steps(options)}  # no probability exceeds 1
    values = dict(options) | (endless if role == "acoustic" else {})
    model = get_model(spec.name, spec.config_from_options(values)).to(device).eval()
    return prepare_model(LoadedModel(spec, model, values), Request(config.half, config.int8), config.plain)


def decoder_steps(options: Options) -> int:
    """Steps of a decoder without a gate. Raises UsageError if --mel-frames exceed --max-decoder-steps."""
    per_step, most = max(1, options["n_frames_per_step"]), options["max_decoder_steps"]  # the model refuses less than 1
    frames = options["mel_frames"] or max(1, round(FRAMES_PER_CHARACTER * options["input_length"]))
    steps = math.ceil(frames / per_step)
    if options["mel_frames"] and steps > most:
        raise UsageError(f"--mel-frames: {frames}, expected at most {most * per_step}; or raise --max-decoder-steps")
    return min(steps, most)


def sentence(length: int) -> str:
    """Return an English text of `length` characters: SENTENCE, repeated and cut."""
    return "".join(itertools.islice(itertools.cycle(SENTENCE), length))


def synthesise(
    texts: list[str], acoustic: LoadedModel, vocoder: Vocoder, device: torch.device, half: bool
) -> Iteration:
    """Synthesise a batch of texts once, as inference.py does, and time it."""

    def stages() -> tuple[int, dict[str, float]]:
        keys = [(0, number) for number in range(len(texts))]
        mels, numbers = mels_from_texts(texts, acoustic, device, half, Draws.of(keys, "acoustic", device))
        _, vocoder_numbers = vocoder(mels.mels, mels.lengths, Draws.of(keys, "vocoder", device))
        return int(mels.lengths.sum()), numbers | vocoder_numbers

    (frames, numbers), seconds = time_call(stages, device)
    speeds = {name: number for name, number in numbers.items() if name.endswith(("_items_per_sec", "_latency"))}
    return Iteration(seconds, frames, speeds | {"latency": seconds})


def measure(say: Callable[[], Iteration], options: LatencyOptions, log: Log) -> tuple[list[Iteration], bool]:
    """Iterate, and log all iterations after the warm-up. Returns them, and True if Ctrl-C ended the run."""
    done: list[Iteration] = []
    assert options.num_iters
    try:
        for number in log.progress(range(-options.warmup, options.num_iters), "iterations"):
            iteration = say()
            if number >= 0:
                log.log((0, number), iteration.numbers)
                done.append(iteration)
    except KeyboardInterrupt:
        return done, True
    return done, False


def report(
    done: list[Iteration], options: LatencyOptions, audio: AudioConfig, weights: str, number_format: str, log: Log
) -> None:
    if not done:
        log.say("stopped before the first iteration was measured")
        return
    summary = summarise([i.latency for i in done], [i.frames for i in done], options.batch_size, audio)
    stages = {name: float(np.mean([iteration.numbers[name] for iteration in done])) for name in done[0].numbers}
    log.log((), stages | summary)
    log.say(f"{len(done)} iterations after {options.warmup} for warm-up; {weights}; {stamp()}")
    log.say(table(summary, options.batch_size, options.input_length, number_format))


def summarise(
    latencies: Sequence[float], frames: Sequence[int], batch_size: int, audio: AudioConfig
) -> dict[str, float]:
    """The table's figures from latencies in seconds and mel frames of whole batches; the last three are per clip."""
    latency, mels = float(np.mean(latencies)), float(np.mean(frames))
    samples = mels * audio.hop_length  # frames to samples, of a batch
    seconds = samples / audio.sampling_rate / batch_size
    spread = {f"p{p}_latency": float(np.percentile(latencies, p)) for p in PERCENTILES}
    return {
        "latency": latency,
        "std_latency": float(np.std(latencies)),
        **spread,
        "samples_per_sec": samples / latency,
        "mels_generated": mels / batch_size,
        "audio_length": seconds,
        "rtf": seconds / latency,
    }


def precision_name(device: torch.device, half: bool, int8: bool) -> str:
    """The precision as the published tables name it; BF16 is --fp16 on a CPU, + INT8 an effective --int8."""
    name = {None: "FP32", torch.float16: "FP16", torch.bfloat16: "BF16"}[precision.half_dtype(device, half)]
    return f"{name} + INT8" if int8 and not precision.int8_note(device) else name


def table(summary: Mapping[str, float], batch_size: int, input_length: int, number_format: str) -> str:
    """Format a Markdown table of one row with the published columns."""
    columns = {
        "Batch size": str(batch_size),
        "Input length": str(input_length),
        "Precision": number_format,
        "Avg latency (s)": f"{summary['latency']:.4f}",
        "Latency std (s)": f"{summary['std_latency']:.4f}",
        **{f"Latency confidence {p} % (s)": f"{summary[f'p{p}_latency']:.4f}" for p in PERCENTILES},
        "Throughput (samples/s)": f"{summary['samples_per_sec']:.0f}",
        "Avg mels generated": f"{summary['mels_generated']:.1f}",
        "Avg audio length (s)": f"{summary['audio_length']:.2f}",
        "Avg RTF": f"{summary['rtf']:.2f}",
    }
    return markdown_table(">" * len(columns), list(columns), [list(columns.values())])


def make_parser() -> argparse.ArgumentParser:
    """Build the parser: flags of the measurement, flags of inference.py, and the models' own."""
    parser = Parser(
        prog="python -m benchmarks.latency",
        usage="%(prog)s [flags]  (-h lists them)",
        description="Time speech synthesis as in the published latency tables; Ctrl-C prints the results so far.",
    )
    add_fields(parser, LatencyOptions)
    add, specs = parser.add_argument, REGISTRY.values()
    vocoder = "vocoder (default: the one with a checkpoint, or the first)"
    add_voice_arguments(parser, specs, "random weights", vocoder_flags(specs), vocoder)
    parser.set_defaults(sigma_infer=SIGMA, denoising_strength=DENOISING_STRENGTH)
    add("--seed", type=seed, default=0, help="random seed of the weights")
    add_fields(parser, SynthesisConfig, "half", "int8", "plain")
    add("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    add("-o", "--output", type=Path, default=Path("output"), help="folder of the log; created if missing")
    log_file = "log file: a name inside --output, with or without that folder, or an absolute path; an older log is moved aside"
    add("--log-file", default="nvlog.json", help=log_file)
    add_audio_arguments(parser)
    for spec in REGISTRY.values():
        spec.add_arguments(parser)
    add_retired_arguments(parser, ("-m", "--model-name"))  # of the published inference_perf.py: both are measured
    return parser


def parse_args(argv: list[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse the flags; returns all options, and those on the command line. Raises UsageError for values that cannot work."""
    parser = make_parser()
    args = parser.parse_args(argv)
    for flag, path in named_checkpoints(args, REGISTRY.values()).items():
        setattr(args, flag, path)
    numbers = ("warmup", "sigma_infer", "denoising_strength")
    wrong = [problem for name in numbers for problem in NOT_NEGATIVE.problems(flag_of(name), getattr(args, name), str)]
    trained = select_spec("acoustic", vars(args)).flag
    if args.mel_frames and getattr(args, trained):
        wrong.append(
            f"--mel-frames: the gate of --{trained} ends its clips; for a fixed length, use "
            "--gate-threshold 1 --max-decoder-steps N"
        )
    if wrong:
        raise UsageError("\n".join(wrong))
    return args, given_options(parser, argv)


def describe(device: torch.device) -> dict[str, str | int]:
    """Device, CPU, threads, version of PyTorch and date."""
    on_cpu = device.type == "cpu"
    return {
        "device": "cpu" if on_cpu else torch.get_device_module(device).get_device_name(device),
        "cpu": processor().name,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "date": datetime.date.today().isoformat(),
    }


def stamp() -> str:
    """The same in words, without the device."""
    m = describe(torch.device("cpu"))
    return f"{m['cpu']}, {m['threads']} threads, PyTorch {m['torch']}, {m['date']}"


if __name__ == "__main__":
    with exit_on_user_error():
        main()
