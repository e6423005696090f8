"""Without packages each command says so in one sentence; pip's package and torch.hub work beside a program's own modules."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tacotron2_waveglow
from common import __version__
from common.checkpoint.files import load_checkpoint
from tests.recipe import ROOT, run, train_tiny_model
from tests.test_architecture import MAY_IMPORT, SOURCES

# Modules with a `__main__` part that need no package, or that only the studio's page starts.
NEED_NONE = {"scripts.prepare_dataset", "serving.deploy.healthcheck", "studio.jobs.run_files", "tacotron2_waveglow"}
COMMANDS = {
    source.name.removesuffix(".py").replace("/", ".").removesuffix(".__main__")
    for source in SOURCES
    if '\nif __name__ == "__main__":\n' in source.text
}
PROGRAM = """
import pickle, subprocess, sys
import common, inference, models, torch
from multiprocessing import get_context

def main():
    before = list(sys.path)
    WAY
    (speech,) = voice.speak("Hello, 12 of them.")
    assert len(speech.audio) > 5000 and speech.sampling_rate == 22050
    assert (models.OWN, common.OWN, inference.OWN) == (1, 2, 3) and sys.path == before
    import models as again
    assert again is models
    CHILD

if __name__ == "__main__":
    main()
"""
HUB = 'voice = torch.hub.load(sys.argv[1], "embedded_voice", source="local", seed=3)'
LIBRARY = "from tacotron2_waveglow.synthesizer import Synthesizer; voice = Synthesizer.embedded()"
# An object of the package in a spawned process, which imports this program, too.
SPAWNED = 'from tacotron2_waveglow.common.errors import shorten; get_context("spawn").Pool(1).map(shorten, ["a"])'


@pytest.mark.parametrize("command", sorted(COMMANDS - NEED_NONE))
def test_a_command_without_packages_ends_with_one_sentence(command: str) -> None:
    done = subprocess.run([sys.executable, "-S", "-m", command, "x"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1), done.stderr
    assert done.stderr.startswith((f"error: {sys.executable} has no package ", "error: not installed: "))
    assert ".venv/bin/activate`" in done.stderr or "--install-only`" in done.stderr


@pytest.mark.slow
def test_one_missing_package_is_named_and_other_failed_imports_keep_their_traceback(tmp_path: Path) -> None:
    for package in ("psutil", "soundfile"):  # one imported at the start, one only where a sound is written
        words = (
            f"import sys, runpy; sys.modules['{package}'] = None; runpy.run_path('inference.py', run_name='__main__')"
        )
        command = [sys.executable, "-c", words, "--text", "Hi.", "-o", tmp_path]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 1 and done.stderr.startswith(f"error: {sys.executable} has no package {package}; ")
    ours = "from common.start import before_imports; before_imports(); import common.nothing"
    done = subprocess.run([sys.executable, "-c", ours], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("Traceback")


def test_the_package_has_every_part_of_the_recipe() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none")
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    parts = {name.removesuffix(".py") for name in wheel["only-include"] if "/" not in name and name != "phrases"}
    assert parts == tacotron2_waveglow.LIBRARY
    assert parts == set(MAY_IMPORT) - {"hubconf", "tacotron2_waveglow"} | {"scripts"}
    own = {str(path.relative_to(ROOT)) for path in (ROOT / "tacotron2_waveglow").glob("*.py")}
    assert set(wheel["force-include"]) == own


def run_beside(folder: Path, way: str, child: str, *paths: Path) -> None:
    """Run PROGRAM in a folder with modules of the recipe's names."""
    for number, name in enumerate(("models", "common", "inference"), 1):
        (folder / f"{name}.py").write_text(f"OWN = {number}\n")
    (folder / "program.py").write_text(PROGRAM.replace("WAY", way).replace("CHILD", child))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "program.py", ROOT], cwd=folder, env=environment, check=True)


@pytest.mark.slow
def test_torch_hub_works_beside_a_program_with_modules_of_the_same_names(tmp_path: Path) -> None:
    run_beside(
        tmp_path, HUB, 'pickle.loads(pickle.dumps(torch.hub.load(sys.argv[1], "nvidia_tacotron2", source="local")))'
    )


@pytest.mark.slow
def test_the_package_that_pip_builds_speaks_alone_and_beside_a_program(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "wheel"]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = (tmp_path / "wheel").iterdir()
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
        assert {name.split("/")[0].split("-")[0] for name in archive.namelist()} == {"tacotron2_waveglow"}
    (tmp_path / "program").mkdir()
    run_beside(tmp_path / "program", LIBRARY, SPAWNED, site)
    for words in (["Hello."], ["inference.py", "--text", "Hello.", "-o", "output/second"]):
        command = "import sys; from tacotron2_waveglow.__main__ import main; main()"
        environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
        subprocess.run([sys.executable, "-c", command, *words], cwd=tmp_path / "program", env=environment, check=True)
    written = sorted(path.parent.name for path in (tmp_path / "program").rglob("audio_0.wav"))
    assert written == ["output", "second"]


def test_files_and_commands_name_the_version() -> None:
    folder = train_tiny_model("WaveGlow").parent
    assert load_checkpoint(folder / "checkpoint_WaveGlow_last.pt")["version"] == __version__
    assert f'"step": "PARAMETER", "data": {{"version": "{__version__}"}}' in (folder / "nvlog.json").read_text()
    for command in (["common/checkpoint/__main__.py"], ["tacotron2_waveglow/__main__.py"]):
        assert run(*command, "--version").out == f"{__version__}\n"
    heading = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.M)
    assert heading is not None and heading[1] == __version__
