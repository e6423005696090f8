"""Measure how a voice adapts to another speaker, minute by minute: Asterisk's prompts, from recordings to checkpoints.

    python -m benchmarks.studio.own_voice --minutes 60  # prepare, plan, train Tacotron 2, measure each report's checkpoint
    python -m benchmarks.studio.own_voice                          # again: resumes where it was stopped
    python -m benchmarks.studio.own_voice --no-train --texts FILE  # measure on other texts
    python -m benchmarks.studio.own_voice --no-train               # measure the checkpoints at hand

The recordings are those of benchmarks.studio.prepare: 24 minutes of one speaker, each with its text. Held-out lines are spoken
through Griffin-Lim. The table lists the word error rate, the same with each line capped at 100 %, the predicted opinion score, the
number of lines that ran to the frame limit, and the likeness of the speaker: the cosine of a line's embedding with the mean of the
training clips.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from benchmarks.machine import command_of, stamp
from benchmarks.studio.asterisk import Joining, join_prompts
from common.arguments import LineHelpFormatter, positive, seed
from common.checkpoint.files import find_all
from common.data.filelist import read_filelist, read_phrases
from common.errors import DataError, exit_on_user_error
from common.inference.config import GRIFFIN_LIM, SynthesisConfig
from common.inference.evaluation import (
    Evaluators,
    HeldOutLine,
    Rendition,
    evaluate_system,
    recordings,
    renditions_from_texts,
)
from common.inference.vocoders import GriffinLimVocoder
from common.options import add_fields, from_options, option
from common.parser import Parser
from common.quality.report import System
from common.run.interrupt import StopRequest
from common.run.nvlog import read_log
from common.tables import markdown_table
from common.training.checkup import make_held_out_line, spread
from models import REGISTRY
from studio.plan import __main__ as planning
from studio.plan.commands import train_argv
from studio.plan.file import read_plan
from studio.plan.proposal import QUICK_SHARE, SHARES
from studio.prepare import __main__ as prepare
from studio.project import Project
from studio.train.process import RunEnding, run_training
from studio.voice.verdict import score
from studio.voice.voice import listen_to_speaker
from synthesizer import Synthesizer, choose_checkpoints

NAME = "asterisk"
ACOUSTIC = next(spec for spec in REGISTRY.values() if spec.role == "acoustic")
SECONDS, LOSS = "train_epoch_time", "val_loss"  # keys of the log; validation and checkpoints take more time
ROOM = 50.0  # dB of noise below the speech: digital silence in the pauses would be far from all training data
KEEP = 10_000  # all checkpoints


class VoiceRow(NamedTuple):
    """The figures of one checkpoint or anchor; `minutes` and `loss` are nan where it has none."""

    name: str
    minutes: float
    loss: float
    wrong: float
    capped: float
    opinion: float
    endless: int
    likeness: float


@dataclass(frozen=True, kw_only=True)
class OwnVoiceOptions:
    """The command's flags."""

    output: Path = option(Path("output/own_voice_benchmark"), "folder of the project", "-o")
    asterisk: Path = option(Path("asterisk"), "folder of the prompts; missing ones are fetched")
    minutes: int = option(60, "minutes of training, on which the plan is based", type=positive, metavar="M")
    threads: int | None = option(None, "threads of training (default: the plan's)", type=positive, metavar="N")
    texts: Path | None = option(None, "text file with lines to speak instead of held-out clips", metavar="FILE")
    lines: int = option(20, "held-out lines, at most", type=positive, metavar="N")
    every: int = option(1, "measure every Nth checkpoint, and the last", type=positive, metavar="N")
    train: bool = option(True, "train before the measurement")
    freeze: bool = option(True, "freeze what the plan freezes")
    seed: int = option(1, "seed of the order and pauses of the prompts, and of the training", type=seed)
    num_workers: int = option(2, "processes of studio.prepare", type=positive)


def main(argv: list[str] | None = None) -> None:
    """Prepare, plan and train what is missing, then measure every checkpoint and print the table."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse_args(argv)
    project = Project(name=NAME, projects=options.output / "projects")
    if options.train:
        set_up(options, project)
        train(options, project)
    print(report(measure(options, project), argv, project))


def parse_args(argv: Sequence[str]) -> OwnVoiceOptions:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m benchmarks.studio.own_voice",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=LineHelpFormatter,
    )
    add_fields(parser, OwnVoiceOptions)
    return from_options(OwnVoiceOptions, vars(parser.parse_args(argv)))


def set_up(options: OwnVoiceOptions, project: Project) -> None:
    """Join the prompts, prepare and plan, unless the project has its plan."""
    if project.plan.exists():
        return
    folder = options.output / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    join_prompts(Joining(asterisk=options.asterisk, noise=ROOM, seed=options.seed), folder)
    flags = ["--projects", str(project.projects)]
    prepare.main([str(folder), "--name", NAME, *flags, "--num-workers", str(options.num_workers)])
    budget = str(options.minutes / SHARES[ACOUSTIC.role] / (1 - QUICK_SHARE))  # of all models
    planning.main([NAME, *flags, "--cpu", "--seed", str(options.seed), "--minutes", budget])


def train(options: OwnVoiceOptions, project: Project) -> None:
    """Train Tacotron 2 by the plan for the rest of the minutes, with a report and a checkpoint every epoch."""
    plan = read_plan(project.plan)
    settings = replace(plan.models[ACOUSTIC.name], report_every=1, report_lines=1, best_by="loss", patience=KEEP)
    if not options.freeze:
        others = {name: value for name, value in settings.options.items() if name != "freeze"}
        settings = replace(settings, options=others)
    plan = replace(plan, models={ACOUSTIC.name: settings})
    words = [*train_argv(ACOUSTIC.name, plan, project), "--keep-checkpoints", str(KEEP)]
    left = 60 * options.minutes - sum(epoch_values(project, SECONDS).values())
    if left <= 0:
        return
    with StopRequest() as stop:
        ending = run_training(words, options.threads or plan.threads, left, stop, lambda seconds: None)
    if ending is RunEnding.STOPPED:
        raise SystemExit(stop.exit_code)


def epoch_values(project: Project, key: str) -> dict[int, float]:
    """Read a value of each epoch from the log of the run; of an epoch that a resumed run repeats, the last one."""
    path, found = project.run(ACOUSTIC.name) / "nvlog.json", {}
    for record in read_log(path) if path.exists() else []:
        step = record.get("step")
        if record.get("type") == "LOG" and isinstance(step, list) and len(step) == 1 and key in record["data"]:
            found[step[0]] = float(record["data"][key])
    return found


def measure(options: OwnVoiceOptions, project: Project) -> list[VoiceRow]:
    """Measure the recordings, the embedded voice and the checkpoints on the same lines."""
    found = find_all(project.run(ACOUSTIC.name), ACOUSTIC.name)  # the newest first, through a link
    checkpoints = [path.resolve() for path in reversed(found)]
    if not checkpoints:
        raise DataError(f"{project.run(ACOUSTIC.name)}: no checkpoint; run without --no-train")
    chosen = checkpoints[:: options.every] + checkpoints[-1:] * ((len(checkpoints) - 1) % options.every > 0)
    base = Synthesizer.embedded(config=SynthesisConfig(vocoder=GRIFFIN_LIM), device="cpu")
    items = lines_to_speak(options, project, base)
    rate = base.audio.sampling_rate
    evaluators, listen = Evaluators(["asr", "mos"]), listen_to_speaker(project, rate)
    seconds, loss = epoch_values(project, SECONDS), epoch_values(project, LOSS)

    def row(name: str, renditions: list[Rendition], at: float = math.nan, value: float = math.nan) -> VoiceRow:
        system = evaluate_system(name, items, renditions, math.nan, evaluators, rate)
        line = summarise(name, system._replace(lines=[listen(line, rate) for line in system.lines]))
        print(f"{line}", file=sys.stderr, flush=True)
        return line._replace(minutes=at, loss=value)

    table = [] if options.texts else [row("recordings", recordings(items))]
    table.append(row("embedded voice", speak(base, items), 0.0))
    for path in chosen:
        choice = choose_checkpoints({ACOUSTIC.flag: path}, GRIFFIN_LIM)
        voice = Synthesizer.from_choice(choice, config=SynthesisConfig(vocoder=GRIFFIN_LIM), device="cpu")
        epoch = int(path.stem.rsplit("_", 1)[1])
        spent = sum(value for number, value in seconds.items() if number <= epoch) / 60
        table.append(row(f"epoch {epoch}", speak(voice, items), spent, loss.get(epoch, math.nan)))
    return table


def lines_to_speak(options: OwnVoiceOptions, project: Project, voice: Synthesizer) -> list[HeldOutLine]:
    """Return lines of --texts, or held-out clips with their recordings; at most --lines, spread over all."""
    if options.texts:
        lines = spread(read_phrases(options.texts), options.lines)
        return [HeldOutLine(line, None, "".join(voice.symbols(line))) for line in lines]
    rows = spread(read_filelist(project.validation_list), options.lines)
    return [make_held_out_line(row, str(project.root), voice.audio) for row in rows]


def speak(voice: Synthesizer, items: Sequence[HeldOutLine]) -> list[Rendition]:
    """Speak the lines through Griffin-Lim."""
    vocoders = {GRIFFIN_LIM: GriffinLimVocoder(voice.audio, voice.device, 0)}
    with torch.inference_mode():
        outputs = renditions_from_texts(items, voice.acoustic, vocoders, voice.audio, voice.device, False, 0)
    return outputs[GRIFFIN_LIM][0]


def summarise(name: str, system: System) -> VoiceRow:
    """Summarise the lines of a system."""
    counts = [line.counts["wer"] for line in system.lines]
    capped, likeness, _ = score(system)
    return VoiceRow(
        name,
        math.nan,
        math.nan,
        sum(count.errors for count in counts) / sum(count.count for count in counts),
        capped,
        statistics.fmean(line.values["mos"] for line in system.lines),
        round(sum(line.values.get("ran_to_limit", 0) for line in system.lines)),
        likeness,
    )


def report(rows: Sequence[VoiceRow], argv: Sequence[str], project: Project) -> str:
    """The table as Markdown, with the machine, the command and the date."""
    n_clips = len(read_filelist(project.training_list))
    formats = ("{}", "{:.1f}", "{:.3f}", "{:.1%}", "{:.1%}", "{:.2f}", "{}", "{:.3f}")
    cells = [[form.format(value).replace("nan", "-") for form, value in zip(formats, row, strict=True)] for row in rows]
    titles = ["", "minutes", "loss", "WER", "WER, lines capped", "MOS", "no stop", "likeness"]
    table = markdown_table("<" + ">" * (len(titles) - 1), titles, cells)
    return f"`{command_of('studio.own_voice', argv)}`, {stamp()}; {n_clips} training clips\n\n{table}"


if __name__ == "__main__":
    with exit_on_user_error():
        main()
