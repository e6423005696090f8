"""The speed benchmark: its figures against closed forms, and a whole run of tiny models through its flags."""

import functools
import json
import os
import signal
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import speed
from benchmarks.cases import QUICK as QUICK_SIZES
from benchmarks.cases import ROWS, MakeCase, Setting, clips, segments
from benchmarks.speed import TITLES, CaseRow, measure_in_process
from common.errors import DataError
from common.kernels.int8 import can_multiply
from tests.recipe import own_signals, start

QUICK = [sys.executable, "-m", "benchmarks.speed", "--quick", "--cpu", "--threads", 1]
NAMES = [  # of the rows, by their beginnings
    "Tacotron 2 training, 2 clips of 10 symbols, 20 frames, float32",
    "WaveGlow-8 training, 1 x 2048 samples, float32",
    "WaveGlow-16 training, 1 x 2048 samples, float32",
    "Tacotron 2 inference, 12 symbols, float32 (",
    "Tacotron 2 inference, 12 symbols, half-precision weights (",
    "WaveGlow-8 inference, 20 frames, float32",
    *["WaveGlow-8 inference, 20 frames, int8 (reference: float32)"] * can_multiply(torch.device("cpu")),
    "Text to wav, 12 characters, WaveGlow-8, float32",
    *["Text to wav, 12 characters, WaveGlow-8, int8 (reference: float32)"] * can_multiply(torch.device("cpu")),
]


def parse_table(out: str) -> dict[str, list[str]]:
    """Parse the table of an output: cells by row."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line[:1] == "|"]
    assert lines[0] == list(TITLES)
    assert all(set(cell) <= set("-:") for cell in lines[1])
    return {name: cells for name, *cells in lines[2:]}


def measure_here(make: MakeCase, device: torch.device, repeats: int) -> CaseRow:
    case = make()
    speed.log_progress(f"{case.name} ...")
    return speed.measure_row(case, device, repeats)


@pytest.mark.slow
def test_the_table_has_all_rows_and_agrees_with_the_files(tmp_path: Path, monkeypatch, capsys) -> None:
    """The rows are measured in this process."""
    monkeypatch.setattr(speed, "measure_in_process", measure_here)
    speed.main([*map(str, QUICK[3:]), "--repeats", "1", "-o", str(tmp_path)])
    out, err = capsys.readouterr()
    table = parse_table(out)
    names = [name for name in table if "bfloat16" not in name]  # where the CPU has it
    assert all(name.startswith(expected) for name, expected in zip(names, NAMES, strict=True))
    assert all(f"{name} ..." in err for name in table)
    assert (tmp_path / "speed.md").read_text() == out
    content = json.loads((tmp_path / "speed.json").read_text())
    assert content["machine"]["threads"] == 1
    assert f"PyTorch {torch.__version__}, {content['machine']['date']}" in out
    assert [row["name"] for row in content["rows"]] == list(table)
    for row in content["rows"]:
        *figures, ratio = table[row["name"]]
        for cell, name in zip(figures, ("reference", "ours"), strict=True):
            assert float(cell.split()[0].replace(",", "")) == pytest.approx(row[name], rel=0.006)
            assert f" {row['unit']}" in cell
        assert float(ratio) == pytest.approx(row["ratio"], abs=0.006)


CPU_AND_GPU = [("cpu", False, True, "float32"), ("cpu", True, True, "bfloat16 (reference: float32)")]
CPU_AND_GPU += [("cpu", True, False, "float32"), ("cuda", False, False, "float32"), ("cuda", True, False, "float16")]


@pytest.mark.parametrize(("device", "amp", "has_bfloat16", "numbers"), CPU_AND_GPU)
def test_cpu_references_are_in_float32(monkeypatch, device: str, amp: bool, has_bfloat16: bool, numbers: str) -> None:
    """The published recipe has no other precision on a CPU; GPU references use the chosen precision."""
    monkeypatch.setattr("common.kernels.private_ops.has_bfloat16", lambda: has_bfloat16)
    setting = Setting(QUICK_SIZES, torch.device(device), amp)
    assert (setting.reference_amp, setting.numbers) == (amp and device == "cuda", numbers)


def test_flags_of_training_are_those_of_our_way_alone() -> None:
    setting = Setting(QUICK_SIZES, torch.device("cpu"), False, "--recompute --weight-decay 0.5")
    (make, _) = ROWS["waveglow-training"](setting)
    case = make()
    assert case.name == "WaveGlow-8 training, 1 x 2048 samples, float32 --recompute --weight-decay 0.5"
    reference, ours = (call.__closure__[0].cell_contents.state for call in (case.reference, case.ours))
    decays = [state.optimizer.param_groups[0]["weight_decay"] for state in (reference, ours)]
    recomputes = [state.setup.options.flat["recompute"] for state in (reference, ours)]
    assert (decays, recomputes) == ([0.0, 0.5], [False, True])
    case.reference(), case.ours()


def test_clips_have_the_requested_lengths() -> None:
    batch = clips(3, 10, 20)
    assert (batch.text.shape, batch.mels.shape, batch.num_items.item()) == ((3, 10), (3, 80, 20), 60)
    assert batch.gates.nonzero().tolist() == [[0, 19], [1, 19], [2, 19]]
    many = clips(1000, 0, None)
    assert many.mel_lengths.float().mean().item() == pytest.approx(566, abs=15)
    assert many.gates.sum(1).tolist() == (870 - many.mel_lengths + 1).tolist()
    cut = segments(2, 1000)
    assert (cut.mels.shape, cut.audio.shape, cut.num_items.item()) == ((2, 80, 4), (2, 1000), 2000)


@pytest.mark.slow
def test_a_process_that_ends_without_a_row_is_an_error() -> None:
    with pytest.raises(DataError, match="a row's process ended with code 7 before the row was measured"):
        measure_in_process(functools.partial(os._exit, 7), torch.device("cpu"), 1)


@pytest.mark.slow
def test_ctrl_c_prints_the_table_of_the_finished_rows(tmp_path: Path) -> None:
    with own_signals():
        signal.signal(signal.SIGINT, signal.default_int_handler)  # even if a shell's & has disabled it for the tests
        process = start(*QUICK, "-o", tmp_path, "--repeats", 1, "--rows", "waveglow-training")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("WaveGlow-16 training"):
            break
    os.killpg(process.pid, signal.SIGINT)  # to all processes of its group, as a terminal does
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")
    table = parse_table(out)
    assert list(table) == NAMES[1:2]
    assert [row["name"] for row in json.loads((tmp_path / "speed.json").read_text())["rows"]] == list(table)
