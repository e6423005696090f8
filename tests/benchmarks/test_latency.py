"""The latency benchmark: its statistics against closed forms, and whole runs of tiny models through its flags."""

from __future__ import annotations

import math
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import latency
from common.audio.stft import AudioConfig
from common.run.nvlog import NvLog, read_log
from tacotron2.data_function import encode
from tests.recipe import MODELS, ROOT, Result, read_steps, run, train_tiny_model

pytestmark = pytest.mark.slow

RATE, HOP = 22050, 256
TINY = [
    word for word in f"{MODELS['Tacotron2']} {MODELS['WaveGlow']}".split() if word not in ("--segment-length", "4096")
]
ITERATION_KEYS = {
    "tacotron2_items_per_sec",
    "tacotron2_latency",
    "waveglow_items_per_sec",
    "waveglow_latency",
    "denoiser_latency",
    "latency",
}
COLUMNS = [
    "Batch size",
    "Input length",
    "Precision",
    "Avg latency (s)",
    "Latency std (s)",
    "Latency confidence 50 % (s)",
    "Latency confidence 90 % (s)",
    "Latency confidence 95 % (s)",
    "Latency confidence 99 % (s)",
    "Throughput (samples/s)",
    "Avg mels generated",
    "Avg audio length (s)",
    "Avg RTF",
]


def tiny(folder: Path, *words: object) -> list[object]:
    """Flags of a short run with tiny models of random weights; the last of a flag wins."""
    return ["-o", folder, "--cpu", "-il", 20, "--num-iters", 3, "--warmup", 1, *TINY, *words]


def measure(*words: object) -> Result:
    result = run("benchmarks/latency.py", *words)
    assert result.code == 0, result.err
    return result


def parse_table(out: str) -> dict[str, str]:
    """The one table of a run's output, by column."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line.startswith("|")]
    header, rule, values = rows
    assert header == COLUMNS
    assert all(cell.strip("-:") == "" for cell in rule)
    return dict(zip(header, values, strict=True))


def iterations(folder: Path) -> list[dict]:
    return [data for step, data in read_steps(folder / "nvlog.json") if len(step) == 2]


def totals(folder: Path) -> dict:
    (data,) = [data for step, data in read_steps(folder / "nvlog.json") if step == ()]
    return data


def test_statistics_of_evenly_spread_latencies_are_those_of_the_closed_forms() -> None:
    latencies = [1 + i / 100 for i in range(101)]  # percentile p is 1 + p / 100
    random.Random(0).shuffle(latencies)
    audio = AudioConfig(sampling_rate=20000, hop_length=200)
    said = latency.summarise(latencies, [400] * 101, batch_size=4, audio=audio)
    assert said == pytest.approx(
        {
            "latency": 1.5,
            "std_latency": math.sqrt((101**2 - 1) / 12) / 100,  # of a discrete uniform distribution
            "p50_latency": 1.5,
            "p90_latency": 1.9,
            "p95_latency": 1.95,
            "p99_latency": 1.99,
            "samples_per_sec": 80000 / 1.5,
            "mels_generated": 100,
            "audio_length": 1.0,
            "rtf": 1 / 1.5,
        }
    )


def test_statistics_of_drawn_latencies_and_lengths() -> None:
    source = random.Random(1)
    latencies = [source.lognormvariate(0, 0.3) for _ in range(57)]
    frames = [source.randrange(500, 700) for _ in latencies]
    said = latency.summarise(latencies, frames, batch_size=2, audio=AudioConfig())
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")  # 99 cut points: cuts[p - 1] is percentile p
    assert [said[f"p{p}_latency"] for p in (50, 90, 95, 99)] == pytest.approx([cuts[p - 1] for p in (50, 90, 95, 99)])
    assert said["std_latency"] == pytest.approx(statistics.pstdev(latencies))
    assert said["samples_per_sec"] == pytest.approx(sum(frames) * HOP / sum(latencies))
    assert said["rtf"] == pytest.approx(sum(frames) / 2 * HOP / RATE / sum(latencies))


def test_one_iteration_has_statistics_too() -> None:
    said = latency.summarise([0.8], [602], batch_size=1, audio=AudioConfig())
    assert [said[f"p{p}_latency"] for p in (50, 90, 95, 99)] == [0.8] * 4
    assert said["std_latency"] == 0
    assert round(said["audio_length"], 2) == 6.99  # as the published table has it for 602 frames
    assert round(said["rtf"], 1) == 8.7


def test_a_sentence_has_as_many_symbols_as_characters() -> None:
    assert latency.sentence(24) == "Every morning the old fe"
    for length in (1, 2, 17, 64, 128, 190, 500):
        text = latency.sentence(length)
        assert encode([text], {})[1].tolist() == [length] == [len(text)]


def test_frames_follow_the_text_in_the_published_proportion() -> None:
    for words, steps in (
        (["-il", "128"], 602),
        (["-il", "10"], 47),
        (["-il", "1000"], 2000),  # the decoder's own limit
        (["--n-frames-per-step", "3"], 201),
        (["--mel-frames", "100", "--n-frames-per-step", "3"], 34),
    ):
        assert latency.decoder_steps(latency.parse_args(words)[0]) == steps


def test_random_models_speak_for_the_frames_that_are_asked_for(tmp_path: Path) -> None:
    result = measure(*tiny(tmp_path, "-bs", 2, "--mel-frames", 43))  # 9 steps of 5 frames
    row = parse_table(result.out)
    assert [row[name] for name in COLUMNS[:3]] == ["2", "20", "FP32"]
    assert float(row["Avg mels generated"]) == 45
    assert float(row["Avg audio length (s)"]) == round(45 * HOP / RATE, 2)
    records = iterations(tmp_path)
    assert [step for step, _ in read_steps(tmp_path / "nvlog.json")] == [(0, 0), (0, 1), (0, 2), ()]
    for record in records:
        assert set(record) == ITERATION_KEYS
        assert record["tacotron2_items_per_sec"] * record["tacotron2_latency"] == pytest.approx(2 * 45)
        assert record["waveglow_items_per_sec"] * record["waveglow_latency"] == pytest.approx(2 * 45 * HOP)
        parts = record["tacotron2_latency"] + record["waveglow_latency"] + record["denoiser_latency"]
        assert 0.3 * record["latency"] < parts <= record["latency"]
    assert "3 iterations after 1 to warm up; tacotron2: random weights, waveglow: random weights; cpu" in result.out


def test_a_second_measurement_leaves_the_first_ones_log_alone(tmp_path: Path) -> None:
    for frames in (43, 48):
        result = measure(*tiny(tmp_path, "--mel-frames", frames))
    assert f"older logs: {tmp_path}/nvlog.json is now {tmp_path}/nvlog_1.json\n" in result.out
    for name in ("nvlog.json", "nvlog_1.json"):
        assert [step for step, _ in read_steps(tmp_path / name)] == [(0, 0), (0, 1), (0, 2), ()]


def test_the_table_and_the_averages_are_those_of_the_iterations(tmp_path: Path) -> None:
    row = parse_table(measure(*tiny(tmp_path, "--num-iters", 7)).out)
    latencies = [record["latency"] for record in iterations(tmp_path)]
    said = totals(tmp_path)
    assert len(latencies) == 7
    for p, column in zip((50, 90, 95, 99), COLUMNS[5:9], strict=True):
        assert float(row[column]) == pytest.approx(np.percentile(latencies, p), abs=1e-4)
        assert said[f"p{p}_latency"] == pytest.approx(np.percentile(latencies, p))
    assert float(row["Avg latency (s)"]) == pytest.approx(np.mean(latencies), abs=1e-4)
    assert float(row["Latency std (s)"]) == pytest.approx(np.std(latencies), abs=1e-4)
    for name in ITERATION_KEYS:
        assert said[name] == pytest.approx(np.mean([record[name] for record in iterations(tmp_path)]))
    frames = 95  # 4.7 x 20 in steps of 5
    assert float(row["Throughput (samples/s)"]) == pytest.approx(frames * HOP / np.mean(latencies), abs=1)
    assert float(row["Avg RTF"]) == pytest.approx(frames * HOP / RATE / np.mean(latencies), abs=0.01)


def test_checkpoints_bring_their_sizes_and_their_gates(tmp_path: Path) -> None:
    words = ["-o", tmp_path, "--cpu", "-il", 20, "--num-iters", 1, "--warmup", 0]
    words += ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    out = measure(*words, "--max-decoder-steps", 3, "--gate-threshold", 1).out
    assert float(parse_table(out)["Avg mels generated"]) == 15
    assert f"tacotron2: {train_tiny_model('Tacotron2')}, waveglow: {train_tiny_model('WaveGlow')}" in out
    flags = {k: v for record in read_log(tmp_path / "nvlog.json") for k, v in record.get("data", {}).items()}
    assert flags["tacotron2_config"]["decoder_rnn_dim"] == 24
    assert flags["waveglow_config"]["WN_config"]["n_channels"] == 8
    assert float(parse_table(measure(*words, "--gate-threshold", 0).out)["Avg RTF"]) == 0  # it fires at once
    with_random_vocoder = [*words[:-2], *TINY[TINY.index("--flows") :], "--n-mel-channels", 10]
    out = measure(*with_random_vocoder, "--max-decoder-steps", 3).out
    assert "waveglow: random weights" in out


@pytest.mark.parametrize(("supported", "name"), [(True, "BF16"), (False, "FP32")])
def test_half_precision_on_a_cpu_is_bfloat16_where_it_has_that(
    tmp_path: Path, monkeypatch, supported: bool, name: str
) -> None:
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: supported)
    assert parse_table(measure(*tiny(tmp_path, "--fp16")).out)["Precision"] == name


@pytest.mark.parametrize(("can", "name"), [(True, "FP32 + INT8"), (False, "FP32")])
def test_int8_is_named_where_it_has_an_effect(tmp_path: Path, monkeypatch, can: bool, name: str) -> None:
    monkeypatch.setattr("common.precision.reads_float16", lambda device: can)
    assert parse_table(measure(*tiny(tmp_path, "--int8")).out)["Precision"] == name


def test_without_a_denoiser_its_latency_is_none(tmp_path: Path) -> None:
    measure(*tiny(tmp_path, "-d", 0))
    assert totals(tmp_path)["denoiser_latency"] == 0
    assert totals(tmp_path)["waveglow_latency"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-bs", 0], "argument -bs/--batch-size: 0, expected at least 1"),
        (["-il", 0], "argument -il/--input-length: 0, expected at least 1"),
        (["--num-iters", 0], "argument --num-iters: 0, expected at least 1"),
        (["--num-it", 3], "unrecognized arguments: --num-it 3"),
        (["--warmup", -1, "-s", "nan"], "error: --warmup: -1, expected 0 or more\n--sigma-infer: nan, expected 0 or"),
        (["-d", -0.5], "error: --denoising-strength: -0.5, expected 0 or more"),
        (["--mel-frames", 101], "error: --mel-frames: 101, expected at most 100; or raise --max-decoder-steps"),
        (["--mel-frames", 9, "--tacotron2", "some.pt"], "error: --mel-frames: the gate of --tacotron2 ends its clips"),
        (["--wn-kernel-size", 4], "--wn-kernel-size"),
        (["--n-frames-per-step", 0], "error: --n-frames-per-step: 0, expected at least 1"),
    ],
)
def test_flags_that_cannot_work_are_refused(tmp_path: Path, words: list[object], said: str) -> None:
    result = run("benchmarks/latency.py", *tiny(tmp_path / "none", *words))
    assert result.code == 2
    assert said in result.err
    assert not (tmp_path / "none").exists()


def test_checkpoints_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    missing = run("benchmarks/latency.py", *tiny(tmp_path, "--waveglow", tmp_path / "none.pt"))
    assert missing.code == 1
    assert missing.err.startswith(f"error: {tmp_path / 'none.pt'}")
    words = [*tiny(tmp_path), "--n-mel-channels", 12, "--waveglow", train_tiny_model("WaveGlow")]  # which has 10
    contradicting = run("benchmarks/latency.py", *words)
    assert contradicting.code == 2
    assert "n_mel_channels is 10 in it, 12 as requested" in contradicting.err


@pytest.fixture
def default_ctrl_c() -> Iterator[None]:
    """Ctrl-C interrupts processes started here, even where a shell's & made these tests ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_ctrl_c")
def test_ctrl_c_ends_with_the_table_of_what_was_measured(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.latency", *tiny(tmp_path, "--num-iters", 100000)]
    process = subprocess.Popen(
        list(map(str, words)),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )
    log = tmp_path / "nvlog.json"
    deadline = time.monotonic() + 120
    while not (log.exists() and '"step": [0, 2]' in log.read_text()):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")
    done = len(iterations(tmp_path))
    assert 3 <= done < 100000
    counts = (done - 1, done)  # the signal may come between an iteration's line in the log and its count
    assert any(f"{count} iterations after 1 to warm up" in out for count in counts)
    assert float(parse_table(out)["Avg latency (s)"]) == pytest.approx(totals(tmp_path)["latency"], abs=1e-4)


def test_stopped_before_anything_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args, _ = latency.parse_args(["--num-iters", "5"])

    def say() -> latency.Iteration:
        raise KeyboardInterrupt

    with NvLog(tmp_path / "log.json") as log:
        done, interrupted = latency.measure(say, args, log)
        latency.report(done, args, AudioConfig(), torch.device("cpu"), log)
    assert (done, interrupted) == ([], True)
    assert capsys.readouterr().out == "stopped before the first iteration was measured\n"
