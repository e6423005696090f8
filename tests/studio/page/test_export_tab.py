"""The tab Export without a browser: targets that can be written here, and words about the others."""

from dataclasses import asdict
from pathlib import Path

import pytest

from common.errors import DataError
from exports import targets
from studio.jobs.jobs import Jobs
from studio.jobs.run_files import Run, write_exit, write_note

pytest.importorskip("gradio", reason="gradio, of requirements/studio.txt, is not installed")
import gradio as gr

from studio.page.events import Context, ProjectPage, newest_job, run_values
from studio.page.export_tab import add_export_tab, export_argv, share_argv, show


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return Context(tmp_path, True, Jobs(tmp_path))


def test_missing_packages_are_named_and_their_targets_cannot_be_chosen(context, monkeypatch) -> None:
    for name, target in targets.TARGETS.items():
        if target.packages:
            monkeypatch.setitem(targets.TARGETS, name, target._replace(packages=("no-such-package",)))
    with gr.Blocks() as page, gr.Tab("Export"):
        add_export_tab(ProjectPage(context, gr.Dropdown([])))
    named = {block.elem_id: block for block in page.blocks.values() if block.elem_id}
    chosen = {value for _, value in named["targets"].choices}
    assert {"torchscript", "triton"} <= chosen and "onnx" not in chosen
    words = "- onnx: no-such-package: not installed; `bash scripts/exports.sh` installs them"
    assert words in named["missing-targets"].value


def test_a_project_is_looked_up_and_mistakes_are_messages(context, project, tmp_path: Path) -> None:
    with gr.Blocks() as blocks:
        page, button, shown = ProjectPage(context, gr.Dropdown([])), gr.Button(), [gr.HTML(), gr.HTML()]
        page.on(button.click, export_argv, [button], shown)
        page.on(button.click, lambda project: project.name, [], shown[:1], clears=True)
        page.on(button.click, lambda project: (project.name, ""), [], shown, clears=True)
    export, name, names = (event.fn for event in blocks.fns.values())
    for chosen, runtimes, message in (
        ("mine", ["../paper"], "choose a runtime first"),
        ("mine", ["triton"], "mine/voice: no such file; run python -m studio.train mine first"),
        (None, ["triton"], "no project is chosen"),
        ("none", ["triton"], "project none: no such project"),
    ):
        with pytest.raises(gr.Error) as caught:
            export(chosen, runtimes)
        assert message in caught.value.message and str(tmp_path) not in caught.value.message
    assert name("mine") == "mine" and name(None) is name("none") is name("../mine") is None
    assert names("mine") == ("mine", "") and names(None) == (None, None)


def test_the_commands_of_the_page_and_the_addresses_of_their_files(project, tmp_path: Path) -> None:
    files, commands = show(project)
    assert files == "<p>No files yet.</p>"
    voice = f"{tmp_path}/mine/voice"
    for words in ("studio.share mine", f"python inference.py --voice {voice}", f"python -m serving --voices {voice}"):
        assert words in commands
    with pytest.raises(DataError, match="mine/voice: no such file"):
        share_argv(project)
    project.voice.mkdir()
    assert share_argv(project) == ["studio.share", "mine", "--projects", str(tmp_path)]
    expected = ["studio.export", "mine", "torchscript", "web", "--projects", str(tmp_path)]
    assert export_argv(project, ["web", "torchscript"]) == expected
    project.exports.mkdir()
    (project.exports / "mine_torchscript.zip").touch()
    assert 'href="download/mine/mine_torchscript.zip"' in show(project)[0]


def test_the_newest_run_is_described_in_words(context, project, tmp_path: Path) -> None:
    """An export that failed, after the voice was packed."""
    folder, kinds = project.root / "jobs", ("share", "export")
    folder.mkdir()
    assert newest_job(context.jobs, project, kinds) is None and run_values(context, None) == ("", "")
    for started, name in enumerate(kinds):
        run = Run(identity="1", words=[f"studio.{name}"], device="", pid=2**22, started=float(started), log_start=0)
        write_note(folder / f"{name}.json", asdict(run))
        write_exit(folder / f"{name}.json", "1", started)
    (folder / "export.log").write_text(f"Traceback\nerror: {project.voice}/waveglow.pt: no checkpoint\n")
    state, log = run_values(context, newest_job(context.jobs, project, kinds))
    words = "python -m studio.export failed with exit code 1: mine/voice/waveglow.pt: no checkpoint"
    assert state == words and str(tmp_path) not in log
