"""A user's mistake ends with one error message, a hint, and exit code 2 (usage) or 1 (data); Ctrl-C with 130. No traceback."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from common.checkpoint.files import load_checkpoint
from common.errors import exit_on_user_error
from common.run.interrupt import StopRequest
from common.training import loop as engine
from tests.recipe import MODELS, ROOT, SHARED, call, flags, run, start, succeed, train_tiny_model, wait_for_epoch_1

pytestmark = pytest.mark.slow


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
    """Valid flags of inference.py, of which each test changes some."""
    path = folder / "phrases.txt"
    path.write_text("".join(f"{line}\n" for line in lines or ("Two.",)))
    checkpoints = ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    return ["-i", path, "-o", folder / "speech", "--cpu", *checkpoints]


# Usage errors: code 2.


@pytest.mark.parametrize(
    ("script", "words", "message"),
    [
        (
            "train.py",
            "",
            "the following arguments are required: -m/--model-name, one of Tacotron2, WaveGlow, PulseNoise",
        ),
        ("train.py", "--epochs 3", "the following arguments are required: -m/--model-name"),
        ("train.py", "-m Tacotron", "argument -m/--model-name: invalid choice: 'Tacotron'"),
        ("train.py", "-m Tacotron2 --anneal 3", "unrecognized arguments: --anneal 3"),
        ("train.py", "-m Tacotron2 --learning 1e-3", "unrecognized arguments: --learning 1e-3"),
        ("train.py", "-m Tacotron2 --flows 3", "unrecognized arguments: --flows 3"),
        ("train.py", "-m Tacotron2 --epochs 1.5", "argument --epochs: invalid positive value: '1.5'"),
        ("train.py", "-m Tacotron2 -lr fast", "argument -lr/--learning-rate: invalid float value: 'fast'"),
        ("train.py", "-m WaveGlow -bs 0", "argument -bs/--batch-size: 0, expected at least 1"),
        ("train.py", "-m WaveGlow -lr -1", "--learning-rate: -1.0, expected more than 0"),
        ("train.py", "-m WaveGlow --config-file none.json", "--config-file: none.json: cannot be read"),
        ("inference.py", "", "the following arguments are required: -i/--input"),
        ("inference.py", "-i x --vocoder hifi", "argument --vocoder: invalid choice: 'hifi'"),
        ("inference.py", "-i x --fp16 --cpu", "argument --cpu: not allowed with argument --fp16"),
        ("inference.py", "-i x --waveglo w.pt", "unrecognized arguments: --waveglo w.pt"),
        ("inference.py", "-i x -s -1 -d nan", "--sigma-infer: -1.0, expected 0 or more"),
        ("inference.py", "-i x -s -1 -d nan", "--denoising-strength: nan, expected 0 or more"),
        ("inference.py", "-i x --longest-piece -1", "--longest-piece: -1, expected 0 or more"),
        ("inference.py", "-i x --seed x", "argument --seed: invalid seed value: 'x'"),
    ],
)
def test_invalid_flags_are_errors(script: str, words: str, message: str) -> None:
    assert message in stderr_of(2, script, *words.split())


@pytest.mark.parametrize(
    ("model", "words", "message"),
    [
        ("WaveGlow", "--hop-length 0 --mel-fmax 20000", "--hop-length 0: expected 1 to half of --win-length"),
        ("WaveGlow", "--hop-length 0 --mel-fmax 20000", "--mel-fmax 20000.0: expected at most half"),
        ("WaveGlow", "--groups 7 --segment-length 4095", "--groups 7: expected an even number"),
        ("WaveGlow", "--segment-length 4099", "--segment-length: 4099, expected a multiple of --groups 8"),
        ("WaveGlow", "--sigma 0", "--sigma 0.0: expected a positive number"),
        ("Tacotron2", "--prenet-dim 0 --encoder-kernel-size 4", "--prenet-dim: 0, expected at least 1"),
        ("Tacotron2", "--prenet-dim 0 --encoder-kernel-size 4", "--encoder-kernel-size: 4, expected an odd size"),
        ("Tacotron2", "--guided-attention-sigma 0", "--guided-attention-sigma: 0.0, expected more than 0"),
        ("Tacotron2", "--text-cleaners english", "text cleaners: got 'english', wanted names from english_cleaners"),
    ],
)
def test_impossible_model_settings_are_errors(tmp_path: Path, model: str, words: str, message: str) -> None:
    assert message in stderr_of(2, "train.py", *training(tmp_path, *words.split(), model=model))


def test_an_error_in_a_config_file_names_the_place(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"optimization": {"learning": 1e-3}}))
    message = stderr_of(2, "train.py", *training(tmp_path, "--config-file", path))
    assert message == f"error: --config-file: {path}: optimization.learning: no such flag, --learning"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--n-mel-channels 80", "n_mel_channels is 10 in it, 80 as requested"),
        ("--decoder-rnn-dim 1024", "decoder_rnn_dim is 24 in it, 1024 as requested"),
        ("--text-cleaners basic_cleaners", "text_cleaners is ['english_cleaners'] in it, ['basic_cleaners'] as"),
        ("-sr 16000", "sampling_rate is 22050 in it, 16000 as requested"),
        ("--wn-channels 512 --flows 12", "n_flows is 4 in it, 12 as requested; n_channels is 8 in it, 512 as"),
    ],
)
def test_flags_that_contradict_a_checkpoint_are_errors(tmp_path: Path, words: str, message: str) -> None:
    error = stderr_of(2, "inference.py", *speech(tmp_path), *words.split())
    path = train_tiny_model("WaveGlow" if "wn" in words else "Tacotron2")
    assert error.startswith(f"error: {path}: ")
    assert message in error
    assert error.endswith("leave these flags out, the checkpoint stores its settings")
    assert not (tmp_path / "speech").exists()


# Filelists and clips: code 1.


@pytest.mark.parametrize(("model", "kind"), [("WaveGlow", "audio"), ("Tacotron2", "mel")])
def test_the_error_for_a_missing_default_filelist_names_both_solutions(tmp_path: Path, model: str, kind: str) -> None:
    words = ["--training-files", f"filelists/ljs_{kind}_text_train_filelist.txt"]
    message = stderr_of(1, "train.py", "-m", model, *words, "-o", tmp_path, "--cpu", cwd=tmp_path)
    assert message.startswith(f"error: filelists/ljs_{kind}_text_train_filelist.txt: no such file")
    assert "`bash scripts/prepare_dataset.sh`" in message
    assert f"--training-files filelists/clock_{kind}_text_train_filelist.txt" in message
    assert f"--validation-files filelists/clock_{kind}_text_val_filelist.txt" in message


def test_one_error_lists_all_bad_rows_of_a_filelist(tmp_path: Path) -> None:
    path = filelist(tmp_path, "a.wav|fine", "no bar", "b.wav|", "c.wav|fine")
    message = stderr_of(1, "train.py", *training(tmp_path, "--training-files", path))
    assert [line.split(": ")[-2] for line in message.splitlines()][-1] == f"{path}:3"
    assert f"{path}:2: 0 '|' in the line" in message
    assert f"{path}:3: no text after '|'" in message


def test_one_error_lists_all_missing_clips(tmp_path: Path) -> None:
    path = filelist(tmp_path, "corpus/clock/clock_0001.ogg|fine", "wavs/x.wav|one", "LJSpeech-1.1/wavs/y.wav|two")
    message = stderr_of(1, "train.py", *training(tmp_path, "--validation-files", path))
    assert f"{path}:2: no file wavs/x.wav" in message
    assert f"{path}:3: no file LJSpeech-1.1/wavs/y.wav" in message
    assert "2 of 3 files are missing" in message


def test_errors_name_the_rows_of_invalid_texts(tmp_path: Path) -> None:
    clip = "corpus/clock/clock_0001.ogg"
    path = filelist(
        tmp_path, f"{clip}|fine", f"{clip}|a {{HH AH0 brace", f"{clip}|{{XX}}", f"{clip}|…§", f"{clip}|fine"
    )
    lines = stderr_of(1, "train.py", *training(tmp_path, "--validation-files", path, model="Tacotron2")).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith(f"error: {path}:2: text: '{{' at character 3")
    assert lines[1].startswith(f"{path}:3: text: '{{XX}}' at character 1: no ARPAbet symbol 'XX'")
    assert lines[2].startswith(f"{path}:4: '…§' holds nothing to speak")


@pytest.mark.parametrize(
    ("samples", "rate", "message"),
    [
        (np.zeros((9000, 2)), 22050, "2 channels, expected mono"),
        (np.zeros(9000), 16000, "16000 Hz, expected 22050 Hz"),
        (np.zeros(0), 22050, "no samples in it"),
    ],
)
def test_an_unusable_clip_is_an_error(tmp_path: Path, samples: np.ndarray, rate: int, message: str) -> None:
    soundfile.write(tmp_path / "bad.wav", samples, rate)
    path = filelist(tmp_path, f"{tmp_path}/bad.wav|one", f"{tmp_path}/bad.wav|two")
    assert f"{tmp_path}/bad.wav: {message}" in stderr_of(1, "train.py", *training(tmp_path, "--training-files", path))


def test_training_accepts_a_silent_clip(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(9000), 22050)
    path = filelist(tmp_path, *[f"{tmp_path}/silent.wav|one"] * 2)
    for model in MODELS:
        succeed("train.py", *training(tmp_path / model, "--training-files", path, model=model))


# Checkpoints: code 1.


@pytest.fixture
def broken(tmp_path: Path) -> dict[str, Path]:
    """Files that are not checkpoints of WaveGlow."""
    cut = tmp_path / "cut.pt"
    cut.write_bytes(train_tiny_model("WaveGlow").read_bytes()[:5000])
    text = tmp_path / "text.pt"
    text.write_text("not a checkpoint\n" * 100)
    other = tmp_path / "other.pt"
    torch.save({"weights": 3}, other)
    return {
        "missing": tmp_path / "none.pt",
        "cut": cut,
        "text": text,
        "other": other,
        "model": train_tiny_model("Tacotron2"),
    }


REASONS = {
    "missing": "no such checkpoint; beside it: ",
    "cut": "no checkpoint, or one cut short (5000 bytes",
    "text": "no checkpoint, or one cut short",
    "other": "wanted a state_dict among the keys, got weights",
}


@pytest.mark.parametrize("fault", [*REASONS, "model"])
def test_a_broken_checkpoint_is_an_error(tmp_path: Path, broken: dict[str, Path], fault: str) -> None:
    path = broken[fault]
    message = stderr_of(1, "train.py", *training(tmp_path / "out", "--checkpoint-path", path))
    reason = REASONS.get(fault, "not this model's weights")
    assert message.startswith(f"error: {path}: {reason}")
    message = stderr_of(1, "inference.py", *speech(tmp_path), "--waveglow", path)
    assert message.startswith(f"error: {path}: {REASONS.get(fault, 'WaveGlow config: unknown keys')}")
    assert fault != "model" or message.endswith("is it a checkpoint of WaveGlow?")


def test_an_impossible_config_in_a_checkpoint_is_an_error(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(train_tiny_model("Tacotron2"))
    checkpoint["config"]["prenet_dim"] = 0
    torch.save(checkpoint, tmp_path / "zero.pt")
    message = stderr_of(1, "inference.py", *speech(tmp_path), "--tacotron2", tmp_path / "zero.pt")
    assert message.startswith(f"error: {tmp_path}/zero.pt: --prenet-dim: 0, expected at least 1")


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--max-decoder-steps", 0, "at least 1"),
        ("--gate-threshold", "nan", "a probability in [0, 1], where 1 never stops"),
    ],
)
def test_an_invalid_decoding_flag_is_not_blamed_on_the_file(tmp_path: Path, flag: str, value, expected: str) -> None:
    message = stderr_of(2, "inference.py", *speech(tmp_path), flag, value)
    assert message == f"error: {flag}: {value}, expected {expected}"


def test_checkpoints_with_different_audio_settings_are_an_error(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(train_tiny_model("WaveGlow"))
    checkpoint["data"] |= {"mel_fmax": 7000.0, "win_length": 800}
    torch.save(checkpoint, tmp_path / "other.pt")
    message = stderr_of(1, "inference.py", *speech(tmp_path), "--waveglow", tmp_path / "other.pt")
    assert message == (
        "error: the two checkpoints were trained with different audio settings: "
        "win_length is 1024 and 800, mel_fmax is 8000.0 and 7000.0"
    )


@pytest.mark.parametrize(("role", "model"), [("acoustic", "Tacotron2"), ("vocoder", "WaveGlow")])
def test_a_missing_checkpoint_in_output_is_an_error(tmp_path: Path, role: str, model: str) -> None:
    words = speech(tmp_path)
    at = words.index(f"--{model.lower()}")
    message = stderr_of(1, "inference.py", *words[:at], *words[at + 2 :], cwd=tmp_path)
    assert message.startswith(f"error: no {role} model: there is no output/checkpoint_{model}_last.pt")
    assert f"--{model.lower()} CHECKPOINT" in message
    assert f"bash scripts/train_{model.lower()}.sh" in message
    assert ("--vocoder griffin-lim" in message) == (role == "vocoder")
    assert "the embedded voice, voice/, " in message


# Phrases: code 1.


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; expected a text file with one phrase a line"),
        ("", "empty, expected at least one line"),
        ("\n\n", "empty, expected at least one line"),
    ],
)
def test_a_file_without_phrases_is_an_error(tmp_path: Path, content: str | None, message: str) -> None:
    words = speech(tmp_path)
    path = Path(str(words[1]))
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    assert stderr_of(1, "inference.py", *words).startswith(f"error: {path}: {message}")


@pytest.mark.parametrize("before", ["", "This is a sentence of some length, and others follow. " * 4], ids=["", "long"])
def test_errors_name_the_lines_of_invalid_phrases(tmp_path: Path, before: str) -> None:
    phrases = [f"{before}One.", f"{before}Two {{HH", "☃☃", "{HH AA9}"]
    lines = stderr_of(1, "inference.py", *speech(tmp_path, *phrases)).splitlines()
    assert [line.split("phrases.txt")[1].split(" ")[0] for line in lines] == [":2:", ":4:"]
    assert f"'{{' at character {len(before) + 5}" in lines[0]
    assert "no ARPAbet symbol 'AA9'" in lines[1]
    alone = stderr_of(1, "inference.py", *speech(tmp_path, "☃☃", "", "..."))
    assert [line.split("phrases.txt")[1].split(", ")[0] for line in alone.splitlines()] == [
        ":1: '☃☃' holds nothing to speak", ":2: '' holds nothing to speak", ":3: '...' holds nothing to speak"
    ]  # fmt: skip


# Where the results go: code 1.


def test_an_output_folder_that_is_a_file_is_an_error(tmp_path: Path) -> None:
    place = tmp_path / "taken"
    place.touch()
    message = stderr_of(1, "train.py", *training(tmp_path), "-o", place)
    assert message == f"error: {place}: cannot be written (Not a directory); choose another --output"
    message = stderr_of(1, "inference.py", *speech(tmp_path), "-o", place)
    assert message.startswith(f"error: {place}/nvlog.json: cannot write the log")
    assert "--output" in message


def test_a_read_only_output_folder_is_an_error(tmp_path: Path) -> None:
    message = stderr_of(1, "train.py", *training(tmp_path), "-o", "/proc/none")
    assert message == "error: /proc/none: cannot be written (No such file or directory); choose another --output"


# The commands themselves.


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["train.py", "-m", "Tacotron2", "--epoch", "3"], 2, "train.py: error: unrecognized arguments: --epoch 3"),
        (["inference.py", "-i", "no/such/phrases.txt"], 1, "error: no/such/phrases.txt: no such file"),
        (["-m", "common.data.mels", "--audio-filelist", "a", "--mel-filelist", "b"], 1, "error: a: no such file"),
    ],
)
def test_errors_of_a_process_of_its_own(words: list[str], code: int, message: str) -> None:
    done = call(sys.executable, *words)
    assert (done.code, done.out) == (code, "")
    assert message in done.err and "Traceback" not in done.err


# Ctrl-C: code 130.


def test_ctrl_c_during_inference(tmp_path: Path) -> None:
    process = start(sys.executable, "inference.py", *speech(tmp_path), "--max-decoder-steps", 10**6)
    try:
        log = tmp_path / "speech" / "nvlog.json"
        deadline = time.monotonic() + 120
        while not log.exists():  # which is opened when the models are loaded
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        err = process.communicate(timeout=120)[1]
    finally:
        process.kill()
    assert (process.returncode, err) == (130, "stopped\n")
    assert {path.name for path in log.parent.iterdir()} - {"inference.jsonl"} == {"nvlog.json"}


def test_ctrl_c_in_a_terminal_does_not_end_loader_processes_before_training_has_saved(tmp_path: Path) -> None:
    process = start(sys.executable, "train.py", *training(tmp_path), "--epochs", 10**5, "--num-workers", 1)
    try:
        wait_for_epoch_1(process, tmp_path)
        os.killpg(process.pid, signal.SIGINT)  # a terminal signals every process of a run
        out, err = process.communicate(timeout=120)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert (process.returncode, err) == (130, "stopping after this step; once more to stop without saving\n")
    assert f"saved {tmp_path}/checkpoint_WaveGlow_" in out


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


@pytest.mark.parametrize(
    ("words", "message"), [([], "stopped\n"), (["nothing was saved"], "stopped: nothing was saved\n")]
)
def test_ctrl_c_prints_the_message_of_its_exception(words: list[str], message: str, capsys) -> None:
    with pytest.raises(SystemExit) as leaving, exit_on_user_error():
        raise KeyboardInterrupt(*words)
    assert (leaving.value.code, capsys.readouterr().err) == (130, message)


def test_the_shared_flags_are_valid(tmp_path: Path) -> None:
    """Every test above changes one of these flags."""
    assert "--cpu" in SHARED
    assert "error" not in succeed("train.py", *training(tmp_path))
    assert "audio_0.wav" in succeed("inference.py", *speech(tmp_path))
