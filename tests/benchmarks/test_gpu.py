"""benchmarks/gpu.sh without a GPU: one part through the whole way, parts that fail, and the page."""

import gc
import json
import subprocess
import sys
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_parts, machine
from benchmarks.gpu import GpuPart
from common import precision
from common.errors import UsageError
from tests.recipe import ROOT

pytestmark = pytest.mark.slow

TRIAL = ["8", "--device", "cpu", "--quick"]


def test_one_part_from_the_command_to_the_page(tmp_path: Path, capsys) -> None:
    """A part's process measures, its figures are in the page, and a second call does not measure again."""
    words = [*TRIAL, "--only", "training Tacotron2 float32", "-o", str(tmp_path)]
    before = gpu.PAGE.read_text()
    gpu.main(words)
    rows = {row["part"]: row for row in map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())}
    assert list(rows) == ["training Tacotron2 float32"]
    figures = rows["training Tacotron2 float32"]["figures"]
    assert figures["clips"] == 2 and figures["ours_items_per_sec"] > 0
    assert figures["ours_forecast_bytes"] == pytest.approx(figures["ours_peak_bytes"], rel=0.3)
    page = (tmp_path / "performance.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| training Tacotron2 float32 |")]
    assert f"{figures['ours_items_per_sec']:,.0f}" in line
    assert page.partition(gpu.BEGIN)[0] == before.partition(gpu.BEGIN)[0]
    assert gpu.PAGE.read_text() == before
    capsys.readouterr()
    gpu.main(words)
    assert "training" not in capsys.readouterr().out


def part(code: str, **more: Any) -> GpuPart:
    return GpuPart(**{"name": "x", "words": ("-c", code), "limit": 30} | more)


def test_parts_that_fail_hang_or_lack_a_package_are_told_apart() -> None:
    good = gpu.run(part('print("warm"); print(\'figures: {"a": 1}\')'), 30)
    assert (good.status, good.figures) == ("done", {"a": 1})
    failed = gpu.run(part("raise SystemExit('no such kernel')"), 30)
    assert failed.status == "failed" and "no such kernel" in failed.output
    slow = gpu.run(part("print('begun', flush=True); import time; time.sleep(60)", limit=6), 30)
    assert slow.status == "out of time" and "begun" in slow.output and slow.seconds < 50
    lacking = gpu.run(part("", needs=("torch", "no_such_package")), 30)
    assert (lacking.status, lacking.output) == ("left out", "not installed: no_such_package")
    assert gpu.run(part(""), 0).status == "left out"


def test_a_machine_without_a_gpu_is_told_how_to_try(monkeypatch) -> None:
    # A driver that PyTorch cannot use: everything would run on the CPU.
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match=r"no GPU here: .*--device cpu --quick"):
        gpu.parse_args([])


def test_the_machines_products_are_in_tf32_as_the_parts_are(monkeypatch) -> None:
    monkeypatch.setattr(machine.Machine, "describe", lambda self: {"tf32": torch.backends.cuda.matmul.allow_tf32})
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False, tf32=False)
    try:
        assert gpu_parts.machine(gpu_parts.PartOptions(quick=True, cpu=True)) == {"tf32": True}
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = False, True  # PyTorch's own


def test_a_part_ends_with_the_command(monkeypatch) -> None:
    """Ctrl-C: else the part goes on in a group of its own, beside the parts of the next call."""
    killed: list[Any] = []

    def interrupt(process: Any, timeout: float | None = None) -> None:
        raise KeyboardInterrupt

    def kill(process: Any) -> None:
        killed.append(process)
        process.kill()

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupt)
    monkeypatch.setattr(gpu, "kill_group", kill)
    with pytest.raises(KeyboardInterrupt):
        gpu.run(part("import time; time.sleep(60)"), 30)
    (process,) = killed
    assert process.wait(100)


def test_the_memory_of_a_way_is_that_of_its_steps(monkeypatch) -> None:
    """Not of its first step, in which cuDNN and a compiler search for algorithms."""
    done: list[Any] = []
    options = gpu_parts.PartOptions(model="WaveGlow", numbers="tf32", way="--recompute", quick=True, cpu=True, steps=2)
    monkeypatch.setattr(gpu_parts, "_time_steps", lambda state, batch, steps: done.append(steps) or [1.0] * steps)
    monkeypatch.setattr(precision, "free_cached_memory", lambda device: done.append("free"))
    monkeypatch.setattr(precision, "reserved_memory", lambda device: done.append("read") or 7)
    figures = gpu_parts.optional_way(options)
    assert done == [gpu_parts.WARM_UP, "free", 2, "read"] * 2
    assert (figures["default_peak_bytes"], figures["way_peak_bytes"], figures["times_default"]) == (7, 7, 1.0)


def test_the_state_of_a_way_is_gone_before_the_next() -> None:
    """PyTorch's first optimizer is part of a cycle, and its weights would count in the peak of the next way."""
    states: list[weakref.ref[Any]] = []

    class State:
        """Something that weak references may point to."""

    def measure(flags: str) -> dict[str, float]:
        assert all(state() is None for state in states)
        state = State()
        state.itself = state
        states.append(weakref.ref(state))
        return {"items_per_sec": 1.0 + len(states)}

    gc.disable()
    try:
        figures = gpu_parts._compare({"plain": "--plain", "ours": ""}, measure)
    finally:
        gc.enable()
    assert figures == {"plain_items_per_sec": 2.0, "ours_items_per_sec": 3.0, "times_plain": 1.5}


def test_spans_of_the_gpu_leave_out_named_regions_and_gaps() -> None:
    def event(device: str, start: float, end: float, named: bool | None = False) -> Any:
        times = SimpleNamespace(start=start, end=end)
        return SimpleNamespace(device_type=f"DeviceType.{device}", time_range=times, is_user_annotation=named)

    events = [event("CPU", 0, 100), event("CUDA", 1, 3), event("CUDA", 2, 4, None), event("CUDA", 10, 12)]
    spans = gpu_parts._spans_on_gpu([*events, event("CUDA", 1, 12, True)])
    assert spans == [(1, 3), (2, 4), (10, 12)]
    assert gpu_parts._union(spans) == 5


def test_all_parts_are_commands_of_this_project() -> None:
    parts = list(gpu.parts(gpu.parse_args(TRIAL)))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert names[:3] == ["machine", "tests", "training Tacotron2 float16"]
    assert "way --graphs Tacotron2 float16" in names and "way --compile max-autotune WaveGlow float16" in names
    for one in parts:
        assert one.words[0] == "-m"
        module = one.words[1].replace(".", "/")
        assert one.words[1] == "pytest" or (ROOT / f"{module}.py").is_file()


# Python's finder of installed packages, without those that a machine with a GPU may lack. The parts train on noise without them,
# and pytest finds the tests.
COLLECT = """
import importlib.machinery, sys
absent = ("soundfile", "librosa", "cffi", "inflect", "unidecode", "numba", "matplotlib", "tensorboard", "jinja2")
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
import benchmarks.gpu_parts, benchmarks.gpu, benchmarks.speed
assert not {"scipy"} & set(sys.modules)
import pytest
sys.exit(pytest.main(["--collect-only", *sys.argv[1:]]))
"""


def test_parts_and_tests_of_the_gpu_need_no_packages_of_sound_and_text() -> None:
    parts = {part.name: part for part in gpu.parts(gpu.parse_args(["--device", "cpu"]))}
    assert not {"soundfile", "librosa", "inflect", "unidecode"} & set(parts["tests"].needs)
    words = parts["tests"].words[2:]
    done = subprocess.run([sys.executable, "-c", COLLECT, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    of_sound = {word for word in parts["tests of sound"].words if word.endswith(".py")}
    assert found | of_sound == set(map(str, gpu.gpu_tests())) and len(found) > 5 and len(of_sound) == 2


def test_the_section_shows_figures_and_what_is_missing(tmp_path: Path) -> None:
    speed = tmp_path / "speed.json"
    speed.write_text('{"rows": [{"name": "a, b", "ours": 2.51, "unit": "s", "ratio": 1.5}]}')
    figures = {"clips": 104, "ours_peak_bytes": 8e9, "times_plain": 2.5678}
    rows = [
        {"part": "training Tacotron2 float16", "status": "done", "figures": figures},
        {"part": "loaders", "status": "done", "figures": {"rows": [{"model": "WaveGlow", "cores": None}, {"n": 1}]}},
        {"part": "speed", "status": "done", "figures": gpu.read_figures(part("", figures=speed), "")},
        {"part": "resume WaveGlow tf32", "status": "failed", "figures": None},
    ]
    page = tmp_path / "page.md"
    page.write_text(f"a\n{gpu.BEGIN}\nold\n{gpu.END}\nb\n")
    gpu.write_page(page, page, rows)
    lines = [
        "| training Tacotron2 float16 | clips 104, ours_peak_bytes 8,000,000,000, times_plain 2.57 |",
        "| loaders | rows model WaveGlow, cores None; n 1 |",
        "| speed | a, b 2.51 s, 1.50 × reference |",
        "| resume WaveGlow tf32 | failed |",
    ]
    text = page.read_text()
    assert text.splitlines()[5:-3] == lines and text.startswith("a\n") and text.endswith("\nb\n") and "old" not in text
