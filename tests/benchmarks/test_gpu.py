"""benchmarks/gpu.sh without a GPU: one part through the whole way, parts that fail, and the page."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu, gpu_page
from benchmarks.gpu import Part
from common.errors import UsageError
from tests.recipe import ROOT

pytestmark = pytest.mark.slow

TRIAL = ["8", "--device", "cpu", "--quick"]


def test_one_part_from_the_command_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part's process measures, its figures are in the page, and a second call does not measure again."""
    words = [*TRIAL, "--only", "training Tacotron2 float32", "-o", str(tmp_path)]
    before = gpu.PAGE.read_text()
    gpu.main(words)
    rows = {row["part"]: row for row in map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())}
    assert list(rows) == ["machine", "training Tacotron2 float32"]
    figures = rows["training Tacotron2 float32"]["figures"]
    assert figures["clips"] == 2 and figures["ours_items_per_sec"] > 0
    assert figures["ours_forecast_bytes"] == pytest.approx(figures["ours_peak_bytes"], rel=0.3)
    page = (tmp_path / "performance.md").read_text()
    (line,) = [line for line in page.splitlines() if line.startswith("| Tacotron2, float32 |")]
    assert f"{figures['ours_items_per_sec']:,.0f}" in line
    assert page.partition(gpu_page.BEGIN)[0] == before.partition(gpu_page.BEGIN)[0]
    assert gpu.PAGE.read_text() == before
    capsys.readouterr()
    gpu.main(words)
    assert "training" not in capsys.readouterr().out


def part(code: str, **more: Any) -> Part:
    return Part(**{"name": "x", "words": ("-c", code), "limit": 30} | more)


def test_parts_that_fail_hang_or_lack_a_package_are_told_apart() -> None:
    good = gpu.run(part('print("warm"); print(\'figures: {"a": 1}\')'), 30)
    assert (good.status, good.figures) == ("done", {"a": 1})
    failed = gpu.run(part("raise SystemExit('no such kernel')"), 30)
    assert failed.status == "failed" and "no such kernel" in failed.output
    slow = gpu.run(part("print('begun', flush=True); import time; time.sleep(60)", limit=3), 30)
    assert slow.status == "out of time" and "begun" in slow.output and slow.seconds < 20
    lacking = gpu.run(part("", needs=("torch", "no_such_package")), 30)
    assert (lacking.status, lacking.output) == ("left out", "not installed: no_such_package")
    assert gpu.run(part(""), 0).status == "left out"


def test_a_machine_without_a_gpu_is_told_how_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(UsageError, match=r"no GPU here: .*--device cpu --quick"):
        gpu.parse_args([])


def test_all_parts_are_commands_of_this_project() -> None:
    parts = list(gpu.parts(gpu.parse_args(TRIAL)))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert names[0] == "tests" and names[1] == "training Tacotron2 float16"
    assert "way --graphs Tacotron2 float16" in names and "way --compile max-autotune WaveGlow float16" in names
    for one in parts:
        assert one.words[0] == "-m"
        module = one.words[1].replace(".", "/")
        assert one.words[1] == "pytest" or (ROOT / f"{module}.py").is_file()


def test_the_page_of_this_version_is_the_section_without_figures() -> None:
    """Nothing has been measured on a GPU. Whoever measures one changes this test with the page."""
    text = gpu.PAGE.read_text(encoding="utf-8")
    between = text.partition(gpu_page.BEGIN)[2].partition(gpu_page.END)[0]
    assert between.strip() == "\n".join(gpu_page.section({}))


def test_the_section_shows_figures_deviations_and_what_is_missing(tmp_path: Path) -> None:
    training = {
        "clips": 104, "plain_items_per_sec": 10000.0, "ours_items_per_sec": 25000.0,
        "ours_peak_bytes": 8e9, "ours_forecast_bytes": 8.4e9,
    }  # fmt: skip
    way = {
        "way_items_per_sec": 50000.0, "default_items_per_sec": 25000.0, "way_first_seconds": 4.0,
        "way_peak_bytes": 4e9, "default_peak_bytes": 8e9,
    }  # fmt: skip
    loader = {"model": "Tacotron2", "source": "wav", "workers": 2, "items_per_sec": 157495.0, "per_cpu_sec": None}
    loaders = {"rows": [loader | {"needed": 4}]}
    latency = {"latency": 0.5, "p90_latency": 0.6, "samples_per_sec": 300000.0, "rtf": 14.0}
    rows = [
        {"part": "training Tacotron2 float16", "status": "done", "figures": training},
        {"part": "profile Tacotron2 float16", "status": "done", "figures": {"idle_share": 0.25}},
        {"part": "way --graphs Tacotron2 float16", "status": "done", "figures": way},
        {"part": "loaders", "status": "done", "figures": loaders},
        {"part": "text-to-wav fp16 1", "status": "done", "figures": latency},
        {"part": "resume WaveGlow tf32", "status": "failed", "figures": None},
    ]
    page = tmp_path / "page.md"
    page.write_text(f"a\n{gpu_page.BEGIN}\nold\n{gpu_page.END}\nb\n")
    gpu_page.write(page, page, rows)
    text = page.read_text()
    assert "| Tacotron2, float16 | 104 | 10,000 | 25,000 | 2.50 | 31,499 | 8.00 | 8.40 | +5 % | 25 % |" in text
    assert "| Tacotron2, `--graphs`, float16 | 50,000 | 25,000 | 2.00 | 10,000 | 5.00 | 4.00 | 8.00 | 4.0 |" in text
    assert "| Tacotron2 | wav | 2 | 157,495 |  | 50 % | 4 |" in text
    assert "| batch 1, fp16 | 0.500 | 0.600 | 300,000 | 14.0 |" in text
    assert "Not measured: resume WaveGlow tf32 (failed)." in text
    assert "old" not in text and text.startswith("a\n") and text.endswith("\nb\n")
    assert (tmp_path / gpu_page.PICTURE).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_models_train_where_there_is_no_libsndfile() -> None:
    """The machine of a GPU may lack packages for sound; training steps on noise need none of them."""
    absent = ("soundfile", "librosa", "matplotlib", "inflect", "unidecode", "tensorboard", "scipy", "jinja2")
    imports = "import benchmarks.gpu_parts, benchmarks.gpu, benchmarks.speed"
    code = f"import sys; sys.modules.update(dict.fromkeys({absent!r})); {imports}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
