import io
import json
import os
import re
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from common.data.pictures import plot_gate
from common.errors import DataError
from common.run.nvlog import NvLog
from tests.recipe import read_log

KEYS = ["timestamp", "datetime", "elapsedtime", "type"]
STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}"


def strict_records(path):
    """Records by a parser that refuses NaN, as readers outside Python do."""

    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    lines = path.read_text().splitlines()
    assert all(line.startswith("DLLL {") for line in lines)
    return [json.loads(line[5:], parse_constant=refuse) for line in lines]


def log_records(path):
    return [record for record in strict_records(path) if record["type"] == "LOG"]


def test_a_record_has_exactly_the_published_keys_and_steps_of_every_length(tmp_path):
    data = {"train_loss": 5.25, "glob_iter/iters_per_epoch": "12/625"}
    with NvLog(tmp_path / "new" / "nvlog.json") as log:
        for step in [(), (1,), (1, 2), (1, 2, 3)]:
            log.log(step, data)
        for step in ["EPOCH", (1, 2, 3, 4), (0.5,), 7]:
            with pytest.raises(TypeError, match="step"):
                log.log(step, data)
    records = log_records(tmp_path / "new" / "nvlog.json")
    assert [record["step"] for record in records] == [[], [1], [1, 2], [1, 2, 3]]
    for record in records:
        assert list(record) == [*KEYS, "step", "data"] and record["data"] == data
        assert all(isinstance(record[key], str) for key in KEYS)
        assert re.fullmatch(STAMP, record["datetime"])
        seconds = datetime.fromisoformat(record["datetime"]).timestamp()
        assert seconds == pytest.approx(float(record["timestamp"]), abs=2e-6)
        assert 0 <= float(record["elapsedtime"]) < 60


def test_metadata_names_each_known_metric_and_its_unit_before_its_first_value(tmp_path):
    names = {
        "": "train_loss val_loss",
        "items/s": "train_items_per_sec val_items_per_sec train_iter_items/sec train_epoch_items/sec"
        " tacotron2_items_per_sec waveglow_items_per_sec",
        "s": "train_iter_time train_epoch_time run_time tacotron2_latency waveglow_latency denoiser_latency latency",
    }
    wanted = {name: unit for unit, metrics in names.items() for name in metrics.split()}
    with NvLog(tmp_path / "n.json") as log:
        for name in [*wanted, *wanted, "grad_norm"]:
            log.log((0,), {name: 1.0})
    records = strict_records(tmp_path / "n.json")
    logged, units = set(), {}
    for record in records:
        if record["type"] == "METADATA":
            assert list(record) == [*KEYS, "metric", "metadata"]
            assert record["metric"] not in logged | set(units)
            units[record["metric"]] = record["metadata"]["unit"]
        logged |= set(record.get("data", ()))
    assert units == wanted


def test_stdout_line(tmp_path, capsys):
    with NvLog(tmp_path / "n.json", progress=False) as log:
        log.log((0, 12), {"train_loss": 5.1234567, "train_iter_time": 0.5, "grad_norm": 2.34, "steps": 7, "x": 1 / 3})
        log.log((), {"run_time": 61.5})
        log.parameters({"amp": True})
    assert re.sub(f"^DLL {STAMP} - ", "", capsys.readouterr().out, flags=re.M).splitlines() == [
        "(0, 12) train_loss : 5.12346 train_iter_time : 0.5000 s grad_norm : 2.34 steps : 7 x : 0.333333",
        "() run_time : 61.50 s",
        "PARAMETER amp : True",
    ]


def test_parameters_one_record_a_flag_numbers_that_come_back_and_a_tensor_that_is_refused(tmp_path):
    flags = {"output": Path("out"), "lr": 1e-3, "anneal_steps": [500, 1000], "seed": None, "clip": float("inf")}
    with NvLog(tmp_path / "n.json") as log:
        log.parameters({**flags, "device": torch.device("cpu"), "rate": np.float32(0.5), "config": {"n": np.int64(3)}})
    records = log_records(tmp_path / "n.json")
    plain = {"output": "out", "clip": "Infinity", "device": "cpu", "rate": 0.5, "config": {"n": 3}}
    wanted = [("PARAMETER", {name: value}) for name, value in (flags | plain).items()]
    assert [(record["step"], record["data"]) for record in records] == wanted
    values = {"train_loss": float("nan"), "a": float("inf"), "b": float("-inf"), "c": np.float32("nan"), "d": 1.5}
    with NvLog(tmp_path / "m.json") as log:
        log.log((0,), values)
    strict = {"train_loss": "NaN", "a": "Infinity", "b": "-Infinity", "c": "NaN", "d": 1.5}
    assert log_records(tmp_path / "m.json")[0]["data"] == strict
    data = read_log(tmp_path / "m.json")[-1]["data"]
    np.testing.assert_array_equal(list(data.values()), [float(value) for value in values.values()])
    with NvLog(tmp_path / "n.json") as log, pytest.raises(TypeError, match="train_loss is a Tensor"):
        log.log((0,), {"train_loss": torch.tensor(1.0)})


def test_a_record_that_was_cut_short_is_not_continued(tmp_path):
    path = tmp_path / "n.json"
    with NvLog(path) as log:
        log.log((0,), {"val_loss": 1.0})
    whole = path.read_bytes()
    cut = [whole[:-1], *(whole + whole.splitlines()[-1][:size] for size in (1, 4, 5, 6, 60, -1))]
    for content in (*cut, whole + b"notes", whole + b"DL notes"):
        path.write_bytes(content)
        with NvLog(path) as log:
            log.log((1,), {"val_loss": 0.5})
        others = content.removeprefix(whole) + b"\n" if content.endswith(b"notes") else b""
        assert path.read_bytes().startswith(whole + others + b"DLLL {")
        assert others or [record["step"] for record in log_records(path)] == [[0], [1]]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_a_data_error(tmp_path):
    with (
        NvLog(tmp_path / "n.json") as log,
        Path("/dev/full").open("ab", buffering=0) as full,
        pytest.raises(DataError, match=r"n.json: cannot write the log \(No space left on device\)"),
    ):
        log._file.close()
        log._file = full
        log.log((0,), {"train_loss": 1.0})


def test_a_log_is_a_regular_file_and_tensorboard_has_a_folder(tmp_path):
    """Records went to a link's target, and a pipe without a reader hung."""
    (tmp_path / "others").mkdir()
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to("others")
    os.mkfifo(pipe)
    for path, kind in ((link, "symbolic link"), (pipe, "named pipe"), (Path("/dev/null"), "device")):
        with pytest.raises(DataError, match=f"{path}: is a {kind}, expected a regular file to append to"):
            NvLog(path)
    with pytest.raises(DataError, match="cannot write the log \\(Is a directory\\)"):
        NvLog(tmp_path)
    with pytest.raises(DataError, match="link: is a symbolic link, expected a folder"):
        NvLog(tmp_path / "n.json", link)


def test_bars_take_the_place_of_iteration_lines_on_stdout_only(tmp_path, capsys):
    with NvLog(tmp_path / "n.json", progress=True) as log:
        for i in log.progress(range(3), "epoch 4"):
            log.log((4, i), {"train_loss": 2.5 - i})
        log.log((4,), {"train_loss": 1.5})
        assert list(log.progress(iter("ab"), "validation", total=2)) == ["a", "b"]
    shown = capsys.readouterr()
    assert re.fullmatch(rf"DLL {STAMP} - \(4,\) train_loss : 1\.50000\n", shown.out)
    assert "epoch 4" in shown.err and "train_loss=2.50000" in shown.err
    assert [record["step"] for record in log_records(tmp_path / "n.json")] == [[4, 0], [4, 1], [4, 2], [4]]


def test_a_sentence_is_no_record_and_without_a_terminal_every_line_is_plain_and_there_at_once(
    tmp_path, capsys, monkeypatch
):
    with NvLog(tmp_path / "n.json", progress=True) as log:
        for _ in log.progress([1], "epoch 0"):
            log.say("warm start")
    assert capsys.readouterr().out == "warm start\n" and not log_records(tmp_path / "n.json")
    contents = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(contents, "utf-8"))
    with NvLog(tmp_path / "n.json") as log:
        log.say("One.")
        assert contents.getvalue() == b"One.\n"
        for i in log.progress(range(2), "epoch 0"):
            log.log((0, i), {"train_loss": 1.5})
            assert contents.getvalue().endswith(b"train_loss : 1.50000\n")
    assert contents.getvalue().count(b" - (0, ") == 2 and capsys.readouterr().err == ""


def test_tensorboard_holds_what_was_given(tmp_path, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    wave = torch.sin(torch.arange(2205) / 10)
    with NvLog(tmp_path / "n.json", tmp_path / "tb") as log:
        assert not (tmp_path / "tb").exists()
        log.scalars("loss", {"train": 2.5, "val": 3.0}, 7)
        log.scalars("loss", {"train": 2.0}, 8)
        log.figure("gate", plot_gate(torch.zeros(3), torch.zeros(3)), 7)
        log.audio("clip", wave * 2, 7, 22050)
        log.audio("empty", wave[:0], 7, 22050)
    with NvLog(tmp_path / "n.json", tmp_path / "tb", purge_step=8) as log:
        log.scalars("loss", {"train": 1.0}, 8)
    assert capsys.readouterr().out == ""  # clipped by us: the writer would print a warning for each clip
    events = EventAccumulator(str(tmp_path / "tb"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss/train")] == [(7, 2.5), (8, 1.0)]
    assert [(event.step, event.value) for event in events.Scalars("loss/val")] == [(7, 3.0)]
    samples, rate = soundfile.read(io.BytesIO(events.Audio("clip")[0].encoded_audio_string))
    np.testing.assert_allclose(samples, np.clip(2 * wave.numpy(), -1, 1), atol=2**-14)
    assert rate == 22050 and events.Images("gate")[0].width == 1080  # 9 inches at 120 dots
