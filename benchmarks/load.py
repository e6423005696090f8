"""Measure a server under load, with batching and without.

Starts one server with batching and one without. Several clients at a time send one request after another until all requests of a
row are answered. Each answer's hash is compared with the stream of `Synthesizer` for the same text and seed: an answer that
differs counts as wrong, one that fails as lost. The table lists requests per second, seconds of audio per second, the time to the
first and to the last byte, and the server's resident memory at the start, at its peak and at the end of the row.

    python -m benchmarks.load                                           # 1 to 64 clients, batching on and off
    python -m benchmarks.load --clients 16 --requests 10000 --batching  # one long run
    python -m benchmarks.load --clients 4 --requests 1320 --pause 11.5 --batching  # an hour, a request in 3 s
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import asyncio
import contextlib
import hashlib
import json
import shlex
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import psutil
import torch

from benchmarks.latency import stamp
from common.arguments import positive, seconds
from common.audio.audio_processing import to_pcm
from common.errors import DataError, exit_on_user_error
from common.extras import require
from common.inference.voice_folder import default_vocoder
from common.options import argument, option, parse_options
from common.tables import markdown_table
from models import REGISTRY
from synthesizer import EMBEDDED, Line, SynthesisConfig, Synthesizer

if TYPE_CHECKING:
    import httpx

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
RATE = 22050  # Hz, of the embedded voice, so that its samples come unchanged
START = 300  # seconds within which a server is ready
REST = 1.0  # seconds between two readings of memory
NOTE = 300  # readings between two lines about a long row
MIB = 2**20


class SpeechJob(NamedTuple):
    """A request, and the hash and the seconds of its audio."""

    text: str
    seed: int
    digest: str
    seconds: float


class Reply(NamedTuple):
    """Seconds to the first byte and to the last one, and the result: right, wrong or lost."""

    first: float
    last: float
    result: str
    job: SpeechJob


class ClientsRow(NamedTuple):
    """The answers to a number of clients, the seconds they took, and the bytes of memory at the start, at most and at the end."""

    batching: bool
    clients: int
    answers: list[Reply]
    seconds: float
    memory: tuple[int, int, int]


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """The command's flags."""

    clients: list[int] = option([*CLIENTS], "numbers of simultaneous clients, one row each", nargs="+", type=positive)
    requests: int = option(128, "requests per row", type=positive)
    pause: float = option(0.0, "seconds that a client waits after an answer", type=seconds)
    batching: bool | None = option(
        None, "measure with or without batching only (default: both)", action=argparse.BooleanOptionalAction
    )
    vocoder: str = option(default_vocoder(EMBEDDED, REGISTRY.values()), "vocoder of the embedded voice")
    server: list[str] = argument("further flags of python -m serving", [], nargs="*", metavar="-- FLAGS")


def main(argv: list[str] | None = None) -> None:
    """Compute the expected audio, measure each row, print the table. Exit code 1 if an answer is wrong or lost."""
    argv = sys.argv[1:] if argv is None else argv
    options = parse_args(argv)
    require("bash scripts/serve.sh --install-only", "httpx", "fastapi", help_from="benchmarks.load")
    jobs = expected_jobs(options.vocoder)
    rows = []
    for batching in (True, False) if options.batching is None else (options.batching,):
        with serve(options, batching) as (url, process):
            for clients in options.clients:
                seconds, answers, memory = asyncio.run(measure(url, process, jobs, clients, options))
                rows.append(ClientsRow(batching, clients, answers, seconds, memory))
                rate = f"{len(answers) / seconds:.2f} requests/s"
                print(f"batching {'on' if batching else 'off'}, {clients} clients: {rate}", file=sys.stderr)
    print(report(rows, argv, options.vocoder))
    if faults := sum(answer.result != "right" for row in rows for answer in row.answers):
        raise DataError(f"{faults} answers are wrong or lost, expected none")


def expected_jobs(vocoder: str) -> list[SpeechJob]:
    """Speak each text with each seed by the library: the server's audio has to be the same, bit for bit."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads // 2))  # as in each of the server's two threads
    base = Synthesizer.embedded(config=SynthesisConfig(vocoder=vocoder), device="cpu")
    jobs = []
    for seed in range(SEEDS):
        for text in TEXTS:
            audio = torch.cat(list(base.with_settings(seed).stream_line(Line(text, seed))))
            data = to_pcm(audio).tobytes()
            jobs.append(SpeechJob(text, seed, hashlib.sha256(data).hexdigest(), len(audio) / base.audio.sampling_rate))
    torch.set_num_threads(threads)
    return jobs


@contextlib.contextmanager
def serve(options: LoadOptions, batching: bool) -> Iterator[tuple[str, psutil.Process]]:
    """Start a server and wait until it is ready; stop it at the end. Raises DataError where it does not start."""
    largest = 2 * max(options.clients)
    flags = ["--cpu", "--port", "0", "--no-page", "--max-queue", str(largest), "--vocoder", options.vocoder]
    flags += ["--batching" if batching else "--no-batching", "--timeout", "600", *options.server]
    process = subprocess.Popen([sys.executable, "-m", "serving", *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if '"port"' in line), "")
        if not line:
            raise DataError(f"python -m serving {shlex.join(flags)}: ends with exit code {process.wait()}")
        fields = json.loads(line)
        Thread(target=deque, args=(process.stdout, 0), daemon=True).start()  # a full pipe would stop the server
        url = f"http://{fields['host']}:{fields['port']}"
        wait_until_ready(url, process)
        yield url, psutil.Process(process.pid)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()


def wait_until_ready(url: str, process: subprocess.Popen[str]) -> None:
    """Wait until the server accepts requests. Raises DataError where it ends or takes too long."""
    import httpx

    deadline = time.monotonic() + START
    while httpx.get(f"{url}/readyz").status_code != 200:
        if process.poll() is not None or time.monotonic() > deadline:
            raise DataError(f"{url}: the server is not ready within {START} s")
        time.sleep(0.1)


async def measure(
    url: str, process: psutil.Process, jobs: Sequence[SpeechJob], clients: int, options: LoadOptions
) -> tuple[float, list[Reply], tuple[int, int, int]]:
    """Send all requests of a row; return the seconds, the answers, and bytes of memory as in ClientsRow."""
    import httpx

    numbers = iter(range(options.requests))
    answers: list[Reply] = []
    memory = [process.memory_info().rss]

    async def work() -> None:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as client:
            for number in numbers:  # one iterator for all: each request is sent once
                answers.append(await send(client, jobs[number % len(jobs)]))
                await asyncio.sleep(options.pause)

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
    return seconds, answers, (memory[0], max(*memory, last), last)


async def send(client: httpx.AsyncClient, job: SpeechJob) -> Reply:
    """Send one request and read its answer."""
    import httpx

    body = {"input": job.text, "seed": job.seed, "response_format": "pcm", "sample_rate": RATE}
    start = time.perf_counter()
    first, digest = 0.0, hashlib.sha256()
    try:
        async with client.stream("POST", "/v1/audio/speech", json=body) as response:
            async for data in response.aiter_raw():
                first = first or time.perf_counter() - start
                digest.update(data)
            result = "right" if digest.hexdigest() == job.digest else "wrong"
            if response.status_code != 200:
                result = "lost"
    except httpx.HTTPError:
        result = "lost"
    return Reply(first, time.perf_counter() - start, result, job)


def report(rows: Sequence[ClientsRow], argv: Sequence[str], vocoder: str) -> str:
    header = ["batching", "clients", "requests", "requests/s", "audio s/s", "first byte p50", "p99", "whole p50", "p99"]
    header += ["wrong", "lost", "memory MiB: start", "most", "end"]
    table = markdown_table("<" + ">" * (len(header) - 1), header, map(cells, rows))
    command = shlex.join(["python", "-m", "benchmarks.load", *argv])
    return f"{table}\n\n`{command}`, {vocoder}, {stamp()}. Times are in seconds."


def cells(row: ClientsRow) -> list[object]:
    right = [answer for answer in row.answers if answer.result == "right"] or [Reply(0, 0, "", SpeechJob("", 0, "", 0))]
    first, whole = [answer.first for answer in right], [answer.last for answer in right]
    counts = [sum(answer.result == result for answer in row.answers) for result in ("wrong", "lost")]
    audio = sum(answer.job.seconds for answer in right)
    times = [f"{value:.3f}" for values in (first, whole) for value in np.percentile(values, (50, 99))]
    rates = [f"{len(right) / row.seconds:.2f}", f"{audio / row.seconds:.1f}"]
    memory = [round(size / MIB) for size in row.memory]
    return ["on" if row.batching else "off", row.clients, len(row.answers), *rates, *times, *counts, *memory]


def parse_args(argv: list[str]) -> LoadOptions:
    return parse_options(LoadOptions, "python -m benchmarks.load", __doc__, argv)


if __name__ == "__main__":
    with exit_on_user_error():
        main()
