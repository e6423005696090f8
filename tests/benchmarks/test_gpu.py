"""benchmarks/gpu.sh without a GPU: one part through the whole way, parts that fail, and the report."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import gpu
from benchmarks.gpu import GpuPart
from tests.recipe import ROOT

TRIAL = ["8", "--device", "cpu", "--quick"]


@pytest.mark.slow
def test_one_part_from_the_command_to_the_report(tmp_path: Path, capsys) -> None:
    """A part's process measures, its output is in the report, and a second call does not measure again."""
    words = [*TRIAL, "--only", "memory Tacotron2 tf32", "-o", str(tmp_path)]
    gpu.main(words)
    (row,) = map(json.loads, (tmp_path / "results.jsonl").read_text().splitlines())
    assert (row["part"], row["status"]) == ("memory Tacotron2 tf32", "done")
    report = (tmp_path / "report.md").read_text()
    assert f"## memory Tacotron2 tf32: done in {row['seconds']:.0f} s\n" in report and "estimated peak: " in report
    assert "memory" in capsys.readouterr().out
    gpu.main(words)
    assert "memory" not in capsys.readouterr().out


def part(code: str, limit: int = 30) -> GpuPart:
    return GpuPart("x", ("-c", code), limit)


@pytest.mark.slow
def test_parts_that_fail_or_hang_are_told_apart() -> None:
    for code, status, output in (
        ("print(*range(30), sep=chr(10))", "done", "\n".join(map(str, range(10, 30)))),
        ("raise SystemExit('no such kernel')", "failed", "no such kernel"),
        ("print('begun', flush=True); import time; time.sleep(60)", "out of time", "begun"),
    ):
        found = gpu.run(part(code, limit=6 if output == "begun" else 30), 30)
        assert (found.status, found.output) == (status, output) and found.seconds < 50
    assert gpu.run(part(""), 0).status == "left out"


def test_a_part_ends_with_the_command(monkeypatch) -> None:
    """Ctrl-C: else the part goes on in a group of its own, beside the parts of the next call."""
    started: list[Any] = []

    def interrupt(process: Any, timeout: float | None = None) -> None:
        started.append(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "communicate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        gpu.run(part("import time; time.sleep(60)"), 30)
    assert started[0].wait(50) == -signal.SIGKILL


def test_all_parts_are_commands_of_this_project() -> None:
    parts = list(gpu.parts(gpu.parse_args(TRIAL)))
    names = [part.name for part in parts]
    assert len(set(names)) == len(names)
    assert names[:3] == ["tests", "text-to-wav --fp16 1", "text-to-wav --fp16 4"]
    assert "speed tacotron2-training --amp --train-flags=--compile" in names
    for one in parts:
        module = one.words[1].replace(".", "/") if one.words[0] == "-m" else one.words[0].removesuffix(".py")
        assert module == "pytest" or (ROOT / f"{module}.py").is_file()


# Python's finder of installed packages, without those that a machine with a GPU may lack. benchmarks.speed measures noise
# without them, and pytest finds the tests.
COLLECT = """
import importlib.machinery, sys
absent = ("soundfile", "librosa", "cffi", "inflect", "unidecode", "numba", "matplotlib", "tensorboard", "jinja2")
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in absent else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
import benchmarks.gpu, benchmarks.speed
assert not {"scipy"} & set(sys.modules)
import pytest
sys.exit(pytest.main(["--collect-only", *sys.argv[1:]]))
"""


@pytest.mark.slow
def test_parts_and_tests_of_the_gpu_need_no_packages_of_sound_and_text() -> None:
    parts = {part.name: part for part in gpu.parts(gpu.parse_args(["--device", "cpu"]))}
    words = parts["tests"].words[2:]
    done = subprocess.run([sys.executable, "-c", COLLECT, *words], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.partition("::")[0] for line in done.stdout.splitlines() if "::" in line}
    of_sound = {word for word in parts["tests of sound"].words if word.endswith(".py")}
    assert found | of_sound == set(map(str, gpu.gpu_tests())) and len(found) > 4 and len(of_sound) == 2
