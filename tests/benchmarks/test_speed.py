"""The speed benchmark: its figures against closed forms, and a whole run of tiny models through its flags."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.cases import ROWS, clips, segments
from benchmarks.growth import SUBJECTS
from benchmarks.machine import Machine
from benchmarks.sizes import QUICK as QUICK_SIZES
from benchmarks.sizes import Setting
from benchmarks.speed import TITLES, Row, in_its_own_process
from common.errors import DataError
from common.kernels.int8 import can_multiply
from tests.recipe import ROOT, run, start

QUICK = [sys.executable, "-m", "benchmarks.speed", "--quick", "--cpu", "--threads", 1]
BEST = "int8 (reference: float32)" if can_multiply(torch.device("cpu")) else "float32"
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
    "Start to sound, 10 frames, WaveGlow-8",
    "Start to first sound (reference: to all of it), 20 frames, WaveGlow-8",
]


class Finished(NamedTuple):
    """A whole run's output, files and table by row."""

    out: str
    err: str
    folder: Path
    table: dict[str, list[str]]


def parsed(out: str) -> dict[str, list[str]]:
    """The one table of an output: cells by row."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in out.splitlines() if line[:1] == "|"]
    assert lines[0] == list(TITLES)
    assert all(set(cell) <= set("-:") for cell in lines[1])
    return {name: cells for name, *cells in lines[2:]}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("bench")
    words = [*QUICK, "--repeats", 1, "--growth", "-o", folder]
    done = subprocess.run([str(word) for word in words], cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return Finished(done.stdout, done.stderr, folder, parsed(done.stdout))


def test_every_row_is_there(finished: Finished) -> None:
    halved = [name for name in finished.table if "bfloat16" in name]  # where the CPU has it
    names = [name for name in finished.table if name not in halved]
    assert len(names) == len(NAMES)
    assert all(name.startswith(wanted) for name, wanted in zip(names, NAMES, strict=True))
    assert all(f"{name} ..." in finished.err for name in names)
    assert [name for name, cells in finished.table.items() if cells[3] == "-"] == NAMES[-2:]


def test_files_say_what_the_table_says(finished: Finished) -> None:
    assert (finished.folder / "speed.md").read_text() == finished.out
    content = json.loads((finished.folder / "speed.json").read_text())
    assert content["machine"]["threads"] == 1
    assert f"PyTorch {torch.__version__}, {content['machine']['date']}" in finished.out
    assert [row["name"] for row in content["rows"]] == list(finished.table)
    for row in content["rows"]:
        reference, ours, ratio, limit, share = finished.table[row["name"]]
        for cell, value in ((reference, row["reference"]), (ours, row["ours"]), (limit, row["limit"])):
            if value is not None:
                assert float(cell.split()[0].replace(",", "")) == pytest.approx(value, rel=0.006)
                assert f" {row['unit']}" in cell
        assert float(ratio) == pytest.approx(row["ratio"], abs=0.006)
        faster = row["ours"] / row["reference"]
        assert row["ratio"] == pytest.approx(faster if row["higher_is_better"] else 1 / faster)
        if row["limit"]:
            assert int(share.removesuffix(" %")) == pytest.approx(100 * row["ours"] / row["limit"], abs=0.5)
    ours = finished.table[next(name for name in finished.table if "TorchScript" in name)][1]
    rate, milliseconds = float(ours.split()[0].replace(",", "")), float(ours.split("(")[1].split()[0])
    assert milliseconds == pytest.approx(1000 / rate, rel=0.02)


def test_growth_has_points_and_pictures(finished: Finished) -> None:
    growths = json.loads((finished.folder / "speed.json").read_text())["growth"]
    assert list(growths) == list(SUBJECTS) == ["batch", "text", "audio", "channels", "processes"]
    for name, growth in growths.items():
        assert growth["sizes"] == list(SUBJECTS[name].quick_sizes)
        assert all(len(growth[way]) == len(growth["sizes"]) for way in ("plain", "ours"))
        assert min(growth["plain"] + growth["ours"]) > 0
        assert (finished.folder / f"growth_{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_row_compares_the_better_way_round() -> None:
    rate = Row(name="a", unit="frames/s", higher_is_better=True, reference=200, ours=500, limit=2500, ms_each=True)
    assert (rate.ratio, rate.share) == (2.5, 0.2)
    figures = ["200 frames/s (5 ms each)", "500 frames/s (2 ms each)", "2.50", "2,500 frames/s (0.4 ms each)", "20 %"]
    assert rate.cells() == ["a", *figures]
    seconds = Row(name="b", unit="s", higher_is_better=False, reference=3.0, ours=1.25, limit=None)
    assert (seconds.ratio, seconds.share) == (2.4, None)
    assert seconds.cells() == ["b", "3 s", "1.25 s", "2.40", "-", "-"]
    assert Row(name="c", unit="s", higher_is_better=False, reference=3, ours=2, limit=0.5).share == 0.25


@pytest.mark.parametrize(
    ("device", "amp", "has_bfloat16", "numbers"),
    [
        ("cpu", False, True, "float32"),
        ("cpu", True, True, "bfloat16 (reference: float32)"),
        ("cpu", True, False, "float32"),
        ("cuda", False, False, "float32"),
        ("cuda", True, False, "float16"),
    ],
)
def test_references_of_a_cpu_are_in_float32(
    monkeypatch: pytest.MonkeyPatch, device: str, amp: bool, has_bfloat16: bool, numbers: str
) -> None:
    """As the published recipe has nothing else there; a GPU's are in the precision that is asked for."""
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: has_bfloat16)
    setting = Setting(QUICK_SIZES, torch.device(device), amp)
    assert (setting.reference_amp, setting.numbers) == (amp and device == "cuda", numbers)


class Seen(TorchDispatchMode):
    """The types of what operations give."""

    def __init__(self) -> None:
        super().__init__()
        self.dtypes: set[torch.dtype] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        self.dtypes |= {tensor.dtype for tensor in tree_leaves(made) if isinstance(tensor, torch.Tensor)}
        return made


@pytest.mark.parametrize("row", ["waveglow-training", "waveglow-inference"])
def test_a_cpus_reference_computes_in_float32_beside_bfloat16(monkeypatch: pytest.MonkeyPatch, row: str) -> None:
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: True)
    (*_, make) = ROWS[row](Setting(QUICK_SIZES, torch.device("cpu"), True))
    case = make()
    with Seen() as reference:
        case.reference()
    with Seen() as ours:
        case.ours()
    assert torch.bfloat16 in ours.dtypes and torch.bfloat16 not in reference.dtypes


def test_clips_have_the_lengths_that_are_asked_for() -> None:
    batch = clips(3, 10, 20)
    assert (batch.text.shape, batch.mels.shape, batch.num_items.item()) == ((3, 10), (3, 80, 20), 60)
    assert batch.gates.nonzero().tolist() == [[0, 19], [1, 19], [2, 19]]
    many = clips(1000, 0, None)
    assert many.mel_lengths.float().mean().item() == pytest.approx(566, abs=15)
    assert many.text_lengths.float().mean().item() == pytest.approx(100, abs=3)
    assert (many.mel_lengths.min().item(), many.mel_lengths.max().item()) >= (100, 870)
    assert many.mels.shape[2] == many.mel_lengths.max() == 870
    assert many.mels[-1, :, many.mel_lengths[-1] :].abs().max() == 0
    assert many.gates.sum(1).tolist() == (870 - many.mel_lengths + 1).tolist()
    cut = segments(2, 1000)
    assert (cut.mels.shape, cut.audio.shape, cut.num_items.item()) == ((2, 80, 4), (2, 1000), 2000)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--rows", "everything"], 2, "argument --rows: invalid choice: 'everything'"),
        (["--growth", "batch", "wings"], 2, "argument --growth: invalid choice: 'wings'"),
        (["--repeats", 0], 2, "argument --repeats: 0, expected at least 1"),
        (["-o", ROOT / "Makefile" / "bench"], 1, "bench: cannot be made (Not a directory)\n"),
    ],
)
def test_flags_that_cannot_work_are_refused(words: list[object], code: int, said: str) -> None:
    result = run("benchmarks/speed.py", "--quick", "--cpu", *words)
    assert result.code == code
    assert said in result.err


def test_a_process_that_ends_without_a_row_is_told_of() -> None:
    with pytest.raises(DataError, match="a row's process ended with code 7 before the row was measured"):
        in_its_own_process(functools.partial(os._exit, 7), Machine(torch.device("cpu"), quick=True), 1)


@pytest.fixture
def heard_ctrl_c() -> Iterator[None]:
    """Processes started here hear Ctrl-C, even where a shell's & made these tests ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard_ctrl_c")
def test_ctrl_c_ends_with_the_table_of_what_was_measured(tmp_path: Path) -> None:
    rows = ["tacotron2-training", "waveglow-inference", "first-sound"]
    (temporary := tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(temporary)}
    process = start(*QUICK, "-o", tmp_path, "--repeats", 3, "--rows", *rows, environment=environment)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("Start to sound"):
            break
    assert len(list(temporary.glob("*/*.pt"))) == 2  # the models of that row
    os.killpg(process.pid, signal.SIGINT)  # to all of its processes, as a terminal does
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, "")
    table = parsed(out)
    assert next(iter(table)) == NAMES[0]
    assert "WaveGlow-8 inference, 20 frames, float32" in table
    assert NAMES[-2] not in table
    assert not list(temporary.glob("*/*.pt"))
    assert [row["name"] for row in json.loads((tmp_path / "speed.json").read_text())["rows"]] == list(table)
    assert set(rows) <= set(ROWS)
