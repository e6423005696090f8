"""notebooks/tour.ipynb, run by a kernel: whole in a clone, and its beginning where there is none, as on Colab and Kaggle."""

import os
from pathlib import Path

import nbformat
import pytest
import soundfile
from nbclient import NotebookClient

from tests.recipe import ROOT, clips, read_log

NOTEBOOK = ROOT / "notebooks/tour.ipynb"


def run(notebook: nbformat.NotebookNode, folder: Path, output: Path, monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Run a notebook in a folder; return the kinds of what each of its code cells shows."""
    for name, value in (("TOUR_MINUTES", "0.01"), ("TOUR_OUTPUT", str(output))):
        monkeypatch.setenv(name, value)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    ).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [{kind for shown in cell.outputs for kind in shown.get("data", {})} for cell in cells]


def test_outputs_are_not_in_the_repository() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert [cell for cell in notebook.cells if cell.get("outputs") or cell.get("execution_count")] == []


@pytest.mark.slow
def test_it_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a few of the clock's clips, so that its one epoch is one step."""
    notebook, output = nbformat.read(NOTEBOOK, as_version=4), tmp_path / "tour"
    clips(tmp_path)
    for cell in notebook.cells:
        for part, name in (("training", "train"), ("validation", "val")):
            whole = f"--{part}-files filelists/clock_audio_text_{name}_filelist.txt"
            cell.source = cell.source.replace(whole, f"--{part}-files {tmp_path}/{part}.txt")
    assert all(f"{tmp_path}/{part}.txt" in str(notebook.cells) for part in ("training", "validation"))
    _, speak, look, change, train, compare, *own = run(notebook, NOTEBOOK.parent, output, monkeypatch)
    assert "text/html" in speak and "image/png" in look and "image/png" in train and "text/html" in compare
    assert "text/html" in change and "Attention.forward, replaced at run time" in str(notebook.cells)
    assert len(own) == 2 and read_log(output / "nvlog.json")
    assert len(list((output / "recordings/wavs").glob("*.wav"))) == 6
    assert soundfile.info(output / "recordings/wavs/0.wav").samplerate == 22050
    assert len((output / "tour_audio_text_train_filelist.txt").read_text().splitlines()) == 5
    assert os.listdir(NOTEBOOK.parent) == [NOTEBOOK.name]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="this is no clone of the repository")
def test_it_makes_a_clone_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    begin = next(cell for cell in notebook.cells if cell.cell_type == "code")
    begin.source = begin.source.replace('REPOSITORY = ""', f"REPOSITORY = {ROOT.as_uri()!r}") + "\nPath.cwd()"
    notebook.cells = [begin]
    run(notebook, tmp_path, tmp_path / "tour", monkeypatch)
    assert f"{tmp_path}/tour_clone" in begin.outputs[-1].data["text/plain"]
    assert os.listdir(tmp_path) == ["tour_clone"]
