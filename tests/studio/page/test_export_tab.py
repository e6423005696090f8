"""The tab Export without a browser: targets that can be written here, and words about the others."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

import pytest

from exports import targets
from studio.jobs.jobs import Jobs
from studio.jobs.run_files import Run, write_exit, write_note
from studio.project import Project
from tests.studio.projects import add_voice

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")
import gradio as gr

from studio.page.context import Context
from studio.page.events import in_words, newest_job, run_values
from studio.page.export_tab import RUNS, add_export_tab, show, start_export, start_share


def test_missing_packages_are_named_and_their_targets_cannot_be_chosen(tmp_path: Path, monkeypatch) -> None:
    for name, target in targets.TARGETS.items():
        if target.packages:
            monkeypatch.setitem(targets.TARGETS, name, target._replace(packages=("no-such-package",)))
    monkeypatch.setattr("exports.engines.COMPILERS", ("no-such-compiler",))
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
    context = Context(tmp_path, True, Jobs(tmp_path))
    with pytest.raises(gr.Error) as caught:
        in_words(context, partial(start_export, context))(name, chosen)
    assert message in caught.value.message and str(tmp_path) not in caught.value.message


def test_the_commands_of_the_page_and_the_addresses_of_their_files(tmp_path: Path, monkeypatch) -> None:
    project, context = Project(name="mine", projects=tmp_path), Context(tmp_path, True, Jobs(tmp_path))
    project.root.mkdir()
    files, commands = show(context, "mine")
    assert files == "<p>No files yet.</p>" and show(context, None) == ("", "")
    voice = f"{tmp_path}/mine/voice"
    for words in ("studio.share mine", f"python inference.py --voice {voice}", f"python -m serving --voices {voice}"):
        assert words in commands
    add_voice(project)
    started = []
    monkeypatch.setattr(Jobs, "start", lambda self, project, name, argv: started.append([name, *argv]))
    start_export(context, "mine", ["web", "torchscript"])
    start_share(context, "mine")
    expected = [["export", "studio.export", "mine", "torchscript", "web"], ["share", "studio.share", "mine"]]
    assert started == [[*argv, "--projects", str(tmp_path)] for argv in expected]
    (project.root / "exports").mkdir()
    (project.root / "exports" / "mine_torchscript.zip").touch()
    assert 'href="download/mine/mine_torchscript.zip"' in show(context, "mine")[0]


def test_the_newest_run_is_described_in_words(tmp_path: Path) -> None:
    """An export that failed, after the voice was packed."""
    project, context = Project(name="mine", projects=tmp_path), Context(tmp_path, True, Jobs(tmp_path))
    folder = project.root / "jobs"
    folder.mkdir(parents=True)
    assert newest_job(context, "mine", RUNS) is newest_job(context, None, RUNS) is None
    for started, name in enumerate(RUNS):
        run = Run(identity="1", words=[f"studio.{name}"], device="", pid=2**22, started=float(started), log_start=0)
        write_note(folder / f"{name}.json", asdict(run))
        write_exit(folder / f"{name}.json", "1", started)
    (folder / "export.log").write_text(f"Traceback\nerror: {project.voice}/waveglow.pt: no checkpoint\n")
    state, log = run_values(context, newest_job(context, "mine", RUNS))
    words = "python -m studio.export failed with exit code 1: mine/voice/waveglow.pt: no checkpoint"
    assert state == words and str(tmp_path) not in log
