"""What a synthesis leaves: messages about sounds, a live stream and its readers, the record of finished lines."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from common.errors import DataError
from common.inference.outputs import (
    Live,
    Manifest,
    is_finished,
    read_finished,
    remove_manifests,
    settings_digest,
    write_sound,
)
from common.inference.stages import Line, Part, Speech


@pytest.mark.parametrize(
    ("finished", "ending"),
    [(True, "1.00 s  Hi."), (False, "1.00 s  Hi.  (never stopped by itself: cut at the decoder's limit)")],
)
def test_the_message_names_length_and_faults(tmp_path: Path, finished: bool, ending: str) -> None:
    parts = (Part("Hi.", 1, 1, 0.0, 1.0, finished),)
    speech = Speech(torch.zeros(22050), 22050, torch.zeros(80, 1), torch.zeros(1, 3), parts)
    assert write_sound(tmp_path / "a.wav", "Hi.", speech).endswith(ending)


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


def test_settings_are_others_with_a_checkpoint_trained_again_in_place(tmp_path: Path) -> None:
    path = tmp_path / "a.pt"
    path.write_bytes(b"12345678")
    before = settings_digest({"seed": 1}, [path])
    assert settings_digest({"seed": 1}, [path]) == before != settings_digest({"seed": 2}, [path])
    os.utime(path, ns=(0, 1))
    assert settings_digest({"seed": 1}, [path]) != before


def test_the_record_survives_a_torn_end_and_knows_its_files(tmp_path: Path) -> None:
    line, path = Line("Two.", 3, 0), tmp_path / "audio_0.wav"
    path.write_bytes(b"12345678")
    with Manifest(tmp_path, "", "settings", 3) as manifest:
        manifest.add(line, path)
    with (tmp_path / "inference.jsonl").open("ab") as file:
        file.write(b'{"line": 1, "fi\xff')
    with Manifest(tmp_path, "", "settings", 3) as manifest:
        manifest.add(Line("Three.", 3, 2), path)
    finished = read_finished(tmp_path, "")
    assert finished.seed == 3 and set(finished.files) == {0, 2}
    assert is_finished(line, "audio_0.wav", "settings", finished)
    for other in (line._replace(text="Two"), line._replace(seed=4), line._replace(number=1)):
        assert not is_finished(other, "audio_0.wav", "settings", finished)
    assert not is_finished(line, "audio_0.flac", "settings", finished)
    assert not is_finished(line, "audio_0.wav", "others", finished)
    assert read_finished(tmp_path, "_b") == (None, {})
    path.write_bytes(b"1234")
    assert not read_finished(tmp_path, "").files
    remove_manifests(tmp_path, "")
    assert read_finished(tmp_path, "") == (None, {})
