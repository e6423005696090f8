"""Turn text into speech: python inference.py -i phrases/phrase.txt, one phrase a line.

The voice: the checkpoints that flags name, the newest in output/, or the embedded voice in voice/. Writes audio_I.wav and
alignment_I.png to --output, I being the phrase's line in the input file from 0. `python -m multiproc inference.py …` shares the
lines over GPUs.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.threads import limit_spinning

    limit_spinning()  # takes effect before PyTorch is imported

import argparse
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from common import precision
from common.arguments import (
    HelpFormatter,
    actions_of,
    add_deterministic_argument,
    add_retired_arguments,
    batch_size,
    file_suffix,
    given_options,
    log_path,
)
from common.audio.audio_processing import FORMATS, SAMPLE_FORMATS
from common.audio.loudness import NORMALIZATIONS, TARGET_RMS
from common.audio.stft import AudioConfig
from common.data.filelist import lines_of, read_phrases
from common.errors import DataError, UsageError, exit_on_user_error, join_problems
from common.files import move_aside, remove_leftovers
from common.inference.arguments import add_speaking_arguments, named_checkpoints, own_flags, synthesis_config
from common.inference.config import BYTES_PER_LINE, LONG_LIST, MOST_LINES
from common.inference.live import Live
from common.inference.manifest import (
    EarlierRun,
    Manifest,
    is_finished,
    read_finished,
    remove_manifests,
    settings_digest,
)
from common.inference.outputs import OTHERS_WRITTEN, SILENT, write_picture, write_sound
from common.inference.stages import TEXT_PAUSE, combine_numbers, plan_batches
from common.inference.vocoders import Numbers, time_call
from common.parser import Parser
from common.run.distributed import Dist, broadcast, gather, session
from common.run.nvlog import PARAMETER, Log, NullLog, NvLog, parse_line
from common.threads import ThreadBalance
from exports.torchscript import script_voice
from models import REGISTRY
from synthesizer import Choice, Line, Speech, SynthesisConfig, Synthesizer, choose_checkpoints

SPECS = REGISTRY.values()
MOST_PICTURES = 64  # lines up to which alignments are drawn by default: drawing takes longer than synthesis
# The problems of lines without sound
UNFIT = f"does not fit into memory, not even as the only line of a batch; {OTHERS_WRITTEN}"
STOPPED = f"{SILENT}, or check the settings that end a line, which the log has; {OTHERS_WRITTEN}"
LONGEST_WAIT = timedelta(days=7)  # of a process for the others, which may have slower GPUs or longer lines


class Job(NamedTuple):
    """A run: its flags, its voice, this process's place, its log and the record of finished lines."""

    args: argparse.Namespace
    voice: Synthesizer
    dist: Dist
    log: Log
    manifest: Manifest
    n_lines: int  # of the input file
    threads: ThreadBalance | None  # adapts CPU threads to the load between batches


class Totals(NamedTuple):
    """Results of a process: batches, each with its lines and the numbers of the log, and the problems of lines without sound."""

    batches: list[tuple[int, Numbers]]
    problems: dict[int, str]  # by the number of the line
    stream: Numbers  # of --stream


def main(argv: list[str] | None = None) -> None:
    """Read phrases, load a voice, synthesise batch by batch, write."""
    args, config = parse_args(sys.argv[1:] if argv is None else argv)
    texts = read_phrases(args.input)
    with precision.deterministic(args.deterministic), session(args.cpu, timeout=LONGEST_WAIT) as dist:
        run(args, config, texts, dist)


def run(args: argparse.Namespace, config: SynthesisConfig, texts: list[str], dist: Dist) -> None:
    """Synthesise this process's share of the texts; on the main one, log the run."""
    if args.stream and dist.world_size > 1:
        raise UsageError(f"--stream: {dist.world_size} processes, expected one")
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(dist.device)
    earlier, seed = read_earlier_run(args, dist)
    choice = choose_checkpoints(named_checkpoints(args, SPECS), config.vocoder)
    voice = Synthesizer.from_choice(choice, config=replace(config, seed=seed), device=dist.device)
    voice = script_voice(voice) if args.torchscript else voice
    lines = voice.lines(texts)
    with lines_of(args.input):
        voice.check(lines)
    if dist.is_main:
        remove_leftovers(args.output)
        if not args.resume:
            remove_manifests(args.output, args.suffix)
    settings = broadcast(digest_of(args, voice, choice), dist)  # after the removal, before a process writes
    path = log_path(args.output, args.log_file)
    moved = move_training_log_aside(path) if dist.is_main else []
    opened = NvLog(path) if dist.is_main else NullLog()
    with opened as log, Manifest(args.output, args.suffix, settings, seed, dist.rank) as manifest:
        log.parameters(own_flags(args, SPECS) | {"seed": seed} | voice.settings())
        sentences = [*moved, *notes(args, voice.description, voice.audio, dist)]
        sentences += unspoken_characters(voice, texts, args.input)
        pending = [line for line in lines if not is_finished(line, file_name(line, args), settings, earlier)]
        if args.resume:
            sentences.append(f"--resume: {len(lines) - len(pending)} of {len(lines)} lines are there")
        for line in sentences:
            log.say(line)
        threads = precision.balance_threads(dist.device, args.deterministic)
        job = Job(args, voice, dist, log, manifest, len(lines), threads)
        with lines_of(args.input):
            totals = stream_lines(pending, job) if args.stream else speak_lines(pending, job)
        report(gather(totals, dist), job)


def read_earlier_run(args: argparse.Namespace, dist: Dist) -> tuple[EarlierRun, int]:
    """Read the record of a run to resume; choose the seed: the one given, the earlier run's, or a new one."""
    earlier = EarlierRun(None, {})
    if dist.is_main and args.resume:
        earlier = read_finished(args.output, args.suffix)
    chosen = (args.seed, earlier.seed, precision.draw_seed())
    return broadcast((earlier, next(seed for seed in chosen if seed is not None)), dist)


def digest_of(args: argparse.Namespace, voice: Synthesizer, choice: Choice) -> str:
    """Digest the settings that the output files depend on."""
    config = {name: value for name, value in vars(voice.config).items() if name != "seed"}
    checkpoints = [checkpoint.path for checkpoint in (choice.acoustic, choice.vocoder) if checkpoint]
    return settings_digest(config | voice.settings() | {"sample_format": args.sample_format}, checkpoints)


def speak_lines(lines: Sequence[Line], job: Job) -> Totals:
    """Synthesise this process's batches of lines, and write each batch when it is done."""
    size = job.args.batch_size
    size = job.voice.default_batch_size() if size is None else size
    batches = [[lines[i] for i in sorted(batch)] for batch in plan_batches(lines, size)]
    batches = batches[job.dist.rank :: job.dist.world_size]
    totals = Totals([], {}, {})
    if job.args.include_warmup and batches:
        job.voice.speak_batch(batches[0], size)
    halved = False
    for batch in job.log.progress(batches, "synthesise", len(batches)):
        if job.threads and (change := job.threads.adjust()):
            job.log.say(change)
        (speeches, numbers, short), seconds = time_call(partial(job.voice.speak_batch, batch, size), job.dist.device)
        if short and not halved:
            job.log.say(f"not enough memory for {len(batch)} lines at once: such batches run in halves")
        halved = halved or short
        spoken = [(line, speech) for line, speech in zip(batch, speeches, strict=True) if speech]
        totals.problems.update({line.number: UNFIT for line, speech in zip(batch, speeches, strict=True) if not speech})
        if numbers:
            totals.batches.append((len(spoken), numbers | {"latency": seconds}))
        totals.problems.update(write_outputs(spoken, job))
    return totals


def stream_lines(lines: Sequence[Line], job: Job) -> Totals:
    """Synthesise line after line in parts, each written to --stream as soon as it is ready, and to the output files at its end."""
    totals = Totals([], {}, {})
    if job.args.include_warmup and lines:
        job.voice.speak_batch(lines[:1])
    with Live(job.args.stream) as live:
        started = time.perf_counter()
        for line in lines:
            steps = job.voice.stream_line(line, TEXT_PAUSE)
            try:
                (speech, numbers), seconds = time_call(partial(exhaust, steps, live), job.dist.device)
            except (RuntimeError, MemoryError) as error:
                if not precision.is_out_of_memory(error):
                    raise
                totals.problems[line.number] = UNFIT
                continue
            totals.batches.append((1, numbers | {"latency": seconds}))
            totals.problems.update(write_outputs([(line, speech)], job))
    if live.first:
        totals.stream["first_sound_latency"] = live.first - started
    if live.left:
        job.log.say(f"{job.args.stream}: its reader closed it before the end")
    return totals


def exhaust(steps: Generator[Tensor, None, tuple[Speech, Numbers]], live: Live) -> tuple[Speech, Numbers]:
    """Write each part to the stream; return the generator's own result."""
    while True:
        try:
            live(next(steps))
        except StopIteration as end:
            return end.value


def report(totals: list[Totals], job: Job) -> None:
    """Log the numbers of all processes. Raises DataError with the lines that have no sound; the others are written."""
    if not job.dist.is_main:
        return
    of_processes = [(sum(n for n, _ in one.batches), combine_numbers(one.batches)) for one in totals if one.batches]
    if of_processes:
        job.log.log((), combine_numbers(of_processes, at_once=True) | totals[0].stream)
    if problems := sorted(problem for one in totals for problem in one.problems.items()):
        raise DataError(join_problems([f"{job.args.input}:{number + 1}: {problem}" for number, problem in problems]))


def move_training_log_aside(path: Path) -> list[str]:
    """Rename the log of a training run, which inference must not append to. Returns a line about it, if there is one.

    Raises DataError where the system refuses.
    """
    try:
        moved = move_aside(path) if path.is_file() and is_training_log(path) else None
    except OSError as error:
        message = f"cannot move the older log aside ({error.strerror}); choose another --output"
        raise DataError(f"{path}: {message}") from None
    return [f"{path} was the log of a training run: it is now {moved}"] if moved else []


def is_training_log(path: Path) -> bool:
    """Return True if any parameter in a log names a model to train."""
    with path.open(encoding="utf-8", errors="replace") as file:
        records = filter(None, map(parse_line, file))
        data = (record.get("data") for record in records if record.get("step") == PARAMETER)
        return any(isinstance(flags, dict) and "model_name" in flags for flags in data)


def notes(args: argparse.Namespace, description: str, audio: AudioConfig, dist: Dist) -> Iterator[str]:
    """Lines about the run before it begins: its voice, its stream, and the flags without effect on this machine."""
    device = dist.device
    yield f"voice: {description}" + (f", in {dist.world_size} processes" if dist.world_size > 1 else "")
    if args.stream:
        rate = audio.sampling_rate
        yield f"sound goes to {args.stream} as it is made: {rate} Hz, 16 bits, mono (aplay -f S16_LE -r {rate})"
    if args.fp16 and (note := precision.half_note(device, precision.half_dtype(device, True))):
        yield f"--fp16: {note}; large weights of a single row's products are read in float16"
    if args.int8 and (note := precision.int8_note(device)):
        yield note


def unspoken_characters(voice: Synthesizer, texts: list[str], path: Path) -> Iterator[str]:
    """Yield a line about every phrase with characters that the model has no symbol for."""
    for number, text in enumerate(texts, 1):
        if dropped := voice.unspoken(text):
            more = f" and {len(dropped) - LONG_LIST} more" if len(dropped) > LONG_LIST else ""
            characters = ", ".join(map(repr, dropped[:LONG_LIST]))
            yield f"{path}:{number}: the alphabet has no {characters}{more}: left out"


def file_name(line: Line, args: argparse.Namespace) -> str:
    """Name a line's sound."""
    return f"audio_{line.number}{args.suffix}.{args.format}"


def write_outputs(spoken: Sequence[tuple[Line, Speech]], job: Job) -> dict[int, str]:
    """Save the sounds of lines, with a message about each, then pictures, which take longer; record the lines as finished.

    Lines without a frame get no files. Returns their problems, by their numbers.
    """
    args = job.args
    silent = {line.number: STOPPED for line, speech in spoken if not speech.mel.shape[1]}
    spoken = [(line, speech) for line, speech in spoken if line.number not in silent]
    for line, speech in spoken:
        job.log.say(write_sound(args.output / file_name(line, args), line.text, speech, args.sample_format))
    drawn = job.n_lines <= MOST_PICTURES if args.alignments is None else args.alignments
    for line, speech in spoken:
        if drawn:
            path = args.output / f"alignment_{line.number}{args.suffix}.png"
            write_picture(path, line.text, speech, job.voice.symbols(line.text))
        job.manifest.add(line, args.output / file_name(line, args))
    return silent


def make_parser() -> argparse.ArgumentParser:
    """All flags: inference's own, a checkpoint for each model, and the models' flags, which a checkpoint's settings replace."""
    parser = Parser(
        prog="inference.py",
        usage="%(prog)s -i PHRASES [flags]  (-h lists them)",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=HelpFormatter,
    )
    add, default = parser.add_argument, SynthesisConfig
    add("-i", "--input", type=Path, required=True, help="text file, one phrase a line")
    add("-o", "--output", type=Path, default=Path("output"), help="folder of sounds, pictures and log; made if missing")
    add("--suffix", type=file_suffix, default="", help="at the end of the files' names")
    cut = "characters, as read, above which a phrase is cut: at sentence ends, else at ; : or dashes, else at commas; 0: never"
    add("--longest-piece", type=int, default=default.longest_piece, help=cut)
    level = f"peak: largest magnitude to full scale, as in the published recipe; loudness: RMS to {TARGET_RMS}, without clipping"
    add("--normalize", choices=NORMALIZATIONS, default=default.normalize, help=f"level of each sound; {level}")
    add_file_arguments(parser)
    live = "pipe or file that gets the sound as it is made, one phrase after the other: 16-bit samples without a header"
    add("--stream", type=Path, metavar="PATH", help=f"{live}; e.g. --stream >(aplay -f S16_LE -r 22050)")
    scripts = "run the plain models as TorchScript, as --cpu did in the published recipe"
    add("--torchscript", action="store_true", help=scripts)
    add_deterministic_argument(parser)
    add("--include-warmup", action="store_true", help="synthesise the first batch once before the run that is timed")
    log_file = "a name inside --output, with or without that folder, or an absolute path; a training run's log there is moved aside"
    add("--log-file", default="nvlog.json", help=log_file)
    add_speaking_arguments(parser, SPECS, default_seed=None)
    for spec in SPECS:
        flags = [flag for action in actions_of(spec.add_training_arguments) for flag in action.option_strings]
        add_retired_arguments(parser, flags)
    return parser


def add_file_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of batches and of output files."""
    add = parser.add_argument
    memory = f"one for each {BYTES_PER_LINE // 2**30} GiB of the device's memory, at most {MOST_LINES}"
    size = f"lines at once, of about one length; it does not change the sound; 0: all (default: {memory})"
    add("-bs", "--batch-size", type=batch_size, help=size)
    add("--resume", action="store_true", help="skip the lines that an earlier run with the same settings has written")
    add("--format", choices=list(FORMATS), default="wav", help="of the sounds")
    add(
        "--sample-format", choices=SAMPLE_FORMATS, default=SAMPLE_FORMATS[0], help="float32: for wav alone, not rounded"
    )
    pictures = f"draw alignment_I.png (default: of up to {MOST_PICTURES} lines)"
    add("--alignments", action=argparse.BooleanOptionalAction, help=pictures)


def parse_args(argv: list[str]) -> tuple[argparse.Namespace, SynthesisConfig]:
    """Parse all flags, and build the config of the voice. Raises UsageError for values out of range."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.torchscript and (args.fp16 or args.int8):
        raise UsageError("--torchscript: runs plain models in float32; leave --fp16 and --int8 out")
    args.plain |= args.torchscript
    config = synthesis_config(args, given_options(parser, argv), SPECS)
    if args.stream and config.normalize != "none":
        raise UsageError(f"--normalize {config.normalize}: needs the whole sound, so --stream cannot have it")
    if args.sample_format != SAMPLE_FORMATS[0] and args.format != "wav":
        raise UsageError(
            f"--sample-format {args.sample_format}: --format {args.format} has none; leave one of them out"
        )
    if args.resume and args.stream:
        raise UsageError("--resume: a stream has all lines from the first one; leave --resume or --stream out")
    return args, config


if __name__ == "__main__":
    with exit_on_user_error():
        main()
