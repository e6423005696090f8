"""Clips and texts beyond the limits: one error before training, with each bad row, its limit and the limit's flag."""

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from common.audio.stft import AudioConfig
from common.data.mels import mel_seconds, save_mel
from common.errors import DataError, UsageError
from data_functions import get_dataset
from tests.recipe import flags, run

OPTIONS = {"dataset_path": "", "n_mel_channels": 10}


def problems(model: str, folder: Path, rows: list[str], **options: object) -> list[str]:
    """Return the lines of the error about a filelist, without its name."""
    path = folder / "list.txt"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError) as error:
        get_dataset(model, OPTIONS | options, path)
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
    hours, short = sound(tmp_path / "hours.wav", 158_760_000), sound(tmp_path / "short.wav", 255)
    assert problems("WaveGlow", tmp_path, [f"{hours}|long", f"{short}|a"]) == [
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
    assert len(get_dataset(model, OPTIONS | {"longest_clip": 601.5}, tmp_path / "list.txt")) == 1
    for limit in (0, float("nan")):
        with pytest.raises(UsageError, match=r"--longest-clip: .*, expected more than 0"):
            get_dataset(model, OPTIONS | {"longest_clip": limit}, tmp_path / "list.txt")


@pytest.mark.slow
@pytest.mark.parametrize("words", [[], ["--dry-run"]])
def test_train_refuses_the_row_before_it_allocates(tmp_path: Path, words: list[str]) -> None:
    long = sound(tmp_path / "long.wav", 158_760_000)
    (tmp_path / "list.txt").write_text(f"{long}|one\n{long}|two\n")
    result = run("train.py", *flags("Tacotron2", tmp_path), *words, "--training-files", tmp_path / "list.txt")
    assert (result.code, result.out) == (1, "")
    assert result.err.count("7200.0 s, expected at most 60 s (--longest-clip)") == 2
