"""Loaders: an error in a worker process arrives unchanged in the main process. Clips and texts beyond the limits are one error."""

import contextlib
import errno
import gc
import itertools
import multiprocessing
import os
import resource
import signal
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile
import torch

import data_functions
from common.audio.stft import AudioConfig
from common.data.mels import mel_seconds, save_mel
from common.errors import DataError, UsageError
from common.run.distributed import Dist
from common.run.interrupt import StopRequest
from common.spec import Key
from common.training import loader
from common.training.arguments import parse_training_arguments
from common.training.options import DataConfig
from data_functions import get_dataset, get_loader, get_loaders
from models import REGISTRY
from tests.recipe import flags

RATE = 22050
CPU = Dist(0, 0, 1, torch.device("cpu"))


@pytest.fixture(autouse=True)
def no_workers_are_left():
    """PyTorch would wait for each in a later collection of garbage, for many seconds."""
    yield
    loader.end_workers()


@pytest.fixture
def options(tmp_path):
    for i in range(4):
        soundfile.write(tmp_path / f"{i}.wav", np.zeros(RATE), RATE)
    (tmp_path / "list.txt").write_text("".join(f"{i}.wav|text\n" for i in range(4)))
    return {"dataset_path": str(tmp_path), "batch_size": 1, "seed": 0, "bucket_batches": 0, "segment_length": 4000}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_bad_clip_is_a_one_line_error_in_any_process(options, tmp_path, workers):
    dataset = get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt")
    soundfile.write(tmp_path / "2.wav", np.zeros((RATE, 2)), RATE)  # after the check of all clips
    batches = iter(get_loader(dataset, DataConfig(num_workers=workers), 0, CPU, training=False))
    assert next(batches).names == (f"{tmp_path}/0.wav",)
    assert next(batches).audio.shape == (1, 4000)
    with pytest.raises(DataError, match="2 channels") as error:
        next(batches)
    assert str(error.value).startswith(f"{tmp_path}/2.wav: ")
    assert "Traceback" not in str(error.value)


class _Dying:
    """A batch that arrives as from a killed worker: the connection ends, and some time later the process."""

    def __reduce__(self) -> tuple:
        return _lose, (os.getpid(),)


class _Failing:
    def __reduce__(self) -> tuple:
        return _lose, (None,)


def _lose(worker: int | None) -> None:
    if worker:
        threading.Timer(0.3, _kill, (worker,)).start()
    raise ConnectionResetError(104, "Connection reset by peer")


def _kill(worker: int) -> None:
    with contextlib.suppress(ProcessLookupError):  # a second batch of the worker
        os.kill(worker, signal.SIGKILL)


# The worker may be counted as ended before the error of the connection is looked at, or after it.
LOST = r"^DataLoader worker .*: killed, or out of memory; lower --num-workers 1$"


def _fail(items: list) -> None:
    raise RuntimeError("a fault in the code")


@pytest.mark.parametrize(
    ("collate", "error", "message"),
    [
        (lambda items: _Dying(), DataError, LOST),
        (lambda items: _Failing(), ConnectionResetError, "Connection reset"),
        (_fail, RuntimeError, "a fault in the code"),
    ],
    ids=["a lost worker", "none lost", "a fault"],
)
def test_a_lost_connection_to_a_worker_that_has_ended_is_named(options, tmp_path, monkeypatch, collate, error, message):
    monkeypatch.setattr(loader, "LOST_AFTER", 5.0 if error is DataError else 0.2)
    with pytest.raises(error, match=message):
        next(iter(loader_with(collate, options, tmp_path)))


def loader_with(collate, options, folder):
    dataset = get_dataset(REGISTRY["WaveGlow"], options, folder / "list.txt")
    dataset.collate = collate
    return get_loader(dataset, DataConfig(num_workers=1), 0, CPU, training=False)


def test_a_worker_that_ends_in_a_later_epoch_is_named(options, tmp_path):
    calls, collate = itertools.count(1), get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt").collate
    loader = loader_with(lambda items: _Dying() if next(calls) > 4 else collate(items), options, tmp_path)
    assert len(list(loader)) == 4  # counted in the worker
    with pytest.raises(DataError, match=LOST):
        list(loader)


def test_each_process_needs_a_clip(tmp_path):
    words = [*flags("WaveGlow", tmp_path, training=1), "--seed", "1"]
    training, spec = parse_training_arguments(words, REGISTRY, "")
    message = "training.txt: 1 clip, expected at least one for each of 2 processes: lower the number of processes"
    with pytest.raises(DataError, match=message):
        get_loaders(spec, training, CPU._replace(world_size=2))


class _Unsendable:
    """A batch that does not fit into /dev/shm."""

    def __reduce__(self) -> tuple:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("folder", "batch", "reason", "advice"),
    [
        ("t", _Unsendable(), "[Errno 28] No space left on device", r".*--shm-size.*--num-workers"),
        ("t" * 115, torch.zeros(9), "AF_UNIX path too long", "set TMPDIR to a shorter path"),
    ],
)
def test_a_batch_that_cannot_be_handed_over_is_an_error(
    options, tmp_path, capfd, monkeypatch, folder, batch, reason, advice
):
    (tmp_path / folder).mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / folder))  # as TMPDIR sets it
    monkeypatch.delitem(multiprocessing.current_process()._config, "tempdir", raising=False)  # of an earlier test
    with pytest.raises(DataError, match=f"cannot hand over its batch, for the reason above; {advice}"):
        next(iter(loader_with(lambda items: batch, options, tmp_path)))
    assert f"a loader process cannot hand over a batch: {reason}\n" in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("stopped", [False, True])
def test_the_wait_for_a_batch_ends(options, tmp_path, monkeypatch, stopped):
    """With --timeout-minutes, or soon after a request to stop."""
    monkeypatch.setattr(data_functions, "STOP_WAIT", 2.0)
    dataset, stop = get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt"), StopRequest()
    dataset.collate = lambda items: time.sleep(60)
    dist = CPU._replace(timeout=timedelta(seconds=600 if stopped else 4 / data_functions.TIMEOUT_SHARE))
    stop.signal = signal.SIGTERM if stopped else None
    batches = get_loader(dataset, DataConfig(num_workers=1), 0, dist, training=False, stop=stop)
    with pytest.raises(DataError, match=f"^no batch for {2 if stopped else 4} seconds: the loader processes hang"):
        next(iter(batches))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_to_a_worker_that_starts(options, tmp_path, monkeypatch, capfd, number):
    """PyTorch's handler raises before its iterator knows its workers; signals of schedulers are for the main process."""
    start = loader.Worker.start
    monkeypatch.setattr(loader.Worker, "start", lambda self: start(self) or os.kill(self.pid, number))
    batches = get_loader(
        get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt"), DataConfig(num_workers=2), 0, CPU, False
    )
    if number == signal.SIGTERM:
        assert len(list(batches)) == 4
    else:
        with pytest.raises(DataError, match=LOST.replace("1", "2")):
            next(iter(batches))
    loader.end_workers()
    assert len(batches.workers) == 2 and all(worker.join() or worker.exitcode for worker in batches.workers)
    assert capfd.readouterr().err == ""


def test_too_few_open_files_are_one_error(options, tmp_path, capfd):
    batches = get_loader(
        get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt"), DataConfig(num_workers=3), 0, CPU, False
    )
    gc.collect()  # or the files of other tests' workers are closed while the limit holds
    limits, taken = resource.getrlimit(resource.RLIMIT_NOFILE), os.listdir("/proc/self/fd")
    free = [number for number in range(len(taken) + 12) if str(number) not in taken]
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[11] + 1, limits[1]))  # which counts numbers, gaps among them too
    try:
        with pytest.raises(
            DataError, match=r"^too many open files: raise the limit \(ulimit -n\), or lower --num-workers 3$"
        ):
            next(iter(batches))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert capfd.readouterr().err == ""
    assert batches.workers and all(worker.pid is None or worker.join() or worker.exitcode for worker in batches.workers)


def test_a_worker_leaves_the_signals_of_a_group_to_the_main_process(options, tmp_path):
    loader_of_one = get_loader(
        get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt"), DataConfig(num_workers=1), 0, CPU, False
    )
    batches = iter(loader_of_one)
    next(batches)
    (worker,) = loader_of_one.workers
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(worker.pid, number)
    next(batches)
    assert worker.is_alive()


@pytest.mark.parametrize(
    ("free", "processes", "workers"), [(10**9, 1, 3), (800_000, 1, 1), (800_000, 2, 0), (1_400_000, 1, 3), (100, 1, 0)]
)
def test_as_many_workers_as_fit_into_shared_memory(options, tmp_path, monkeypatch, free, processes, workers):
    """A segment has 4000 samples and 16 frames of 80 mels, each of 4 bytes: 21,120; a batch of 8 has 168,960."""
    dataset = get_dataset(REGISTRY["WaveGlow"], options, tmp_path / "list.txt")
    assert loader.size_of(dataset[Key(0, 0)]) == 21_120
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=free // 10, f_frsize=10))
    monkeypatch.setattr(loader, "SHARED_MEMORY", tmp_path)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(processes))
    assert loader.fitting_workers(dataset, 8, 3) == workers


OPTIONS = {"dataset_path": "", "n_mel_channels": 10}


def problems(model: str, folder: Path, rows: list[str], **options: object) -> list[str]:
    """Return the lines of the error about a filelist, without its name."""
    path = folder / "list.txt"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError) as error:
        get_dataset(REGISTRY[model], OPTIONS | options, path)
    return [line.removeprefix(f"{path}:") for line in str(error.value).splitlines()]


def sound(path: Path, samples: int, rate: int = 22050) -> Path:
    """Write a silent clip; one of hours is a header and a hole in the file, no matter how long."""
    with soundfile.SoundFile(path, "w", rate, 1) as file:
        file.seek(0)
        file.write(np.zeros(min(samples, 1), "int16"))
    content = bytearray(path.read_bytes()[:44])
    content[40:44] = (2 * samples).to_bytes(4, "little")
    content[4:8] = (36 + 2 * samples).to_bytes(4, "little")
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(44 + 2 * samples)
    return path


def test_bad_rows_of_tacotron_2_all_at_once(tmp_path: Path) -> None:
    good, hours, short = (
        sound(tmp_path / f"{name}.wav", n) for name, n in (("good", 33_075), ("hours", 158_760_000), ("short", 512))
    )
    other = sound(tmp_path / "other.wav", 40_000, rate=8000)
    rows = [f"{good}|fine", f"{hours}|long", f"{good}|{'word ' * 200_000}", f"{short}|a", f"{other}|b"]
    assert problems("Tacotron2", tmp_path, rows) == [
        f"2: {hours}: 7200.0 s, expected at most 60 s (--longest-clip): cut it, or raise the limit",
        f"3: {good}: a text of 999999 symbols for 1.50 s, expected at most 90 (60 a second, --symbols-per-second): "
        "is it the text of this clip?",
        f"4: {short}: 512 samples, expected at least 513: drop the clip or lengthen it with silence",
        f"5: {other}: 8000 Hz, expected 22050 Hz: resample it, for instance with `ffmpeg -ar 22050`, or set --sampling-rate",
    ]


def test_bad_rows_of_waveglow_all_at_once(tmp_path: Path) -> None:
    hours, short, a_frame = (sound(tmp_path / f"{n}.wav", n) for n in (158_760_000, 255, 256))
    assert problems("WaveGlow", tmp_path, [f"{hours}|long", f"{short}|a", f"{a_frame}|b"]) == [
        f"1: {hours}: 7200.0 s, expected at most 600 s (--longest-clip): cut it, or raise the limit",
        f"2: {short}: 255 samples, expected at least 256: drop the clip or lengthen it with silence",
    ]


def test_stored_mels_have_the_same_limits(tmp_path: Path) -> None:
    paths = {name: tmp_path / f"{name}.pt" for name in ("good", "long", "none")}
    for name, frames in (("good", 129), ("long", 10_000), ("none", 0)):
        save_mel(paths[name], torch.zeros(10, frames))
    rows = [f"{paths['good']}|fine", f"{paths['long']}|long", f"{paths['good']}|{'word ' * 20}", f"{paths['none']}|a"]
    found = problems("Tacotron2", tmp_path, rows, load_mel_from_disk=True)
    assert found[0].startswith(f"2: {paths['long']}: 116.") and "(--longest-clip)" in found[0]
    assert found[1].startswith(f"3: {paths['good']}: a text of 99 symbols for 1.50 s, expected at most 90 ")
    assert found[2] == f"4: {paths['none']}: (10, 0), expected a mel of shape (10, frames)"
    assert mel_seconds(paths["good"], AudioConfig(n_mel_channels=10)) == 129 * 256 / 22050


def test_a_clip_as_long_as_the_limit_is_accepted(tmp_path: Path) -> None:
    rows = [f"{sound(tmp_path / f'{samples}.wav', samples)}|words" for samples in (22050, 22051)]
    assert [line.partition(":")[0] for line in problems("Tacotron2", tmp_path, rows, longest_clip=1.0)] == ["2"]


@pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
def test_a_higher_limit_accepts_the_clip(tmp_path: Path, model: str) -> None:
    long = sound(tmp_path / "long.wav", 601 * 22050)
    (tmp_path / "list.txt").write_text(f"{long}|words\n")
    assert len(get_dataset(REGISTRY[model], OPTIONS | {"longest_clip": 601.5}, tmp_path / "list.txt")) == 1
    for limit in (0, float("nan")):
        with pytest.raises(UsageError, match=r"--longest-clip: .*, expected more than 0"):
            get_dataset(REGISTRY[model], OPTIONS | {"longest_clip": limit}, tmp_path / "list.txt")
