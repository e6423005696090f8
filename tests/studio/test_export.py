"""The command studio.export: files as python -m exports writes them, packed, and found by their names alone."""

import zipfile
from pathlib import Path

import pytest
import torch

from common.errors import DataError
from common.inference.config import SynthesisConfig
from exports import targets
from exports.manifest import read_manifest
from studio import export, share
from studio.export import find_download, list_downloads
from studio.project import Project
from synthesizer import Synthesizer
from tests.recipe import train_tiny_model
from tests.studio.projects import add_voice


@pytest.fixture
def project(project: Project) -> Project:
    add_voice(project)
    return project


def words(project: Project, *more: str) -> list[str]:
    return [project.name, *more, "--projects", str(project.projects)]


@pytest.mark.slow
def test_exports_are_written_packed_and_speak_as_the_voice(project: Project, tmp_path: Path, capsys) -> None:
    export.main(words(project, "triton", "triton"))
    assert capsys.readouterr().out.count("mine_triton.zip: ") == 1
    with zipfile.ZipFile(project.root / "exports" / "mine_triton.zip") as archive:
        assert archive.testzip() is None
        archive.extractall(tmp_path / "unpacked")
    manifest = read_manifest(tmp_path / "unpacked" / "mine_triton")  # compares every file with its SHA-256
    assert manifest.target == "triton" and "tts/config.pbtxt" in manifest.files
    models = tmp_path / "unpacked" / "mine_triton" / "tts" / "1"
    voices = [(models / "tacotron2.pt", models / "vocoder.pt"), map(train_tiny_model, ("Tacotron2", "WaveGlow"))]
    settings = SynthesisConfig(seed=3, plain=True)
    synthesizers = (Synthesizer.from_checkpoints(*voice, config=settings, device="cpu") for voice in voices)
    ours, theirs = (synthesizer.speak("Two.")[0] for synthesizer in synthesizers)
    assert torch.equal(ours.audio, theirs.audio) and ours.audio.abs().max() > 0.01
    share.main(words(project))
    assert [download.name for download in list_downloads(project)] == ["mine.zip", "mine_triton.zip"]
    assert all(download.size == download.path.stat().st_size > 1000 for download in list_downloads(project))


def test_only_packed_files_of_the_project_are_downloads(project: Project) -> None:
    (project.root / "exports").mkdir()
    for link in (project.root / "mine.zip", project.root / "exports" / "mine_link.zip"):
        link.symlink_to("/etc/passwd")
    names = ("../mine.zip", "plan.json", "/etc/passwd", "", "mine.zip", "mine_link.zip")
    assert {find_download(project, name) for name in names} == {None} and list_downloads(project) == []


def test_targets_that_are_not_installed_are_named_with_their_packages(project: Project, monkeypatch) -> None:
    without = targets.TARGETS["onnx"]._replace(packages=("torch", "no-such-package"))
    monkeypatch.setitem(targets.TARGETS, "onnx", without)
    with pytest.raises(DataError, match=r"onnx: no-such-package: not installed; `bash scripts/exports\.sh` installs"):
        export.main(words(project, "torchscript", "onnx"))
    assert not (project.root / "exports").exists()  # nothing is written before all targets have been checked


def test_mistakes_are_errors_in_words(project: Project) -> None:
    for file in ("waveglow.pt", "config.json"):
        (project.voice / file).write_text("[")
        with pytest.raises(DataError, match=file):
            share.main(words(project))
        (project.voice / file).unlink()
    assert not project.packed_voice.exists()
    with pytest.raises(DataError, match="no waveglow in it, which the export needs"):
        export.main(words(project, "torchscript"))
