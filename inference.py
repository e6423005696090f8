"""Turn text into speech: python inference.py --text "Hello", or -i phrases/phrase.txt with one phrase per line.

Speaks with the checkpoints given by flag, the newest ones in output/, or the embedded voice in voice/. Writes audio_I.wav and
alignment_I.png to --output, where I is the number of the line or of the --text, from 0. `python -m multiproc inference.py …`
splits the lines over several GPUs.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from common import __version__, precision
from common.arguments import (
    DETERMINISTIC_HELP,
    actions_of,
    add_retired_arguments,
    batch_size,
    file_suffix,
    log_path,
    utf8,
)
from common.audio.audio_processing import FORMATS, SAMPLE_FORMATS
from common.audio.stft import AudioConfig
from common.data.filelist import lines_of, read_phrases
from common.errors import DataError, UsageError, exit_on_user_error, explain_refusal, join_problems, listed
from common.files import move_aside, remove_leftovers
from common.inference import outputs
from common.inference.arguments import SpeakingOptions, add_speaking_arguments, speaking_options
from common.inference.config import BYTES_PER_LINE, LONG_LIST, MOST_LINES
from common.inference.stages import TEXT_PAUSE, combine_numbers, in_memory, plan_batches
from common.inference.vocoders import Numbers, time_call
from common.options import add_fields, option
from common.parser import Parser
from common.run.distributed import Dist, broadcast, gather, session
from common.run.nvlog import Log, NvLog
from common.run.run_folder import read_head
from common.threads import ThreadBalance
from compat.inference import (  # noqa: F401 - for scripts written for the published recipe
    MeasureTime,
    checkpoint_from_distributed,
    load_and_setup_model,
    pad_sequences,
    prepare_input_sequence,
    unwrap_distributed,
)
from exports.voice import named_voice
from models import REGISTRY
from synthesizer import SILENT, Line, Speech, SynthesisConfig, Synthesizer

SPECS = REGISTRY.values()
# Lines up to which alignments are drawn by default: drawing takes longer than synthesis
MOST_PICTURES = 64
# Problems of lines without sound
STOPPED = f"{SILENT}, or check the settings that end a line, which the log has; {outputs.OTHERS_WRITTEN}"
DASH, STDIN = Path("-"), Path("/dev/stdin")
LONGEST_WAIT = timedelta(days=7)  # for other processes, which may have slower GPUs or longer lines


@dataclass(frozen=True, kw_only=True)
class InferenceOptions(SpeakingOptions):
    """Options of inference.py. Raises UsageError for flags that contradict each other."""

    input: Path | None = option(None, "text file with one phrase per line; -: standard input", "-i")
    text: list[str] | None = option(
        None, "a phrase in place of a file; repeat it for several", action="append", type=utf8
    )
    output: Path = option(Path("output"), "folder for sounds, pictures and the log, created if missing", "-o")
    suffix: str = option("", "text at the end of the output files' names", type=file_suffix)
    batch_size: int | None = option(
        None,
        "lines synthesised at once, all of similar length; does not change the sound; 0: all lines "
        f"(default: one per {BYTES_PER_LINE // 2**30} GiB of device memory, at most {MOST_LINES})",
        "-bs",
        type=batch_size,
    )
    resume: bool = option(False, "skip lines that an earlier run with the same settings and checkpoints has finished")
    format: str = option("wav", "format of the sound files", choices=list(FORMATS))
    sample_format: str = option(
        SAMPLE_FORMATS[0], "sample format; float32, unrounded, is for wav only", choices=SAMPLE_FORMATS
    )
    alignments: bool | None = option(
        None, f"draw alignment_I.png (default: for up to {MOST_PICTURES} lines)", action=argparse.BooleanOptionalAction
    )
    subtitles: str | None = option(
        None,
        "write subtitles beside each sound, audio_I.srt or audio_I.vtt: a cue for up to two lines of text, or for each word",
        choices=outputs.SUBTITLES,
    )
    stream: Path | None = option(
        None,
        "pipe or file that receives the sound as it is made, phrase after phrase, as 16-bit samples without a header; "
        "e.g. --stream >(aplay -f S16_LE -r 22050)",
        metavar="PATH",
    )
    deterministic: bool = option(False, DETERMINISTIC_HELP, action=argparse.BooleanOptionalAction)
    include_warmup: bool = option(False, "synthesise the first batch once, untimed, before the run")
    log_file: str = option(
        "nvlog.json",
        "log file: a name inside --output, with or without that folder, or an absolute path; a training run's log there is "
        "moved aside",
    )
    verbose: bool = option(False, "also print all settings, which the log has in any case")

    @property
    def source(self) -> str:
        """What messages about a phrase name, with its number."""
        if self.text:
            return "--text"
        return str(STDIN if self.input == DASH else self.input)

    def __post_init__(self) -> None:
        if self.stream and (level := self.config.normalize) != "none":
            raise UsageError(f"--normalize {level}: needs the whole sound, so --stream cannot have it")
        if self.sample_format != SAMPLE_FORMATS[0] and self.format != "wav":
            formats = f"--sample-format {self.sample_format}: --format {self.format} has none"
            raise UsageError(f"{formats}; leave one of them out")
        if self.resume and self.stream:
            raise UsageError("--resume: a stream has all lines from the first one; leave --resume or --stream out")


class InferenceJob(NamedTuple):
    """A run: options, voice, this process's place among others, log, and the record of finished lines."""

    options: InferenceOptions
    voice: Synthesizer
    dist: Dist
    log: Log
    manifest: outputs.Manifest
    n_lines: int  # of the input file
    threads: ThreadBalance | None  # adapts the number of CPU threads to the load between batches


class Totals(NamedTuple):
    """Results of one process: its batches, with line counts and numbers for the log, and the problems of lines without sound."""

    batches: list[tuple[int, Numbers]]
    problems: dict[int, str]  # by line number
    stream: Numbers  # for --stream


def main(argv: list[str] | None = None) -> None:
    """Read phrases, load a voice, synthesise batch by batch, write."""
    options = parse_args(sys.argv[1:] if argv is None else argv)
    texts = options.text or read_phrases(options.source)
    with precision.deterministic(options.deterministic), session(options.cpu, timeout=LONGEST_WAIT) as dist:
        run(options, texts, dist)


def run(options: InferenceOptions, texts: list[str], dist: Dist) -> None:
    """Synthesise this process's share of the texts; the main process logs the run."""
    if dist.world_size > 1 and (options.stream or options.input == DASH):
        raise UsageError(f"{'--stream' if options.stream else '-i -'}: {dist.world_size} processes, expected one")
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(dist.device)
    earlier, seed = read_earlier_run(options, dist)
    voice = named_voice(options, replace(options.config, seed=seed), dist.device)
    lines = voice.lines(texts)
    with lines_of(options.source):
        voice.check(lines)
    spoken = [line for line in lines if voice.has_words(line.text)]
    if dist.is_main:
        remove_leftovers(options.output)
        if not options.resume:
            outputs.remove_manifests(options.output, options.suffix)
    # after the removal above and before any process writes
    digest = broadcast(digest_of(options, voice), dist)
    path = log_path(options.output, options.log_file)
    moved = move_training_log_aside(path) if dist.is_main else []
    opened = NvLog(path, prints_settings=options.verbose) if dist.is_main else Log()
    with opened as log, outputs.Manifest(options.output, options.suffix, digest, seed, dist.rank) as manifest:
        log.parameters({"version": __version__} | options.flags | {"seed": seed} | voice.settings())
        sentences = [*moved, *notes(options, voice.description, voice.audio, dist)]
        sentences += unspoken_characters(voice, texts, options.source)
        sentences += lines_without_words(lines, spoken, options.source)
        pending = [line for line in spoken if not outputs.is_finished(line, file_name(line, options), digest, earlier)]
        if options.resume:
            sentences.append(f"--resume: {len(spoken) - len(pending)} of {len(spoken)} lines are there")
        for line in sentences:
            log.say(line)
        threads = precision.balance_threads(dist.device, options.deterministic)
        job = InferenceJob(options, voice, dist, log, manifest, len(lines), threads)
        with lines_of(options.source):
            totals = stream_lines(pending, job) if options.stream else speak_lines(pending, job)
        report(gather(totals, dist), job)
        if pending and not options.stream:
            log.say(outputs.how_to_play(options.output / file_name(pending[0], options)))


def read_earlier_run(options: InferenceOptions, dist: Dist) -> tuple[outputs.EarlierRun, int]:
    """Read the record of the run to resume, and choose the seed: the given one, the earlier run's, or a new one."""
    earlier = outputs.EarlierRun(None, {})
    if dist.is_main and options.resume:
        earlier = outputs.read_finished(options.output, options.suffix)
    chosen = (options.config.seed, earlier.seed, precision.draw_seed())
    return broadcast((earlier, next(seed for seed in chosen if seed is not None)), dist)


def digest_of(options: InferenceOptions, voice: Synthesizer) -> str:
    """Digest everything the output files depend on: settings, and the voice's files by path, size and time of change."""
    config = {name: value for name, value in vars(voice.config).items() if name != "seed"}
    paths = [loaded.path for loaded in (voice.acoustic, voice.vocoding) if loaded.path]
    files = {"sample_format": options.sample_format}
    if options.subtitles:  # only then, so that records of earlier versions count
        files["subtitles"] = options.subtitles
    return outputs.settings_digest(config | voice.settings() | files, paths)


def speak_lines(lines: Sequence[Line], job: InferenceJob) -> Totals:
    """Synthesise this process's batches of lines, writing each batch as soon as it is done."""
    size = job.options.batch_size
    size = job.voice.default_batch_size() if size is None else size
    batches = [[lines[i] for i in sorted(batch)] for batch in plan_batches(lines, size)]
    batches = batches[job.dist.rank :: job.dist.world_size]
    totals = Totals([], {}, {})
    if job.options.include_warmup and batches:
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
        totals.problems.update(
            {line.number: outputs.UNFIT for line, speech in zip(batch, speeches, strict=True) if not speech}
        )
        if numbers:
            totals.batches.append((len(spoken), numbers | {"latency": seconds}))
        totals.problems.update(write_outputs(spoken, job))
    return totals


def stream_lines(lines: Sequence[Line], job: InferenceJob) -> Totals:
    """Synthesise line by line in parts, each written to --stream as soon as it is ready; output files follow at each line's end."""
    totals = Totals([], {}, {})
    if job.options.include_warmup and lines:
        job.voice.speak_batch(lines[:1])
    assert job.options.stream is not None
    with outputs.Live(job.options.stream) as live:
        started = time.perf_counter()
        for line in lines:
            steps = job.voice.stream_line(line, TEXT_PAUSE)
            outcome = in_memory(partial(time_call, partial(exhaust, steps, live), job.dist.device))
            if outcome is None:
                totals.problems[line.number] = outputs.UNFIT
                continue
            (speech, numbers), seconds = outcome
            totals.batches.append((1, numbers | {"latency": seconds}))
            totals.problems.update(write_outputs([(line, speech)], job))
    if live.first:
        totals.stream["first_sound_latency"] = live.first - started
    if live.left:
        job.log.say(f"{job.options.stream}: its reader closed it before the end")
    return totals


def exhaust(steps: Generator[Tensor, None, tuple[Speech, Numbers]], live: outputs.Live) -> tuple[Speech, Numbers]:
    """Write each part to the stream and return the generator's result."""
    while True:
        try:
            live(next(steps))
        except StopIteration as end:
            return end.value


def report(totals: list[Totals], job: InferenceJob) -> None:
    """Log the numbers of all processes. Raises DataError naming the lines without sound; all others are written."""
    if not job.dist.is_main:
        return
    of_processes = [(sum(n for n, _ in one.batches), combine_numbers(one.batches)) for one in totals if one.batches]
    if of_processes:
        job.log.log((), combine_numbers(of_processes, at_once=True) | totals[0].stream)
    if problems := sorted(problem for one in totals for problem in one.problems.items()):
        raise DataError(
            join_problems([f"{job.options.source}:{number + 1}: {problem}" for number, problem in problems])
        )


def move_training_log_aside(path: Path) -> list[str]:
    """Rename a training run's log, to which inference must not append. Returns a line about it if there was one.

    Raises DataError if the system refuses.
    """
    with explain_refusal(f"{path}: cannot move the older log aside", "choose another --output"):
        moved = move_aside(path) if path.is_file() and read_head(path).model_name else None
    return [f"{path} was the log of a training run: it is now {moved}"] if moved else []


def notes(options: InferenceOptions, description: str, audio: AudioConfig, dist: Dist) -> Iterator[str]:
    """Yield the opening lines of the log: voice, stream, and flags without effect on this machine."""
    device = dist.device
    yield f"voice: {description}" + (f", in {dist.world_size} processes" if dist.world_size > 1 else "")
    if options.stream:
        rate = audio.sampling_rate
        yield f"sound goes to {options.stream} as it is made: {rate} Hz, 16 bits, mono (aplay -f S16_LE -r {rate})"
    if options.config.half and (note := precision.half_note(device, precision.half_dtype(device, True))):
        yield f"--fp16: {note}; large weights of a single row's products are read in float16"
    if options.config.int8 and (note := precision.int8_note(device)):
        yield note


def lines_without_words(lines: Sequence[Line], with_words: Sequence[Line], source: str) -> list[str]:
    """Return a line that lists the phrases with nothing to say, if there are any."""
    spoken = {line.number for line in with_words}
    silent = [str(line.number + 1) for line in lines if line.number not in spoken]
    lines_of_file = f"line{'s' * (len(silent) > 1)} {listed(silent, LONG_LIST)}"
    return [f"{source}: no words in {lines_of_file}: no sound"] if silent else []


def unspoken_characters(voice: Synthesizer, texts: list[str], source: str) -> Iterator[str]:
    """Yield a line for each phrase with characters that the model has no symbol for, and for each that demands things in vain."""
    for number, text in enumerate(texts, 1):
        yield from (f"{source}:{number}: {note}" for note in voice.notes(text))


def file_name(line: Line, options: InferenceOptions) -> str:
    """Return the name of a line's sound file."""
    return f"audio_{line.number}{options.suffix}.{options.format}"


def write_outputs(spoken: Sequence[tuple[Line, Speech]], job: InferenceJob) -> dict[int, str]:
    """Save the sounds of lines with a message about each, then the pictures, which take longer, and record the lines as finished.

    Lines without a single frame get no files; their problems are returned by line number.
    """
    options = job.options
    silent = {line.number: STOPPED for line, speech in spoken if not speech.mel.shape[1]}
    spoken = [(line, speech) for line, speech in spoken if line.number not in silent]
    for line, speech in spoken:
        job.log.say(
            outputs.write_sound(options.output / file_name(line, options), line.text, speech, options.sample_format)
        )
    drawn = job.n_lines <= MOST_PICTURES if options.alignments is None else options.alignments
    for line, speech in spoken:
        if drawn:
            path = options.output / f"alignment_{line.number}{options.suffix}.png"
            outputs.write_picture(path, line.text, speech, job.voice.symbols(line.text))
        if kind := options.subtitles:
            path = (options.output / file_name(line, options)).with_suffix(f".{kind.removesuffix('-words')}")
            outputs.write_subtitles(path, job.voice.words(line.text, speech), kind)
        job.manifest.add(line, options.output / file_name(line, options))
    return silent


def make_parser() -> argparse.ArgumentParser:
    """Build the parser: inference's own flags, a checkpoint for each model, and the models' flags."""
    parser = Parser(
        prog="inference.py", usage="%(prog)s (-i PHRASES | --text TEXT) [flags]  (-h lists them)", description=__doc__
    )
    phrases = ("input", "text")
    add_fields(parser.add_mutually_exclusive_group(required=True), InferenceOptions, *phrases)
    others = (name for name in InferenceOptions.__annotations__ if name not in phrases)
    add_fields(parser, InferenceOptions, "export", *others)
    add_fields(parser, SynthesisConfig, "longest_piece", "normalize", "speed")
    add_speaking_arguments(parser, SPECS, seed=None)
    for spec in SPECS:
        flags = [flag for action in actions_of(spec.add_training_arguments) for flag in action.option_strings]
        add_retired_arguments(parser, flags)
    return parser


def parse_args(argv: list[str]) -> InferenceOptions:
    """Parse all flags. Raises UsageError for values out of range."""
    return speaking_options(InferenceOptions, make_parser(), argv, SPECS)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
