"""inference.py's flags of levels, of reading and of the log, and flags without effect."""

from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

import inference
from common.run.nvlog import NvLog, read_log
from tests.recipe import flags, read_steps, speech_flags, succeed

pytestmark = pytest.mark.slow

NUMBERS = "Dr. Smith paid $5.50 for 3 kg on 4/5/2021 at 6:45 p.m."
QUIET = ["--max-decoder-steps", 3, "--vocoder", "griffin-lim"]


def words(folder: Path, *more: object, text: str = "Two.") -> list[object]:
    return [*speech_flags(folder, text), "--seed", 0, *more]


def samples(folder: Path) -> np.ndarray:
    return wavfile.read(folder / "audio_0.wav")[1] / 32768


def test_levels_of_the_files_and_a_flag_without_effect(tmp_path: Path) -> None:
    quiet = ["-s", 0.2, "--max-decoder-steps", 3]
    for mode in ("none", "peak", "loudness"):
        succeed("inference.py", *words(tmp_path / mode, *quiet, "--normalize", mode))
    none, peak, loudness = (samples(tmp_path / mode) for mode in ("none", "peak", "loudness"))
    assert np.abs(peak).max() == pytest.approx(1, abs=1e-4) and np.abs(none).max() < 0.99
    np.testing.assert_allclose(peak * np.abs(none).max(), none, atol=2e-4)
    assert np.abs(loudness).max() <= 1
    assert np.sqrt((loudness**2).mean()) == pytest.approx(min(0.1, np.sqrt((peak**2).mean())), rel=1e-3)
    printed = succeed("inference.py", *words(tmp_path / "default", *quiet, "--precompute"))
    assert "note: --precompute has no effect here" in printed
    assert np.array_equal(samples(tmp_path / "default"), none)


def test_the_reading_changes_the_speech_and_stands_in_the_log(tmp_path: Path) -> None:
    for reading in ("spoken", "as-published"):
        succeed("inference.py", *words(tmp_path / reading, *QUIET, "--text-reading", reading, text=NUMBERS))
        records = read_log(tmp_path / reading / "nvlog.json")
        assert any(record.get("data") == {"text_reading": reading} for record in records)
    assert not np.array_equal(samples(tmp_path / "spoken"), samples(tmp_path / "as-published"))


def test_the_log_of_a_training_run_is_moved_aside_and_one_of_inference_grows(tmp_path: Path) -> None:
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1)
    training = (tmp_path / "nvlog.json").read_bytes()
    out = succeed("inference.py", *words(tmp_path, *QUIET))
    log, aside = tmp_path / "nvlog.json", tmp_path / "nvlog_1.json"
    assert f"{log} was the log of a training run: it is now {aside}" in out
    assert aside.read_bytes() == training
    assert len([step for step, _ in read_steps(log)]) == 1
    assert "log of a training run" not in succeed("inference.py", *words(tmp_path, *QUIET))
    assert len([step for step, _ in read_steps(log)]) == 2 and not (tmp_path / "nvlog_2.json").exists()


def test_a_log_of_strange_lines_is_no_training_log(tmp_path: Path) -> None:
    path = tmp_path / "nvlog.json"
    path.write_text('no record\nDLLL not JSON\nDLLL []\nDLLL {"step": "PARAMETER", "data": null}\n')
    assert not inference.is_training_log(path)
    with NvLog(path) as log:
        log.parameters({"model_name": "WaveGlow"})
    assert inference.is_training_log(path)
