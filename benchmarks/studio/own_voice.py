"""Measure how a voice adapts to another speaker, minute by minute: Asterisk's prompts, from recordings to checkpoints.

    python -m benchmarks.studio.own_voice --minutes 60  # prepare, plan, train Tacotron 2, measure each report's checkpoint
    python -m benchmarks.studio.own_voice                          # again: goes on where it was stopped
    python -m benchmarks.studio.own_voice --no-train --texts FILE  # measure on other texts
    python -m benchmarks.studio.own_voice --no-train               # measure the checkpoints at hand

The recordings are those of benchmarks.studio.prepare: 24 minutes of one speaker, each with its text. Held-out lines are spoken
through Griffin-Lim. The table has wrong words, wrong words where no line counts above 100 %, the predicted opinion, lines that
reached the frame limit, and the likeness of the speaker: the cosine of a line's embedding with the mean of the training clips.
"""

from __future__ import annotations

import argparse
import datetime
import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import soundfile
import torch

from benchmarks.machine import cpu_name
from benchmarks.studio.prepare import join_prompts
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
from common.parser import Parser
from common.quality.evaluators import VoiceEmbedder
from common.quality.report import System, capped_error_rate
from common.run.interrupt import StopRequest
from common.run.nvlog import read_log
from common.tables import markdown_table
from common.training.checkup import make_held_out_line, spread
from models import REGISTRY
from studio.plan import __main__ as planning
from studio.plan.commands import train_argv
from studio.plan.file import read_plan
from studio.plan.proposal import SHARES
from studio.prepare import __main__ as prepare
from studio.project import Project
from studio.train.process import RunEnding, run_training
from synthesizer import Synthesizer, choose_checkpoints

NAME = "asterisk"
ACOUSTIC = next(spec for spec in REGISTRY.values() if spec.role == "acoustic")
SECONDS, LOSS = "train_epoch_time", "val_loss"  # keys of the log; validation and checkpoints take more time
ROOM = 50.0  # dB of noise below the speech
KEEP = 10_000  # all checkpoints
CLIPS = 40  # of the training set, for the mean embedding
SHORTEST = 0.5  # seconds of audio that has an embedding


class Row(NamedTuple):
    """The figures of one checkpoint or anchor; `minutes` and `loss` are nan where it has none."""

    name: str
    minutes: float
    loss: float
    wrong: float
    capped: float
    opinion: float
    endless: int
    likeness: float


def main(argv: list[str] | None = None) -> None:
    """Prepare, plan and train what is missing, then measure every checkpoint and print the table."""
    words = sys.argv[1:] if argv is None else argv
    args = parse_args(words)
    project = Project(name=NAME, projects=args.output / "projects")
    if args.train:
        set_up(args, project)
        train(args, project)
    rows = measure(args, project)
    print(report(rows, words, project))


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m benchmarks.studio.own_voice",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=LineHelpFormatter,
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("output/own_voice_benchmark"), help="folder of the project")
    add("--asterisk", type=Path, default=Path("asterisk"), help="folder of the prompts, fetched where missing")
    add("--minutes", type=positive, default=60, metavar="M", help="of training, on which the plan is made")
    add("--threads", type=positive, metavar="N", help="of training; default: those of the plan")
    texts = "a text file with a line each to speak, in place of held-out clips"
    add("--texts", type=Path, metavar="FILE", help=texts)
    add("--lines", type=positive, default=20, metavar="N", help="held-out lines, at most")
    add("--every", type=positive, default=1, metavar="N", help="measure every Nth checkpoint, and the last")
    add("--train", action=argparse.BooleanOptionalAction, default=True, help="train before the measurement")
    add("--freeze", action=argparse.BooleanOptionalAction, default=True, help="freeze what the plan freezes")
    add("--seed", type=seed, default=1, help="of the order and the pauses of the prompts, and of the training")
    add("--num-workers", type=positive, default=2, help="processes of studio.prepare")
    args = parser.parse_args(argv)
    # Of benchmarks.studio.prepare. A quiet room in the pauses: digital silence is far from all training data.
    args.recordings, args.transcripts, args.noise = 2, True, ROOM
    return args


def set_up(args: argparse.Namespace, project: Project) -> None:
    """Join the prompts, prepare and plan, unless the project has its plan."""
    if project.plan.exists():
        return
    folder = args.output / "recordings"
    folder.mkdir(parents=True, exist_ok=True)
    join_prompts(args, folder)
    prepare.main(
        [str(folder), "--name", NAME, "--projects", str(project.projects), "--num-workers", str(args.num_workers)]
    )
    budget = str(args.minutes / SHARES[ACOUSTIC.role])  # of both models
    planning.main([NAME, "--projects", str(project.projects), "--cpu", "--seed", str(args.seed), "--minutes", budget])


def train(args: argparse.Namespace, project: Project) -> None:
    """Train Tacotron 2 by the plan, a report and a checkpoint each epoch, for what is left of the minutes."""
    plan = read_plan(project.plan)
    settings = replace(plan.models[ACOUSTIC.name], report_every=1, report_lines=1, best_by="loss", patience=KEEP)
    if not args.freeze:
        options = {name: value for name, value in settings.options.items() if name != "freeze"}
        settings = replace(settings, options=options)
    plan = replace(plan, models={ACOUSTIC.name: settings})
    words = [*train_argv(ACOUSTIC.name, plan, project), "--keep-checkpoints", str(KEEP)]
    left = 60 * args.minutes - sum(epoch_values(project, SECONDS).values())
    if left <= 0:
        return
    with StopRequest() as stop:
        ending = run_training(words, args.threads or plan.threads, left, stop, lambda seconds: None)
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


def measure(args: argparse.Namespace, project: Project) -> list[Row]:
    """Measure the recordings, the embedded voice and the checkpoints on the same lines."""
    found = find_all(project.run(ACOUSTIC.name), ACOUSTIC.name)  # the newest first, through a link
    checkpoints = [path.resolve() for path in reversed(found)]
    if not checkpoints:
        raise DataError(f"{project.run(ACOUSTIC.name)}: no checkpoint; run without --no-train")
    chosen = checkpoints[:: args.every] + checkpoints[-1:] * ((len(checkpoints) - 1) % args.every > 0)
    base = Synthesizer.embedded(config=SynthesisConfig(vocoder=GRIFFIN_LIM), device="cpu")
    items = lines_to_speak(args, project, base)
    evaluators, embed = Evaluators(["asr", "mos"]), VoiceEmbedder()
    speaker = speaker_embedding(project, embed)
    seconds, loss = epoch_values(project, SECONDS), epoch_values(project, LOSS)

    def row(name: str, renditions: list[Rendition], at: float = math.nan, value: float = math.nan) -> Row:
        system = evaluate_system(name, items, renditions, math.nan, evaluators, base.audio.sampling_rate)
        line = summarise(name, system, speaker, embed, base.audio.sampling_rate)
        print(f"{line}", file=sys.stderr, flush=True)
        return line._replace(minutes=at, loss=value)

    table = [] if args.texts else [row("recordings", recordings(items))]
    table.append(row("embedded voice", speak(base, items), 0.0))
    for path in chosen:
        voice = Synthesizer.from_choice(
            choose_checkpoints({ACOUSTIC.flag: path}, GRIFFIN_LIM),
            config=SynthesisConfig(vocoder=GRIFFIN_LIM),
            device="cpu",
        )
        epoch = int(path.stem.rsplit("_", 1)[1])
        spent = sum(value for number, value in seconds.items() if number <= epoch) / 60
        table.append(row(f"epoch {epoch}", speak(voice, items), spent, loss.get(epoch, math.nan)))
    return table


def lines_to_speak(args: argparse.Namespace, project: Project, voice: Synthesizer) -> list[HeldOutLine]:
    """Return lines of --texts, or held-out clips with their recordings; at most --lines, spread over all."""
    if args.texts:
        lines = spread(read_phrases(args.texts), args.lines)
        return [HeldOutLine(line, None, "".join(voice.symbols(line))) for line in lines]
    rows = spread(read_filelist(project.validation_list), args.lines)
    return [make_held_out_line(row, str(project.root), voice.audio) for row in rows]


def speak(voice: Synthesizer, items: Sequence[HeldOutLine]) -> list[Rendition]:
    """Speak the lines through Griffin-Lim."""
    vocoders = {GRIFFIN_LIM: GriffinLimVocoder(voice.audio, voice.device, 0)}
    with torch.inference_mode():
        outputs = renditions_from_texts(items, voice.acoustic, vocoders, voice.audio, voice.device, False, 0)
    return outputs[GRIFFIN_LIM][0]


def speaker_embedding(project: Project, embed: VoiceEmbedder) -> np.ndarray:
    """Return the mean embedding of some training clips, of length 1."""
    clips = [soundfile.read(project.root / row.path) for row in spread(read_filelist(project.training_list), CLIPS)]
    total = np.sum([embed(audio, rate) for audio, rate in clips if len(audio) > SHORTEST * rate], axis=0)
    mean: np.ndarray = total / np.linalg.norm(total)
    return mean


def summarise(name: str, system: System, speaker: np.ndarray, embed: VoiceEmbedder, rate: int) -> Row:
    """Summarise the lines of a system."""
    counts = [line.counts["wer"] for line in system.lines]
    total = sum(count.count for count in counts)
    return Row(
        name,
        math.nan,
        math.nan,
        sum(count.errors for count in counts) / total,
        capped_error_rate(system),
        statistics.fmean(line.values["mos"] for line in system.lines),
        round(sum(line.values.get("ran_to_limit", 0) for line in system.lines)),
        statistics.fmean(
            float(embed(line.sound, rate) @ speaker) for line in system.lines if len(line.sound) > SHORTEST * rate
        ),
    )


def report(rows: Sequence[Row], words: Sequence[str], project: Project) -> str:
    """Write the table as Markdown, with the machine, the command and the date."""
    n_clips = len(read_filelist(project.training_list))
    head = f"{cpu_name()}, {datetime.date.today():%-d %B %Y}, `python -m benchmarks.studio.own_voice {' '.join(words)}`"
    cells = [
        [
            row.name,
            "-" if math.isnan(row.minutes) else f"{row.minutes:.1f}",
            "-" if math.isnan(row.loss) else f"{row.loss:.3f}",
            f"{100 * row.wrong:.1f}",
            f"{100 * row.capped:.1f}",
            f"{row.opinion:.2f}",
            f"{row.endless}",
            f"{row.likeness:.3f}",
        ]
        for row in rows
    ]
    titles = ["", "minutes", "loss", "WER %", "WER %, lines capped", "MOS", "no stop", "likeness"]
    return f"{head}; {n_clips} training clips\n\n{markdown_table('<' + '>' * (len(titles) - 1), titles, cells)}"


if __name__ == "__main__":
    with exit_on_user_error():
        main()
