"""Measure a server under load: python -m benchmarks.load [--clients 1 4 16] [--requests 64] [-- flags of python -m serving].

Starts a server with and one without batching. Some clients at once each send one request after the other until all requests of a
row are answered. The hash of each answer is compared with the stream of `Synthesizer` for the same text and seed: an answer that
differs counts as wrong, one that fails as lost. The table has requests a second, seconds of audio a second, the time to the first
byte and to the last one, and the resident memory of the server at the start, at most and at the end of the row.

    python -m benchmarks.load                                           # 1 to 64 clients, batching on and off
    python -m benchmarks.load --clients 16 --requests 10000 --batching  # one long run
    python -m benchmarks.load --clients 4 --requests 1320 --pause 11.5 --batching  # an hour, a request in 3 s
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import datetime
import hashlib
import json
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import httpx
import numpy as np
import psutil
import torch

from benchmarks.machine import cpu_name
from common.arguments import HelpFormatter, positive, seconds
from common.audio.audio_processing import to_pcm
from common.errors import DataError, exit_on_user_error
from common.inference.config import GRIFFIN_LIM
from common.parser import Parser
from common.tables import markdown_table
from synthesizer import Line, SynthesisConfig, Synthesizer

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = (1, 2, 4, 8, 16, 32, 64)
TEXTS = (
    "The ferry waits until noon, and then it leaves for the other side.",
    "Good morning, it is half past seven.",
    "The market opens early on Saturday, and the people come from all over the bay.",
    "Please leave your name and your number after the tone.",
    "Two small boats lie in the harbour.",
    "The train to the city leaves from platform nine in ten minutes.",
    "It will rain in the evening, so take a coat with you.",
    "Thank you very much for your help.",
)
SEEDS = 4  # of each text
START = 300  # seconds within which a server is ready
REST = 1.0  # seconds between two readings of memory
NOTE = 300  # readings between two lines about a long row
MIB = 2**20


class Job(NamedTuple):
    """A request, and the hash and the seconds of its audio."""

    text: str
    seed: int
    digest: str
    seconds: float


class Answer(NamedTuple):
    """Seconds to the first byte and to the last one, and the result: right, wrong or lost."""

    first: float
    last: float
    result: str
    job: Job


class Row(NamedTuple):
    """The answers of one number of clients, the seconds that they took, and bytes of memory: start, most, end."""

    batching: bool
    clients: int
    answers: list[Answer]
    seconds: float
    memory: tuple[int, int, int]


def main(argv: list[str] | None = None) -> None:
    """Compute the expected audio, measure each row, print the table. Exit code 1 where an answer is wrong or lost."""
    words = sys.argv[1:] if argv is None else argv
    args = parse_args(words)
    jobs = expected_jobs(args.vocoder)
    rows = []
    for batching in (True, False) if args.batching is None else (args.batching,):
        with serve(args, batching) as (url, process):
            for clients in args.clients:
                rows.append(asyncio.run(measure(url, process, jobs, clients, args.requests, batching, args.pause)))
                print(progress(rows[-1]), file=sys.stderr)
    print(report(rows, words, args.vocoder))
    if faults := sum(answer.result != "right" for row in rows for answer in row.answers):
        raise DataError(f"{faults} answers are wrong or lost, expected none")


def expected_jobs(vocoder: str) -> list[Job]:
    """Speak each text with each seed by the library: the server's audio has to be the same, bit for bit."""
    base = Synthesizer.embedded(config=SynthesisConfig(vocoder=vocoder), device="cpu")
    jobs = []
    for seed in range(SEEDS):
        for text in TEXTS:
            audio = torch.cat(list(base.with_settings(seed).stream_line(Line(text, seed))))
            data = to_pcm(audio).tobytes()
            jobs.append(Job(text, seed, hashlib.sha256(data).hexdigest(), len(audio) / base.audio.sampling_rate))
    return jobs


@contextlib.contextmanager
def serve(args: argparse.Namespace, batching: bool) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server and wait until it is ready; stop it at the end. Raises DataError where it does not start."""
    largest = 2 * max(args.clients)
    flags = ["--cpu", "--port", "0", "--no-page", "--max-queue", str(largest), "--vocoder", args.vocoder]
    flags += ["--batching" if batching else "--no-batching", "--timeout", "600", *args.server]
    process = subprocess.Popen([sys.executable, "-m", "serving", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise DataError(f"python -m serving {shlex.join(flags)}: ends with exit code {process.wait()}")
        fields = json.loads(line)
        Thread(target=drain, args=(process.stdout,), daemon=True).start()  # a full pipe would stop the server
        url = f"http://{fields['host']}:{fields['port']}"
        wait_until_ready(url, process)
        yield url, psutil.Process(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def drain(lines: Iterable[str]) -> None:
    """Read lines to their end."""
    for _ in lines:
        pass


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    """Wait until the server accepts requests. Raises DataError where it ends or takes too long."""
    deadline = time.monotonic() + START
    while httpx.get(f"{url}/readyz").status_code != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            raise DataError(f"{url}: the server is not ready within {START} s")
        time.sleep(0.1)


async def measure(
    url: str, process: psutil.Process, jobs: Sequence[Job], clients: int, requests: int, batching: bool, pause: float
) -> Row:
    """Send all requests of a row from so many clients, each of which rests `pause` seconds after an answer."""
    numbers = iter(range(requests))
    answers: list[Answer] = []
    memory = [process.memory_info().rss]

    async def work() -> None:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
            for number in numbers:  # one iterator for all: each request is sent once
                answers.append(await send(client, jobs[number % len(jobs)]))
                await asyncio.sleep(pause)

    async def watch() -> None:
        while True:
            memory.append(process.memory_info().rss)
            if len(memory) % NOTE == 0:
                wrong = sum(answer.result != "right" for answer in answers)
                note = f"{time.perf_counter() - start:.0f} s: {len(answers)} answers, {wrong} wrong or lost"
                print(f"{note}, {memory[-1] / MIB:.1f} MiB", file=sys.stderr, flush=True)
            await asyncio.sleep(REST)

    start = time.perf_counter()
    watcher = asyncio.ensure_future(watch())
    await asyncio.gather(*(work() for _ in range(clients)))
    seconds = time.perf_counter() - start
    watcher.cancel()
    last = process.memory_info().rss
    return Row(batching, clients, answers, seconds, (memory[0], max(*memory, last), last))


async def send(client: httpx.AsyncClient, job: Job) -> Answer:
    """Send one request and read its answer."""
    body = {"input": job.text, "seed": job.seed, "response_format": "pcm"}
    start = time.perf_counter()
    first, digest = 0.0, hashlib.sha256()
    try:
        async with client.stream("POST", "/v1/audio/speech", json=body) as response:
            async for data in response.aiter_raw():
                first = first or time.perf_counter() - start
                digest.update(data)
            result = "lost" if response.status_code != 200 else "right" if digest.hexdigest() == job.digest else "wrong"
    except httpx.HTTPError:
        result = "lost"
    return Answer(first, time.perf_counter() - start, result, job)


def progress(row: Row) -> str:
    """Return a line about a row."""
    rate = len(row.answers) / row.seconds
    return f"batching {'on' if row.batching else 'off'}, {row.clients} clients: {rate:.2f} requests/s"


def report(rows: Sequence[Row], words: Sequence[str], vocoder: str) -> str:
    """Return the table, with machine, command and date."""
    header = ["batching", "clients", "requests", "requests/s", "audio s/s", "first byte p50", "p99", "whole p50", "p99"]
    header += ["wrong", "lost", "memory MiB: start", "most", "end"]
    note = f"{cpu_name()}, {torch.get_num_threads()} threads, PyTorch {torch.__version__}, {vocoder}"
    command = shlex.join(["python", "-m", "benchmarks.load", *words])
    table = markdown_table("<" + ">" * (len(header) - 1), header, map(cells, rows))
    return f"{table}\n\n`{command}`, {note}, {datetime.date.today().isoformat()}. Times are in seconds."


def cells(row: Row) -> list[object]:
    """Return the cells of a row."""
    right = [answer for answer in row.answers if answer.result == "right"] or [Answer(0, 0, "", Job("", 0, "", 0))]
    first, whole = [answer.first for answer in right], [answer.last for answer in right]
    counts = [sum(answer.result == result for answer in row.answers) for result in ("wrong", "lost")]
    audio = sum(answer.job.seconds for answer in right)
    times = [f"{value:.3f}" for values in (first, whole) for value in (statistics.median(values), p99(values))]
    rates = [f"{len(right) / row.seconds:.2f}", f"{audio / row.seconds:.1f}"]
    memory = [round(size / MIB) for size in row.memory]
    return ["on" if row.batching else "off", row.clients, len(row.answers), *rates, *times, *counts, *memory]


def p99(values: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return float(np.percentile(values, 99))


def parse_args(argv: list[str]) -> argparse.Namespace:
    """Parse all flags."""
    parser = Parser(
        prog="python -m benchmarks.load", description=__doc__, formatter_class=HelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add(
        "--clients",
        type=positive,
        nargs="+",
        default=CLIENTS,
        help="numbers of clients at once, a row of the table each",
    )
    add("--requests", type=positive, default=128, help="of each row")
    add("--pause", type=seconds, default=0.0, help="seconds that a client rests after an answer")
    add("--batching", action=argparse.BooleanOptionalAction, help="measure with or without alone (default: both)")
    add("--vocoder", default=GRIFFIN_LIM, help="of the embedded voice")
    add("server", nargs="*", metavar="-- FLAGS", help="further flags of python -m serving")
    return parser.parse_args(argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
