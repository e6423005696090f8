"""The latency benchmark: its statistics against closed forms, and whole runs of tiny models through its flags."""

import random
import statistics
from pathlib import Path

import numpy as np
import pytest

from benchmarks import latency
from common.audio.stft import AudioConfig
from tacotron2.data_function import encode
from tests.recipe import MODELS, ROOT, Result, read_parameters, read_steps, run, train_tiny_model

RATE, HOP = 22050, 256
TINY = f"{MODELS['Tacotron2']} {MODELS['WaveGlow']}".replace("--segment-length 4096", "").split()
ITERATION_KEYS = {f"{model}_{name}" for model in ("tacotron2", "waveglow") for name in ("items_per_sec", "latency")}
ITERATION_KEYS |= {"denoiser_latency", "latency"}
COLUMNS = ["Batch size", "Input length", "Precision", "Avg latency (s)", "Latency std (s)"]
COLUMNS += [f"Latency confidence {p} % (s)" for p in (50, 90, 95, 99)]
COLUMNS += ["Throughput (samples/s)", "Avg mels generated", "Avg audio length (s)", "Avg RTF"]


def tiny(folder: Path, *words: object) -> list[object]:
    """Flags of a short run with tiny models of random weights; the last of a flag wins."""
    return ["-o", folder, "--cpu", "-il", 20, "--num-iters", 3, "--warmup", 1, *TINY, *words]


def measure(*words: object) -> Result:
    result = run("benchmarks/latency.py", *words)
    assert result.code == 0, result.err
    return result


def parse_table(out: str) -> dict[str, str]:
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


def test_statistics_of_drawn_latencies_and_lengths() -> None:
    source = random.Random(1)
    latencies = [source.lognormvariate(0, 0.3) for _ in range(57)]
    frames = [source.randrange(500, 700) for _ in latencies]
    said = latency.summarise(latencies, frames, batch_size=2, audio=AudioConfig())
    cuts = statistics.quantiles(latencies, n=100, method="inclusive")  # 99 cut points: cuts[p - 1] is percentile p
    assert [said[f"p{p}_latency"] for p in (50, 90, 95, 99)] == pytest.approx([cuts[p - 1] for p in (50, 90, 95, 99)])
    assert said["std_latency"] == pytest.approx(statistics.pstdev(latencies))
    assert said["latency"] == pytest.approx(statistics.fmean(latencies))
    assert said["mels_generated"] == pytest.approx(statistics.fmean(frames) / 2)
    assert said["audio_length"] == pytest.approx(statistics.fmean(frames) / 2 * HOP / RATE)
    assert said["samples_per_sec"] == pytest.approx(sum(frames) * HOP / sum(latencies))
    assert said["rtf"] == pytest.approx(sum(frames) / 2 * HOP / RATE / sum(latencies))
    one = latency.summarise([0.8], [602], batch_size=1, audio=AudioConfig())
    assert [one[f"p{p}_latency"] for p in (50, 90, 95, 99)] == [0.8] * 4 and one["std_latency"] == 0
    assert round(one["audio_length"], 2) == 6.99  # as the published table has it for 602 frames


def test_symbols_and_frames_are_as_many_as_asked_for() -> None:
    assert latency.sentence(24) == "Every morning the old fe"
    for length in (2, 17, 64, 128, 190, 500):  # a single letter is read as its name
        text = latency.sentence(length)
        assert encode([text], {})[1].tolist() == [length] == [len(text)]
    for words, steps in (
        (["-il", "128"], 602),
        (["-il", "10"], 47),
        (["-il", "1000"], 2000),  # the decoder's own limit
        (["--n-frames-per-step", "3"], 201),
        (["--mel-frames", "100", "--n-frames-per-step", "3"], 34),
    ):
        assert latency.decoder_steps(vars(latency.parse_args(words)[0])) == steps


def test_random_models_speak_for_the_frames_that_are_asked_for_and_the_table_is_that_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "nvlog.json").write_text("an older log\n")
    result = measure(*tiny(tmp_path, "-bs", 2, "--mel-frames", 43, "--num-iters", 7))  # 9 steps of 5 frames
    assert f"older logs: {tmp_path}/nvlog.json is now {tmp_path}/nvlog_1.json\n" in result.out
    assert (tmp_path / "nvlog_1.json").read_text() == "an older log\n"
    assert "7 iterations after 1 for warm-up; tacotron2: random weights, waveglow: random weights; " in result.out
    row, records, said = parse_table(result.out), iterations(tmp_path), totals(tmp_path)
    shares = []
    assert [row[name] for name in COLUMNS[:3]] == ["2", "20", "FP32"]
    assert float(row["Avg mels generated"]) == 45
    assert float(row["Avg audio length (s)"]) == round(45 * HOP / RATE, 2)
    assert [step for step, _ in read_steps(tmp_path / "nvlog.json")] == [*((0, number) for number in range(7)), ()]
    for record in records:
        assert set(record) == ITERATION_KEYS
        assert record["tacotron2_items_per_sec"] * record["tacotron2_latency"] == pytest.approx(2 * 45)
        assert record["waveglow_items_per_sec"] * record["waveglow_latency"] == pytest.approx(2 * 45 * HOP)
        parts = record["tacotron2_latency"] + record["waveglow_latency"] + record["denoiser_latency"]
        assert parts <= record["latency"]
        shares.append(parts / record["latency"])
    assert max(shares) > 0.3  # another process may take the core between two parts
    for name in ITERATION_KEYS:
        assert said[name] == pytest.approx(np.mean([record[name] for record in records]))
    for name, column in zip(("latency", "std_latency", *(f"p{p}_latency" for p in (50, 90, 95, 99))), COLUMNS[3:9]):
        assert float(row[column]) == pytest.approx(said[name], abs=1e-4)
    assert float(row["Throughput (samples/s)"]) == pytest.approx(2 * 45 * HOP / said["latency"], abs=1)
    assert float(row["Avg RTF"]) == pytest.approx(45 * HOP / RATE / said["latency"], abs=0.01)


@pytest.mark.slow
def test_checkpoints_bring_their_sizes_and_their_gates(tmp_path: Path) -> None:
    words = ["-o", tmp_path, "--cpu", "-il", 20, "--num-iters", 1, "--warmup", 0]
    words += ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    out = measure(*words, "--max-decoder-steps", 3, "--gate-threshold", 1).out
    assert float(parse_table(out)["Avg mels generated"]) == 15
    assert f"tacotron2: {train_tiny_model('Tacotron2')}, waveglow: {train_tiny_model('WaveGlow')}" in out
    flags = read_parameters(tmp_path / "nvlog.json")
    assert flags["tacotron2_config"]["decoder_rnn_dim"] == 24
    assert flags["waveglow_config"]["WN_config"]["n_channels"] == 8
    assert float(parse_table(measure(*words, "--gate-threshold", 0).out)["Avg RTF"]) == 0  # it fires at once
    with_random_vocoder = [*words[:-2], *TINY[TINY.index("--flows") :], "--n-mel-channels", 10]
    assert "waveglow: random weights" in measure(*with_random_vocoder, "--max-decoder-steps", 3).out


REFUSALS = {
    "latency": [
        (["-bs", 0], "argument -bs/--batch-size: 0, expected at least 1"),
        (["--warmup", -1, "-s", "nan"], "error: --warmup: -1, expected 0 or more\n--sigma-infer: nan, expected 0 or"),
        (["--mel-frames", 101], "error: --mel-frames: 101, expected at most 100; or raise --max-decoder-steps"),
        (["--mel-frames", 9, "--tacotron2", "some.pt"], "error: --mel-frames: the gate of --tacotron2 ends its clips"),
    ],
    "speed": [
        (["--repeats", 0], "argument --repeats: 0, expected at least 1"),
        (["-o", ROOT / "Makefile" / "bench"], "bench: cannot be created (Not a directory)\n"),
    ],
}


@pytest.mark.parametrize(("script", "words", "said"), [(name, *row) for name, rows in REFUSALS.items() for row in rows])
def test_flags_that_cannot_work_are_refused(tmp_path: Path, script: str, words: list[object], said: str) -> None:
    usual = tiny(tmp_path / "none") if script == "latency" else ["--quick", "--cpu"]
    result = run(f"benchmarks/{script}.py", *usual, *words)
    assert result.code == (1 if "-o" in words else 2) and said in result.err
    assert not (tmp_path / "none").exists()


def test_ctrl_c_ends_with_the_table_of_what_was_measured(tmp_path: Path, monkeypatch, capsys) -> None:
    """In half precision, and without the denoiser."""
    argv = [str(word) for word in tiny(tmp_path, "--num-iters", 100000, "--fp16", "-d", 0)]
    synthesise, calls = latency.synthesise, iter(range(3))  # one to warm up

    def interrupted(*inputs):
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return synthesise(*inputs)

    monkeypatch.setattr(latency, "synthesise", interrupted)
    with pytest.raises(SystemExit) as leaving:
        latency.main(argv)
    out = capsys.readouterr().out
    assert leaving.value.code == 130
    assert "2 iterations after 1 for warm-up" in out
    row, said = parse_table(out), totals(tmp_path)
    assert float(row["Avg latency (s)"]) == pytest.approx(said["latency"], abs=1e-4)
    assert row["Precision"] in ("BF16", "FP32") and said["denoiser_latency"] == 0 < said["waveglow_latency"]
