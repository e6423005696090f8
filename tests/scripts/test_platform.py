"""platform/, scripts/train_*.sh and requirements/locks/."""

import os
import re
import shutil
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from common.training.arguments import parse_training_arguments
from models import REGISTRY
from tests.recipe import ROOT
from tests.scripts.shell import TOOLS, bash, program

# Settings documented by the published recipe: common ones, and the batch size of each GPU by machine and precision.
RECIPES = {
    "Tacotron2": {
        "epochs": 1501, "learning_rate": 1e-3, "weight_decay": 1e-6, "grad_clip_thresh": 1.0,
        "anneal_steps": [500, 1000, 1500],
    },
    "WaveGlow": {
        "epochs": 1001, "learning_rate": 1e-4, "weight_decay": 0.0, "grad_clip_thresh": 65504.0, "anneal_steps": [],
        "segment_length": 8000,
    },
}  # fmt: skip
PARTS = {"training": "train", "validation": "val"}
MELS, AUDIO = (
    {f"{part}_files": Path(f"filelists/ljs_{kind}_text_{name}_filelist.txt") for part, name in PARTS.items()}
    for kind in ("mel", "audio")
)
BATCHES = {
    ("DGX1", "Tacotron2", "AMP"): 104, ("DGX1", "Tacotron2", "FP32"): 48, ("DGX1", "WaveGlow", "AMP"): 10,
    ("DGX1", "WaveGlow", "FP32"): 4, ("DGXA100", "Tacotron2", "AMP"): 128, ("DGXA100", "Tacotron2", "TF32"): 128,
    ("DGXA100", "WaveGlow", "AMP"): 10, ("DGXA100", "WaveGlow", "TF32"): 4,
}  # fmt: skip
RECORD = 'printf "%s\\0" "$0" "$PWD" "$@"'


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Path:
    """A project with the scripts, without .venv, and with a `python` in bin/ that records its folder and arguments."""
    folder = tmp_path_factory.mktemp("project")
    for name in ("platform", "scripts"):
        shutil.copytree(ROOT / name, folder / name)
    program(folder / "bin/python", RECORD)
    return folder


def run(project: Path, script: str, *arguments: str) -> list[str]:
    """Run a script and return its final python command: interpreter, folder, arguments."""
    done = bash(project / script, *arguments, cwd=Path("/"), path=f"{project}/bin:{TOOLS}")
    assert done.returncode == 0, done.stderr
    return done.stdout.removesuffix("\0").split("\0")


def launch(project: Path, script: str, *arguments: str) -> tuple[list[str], dict[str, object]]:
    """Run a script; return the words before train.py on its command line, and train.py's settings."""
    interpreter, folder, *words = run(project, script, *arguments)
    assert (interpreter, folder) == (str(project / "bin/python"), str(project))
    at = words.index("train.py")
    return words[:at], parse_training_arguments(words[at + 1 :], REGISTRY, "")[0].flat


# Script, its arguments, model, mixed precision or not, batch size, and the words before train.py.
SETTINGS = [
    (
        f"platform/{machine}_{model.lower()}_{precision}_{gpus}NGPU_train.sh",
        [],
        model,
        precision == "AMP",
        size,
        [] if gpus == 1 else ["-m", "multiproc", "--nproc", str(gpus)],
    )
    for (machine, model, precision), size in BATCHES.items()
    for gpus in (1, 4, 8)
]
SETTINGS += [
    (f"scripts/train_{model.lower()}.sh", [] if amp else ["--no-amp"], model, amp, size, ["-m", "multiproc"])
    for model, sizes in (("Tacotron2", (48, 104)), ("WaveGlow", (4, 10)))
    for amp, size in enumerate(sizes)
]


@pytest.mark.parametrize(("script", "words", "model", "amp", "batch_size", "launcher"), SETTINGS)
def test_settings_are_those_of_the_published_recipe(project, script, words, model, amp, batch_size, launcher):
    """The training scripts use mixed precision by default, and Tacotron 2 reads stored mels."""
    found, settings = launch(project, script, *words)
    expected = RECIPES[model] | {
        "model_name": model, "output": Path("output"), "dataset_path": "./", "log_file": "nvlog.json",
        "epochs_per_checkpoint": 50, "seed": None, "cudnn_enabled": True, "cudnn_benchmark": model == "WaveGlow",
        "checkpoint_path": None, "resume_from_last": False, "amp": amp, "batch_size": batch_size,
    }  # fmt: skip
    tacotron2 = MELS | {"load_mel_from_disk": True, "anneal_factor": 0.3 if amp else 0.1}
    expected |= tacotron2 if model == "Tacotron2" else AUDIO
    if script.startswith("platform") and model == "WaveGlow" and not amp:
        expected["grad_clip_thresh"] = 3.4028234663852886e38  # the largest float32, so none
    assert {name: settings[name] for name in expected} == expected and found == launcher


def test_there_are_24_platform_scripts_and_all_shell_scripts_parse():
    assert len(list((ROOT / "platform").glob("DGX*.sh"))) == 24 == len(SETTINGS) - 4
    scripts = [path for folder in ("platform", "scripts", "scripts/docker") for path in (ROOT / folder).glob("*.sh")]
    assert len(scripts) > 25
    for script in scripts:
        assert os.access(script, os.X_OK) and bash("-n", script, cwd=ROOT).returncode == 0, script


@pytest.mark.parametrize("script", ["platform/DGX1_tacotron2_AMP_1NGPU_train.sh", "scripts/train_waveglow.sh"])
def test_the_last_flag_wins(project, script):
    given = ["-o", "my output", "--dataset-path", "/data/a b", "--epochs", "1", "--anneal-steps", "7"]
    given += ["--seed", "3", "-bs", "2"]
    _, settings = launch(project, script, *given, "--training-files", "one.txt")
    expected = {
        "output": Path("my output"), "dataset_path": "/data/a b", "epochs": 1, "anneal_steps": [7], "seed": 3,
        "batch_size": 2, "training_files": Path("one.txt"),
    }  # fmt: skip
    assert {name: settings[name] for name in expected} == expected


def test_project_python_prefers_the_virtual_environment(project, tmp_path):
    shutil.copytree(project, tmp_path / "project")
    own = program(tmp_path / "project/.venv/bin/python", RECORD)
    interpreter, folder = run(tmp_path / "project", "scripts/train_tacotron2.sh")[:2]
    assert Path(folder, interpreter) == own


def test_project_python_falls_back_to_python3(tmp_path):
    for tool in ("dirname", "python3"):
        program(tmp_path / tool, RECORD)
    command = f". {ROOT}/scripts/environment.sh && cd {tmp_path} && project_python && echo $python"
    assert bash("-c", command, cwd=tmp_path, path=tmp_path).stdout == "python3\n"
    (tmp_path / "python3").unlink()
    done = bash("-c", command, cwd=tmp_path, path=tmp_path)
    assert done.returncode == 1 and done.stderr.startswith("error: no Python here")


LOCKS = ROOT / "requirements" / "locks"
REQUIREMENTS = {path.name: path for path in (ROOT / "requirements.txt", *ROOT.glob("requirements/*.txt"))}
REQUIREMENTS["tests.txt"] = ROOT / "tests" / "requirements.txt"
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
SYSTEMS = [{"sys_platform": name.lower(), "platform_system": name, "os_name": "posix"} for name in ("Linux", "Darwin")]
MACHINES = [
    default_environment() | {"python_version": f"3.{minor}", "python_full_version": f"3.{minor}.0"} | system
    for minor in (10, 11, 12, 13)
    for system in SYSTEMS
]


def read_lock(path: Path) -> list[tuple[Requirement, list[str]]]:
    entries = re.sub(r"\\\n", " ", path.read_text()).splitlines()
    entries = [entry for entry in entries if entry.strip() and not entry.lstrip().startswith("#")]
    return [(Requirement(entry.partition(" --hash")[0]), HASH.findall(entry)) for entry in entries]


def read_requirements(path: Path) -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return [Requirement(line) for line in lines if line]


def versions(pins: list[Requirement], machine: dict[str, str]) -> dict[str, str]:
    """The version of each package on a machine; two of one package are an error."""
    found: dict[str, str] = {}
    for pin in pins:
        if pin.marker is None or pin.marker.evaluate(machine):
            (specifier,) = pin.specifier
            assert canonicalize_name(pin.name) not in found, f"{pin.name} twice on {machine}"
            found[canonicalize_name(pin.name)] = specifier.version
    return found


def test_every_requirements_file_has_a_lock_that_satisfies_it_and_all_install_together() -> None:
    assert {path.name for path in LOCKS.iterdir()} == set(REQUIREMENTS)
    locks: dict[str, list[Requirement]] = {}
    for name in REQUIREMENTS:
        for pin, hashes in read_lock(LOCKS / name):
            assert [specifier.operator for specifier in pin.specifier] == ["=="] and hashes, pin
            locks.setdefault(name, []).append(pin)
        text = (LOCKS / name).read_text()
        assert not re.search(r"://|--(extra-)?index-url|--find-links|^(torch|nvidia-)", text, re.MULTILINE), name
    for machine in MACHINES:
        chosen: dict[str, str] = {}
        for name, pins in locks.items():
            found = versions(pins, machine)
            differing = {package for package in found if chosen.get(package, found[package]) != found[package]}
            assert not differing, f"{name}: {differing}"
            chosen |= found
            for wanted in read_requirements(REQUIREMENTS[name]):
                if wanted.marker is None or wanted.marker.evaluate(machine):
                    version = found.get(canonicalize_name(wanted.name))
                    assert version and wanted.specifier.contains(version, prereleases=True), (name, wanted, version)
