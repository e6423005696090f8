"""Unusual words from users: paths that leave a folder, control characters, enormous numbers."""

import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch

from common.data.pictures import figure_pixels, plot_alignment, save_figure
from common.errors import UsageError, exit_on_user_error, printable
from multiproc import describe_end
from tests.recipe import ROOT, flags, run
from tests.test_errors import speech

ESCAPE = "\x1b[2J"


@pytest.mark.slow
def test_a_suffix_stays_in_its_folder(tmp_path: Path) -> None:
    result = run("inference.py", *speech(tmp_path), "--suffix", "/../../x")
    assert (result.code, result.out) == (2, "")
    assert "argument --suffix: '/../../x', expected a part of a file name, without '/'" in result.err
    assert not (tmp_path / "speech").exists()


@pytest.mark.slow
@pytest.mark.parametrize("script", ["train.py", "inference.py"])
def test_a_log_file_stays_in_the_output_folder(tmp_path: Path, script: str) -> None:
    out = tmp_path / "a" / "out"
    words = flags("WaveGlow", out) if script == "train.py" else [*speech(tmp_path), "-o", out]
    result = run(script, *words, "--log-file", "../../x.json")
    assert result.code == 2
    assert result.err == (
        f"error: --log-file: ../../x.json: leaves --output {out}; expected a name inside it, or a whole path\n"
    )
    assert not (tmp_path / "x.json").exists()


def test_a_nul_character_in_a_config_file_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"run": {"output": "a\0b", "seed": 1}}))
    result = run("train.py", "-m", "WaveGlow", "--config-file", path)
    assert result == (2, "", f"error: --config-file: {path}: run.output: a NUL character in its value\n")


def test_control_characters_are_spelled(capsys) -> None:
    assert printable("café — “x”\t\n") == "café — “x”\t\n"
    assert printable(f"a{ESCAPE}b\0\x9b\r") == "a\\x1b[2Jb\\x00\\x9b\\r"
    with pytest.raises(SystemExit), exit_on_user_error():
        raise UsageError(f"no file {ESCAPE}")
    assert capsys.readouterr().err == "error: no file \\x1b[2J\n"


@pytest.mark.parametrize("script", ["train.py", "inference.py", "evaluate.py"])
def test_the_parser_prints_no_control_characters(script: str) -> None:
    words = ["-m", "WaveGlow"] if script == "train.py" else ["-i", "phrases.txt"]
    for refused in (["--seed", ESCAPE], [f"--{ESCAPE}"]):
        result = run(script, *words, *refused)
        assert result.code == 2 and "\x1b" not in result.err and "x1b[2J" in result.err


@pytest.mark.slow
def test_a_phrase_and_a_path_with_an_escape_reach_the_terminal_spelled(tmp_path: Path) -> None:
    result = run("inference.py", *speech(tmp_path, f"Two.{ESCAPE}"))
    assert result.code == 0
    assert ESCAPE not in result.out + result.err and "\\x1b[2J" in result.out
    result = run("inference.py", *speech(tmp_path), "--tacotron2", tmp_path / f"{ESCAPE}.pt")
    assert result.code == 1
    assert ESCAPE not in result.err and f"{tmp_path}/\\x1b[2J.pt: no such checkpoint" in result.err


def test_a_name_that_is_too_long_is_one_error(capsys) -> None:
    with pytest.raises(SystemExit, match="1"), exit_on_user_error():
        Path("x" * 300).read_bytes()
    assert capsys.readouterr().err == f"error: {'x' * 300}: File name too long\n"


def test_a_character_without_a_glyph_draws_without_a_warning(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # others may come from objects of earlier tests, freed here
        figure = plot_alignment(torch.ones(4, 2), ["中", "\U0001f600"], title="中")
        save_figure(tmp_path / "a.png", figure)
        figure_pixels(figure)


def test_the_signal_that_ended_a_process_is_named() -> None:
    assert describe_end(-9) == "was ended by signal 9 (SIGKILL): killed by a user, or by the system for lack of memory"
    assert describe_end(-11) == "was ended by signal 11 (SIGSEGV)"
    assert describe_end(3) == "ended with exit code 3, for the reason above"


@pytest.mark.slow
def test_a_closed_pipe_ends_a_command_without_a_traceback() -> None:
    words = [sys.executable, "-m", "common.checkpoint", "inspect", "voice/tacotron2.safetensors"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # before the command prints
        assert process.stderr.read() == ""
    assert process.returncode == 141
