"""Measure studio.prepare on real speech: Asterisk's prompts joined to long recordings with pauses of random length.

    python -m benchmarks.studio.prepare                    # needs ffmpeg and, to fetch the prompts, apt
    python -m benchmarks.studio.prepare --no-transcripts   # the recogniser writes the texts
    python -m benchmarks.studio.prepare --noise 30         # with noise 30 dB below the speech

The prompts are 24 minutes of speech by one speaker. The command gets no true boundaries; with transcripts it gets one text
without times for each recording. The report counts prompts whose speech lies within one clip, clips that begin and end at prompts,
and wrong words of these clips against the true texts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studio.asterisk import Joining, Prompt, join_prompts
from common.arguments import LineHelpFormatter, positive
from common.errors import exit_on_user_error
from common.options import add_fields, from_options
from common.parser import Parser
from common.quality.words import word_errors
from studio.prepare import __main__ as prepare
from studio.prepare.review import ClipRow, read_proposals
from studio.project import Project

SLACK = 0.15  # seconds by which a clip may begin or end beside the speech


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command's flags."""
    parser = Parser(
        prog="python -m benchmarks.studio.prepare",
        description=__doc__,
        allow_abbrev=False,
        formatter_class=LineHelpFormatter,
    )
    add = parser.add_argument
    add("-o", "--output", type=Path, default=Path("output/prepare_benchmark"), help="output folder, emptied first")
    add_fields(parser, Joining)
    fill = "let the command fill the digital silence between the prompts"
    add("--fill-silence", action=argparse.BooleanOptionalAction, default=True, help=fill)
    add("--num-workers", type=positive, default=os.cpu_count() or 1, help="processes")
    return parser.parse_args(argv)


def report(truth: dict[str, list[Prompt]], rows: Sequence[ClipRow], duration: float) -> None:
    """Print the counts."""
    n_prompts = whole = exact = errors = words = used_errors = used_words = right = n_used = 0
    for recording, prompts in truth.items():
        clips = [row for row in rows if row.recording == recording]
        n_prompts += len(prompts)
        spans = [(float(row.start) - SLACK, float(row.end) + SLACK) for row in clips]
        whole += sum(any(start <= p.start and p.end <= end for start, end in spans) for p in prompts)
        for row, (start, end) in zip(clips, spans, strict=True):
            inside = [p for p in prompts if p.start < end - SLACK and p.end > start + SLACK]
            complete = all(start <= p.start and p.end <= end for p in inside)
            exact += complete
            text = " ".join(p.text for p in inside)
            if not complete or not text:
                continue
            count = word_errors(text, row.text)
            errors, words = errors + count.errors, words + count.count
            if row.use == "yes":
                n_used += 1
                right += row.text.split() == " ".join(text.replace("|", " ").split()).split()
                used_errors, used_words = used_errors + count.errors, used_words + count.count
    seconds = sum(prompts[-1].end for prompts in truth.values())
    print(f"{len(truth)} recordings, {seconds / 60:.1f} minutes, {n_prompts} prompts; {len(rows)} clips")
    print(f"prompts whose speech lies within one clip: {whole} ({100 * whole / n_prompts:.1f} %)")
    print(f"clips that begin and end at prompts: {exact} ({100 * exact / len(rows):.1f} %)")
    print(f"wrong words in these clips: {100 * errors / words:.2f} % of {words}")
    print(f"of these in use: {n_used}, wrong words {100 * used_errors / used_words:.2f} %, without an error {right}")
    print(f"time: {duration:.0f} s, {seconds / duration:.1f} times real time, {os.cpu_count()} cores")


def main(argv: list[str] | None = None) -> None:
    """Join the prompts, run the command on them, and compare."""
    args = parse_args(argv)
    shutil.rmtree(args.output, ignore_errors=True)
    folder = args.output / "recordings"
    folder.mkdir(parents=True)
    truth = join_prompts(from_options(Joining, vars(args)), folder)
    projects = args.output / "projects"
    start = time.perf_counter()
    words = [str(folder), "--name", "benchmark", "--projects", str(projects), "--num-workers", str(args.num_workers)]
    prepare.main([*words, *([] if args.fill_silence else ["--no-fill-silence"])])
    duration = time.perf_counter() - start
    project = Project(name="benchmark", projects=projects)
    report(truth, read_proposals(project.state / prepare.PROPOSALS), duration)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
