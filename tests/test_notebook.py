"""notebooks/tour.ipynb from top to bottom, as a kernel runs it, from the notebook's own folder."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from common.run.nvlog import read_log
from tests.recipe import ENVIRONMENT, ROOT

NOTEBOOK = ROOT / "notebooks/tour.ipynb"
# What a notebook shows, in place of IPython, which the tests do not need: a line for each thing.
DISPLAY = """
def display(*things):
    print("shown:", *(type(thing).__name__ for thing in things))

class Audio:
    def __init__(self, samples, rate):
        assert len(samples) > rate / 2 and abs(samples).max() > 0.01
"""


def test_outputs_are_not_in_the_repository() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path: Path) -> None:
    (tmp_path / "IPython").mkdir()
    (tmp_path / "IPython/__init__.py").write_text("version_info = (9, 0)\nget_ipython = lambda: None\n")
    (tmp_path / "IPython/display.py").write_text(DISPLAY)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    output = tmp_path / "tour"
    small = {"TOUR_MINUTES": "0.01", "TOUR_OUTPUT": str(output), "PYTHONPATH": str(tmp_path), "MPLBACKEND": "agg"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT / "notebooks", env=ENVIRONMENT | small, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = [line.removeprefix("shown: ") for line in done.stdout.splitlines() if line.startswith("shown: ")]
    assert shown[:3] == ["Audio", "Figure", "Figure"] and shown[3:].count("Audio") >= 1
    assert read_log(output / "nvlog.json")
    assert len(list((output / "recordings/wavs").glob("*.wav"))) == 6
    assert soundfile.info(output / "recordings/wavs/0.wav").samplerate == 22050
    assert len((output / "tour_audio_text_train_filelist.txt").read_text().splitlines()) == 5
    assert os.listdir(ROOT / "notebooks") == ["tour.ipynb"]
