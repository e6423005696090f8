"""run_latency_tests.sh and run_latency_tests_cpu.sh: the measurements that each starts, parsed by the benchmark's parser."""

import contextlib
import io
import shutil
from pathlib import Path

import pytest

from benchmarks import latency
from tests.recipe import ROOT
from tests.scripts.shell import TOOLS, bash, program

GPU, CPU = "run_latency_tests.sh", "run_latency_tests_cpu.sh"

# Prints the device, records the arguments of each measurement, and fails on request.
FAKE_PYTHON = """if [ "$1" = -c ]; then echo "$DEVICE"; exit; fi
printf '%s\\0' "$PWD" "$@" END >> "$RUNS"
exit ${STATUS:-0}"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the scripts, without .venv, and with a fake `python` in bin/."""
    folder = tmp_path / "a project"
    program(folder / "bin/python", FAKE_PYTHON)
    (folder / "scripts").mkdir()
    for name in ("scripts/environment.sh", GPU, CPU):
        shutil.copy(ROOT / name, folder / name)
    return folder


def start(project: Path, script: str, *flags: str, device: str = "cuda", **variables: str):
    environment = {"RUNS": str(project / "runs"), "DEVICE": device}
    return bash(project / script, *flags, cwd=Path("/"), path=f"{project}/bin:{TOOLS}", **environment | variables)


def measurements(project: Path) -> list[list[str]]:
    log = project / "runs"
    runs = log.read_text().split("END\0")[:-1] if log.exists() else []
    lines = [words.removesuffix("\0").split("\0") for words in runs]
    assert all(words[:3] == [str(project), "-m", "benchmarks.latency"] for words in lines)
    return [words[3:] for words in lines]


def check(project: Path, script: str, *flags: str, out: str = "", expected: list[dict[str, object]], **variables: str):
    """Run a script; its measurements must have the expected settings."""
    done = start(project, script, *flags, **variables)
    assert (done.returncode, done.stdout, done.stderr) == (0, out, "")
    found = [vars(latency.parse_args(words)[0]) for words in measurements(project)]
    for mine, theirs in zip(found, expected, strict=True):
        assert {name: mine[name] for name in theirs} == theirs


PUBLISHED = {
    "input_length": 128, "wn_channels": 256, "output": Path("output"), "sigma_infer": 0.9,
    "denoising_strength": 0.01, "tacotron2": None, "waveglow": None,
}  # fmt: skip


def run_of(name: str, batch: int, **settings: object) -> dict[str, object]:
    log_file = f"nvlog_latency_{name}_bs{batch}.json"
    return PUBLISHED | {"batch_size": batch, "fp16": name == "fp16", "log_file": log_file} | settings


ON_A_CPU = [run_of("fp32", batch, num_iters=10, warmup=1) for batch in (1, 4)]
ON_A_GPU = [run_of(name, n, cpu=False, num_iters=1000, warmup=3) for name in ("fp16", "fp32") for n in (1, 4)]


@pytest.mark.parametrize(
    ("script", "device", "out", "expected"),
    [
        (GPU, "cuda", "", ON_A_GPU),
        (GPU, "cpu", "note: no GPU here: running on the CPU, with fewer iterations\n", ON_A_CPU),
        (CPU, "cuda", "", [run | {"cpu": True} for run in ON_A_CPU]),
    ],
)
def test_the_usual_runs(project: Path, script: str, device: str, out: str, expected: list[dict[str, object]]) -> None:
    check(project, script, device=device, expected=expected, out=out)


def test_variables_and_flags_choose_other_runs(project: Path) -> None:
    """A checkpoint determines the size of its model."""
    variables = {"ITERATIONS": "7", "WARMUP": "0", "INPUT_LENGTH": "64"}
    variables |= {"BATCH_SIZES": "2 8", "PRECISIONS": "fp32 fp16"}
    flags = ["--num-iters", "2", "-o", "my output", "--wn-channels", "512", "--tacotron2", "a b.pt"]
    shared = {"num_iters": 2, "output": Path("my output"), "wn_channels": 512, "tacotron2": Path("a b.pt")}
    shared |= {"warmup": 0, "input_length": 64, "cpu": False}
    runs = [(2, False), (8, False), (2, True), (8, True)]
    expected = [shared | {"batch_size": batch, "fp16": half} for batch, half in runs]
    check(project, GPU, *flags, expected=expected, **variables)
    start(project, CPU, "--tacotron2", "t.pt", "--waveglow", "w.pt")
    assert ["--wn-channels" in words for words in measurements(project)[4:]] == [False, False]


def test_a_failed_or_interrupted_run_ends_the_script(project: Path) -> None:
    for count, status in enumerate((2, 130), 1):
        assert start(project, GPU, STATUS=str(status)).returncode == status
        assert len(measurements(project)) == count
    done = start(project, GPU, PRECISIONS="tf32")
    assert (done.returncode, done.stderr) == (2, "error: PRECISIONS: tf32, expected fp16 or fp32\n")
    assert len(measurements(project)) == 2


def test_the_line_that_detects_the_device_runs() -> None:
    """Run the line of Python inside the script."""
    question = (ROOT / GPU).read_text().split("-c '")[1].split("'")[0]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(question)
    assert out.getvalue().strip() in ("cpu", "cuda")
