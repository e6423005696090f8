"""scripts/docker: the docker command lines, recorded by a stand-in for docker; and the image's build, as far as it runs here."""

import subprocess
import sys
from importlib.metadata import version
from itertools import pairwise

import pytest
from packaging.requirements import Requirement

from tests.recipe import ROOT
from tests.scripts.shell import TOOLS, bash, program


@pytest.fixture
def docker(tmp_path):
    """Run a script of scripts/docker with a `docker` that records its folder and arguments; return those."""
    program(tmp_path / "bin/docker", f'printf "%s\\0" "$PWD" "$@" > {tmp_path}/call')

    def run(script: str, *arguments: str, **environment: str) -> list[str]:
        place, path = ROOT / "scripts/docker" / script, f"{tmp_path}/bin:{TOOLS}"
        bash(place, *arguments, cwd=tmp_path, path=path, **environment).check_returncode()
        folder, *words = (tmp_path / "call").read_text().removesuffix("\0").split("\0")
        assert folder == str(ROOT)
        return words

    return run


def option(words: list[str], name: str) -> list[str]:
    return [value for word, value in pairwise(words) if word == name]


def test_build_names_the_image_and_interactive_mounts_the_dataset(docker, tmp_path):
    assert docker("build.sh") == ["build", ".", "--rm", "-t", "tacotron2"]
    extra = ["--build-arg", "FROM_IMAGE_NAME=pytorch/pytorch:2.7.0-cuda12.6-cudnn9-runtime"]
    assert docker("build.sh", *extra) == ["build", ".", "--rm", "-t", "tacotron2", *extra]
    (tmp_path / "my data").mkdir()
    assert f"{tmp_path}/my data:/data" in option(docker("interactive.sh", DATASET_PATH=f"{tmp_path}/my data"), "-v")
    assert f"{tmp_path}/my data:/data" in option(docker("interactive.sh", DATASET_PATH="my data"), "-v")
    with pytest.raises(subprocess.CalledProcessError) as error:
        docker("interactive.sh", DATASET_PATH="no data")
    assert error.value.returncode == 2
    assert error.value.stderr == f"error: DATASET_PATH: {tmp_path}/no data, expected a folder\n"


def test_interactive_is_a_shell_or_a_command_on_this_folder(docker):
    words = docker("interactive.sh")
    assert words[:3] == ["run", "--rm", "-it"]
    assert words[-2:] == ["tacotron2", "bash"]
    assert "--ipc=host" in words
    assert option(words, "--ulimit") == ["memlock=-1", "stack=67108864"]
    assert f"{ROOT}:/workspace/tacotron2" in option(words, "-v")
    # The environment of the machine outside must not be taken for the container's.
    assert ("/workspace/tacotron2/.venv" in option(words, "-v")) == (ROOT / ".venv").is_dir()
    assert option(words, "--gpus") == ["all"]
    words = docker("interactive.sh", "bash", "scripts/train_waveglow.sh", "-o", "a b")
    assert words[-5:] == ["tacotron2", "bash", "scripts/train_waveglow.sh", "-o", "a b"]


def test_dockerfile_keeps_the_pytorch_of_its_image(tmp_path):
    """Run the commands of the image's build, up to the installation, in this environment."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
    command = next(line.removeprefix("RUN ") for line in text.splitlines() if line.startswith("RUN "))
    listing, constraining, installing = (part.strip() for part in command.split("&&"))
    words = installing.split()
    assert words[3:] == ["install", "--no-cache-dir", "-r", "requirements.txt", "-c", "/tmp/constraints.txt"]
    script = f"{listing} && {constraining}".replace("/tmp/", f"{tmp_path}/").replace("python ", f"{sys.executable} ")
    subprocess.run(["/bin/sh", "-c", script], check=True, capture_output=True)
    pins = [Requirement(line) for line in (tmp_path / "constraints.txt").read_text().split()]
    assert {pin.name for pin in pins} == {"torch", "numpy"}
    for pin in pins:
        assert pin.specifier.contains(version(pin.name), prereleases=True)
