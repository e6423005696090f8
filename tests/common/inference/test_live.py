"""Sound for a listener: the bytes, and listeners who leave or cannot be reached."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from common.errors import DataError
from common.inference.live import Live


def test_samples_are_written_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "sound"
    with Live(path) as live:
        assert live.first is None
        live(torch.zeros(0))
        assert live.first is None
        live(torch.tensor([0.5, -1.0, 2.0]))
        assert path.read_bytes() == bytes.fromhex("00400080ff7f")
        assert live.first is not None
        live(torch.tensor([-(2.0**-15)]))
    assert np.frombuffer(path.read_bytes(), "<i2").tolist() == [16384, -32768, 32767, -1]
    assert not live.left


def test_a_reader_of_a_pipe_receives_every_sample(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    sound = torch.linspace(-1, 1, 300_000)  # more than a pipe holds
    with Live(pipe) as live:
        live(sound)
    reader.join()
    assert np.abs(np.frombuffer(received[0], "<i2") / 32768 - sound.numpy()).max() <= 2.0**-15


def test_a_signal_during_a_write_loses_no_samples(tmp_path: Path) -> None:
    """A write to a full pipe returns at a signal, with a part of the samples written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    interrupted = threading.Event()

    def read_after_a_signal() -> None:
        with pipe.open("rb") as file:
            interrupted.wait(60)
            received.append(file.read())

    before = signal.signal(signal.SIGALRM, lambda *_: interrupted.set())
    reader = threading.Thread(target=read_after_a_signal)
    reader.start()
    sound = torch.linspace(-1, 1, 300_000)
    try:
        with Live(pipe) as live:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            live(sound)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        reader.join()
    assert len(received[0]) == 2 * 300_000
    assert np.abs(np.frombuffer(received[0], "<i2") / 32768 - sound.numpy()).max() <= 2.0**-15


def test_a_listener_may_leave(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: pipe.open("rb").close())
    reader.start()
    with Live(pipe) as live:
        reader.join()
        live(torch.zeros(10))
        assert live.left
        live(torch.zeros(10))


def test_a_path_that_cannot_be_written_to(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"--stream {tmp_path}: cannot be written to"):
        Live(tmp_path)
    with Live(tmp_path / "sound") as live, pytest.raises(DataError, match=r"--stream .*/sound: .* NaN or infinite"):
        live(torch.tensor([0.0, float("nan")]))
