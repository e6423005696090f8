"""inference.py's flags of levels, of reading and of the log, and flags without effect."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

import inference
from common.inference.outputs import how_to_play
from common.run.nvlog import NvLog, read_log
from tests.recipe import ROOT, flags, read_steps, run, speech_flags, succeed

pytestmark = pytest.mark.slow

NUMBERS = "Dr. Smith paid $5.50 for 3 kg on 4/5/2021 at 6:45 p.m."
QUIET = ["--max-decoder-steps", 3, "--vocoder", "griffin-lim"]


def words(folder: Path, *more: object, text: str = "Two.") -> list[object]:
    return [*speech_flags(folder, text), "--seed", 0, *more]


def samples(folder: Path) -> np.ndarray:
    return wavfile.read(folder / "audio_0.wav")[1] / 32768


def test_the_reading_changes_the_speech_and_stands_in_the_log(tmp_path: Path) -> None:
    for reading in ("spoken", "as-published"):
        succeed("inference.py", *words(tmp_path / reading, *QUIET, "--text-reading", reading, text=NUMBERS))
        records = read_log(tmp_path / reading / "nvlog.json")
        assert any(record.get("data") == {"text_reading": reading} for record in records)
    assert not np.array_equal(samples(tmp_path / "spoken"), samples(tmp_path / "as-published"))


def test_phrases_by_flag_and_from_standard_input_are_those_of_a_file(tmp_path: Path) -> None:
    """One line a sound, one of totals, and how to play the first; the settings stand in the log."""
    texts = ["Two.", "It is three.\n\nTwo."]
    voice = words(tmp_path, *QUIET, "--no-alignments")[2:]
    out = succeed("inference.py", "--text", texts[0], "--text", texts[1], *voice).splitlines()
    shown = [f"{tmp_path}/audio_0.wav  0.17 s  Two.", f"{tmp_path}/audio_1.wav  0.70 s  It is three. Two.  (2 pieces)"]
    assert [line.partition("  (never")[0] for line in out[1:3]] == shown and len(out) == 5
    assert out[3].startswith("DLL ") and "latency" in out[3] and out[4].endswith(how_to_play(tmp_path / "audio_0.wav"))
    assert any(record.get("data") == {"text": texts} for record in read_log(tmp_path / "nvlog.json"))
    sound = samples(tmp_path)
    piped = [sys.executable, "inference.py", "-i", "-", *map(str, voice), "--verbose"]
    done = subprocess.run(piped, cwd=ROOT, input="Two.\nI ☃ it.\n", capture_output=True, text=True)
    assert done.returncode == 0 and "/dev/stdin:2: the alphabet has no '☃'" in done.stdout
    assert re.search("^DLL .* - PARAMETER seed : 0$", done.stdout, re.M)
    assert np.array_equal(samples(tmp_path), sound)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "one of the arguments -i/--input --text is required"),
        (["-i", "a.txt", "--text", "b"], "argument --text: not allowed with argument -i/--input"),
        (["--text", "a\udcff"], "argument --text: 'a\\udcff', expected UTF-8"),
        (["--text", "Two {HH", "--cpu"], "error: --text:1: text: '{' at character 5"),
        (["--text", "Two.", "--text", "", "--stream", "x", "--normalize", "peak"], "--normalize peak: needs the whole"),
    ],
)
def test_refusals_of_phrases(tmp_path: Path, given: list[str], problem: str) -> None:
    result = run("inference.py", *given, "-o", tmp_path)
    assert result.code == (1 if "{" in problem else 2) and problem in result.err


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
