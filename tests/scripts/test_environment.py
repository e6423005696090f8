"""scripts/environment.sh and what sources it: help before any installation, the build of PyTorch, packages that cannot be built."""

import os
import shutil
from pathlib import Path

import pytest

from tests.recipe import ROOT
from tests.scripts.shell import TOOLS, bash, program

SOURCED = {"environment.sh", "download.sh"}
SCRIPTS = [*ROOT.glob("*.sh"), *ROOT.glob("scripts/*.sh"), *ROOT.glob("scripts/docker/*.sh")]
SCRIPTS = sorted(str(path.relative_to(ROOT)) for path in SCRIPTS if path.name not in SOURCED)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of all scripts, without .venv, where Python, pip, npm and docker leave a trace."""
    project = tmp_path / "project"
    for name in [*SCRIPTS, *(f"scripts/{name}" for name in SOURCED)]:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    shutil.copytree(ROOT / "requirements", project / "requirements")
    shutil.copy(ROOT / "requirements.txt", project)
    for name in ("python3", "python", "npm", "docker"):
        program(tmp_path / "bin" / name, f"echo {name} >>{tmp_path}/started; exit 1")
    return project


@pytest.mark.parametrize("script", SCRIPTS)
def test_help_comes_before_any_work(project: Path, tmp_path: Path, script: str) -> None:
    head = (ROOT / script).read_text().splitlines()[1].removeprefix("# ")
    for folder, name in ((project, script), (project / "scripts", os.path.relpath(script, "scripts"))):
        done = bash(name, "--help", cwd=folder, path=f"{tmp_path}/bin:{TOOLS}")
        assert (done.returncode, done.stderr, done.stdout.splitlines()[0]) == (0, "", head)
        assert "set -" not in done.stdout and not done.stdout.startswith("#")
    assert not (tmp_path / "started").exists() and not (project / ".venv").exists()


@pytest.mark.parametrize(
    ("system", "torch", "status", "words"),
    [
        ("Linux", "", 0, "torch==2.13.0 --extra-index-url https://download.pytorch.org/whl/cpu"),
        ("Linux", "", 1, "torch==2.13.0"),  # the index cannot be reached
        ("Darwin", "", 0, "torch==2.13.0"),
        ("Linux", "torch==2.7.0 --index-url there", 0, "torch==2.7.0 --index-url there"),
    ],
)
def test_the_build_of_pytorch(tmp_path: Path, system: str, torch: str, status: int, words: str) -> None:
    if system == "Linux" and not torch and Path("/proc/driver/nvidia/version").exists():
        words = "torch==2.13.0"
    program(tmp_path / "python3", f"exit {status}")
    program(tmp_path / "uname", f"echo {system}")
    command = f'. {ROOT}/scripts/environment.sh && choose_torch >&2 && echo "${{torch[*]}}"'
    done = bash("-c", command, cwd=tmp_path, path=f"{tmp_path}:{TOOLS}", TORCH=torch)
    assert done.stdout == f"{words}\n"
    assert ("PyTorch's build for CPUs; TORCH" in done.stderr) == ("whl/cpu" in words)
    assert ("no answer from" in done.stderr) == bool(status)


@pytest.mark.parametrize(("minor", "fits"), [(9, False), (10, True), (13, True), (14, False)])
def test_the_version_of_python(tmp_path: Path, minor: int, fits: bool) -> None:
    version = f"import sys; sys.version_info = (3, {minor}, 1, 'final', 0); exec(sys.argv[2])"
    program(
        tmp_path / "other", f'[ "$1" = -c ] || {{ echo Python 3.{minor}; exit; }}\n/usr/bin/python3 -c "{version}" "$@"'
    )
    program(tmp_path / "venv/bin/python", "exit 0")
    (tmp_path / "list").write_text("")
    command = f". {ROOT}/scripts/environment.sh && prepare_environment list"
    variables = {"PYTHON": str(tmp_path / "other"), "VENV": str(tmp_path / "venv")}
    done = bash("-c", command, cwd=tmp_path, path=f"{tmp_path}:{TOOLS}", **variables)
    if fits:
        assert done.returncode == 0, done.stderr
    else:
        expected = f"error: Python 3.{minor}, expected Python 3.10 to 3.13; choose one with PYTHON=/path/to/python3\n"
        assert (done.returncode, done.stderr) == (2, expected)


def test_packages_that_cannot_be_built_are_left_out_one_by_one(project: Path, tmp_path: Path) -> None:
    """pip is a stand-in that keeps each list, and refuses those that want a compiler."""
    pip = 'cat "${@: -1}" >>lists; ! grep -qE "^(pesq|pyworld)==" "${@: -1}" || { echo no g++ >&2; exit 1; }'
    program(project / ".venv/bin/python", f'[ "$2" = pip ] || exit 0\n{pip}')
    program(tmp_path / "bin/python3", "exit 0")
    done = bash("scripts/evaluation.sh", cwd=project, path=f"{tmp_path}/bin:{TOOLS}")
    assert done.returncode == 0
    lines = [line.split(", hence")[0] for line in done.stderr.splitlines()]
    assert lines == ["evaluation: without pesq", "evaluation: without pyworld"]
    assert done.stderr.count("a C++ compiler: apt install g++") == 2
    wanted = [line for line in (ROOT / "requirements/eval.txt").read_text().splitlines() if line and line[0] != "#"]
    listed = (project / "lists").read_text().splitlines()
    general = (ROOT / "requirements.txt").read_text().splitlines()
    assert sorted(set(listed) - set(general)) == sorted(wanted)
    program(project / ".venv/bin/python", f'[ "$2" = pip ] || exit 0\n{pip.replace("pesq|pyworld", "moonshine-voice")}')
    done = bash("scripts/evaluation.sh", cwd=project, path=f"{tmp_path}/bin:{TOOLS}")
    assert done.returncode == 0 and "glibc 2.34" in done.stderr  # what was left out before is tried again
