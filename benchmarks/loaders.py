"""Time the data loaders of both models from wav files and stored mels, and count the processes that a GPU's step rate needs.

    python -m benchmarks.loaders                        # 0, 1, 2 and as many loader processes as cores
    python -m benchmarks.loaders --workers 4 8 --clips 200

The clips are noise with LJSpeech's lengths, written to a temporary folder. The first epoch starts the processes and fills the file
cache; the second one is measured. On a busy machine, compare items per core-second. The goal is ten times the published rate of one
A100.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.cases import AUDIO, clips
from benchmarks.sizes import MARK, PUBLISHED
from common.arguments import positive
from common.data.mels import prepare_mels
from common.errors import exit_on_user_error
from common.parser import Parser
from common.run.distributed import Dist
from common.tables import markdown_table
from common.training.arguments import parse_training_arguments
from common.training.sampler import sampler_of
from data_functions import get_dataset, get_loader
from models import RECIPE, REGISTRY

QUICK_CLIPS = 8
GOALS = {model: 10 * rate for (model, _), rate in PUBLISHED.items()}
TITLES = ["loader", "from", "processes", "items/s", "a second of a core", "share of the goal", "cores at the goal"]


def write_corpus(folder: Path, count: int) -> dict[tuple[str, str], Path]:
    """Write wav files, their mels and filelists -> the filelist of each model and source."""
    import soundfile  # imported here, so that benchmarks.gpu can check first whether it is installed

    for name in ("wavs", "mels"):
        (folder / name).mkdir()
    torch.manual_seed(0)
    lengths, generator = clips(count, 1, None).mel_lengths.tolist(), np.random.default_rng(0)
    wavs = [folder / "wavs" / f"{number}.wav" for number in range(count)]
    for path, frames in zip(wavs, lengths, strict=True):
        noise = 0.1 * generator.standard_normal(frames * AUDIO.hop_length)
        soundfile.write(path, noise.clip(-1, 1), AUDIO.sampling_rate, subtype="PCM_16")
    mels = [folder / "mels" / f"{path.stem}.pt" for path in wavs]
    prepare_mels(list(zip(wavs, mels, strict=True)), AUDIO, os.cpu_count() or 1)
    lists = {}
    for name, paths in (("wavs", wavs), ("mels", mels)):
        lists[name] = folder / f"{name}.txt"
        lists[name].write_text("".join(f"{path}|a line of text\n" for path in paths), encoding="utf-8")
    sources = {(model, source): lists["wavs"] for model in RECIPE for source in ("wav", "stored mels")}
    return sources | {("Tacotron2", "stored mels"): lists["mels"]}


def measure(model: str, source: str, filelist: Path, workers: int, batch_size: int) -> dict[str, Any]:
    """Items per second of one epoch with `workers` processes; with 0, in this one, per core-second too."""
    words = ["-m", model, "-bs", str(batch_size), "--num-workers", str(workers), "--training-files", str(filelist)]
    words += ["--seed", "0", *["--load-mel-from-disk"] * (source != "wav")]
    options, _ = parse_training_arguments(words, REGISTRY, "")
    dataset, dist = get_dataset(model, options.flat, filelist), Dist(0, 0, 1, torch.device("cpu"))
    loader = get_loader(dataset, options.data, 0, dist, True)
    for epoch in range(2):
        sampler_of(loader).start_at(epoch, 0)
        start, on_cpu = time.perf_counter(), time.process_time()
        items = sum(float(batch.num_items) for batch in loader)
        seconds, on_cpu = time.perf_counter() - start, time.process_time() - on_cpu
    rate, of_core = items / seconds, None if workers else items / on_cpu
    needed = math.ceil(GOALS[model] / (of_core or rate / workers))
    return {
        "model": model, "source": source, "workers": workers, "items_per_sec": rate, "per_cpu_sec": of_core, "needed": needed
    }  # fmt: skip


def cells(row: Mapping[str, Any]) -> list[str]:
    """The cells under TITLES of one measurement."""
    rate, goal = row["items_per_sec"], GOALS[row["model"]]
    workers = str(row["workers"]) if row["workers"] else "none"
    of_core = f"{row['per_cpu_sec']:,.0f}" if row["per_cpu_sec"] else ""
    rates = [f"{rate:,.0f}", of_core, f"{100 * rate / goal:.0f} %"]
    return [row["model"], row["source"], workers, *rates, str(row["needed"])]


def main(argv: list[str] | None = None) -> None:
    """Measure; print the table, and the figures as a line of JSON."""
    args = parse_args(sys.argv[1:] if argv is None else argv)
    torch.set_num_threads(1)  # as in a loader process
    figures = []
    with tempfile.TemporaryDirectory() as name:
        for (model, source), filelist in write_corpus(Path(name), args.clips).items():
            for workers in args.workers:
                figures.append(measure(model, source, filelist, workers, args.batch_size))
                print(figures[-1], file=sys.stderr, flush=True)
    print(markdown_table("<<" + ">" * (len(TITLES) - 2), TITLES, [cells(row) for row in figures]))
    print(MARK + json.dumps({"rows": figures}))


def parse_args(argv: list[str]) -> argparse.Namespace:
    """The command's flags."""
    parser = Parser(
        prog="python -m benchmarks.loaders",
        description=(__doc__ or "").partition("\n")[0],
    )
    add, cores = parser.add_argument, os.cpu_count() or 1
    add(
        "--workers",
        type=positive,
        nargs="+",
        default=sorted({1, 2, cores}),
        help="loader processes, besides none",
    )
    add("--clips", type=positive, default=128, help="clips per epoch")
    add("-bs", "--batch-size", type=positive, default=8, help="clips per batch")
    add("--quick", action="store_true", help="a few clips, to try the command: the figures mean nothing")
    args = parser.parse_args(argv)
    if args.quick:
        args.clips, args.batch_size, args.workers = QUICK_CLIPS, 2, [1]
    args.workers = [0, *args.workers]
    return args


if __name__ == "__main__":
    with exit_on_user_error():
        main()
