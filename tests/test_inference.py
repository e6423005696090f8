"""inference.py as a whole: speech through each vocoder, then the flags it takes, and their refusals."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from matplotlib.image import imread
from scipy.io import wavfile

from common.inference.outputs import how_to_play
from common.run.nvlog import NvLog
from common.run.run_folder import read_head
from tests.recipe import ROOT, flags, read_parameters, read_steps, run, speech_flags, succeed, train_tiny_model

RATE, HOP = 22050, 256
QUIET = ["--max-decoder-steps", 3, "--vocoder", "griffin-lim"]
PHRASES = ["Good morning, it is seven o'clock.", "Two.", "The time is now nine o'clock in the evening."]
ACOUSTIC_KEYS = {"tacotron2_items_per_sec", "tacotron2_latency", "attention_focus", "latency"}
VOCODER_KEYS = {"waveglow_items_per_sec", "waveglow_latency", "denoiser_latency"}


def sound(path: Path) -> np.ndarray:
    """Samples of a 16-bit mono wav of 22,050 Hz, in [-1, 1]."""
    rate, samples = wavfile.read(path)
    assert (rate, samples.dtype, samples.ndim) == (RATE, np.int16, 1)
    return samples / 32768


def sounds(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in sorted(folder.glob("*.wav"))]


def numbers(folder: Path) -> dict[str, float]:
    return [data for step, data in read_steps(folder / "nvlog.json") if step == ()][-1]


def tiny(folder: Path, lines: list[str] | None = None) -> list[object]:
    """Flags to synthesise the phrases with the tiny models into a folder, without the pictures, which take longest."""
    return [*speech_flags(folder, *(lines or PHRASES)), "--seed", 0, "--no-alignments"]


class Spoken(NamedTuple):
    """The folder of the phrases' speech, and the printed text."""

    folder: Path
    printed: str


@pytest.fixture(scope="module")
def spoken(tmp_path_factory) -> dict[str, Spoken]:
    found = {}
    for vocoder in ("waveglow", "griffin-lim"):
        folder = tmp_path_factory.mktemp(vocoder)
        words = [*speech_flags(folder, *PHRASES), "--seed", 0, "--vocoder", vocoder]
        found[vocoder] = Spoken(folder, succeed("inference.py", *words))
    return found


@pytest.fixture
def usual(spoken: dict[str, Spoken]) -> Path:
    return spoken["waveglow"].folder


def test_training_leaves_checkpoints_a_link_and_logs() -> None:
    folder = train_tiny_model("WaveGlow").parent
    names = ("0.pt", "1.pt", "1.safetensors", "best.pt", "last.pt")
    wanted = {*(f"checkpoint_WaveGlow_{name}" for name in names), "nvlog.json", "tensorboard"}
    assert {path.name for path in folder.iterdir()} - {"training.txt", "validation.txt"} == wanted
    assert (folder / "checkpoint_WaveGlow_last.pt").readlink() == Path("checkpoint_WaveGlow_1.pt")


@pytest.mark.parametrize("vocoder", ["waveglow", "griffin-lim"])
def test_speech_is_written_as_wav_and_png_for_each_line(spoken: dict[str, Spoken], vocoder: str) -> None:
    folder, printed = spoken[vocoder]
    lines = range(len(PHRASES))
    wanted = {f"audio_{i}.wav" for i in lines} | {f"alignment_{i}.png" for i in lines}
    wanted |= {"nvlog.json", "inference.jsonl", "phrases.txt"}
    assert {path.name for path in folder.iterdir()} == wanted
    for i in lines:
        samples = sound(folder / f"audio_{i}.wav")
        assert len(samples) == 20 * 5 * HOP  # decoder steps x frames a step: an untrained gate never fires
        assert np.abs(samples).max() > 0.01
        picture = imread(folder / f"alignment_{i}.png")
        assert picture.shape[0] > 300 and picture.shape[1] > 600
        assert np.ptp(picture[..., :3]) > 0.5
    shown = re.findall(r"audio_(\d)\.wav  (\S+) s  (.*?)  \(never stopped", printed)
    assert shown == [(str(i), f"{20 * 5 * HOP / RATE:.2f}", PHRASES[i]) for i in lines]


def test_the_log_of_speech_and_of_the_settings_of_checkpoints(spoken: dict[str, Spoken], usual: Path) -> None:
    said = numbers(usual)
    assert set(said) == ACOUSTIC_KEYS | VOCODER_KEYS
    assert said["tacotron2_items_per_sec"] * said["tacotron2_latency"] == pytest.approx(300)
    assert said["waveglow_items_per_sec"] * said["waveglow_latency"] == pytest.approx(300 * HOP)
    parts = [said[f"{part}_latency"] for part in ("tacotron2", "waveglow", "denoiser")]
    assert min(parts) > 0 and sum(parts) <= said["latency"]
    plain = numbers(spoken["griffin-lim"].folder)
    assert set(plain) == ACOUSTIC_KEYS | {"griffin_lim_items_per_sec", "griffin_lim_latency"}
    flags = read_parameters(usual / "nvlog.json")
    assert flags["n_mel_channels"] == 10
    assert (flags["text_cleaners"], flags["text_reading"]) == (["english_cleaners"], "spoken")
    assert flags["tacotron2_config"]["decoder_rnn_dim"] == 24
    assert flags["waveglow_config"]["WN_config"]["n_channels"] == 8
    assert flags["sigma_infer"] == 0.9
    assert not {"decoder_rnn_dim", "wn_channels"} & set(flags)  # whose defaults were not used


def test_the_same_seed_says_the_same_and_warming_up_does_not_matter(tmp_path: Path, usual: Path) -> None:
    """Flags of training have no effect, and a note says so."""
    words = ["--include-warmup", "--deterministic", "--suffix", "_warm", "--segment-length", 8000]
    printed = succeed("inference.py", *tiny(tmp_path), *words)
    assert "note: --segment-length has no effect here" in printed
    assert sounds(tmp_path) == sounds(usual) and len(sounds(usual)) == len(PHRASES)
    assert {path.name for path in tmp_path.glob("*.wav")} == {f"audio_{i}_warm.wav" for i in range(len(PHRASES))}


def pair(folder: Path, usual: Path) -> tuple[np.ndarray, np.ndarray]:
    return sound(folder / "audio_0.wav"), sound(usual / "audio_0.wav")


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_half_precision_on_a_cpu(tmp_path: Path, usual: Path, monkeypatch, has_bfloat16: bool) -> None:
    """Where bfloat16 is slow, only weights of the decoder are rounded, by 2^-11, and a note says so."""
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: has_bfloat16)
    words = [word for word in tiny(tmp_path, PHRASES[:1]) if word != "--cpu"]
    printed = succeed("inference.py", *words, "--fp16")
    assert ("--fp16: bfloat16 is slower than float32 on this CPU" in printed) != has_bfloat16
    half, full = pair(tmp_path, usual)
    assert not np.array_equal(half, full)
    if has_bfloat16:
        assert np.std(half) == pytest.approx(np.std(full), rel=0.2)
    else:
        np.testing.assert_allclose(half, full, atol=0.01)


def test_int8_rounds_weights_on_an_x86_and_says_where_it_cannot(tmp_path: Path, usual: Path, monkeypatch) -> None:
    printed = succeed("inference.py", *tiny(tmp_path, PHRASES[:1]), "--int8")
    can = platform.machine() in ("x86_64", "AMD64")
    assert ("no effect" in printed) != can
    rounded, full = pair(tmp_path, usual)
    assert np.array_equal(rounded, full) != can
    np.testing.assert_allclose(rounded, full, atol=0.1)
    for name in ("has_float16_linear", "has_int8_products"):
        monkeypatch.setattr(f"common.kernels.private_ops.{name}", lambda: False)
    printed = succeed("inference.py", *tiny(tmp_path, PHRASES[:1]), "--int8")
    assert "--int8: no effect on this CPU, it is for x86 CPUs" in printed
    assert np.array_equal(*pair(tmp_path, usual))


LONG = "The first one is short. The second, which is longer, has two commas in it; and so on, and so on! Is it the end?"


@pytest.mark.parametrize("vocoder", ["griffin-lim", "waveglow"])
def test_a_stream_carries_the_written_audio(tmp_path: Path, vocoder: str) -> None:
    live, words = tmp_path / "live", ["--vocoder", vocoder, "--longest-piece", 50, "--max-decoder-steps", 4]
    printed = succeed("inference.py", *tiny(tmp_path, [LONG, "Two."]), *words, "--include-warmup", "--stream", live)
    assert f"sound goes to {live} as it is made: 22050 Hz, 16 bits, mono (aplay -f S16_LE -r 22050)" in printed
    written = [part for i in range(2) for part in (*sound(tmp_path / f"audio_{i}.wav"), *[0.0] * round(0.5 * RATE))]
    assert (np.frombuffer(live.read_bytes(), "<i2") / 32768).tolist() == written
    assert numbers(tmp_path)["first_sound_latency"] > 0


def test_characters_that_are_left_out_are_said_by_their_lines(tmp_path: Path) -> None:
    lines = ["“Two” — at 6:45 p.m. for £5, été.", "I ☃ it, 🙂 and ☃.", "", "***"]
    lines += ['<speak><voice name="a">Three.</voice></speak>', r"$5 and $6_^ in {HH AW1 S}, 50 % of \alpha & <b>co</b>"]
    printed = succeed("inference.py", *tiny(tmp_path, lines), *QUIET, "--alignments")
    (left_out,) = [line for line in printed.splitlines() if "phrases.txt:2: the alphabet has" in line]
    assert left_out.endswith("phrases.txt:2: the alphabet has no '☃', '🙂': left out")
    assert "phrases.txt: no words in lines 3, 4: no sound" in printed
    assert "phrases.txt:5: <voice> of SSML has no effect" in printed
    for kind, ending in (("audio", "wav"), ("alignment", "png")):  # of line 6, whose marks mean something to a plot
        found = sorted(path.name for path in tmp_path.glob(f"{kind}_*"))
        assert found == [f"{kind}_{number}.{ending}" for number in (0, 1, 4, 5)]


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ([], "one of the arguments -i/--input --text is required"),
        (["-i", "a.txt", "--text", "b"], "argument --text: not allowed with argument -i/--input"),
        (["--text", "a\udcff"], "argument --text: 'a\\udcff', expected UTF-8"),
        (["--text", "Two {HH", "--cpu"], "error: --text:1: text: '{' at character 5"),
        (["-i", "x", "--stream", "x", "--normalize", "peak"], "--normalize peak: needs the whole sound"),
        (["-i", "x", "--sample-format", "float32", "--format", "flac"], "float32: --format flac has none"),
        (["-i", "x", "--resume", "--stream", "x"], "--resume: a stream has all lines"),
        (["-i", "x", "-bs", "-1"], "-1, expected at least 0"),
        (["--text", "Two.", "--export", "x", "--vocoder", "waveglow"], "--export: has models of its own"),
    ],
)
def test_refusals(tmp_path: Path, given: list[str], problem: str) -> None:
    result = run("inference.py", *given, "-o", tmp_path)
    assert result.code == (1 if "{" in problem else 2) and problem in result.err


@pytest.mark.slow
def test_phrases_by_flag_and_from_standard_input_are_those_of_a_file(tmp_path: Path) -> None:
    """One line a sound, one of totals, and how to play the first; the settings stand in the log."""
    texts = ["Two.", "It is three.\n\nTwo."]
    voice = [*tiny(tmp_path)[2:], *QUIET]
    out = succeed("inference.py", "--text", texts[0], "--text", texts[1], *voice).splitlines()
    shown = [f"{tmp_path}/audio_0.wav  0.17 s  Two.", f"{tmp_path}/audio_1.wav  0.70 s  It is three. Two.  (2 pieces)"]
    assert [line.partition("  (never")[0] for line in out[1:3]] == shown and len(out) == 5
    assert out[3].startswith("DLL ") and "latency" in out[3] and out[4].endswith(how_to_play(tmp_path / "audio_0.wav"))
    assert read_parameters(tmp_path / "nvlog.json")["text"] == texts
    spoken = sound(tmp_path / "audio_0.wav")
    piped = [sys.executable, "inference.py", "-i", "-", *map(str, voice), "--verbose"]
    done = subprocess.run(piped, cwd=ROOT, input="Two.\nI ☃ it.\n", capture_output=True, text=True)
    assert done.returncode == 0 and "/dev/stdin:2: the alphabet has no '☃'" in done.stdout
    assert re.search("^DLL .* - PARAMETER seed : 0$", done.stdout, re.M)
    assert np.array_equal(sound(tmp_path / "audio_0.wav"), spoken)


@pytest.mark.slow
def test_the_log_of_a_training_run_is_moved_aside_and_one_of_inference_grows(tmp_path: Path) -> None:
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1)
    training = (tmp_path / "nvlog.json").read_bytes()
    out = succeed("inference.py", *tiny(tmp_path), *QUIET)
    log, aside = tmp_path / "nvlog.json", tmp_path / "nvlog_1.json"
    assert f"{log} was the log of a training run: it is now {aside}" in out
    assert aside.read_bytes() == training
    assert len([step for step, _ in read_steps(log)]) == 1
    assert "log of a training run" not in succeed("inference.py", *tiny(tmp_path), *QUIET)
    assert len([step for step, _ in read_steps(log)]) == 2 and not (tmp_path / "nvlog_2.json").exists()


def test_a_log_of_strange_lines_is_no_training_log(tmp_path: Path) -> None:
    path = tmp_path / "nvlog.json"
    path.write_text('no record\nDLLL not JSON\nDLLL []\nDLLL {"step": "PARAMETER", "data": null}\n')
    assert read_head(path).model_name == ""
    with NvLog(path) as log:
        log.parameters({"model_name": "WaveGlow"})
    assert read_head(path).model_name == "WaveGlow"
