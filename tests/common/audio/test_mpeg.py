"""common/audio/mpeg.py: damaged and headerless mp3 files, and what their decoder says to standard error."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import count_samples, read_audio
from common.audio.mpeg import estimates_length, quiet_decoder
from common.errors import DataError
from studio.prepare.levels import open_sound


@pytest.fixture(scope="module")
def mp3(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Ten seconds of noise, with a Xing or Info header."""
    path = tmp_path_factory.mktemp("mp3") / "a.mp3"
    soundfile.write(path, 0.1 * np.random.default_rng(0).standard_normal(220500), 22050)
    return path.read_bytes()


def test_damage_is_one_error_without_the_decoder_s_own_messages(tmp_path: Path, mp3: bytes, capfd) -> None:
    noise = np.random.default_rng(1).bytes(3000)
    for name in ("a.mp3", "a.wav"):  # by its name, or by its content
        (tmp_path / name).write_bytes(mp3[:20000] + noise + mp3[20000:])
        with pytest.raises(DataError, match=rf"{name}: not an audio file, or damaged"):
            read_audio(tmp_path / name, None)
    (tmp_path / "a.mp3").write_bytes(mp3[: len(mp3) // 2])
    with pytest.raises(DataError, match="cut short or damaged"):
        read_audio(tmp_path / "a.mp3", None)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("tag", [b"", b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)])
def test_a_file_that_does_not_state_its_length_is_whole_or_refused(tmp_path: Path, mp3: bytes, tag: bytes) -> None:
    """libsndfile stops at its guess, here after 6.5 of 10 s."""
    path = tmp_path / "a.mp3"
    path.write_bytes(tag + mp3)
    assert not estimates_length(path) and count_samples(path, 22050) == 220500
    place = next(mp3.find(name) for name in (b"Xing", b"Info") if name in mp3[:256])
    path.write_bytes(tag + mp3[:place] + b"none" + mp3[place + 4 :])
    assert estimates_length(path)
    for read in (count_samples, read_audio):
        with pytest.raises(DataError, match="does not state its length, so that only a part may be read"):
            read(path, 22050)
    if find_spec("av"):
        with open_sound(path) as sound:
            assert sum(map(len, sound.blocks)) == pytest.approx(220500, abs=2000)


@pytest.mark.usefixtures("quick_switches")
def test_threads_that_read_at_once_give_standard_error_back() -> None:
    together, stderr, count = threading.Barrier(8), os.fstat(2), len(os.listdir("/dev/fd"))

    def read(_: int) -> None:
        for _ in range(100):
            together.wait()
            with quiet_decoder("a.mp3"):
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert os.path.samestat(os.fstat(2), stderr) and len(os.listdir("/dev/fd")) == count
