"""The tab Export without a browser: targets that can be written here, and words about the others."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from exports import targets
from exports.manifest import read_manifest
from studio.export import list_downloads
from studio.jobs.jobs import Jobs
from studio.project import Project
from tests.browser import wait
from tests.studio.projects import add_voice

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")
import gradio as gr

from studio.page.context import Context
from studio.page.export_tab import Exporter, add_export_tab

PATIENCE = 1200  # seconds for all targets; another program may have the machine


def test_missing_packages_are_named_and_their_targets_cannot_be_chosen(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(targets, "EXTRA_PACKAGES", ("no-such-package",))
    monkeypatch.setattr("exports.aotinductor.COMPILERS", ("no-such-compiler",))
    with gr.Blocks() as page, gr.Tab("Export"):
        add_export_tab(Context(tmp_path, True, Jobs(tmp_path)), gr.Dropdown([], elem_id="project"))
    named = {block.elem_id: block for block in page.blocks.values() if block.elem_id}
    assert [value for _, value in named["targets"].choices] == ["torchscript", "triton"]
    words = named["missing-targets"].value
    assert "- onnx: no-such-package: not installed; `bash scripts/exports.sh` installs them" in words
    assert "- aotinductor: no C++ compiler, expected one of no-such-compiler" in words


@pytest.mark.parametrize(
    ("name", "chosen", "message"),
    [
        ("mine", [], "choose a runtime first"),
        ("mine", ["../paper"], "choose a runtime first"),
        ("mine", ["triton"], "mine/voice: no such file; run python -m studio.train mine first"),
        (None, ["triton"], "no project is chosen"),
    ],
)
def test_mistakes_are_messages(tmp_path: Path, name: str | None, chosen: list[str], message: str) -> None:
    Project(name="mine", projects=tmp_path).root.mkdir()
    with pytest.raises(gr.Error) as caught:
        Exporter(Context(tmp_path, True, Jobs(tmp_path))).export(name, chosen)
    assert message in caught.value.message and str(tmp_path) not in caught.value.message


@pytest.mark.slow
def test_every_target_that_installs_here_is_exported_from_the_page(tmp_path: Path) -> None:
    project = Project(name="mine", projects=tmp_path)
    add_voice(project)
    exporter = Exporter(Context(tmp_path, True, Jobs(tmp_path)))
    chosen = [target for target in targets.TARGETS if not targets.missing_parts(target)]
    exporter.export("mine", chosen)
    wait(lambda: not exporter.look("mine")[-1].active, PATIENCE)
    shown = exporter.look("mine")
    assert shown[0] == "python -m studio.export has finished.", shown[1]
    assert [download.name for download in list_downloads(project)] == sorted(f"mine_{target}.zip" for target in chosen)
    for target in chosen:
        with zipfile.ZipFile(project.root / "exports" / f"mine_{target}.zip") as archive:
            archive.extractall(tmp_path)
        assert read_manifest(tmp_path / f"mine_{target}").target == target  # compares every file with its SHA-256
        assert f'href="download/mine/mine_{target}.zip"' in shown[2]
    assert str(tmp_path) not in shown[1]


@pytest.mark.slow
def test_an_export_that_fails_is_described_in_words(tmp_path: Path) -> None:
    project = Project(name="mine", projects=tmp_path)
    add_voice(project)
    (project.voice / "waveglow.pt").write_bytes(b"no checkpoint")
    exporter = Exporter(Context(tmp_path, True, Jobs(tmp_path)))
    exporter.export("mine", ["torchscript"])
    wait(lambda: not exporter.look("mine")[-1].active, PATIENCE)
    state, log, *_ = exporter.look("mine")
    assert state.startswith("python -m studio.export failed with exit code 1: mine/voice/waveglow.pt: "), state
    assert "Traceback" not in log and str(tmp_path) not in state + log


def test_a_project_without_exports_has_commands_alone(tmp_path: Path) -> None:
    Project(name="mine", projects=tmp_path).root.mkdir()
    state, log, files, commands, timer = Exporter(Context(tmp_path, True, Jobs(tmp_path))).look("mine")
    assert (state, log, files) == ("Nothing has been exported yet.", "", "<p>No files yet.</p>") and not timer.active
    voice = f"{tmp_path}/mine/voice"
    for words in ("studio.share mine", f"python inference.py --voice {voice}", f"python -m serving --voices {voice}"):
        assert words in commands
