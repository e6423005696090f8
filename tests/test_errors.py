"""A user's mistake ends with one error message, a hint, and exit code 2 (usage) or 1 (data); Ctrl-C with 130. No traceback."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile

import train
from common.errors import UsageError, exit_on_user_error, printable
from common.run.interrupt import StopRequest
from common.training import loop as engine
from tests.recipe import (
    MODELS,
    ROOT,
    call,
    flags,
    own_signals,
    run,
    speech_flags,
    start,
    succeed,
    train_tiny_model,
    wait_for,
)

ESCAPE = "\x1b[2J"


def test_a_nul_character_in_a_config_file_names_its_place(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"run": {"output": "a\0b", "seed": 1}}))
    result = run("train.py", "-m", "WaveGlow", "--config-file", path)
    assert result == (2, "", f"error: --config-file: {path}: run.output: a NUL character in its value\n")


def test_control_characters_are_spelled() -> None:
    assert printable("café — “x”\t\n") == "café — “x”\t\n"
    assert printable(f"a{ESCAPE}b\0\x9b\r") == "a\\x1b[2Jb\\x00\\x9b\\r"


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UsageError(f"no file {ESCAPE}"), 2, "error: no file \\x1b[2J\n"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300), 1, f"error: {'x' * 300}: File name too long\n"),
        (KeyboardInterrupt(), 130, "stopped\n"),
        (KeyboardInterrupt("nothing was saved"), 130, "stopped: nothing was saved\n"),
    ],
)
def test_an_error_of_the_user_is_one_line_and_an_exit_code(error, code: int, message: str, capsys) -> None:
    with pytest.raises(SystemExit) as leaving, exit_on_user_error():
        raise error
    assert (leaving.value.code, capsys.readouterr().err) == (code, message)


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


@pytest.mark.slow
def test_a_closed_pipe_ends_a_command_without_a_traceback() -> None:
    words = [sys.executable, "-m", "common.checkpoint", "inspect", "voice/tacotron2.safetensors"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()  # before the command prints
        assert process.stderr.read() == ""
    assert process.returncode == 141


def stderr_of(code: int, script: str, *words: object, cwd: Path = ROOT) -> str:
    """Run a script that must exit with this code, and return its stderr. A traceback would raise an exception here."""
    result = run(script, *words, cwd=cwd)
    assert result.code == code, result
    return result.err.strip()


def training(folder: Path, *words: object, model: str = "WaveGlow") -> list[object]:
    return [*flags(model, folder), "--epochs", 1, *words]


def filelist(folder: Path, *rows: str) -> Path:
    path = folder / "list.txt"
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def speech(folder: Path, *lines: str) -> list[object]:
    return [*speech_flags(folder, *lines), "-o", folder / "speech"]


# The exit code and the command, then its message: {folder} is the test's, {taken} a file in it, and … any text.
REFUSALS = """
2 train.py
    …required: -m/--model-name, one of Tacotron2, WaveGlow, PulseNoise
2 train.py TRAINING --bench-class trian
    …perf-train…
2 train.py TRAINING -o {folder}/out --log-file ../../x.json
    error: --log-file: ../../x.json: leaves --output {folder}/out; expected a name inside it, or a whole path
1 train.py TRAINING -o {taken}
    error: {taken}: cannot be written (Not a directory); choose another --output
1 train.py TRAINING --checkpoint-path {tacotron2}
    error: {tacotron2}: not this model's weights…
2 evaluate.py --sigma-infer -1 --denoising-strength nan
    …--sigma-infer: -1.0, expected 0 or more…--denoising-strength: nan…
2 inference.py -i x --fp16 --cpu
    …argument --cpu: not allowed with argument --fp16
2 inference.py SPEECH --suffix /../../x
    …--suffix: '/../../x', expected a part of a file name, without '/'
2 inference.py SPEECH -o {folder}/out --log-file ../../x.json
    error: --log-file: ../../x.json: leaves --output {folder}/out…
1 inference.py SPEECH -o {taken}
    error: {taken}/nvlog.json: cannot write the log (Not a directory)…--output…
1 inference.py SPEECH --waveglow {tacotron2}
    error: {tacotron2}: WaveGlow config: unknown keys…is it a checkpoint of WaveGlow?
2 inference.py SPEECH --n-mel-channels 80
    error: {tacotron2}: …--n-mel-channels is 10 in it, 80 as requested…: leave these flags out, the checkpoint stores its settings
2 inference.py SPEECH --text-cleaners basic_cleaners
    error: {tacotron2}: …--text-cleaners is ['english_cleaners'] in it, ['basic_cleaners'] as…
2 inference.py SPEECH --wn-channels 512 --flows 12
    error: {waveglow}: …--flows is 4 in it, 12 as requested; --wn-channels is 8 in it, 512 as…
2 inference.py SPEECH --max-decoder-steps 0
    error: --max-decoder-steps: 0, expected a whole number from 1 to 1000000
2 inference.py SPEECH --gate-threshold nan
    error: --gate-threshold: nan, expected a probability in [0, 1], where 1 never stops
"""


@pytest.mark.slow
@pytest.mark.parametrize("row", REFUSALS.strip().replace("\n    ", "\t").splitlines())
def test_a_mistake_is_one_error_and_leaves_no_files(tmp_path: Path, row: str) -> None:
    """What a checkpoint stores is not blamed on a flag, and a flag's value not on the file."""
    command, message = row.split("\t")
    places = {model.lower(): train_tiny_model(model) for model in MODELS}
    places |= {"folder": tmp_path, "taken": tmp_path / "taken"}
    (tmp_path / "taken").touch()
    code, script, *words = command.format(**places).split()
    bases = {"TRAINING": training, "SPEECH": speech}
    given = [*bases[words[0]](tmp_path), *words[1:]] if words[:1] and words[0] in bases else words
    before = set(tmp_path.rglob("*"))
    expected = ".*".join(re.escape(part.format(**places)) for part in message.split("…"))
    error = stderr_of(int(code), script, *given)
    assert re.fullmatch(expected, error, re.DOTALL), error
    assert {path for path in set(tmp_path.rglob("*")) - before if path.is_file()} == set()


@pytest.mark.slow
def test_training_accepts_a_silent_clip(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(9000), 22050)
    path = filelist(tmp_path, *[f"{tmp_path}/silent.wav|one"] * 2)
    for model in MODELS:
        succeed("train.py", *training(tmp_path / model, "--training-files", path, model=model))


@pytest.mark.slow
def test_errors_name_the_lines_of_invalid_phrases(tmp_path: Path) -> None:
    before = "This is a sentence of some length, and others follow. " * 4
    phrases = [f"{before}One.", f"{before}Two {{HH", "☃☃", "{HH AA9}"]
    lines = stderr_of(1, "inference.py", *speech(tmp_path, *phrases)).splitlines()
    assert [line.split("phrases.txt")[1].split(" ")[0] for line in lines] == [":2:", ":4:"]
    assert f"'{{' at character {len(before) + 5}" in lines[0]
    assert "no ARPAbet symbol 'AA9'" in lines[1]
    alone = stderr_of(1, "inference.py", *speech(tmp_path, "☃☃", "", "..."))
    assert [line.split("phrases.txt")[1].split(", ")[0] for line in alone.splitlines()] == [
        ":1: '☃☃' holds nothing to speak", ":2: '' holds nothing to speak", ":3: '...' holds nothing to speak"
    ]  # fmt: skip


@pytest.mark.slow
def test_ctrl_c_during_inference(tmp_path: Path) -> None:
    process = start(sys.executable, "inference.py", *speech(tmp_path), "--max-decoder-steps", 10**6)
    try:
        log = tmp_path / "speech" / "nvlog.json"
        wait_for(process, log.exists)  # which is opened when the models are loaded
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "stopped\n")
    assert {path.name for path in log.parent.iterdir()} - {"inference.jsonl"} == {"nvlog.json"}


@pytest.mark.slow
def test_a_second_ctrl_c_ends_training_without_saving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = engine.train_step

    def raise_interrupt(*arguments: object) -> object:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return step(*arguments)

    monkeypatch.setattr(engine, "train_step", raise_interrupt)
    monkeypatch.setattr(StopRequest, "ECHO", -1.0)  # the second is the user's, not torchrun's
    result = run("train.py", *training(tmp_path))
    first, second = result.err.splitlines()
    assert result.code == 130
    assert first == "stopping after this step; once more to stop without saving"
    assert second.startswith("stopped")
    assert list(tmp_path.glob("*.pt")) == []
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # what later tests' processes inherit


START = "import signal, sys\nfrom common.start import after_imports, before_imports\nbefore_imports()\n"


def test_stdout_takes_what_its_encoding_lacks() -> None:
    code = f"{START}print('Zoë’s')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONIOENCODING": "latin-1"}, capture_output=True
    )
    assert (done.stdout, done.returncode) == ("Zoë".encode("latin-1") + b"\\u2019s\n", 0)


def test_a_closed_stdout_is_no_error(tmp_path: Path) -> None:
    code = f"{START}file = open(sys.argv[1], 'w')\nprint('lost')\nsys.stdout.flush()\nfile.write('kept')"
    words = ["sh", "-c", '"$0" -c "$1" "$2" >&-', sys.executable, code, tmp_path / "file"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr, (tmp_path / "file").read_text()) == (0, "", "kept")


def test_ctrl_c_during_the_imports_is_one_line() -> None:
    later = f"{START}after_imports()\ntry: signal.raise_signal(2)\nexcept KeyboardInterrupt: print('caught')"
    with own_signals():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # even if a shell's & has disabled it for the tests
        assert call(sys.executable, "-c", f"{START}signal.raise_signal(2)") == (130, "", "stopped\n")
        assert call(sys.executable, "-c", later) == (0, "caught\n", "")


@pytest.mark.slow
def test_loaders_end_with_the_training(tmp_path: Path) -> None:
    """PyTorch would wait for them in a collection of garbage, ten seconds each, and leave them; a program's own processes stay."""
    own = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    own.start()
    try:
        assert train.main([str(word) for word in [*training(tmp_path), "--num-workers", 1]]) == 0
        assert multiprocessing.active_children() == [own]
    finally:
        own.kill()
