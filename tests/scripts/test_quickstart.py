"""scripts/quickstart.sh, and the job script for Slurm."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from common.data.mels import load_mel
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from scripts import quickstart
from tests.recipe import MODELS, ROOT, clips, flags, read_steps, run, start, wait_for_epoch_1

WATCH = """
import sys
from common.errors import exit_on_user_error
from scripts import quickstart
with exit_on_user_error():
    quickstart.follow([sys.executable, *sys.argv[1:]])
"""


@pytest.fixture(autouse=True)
def ctrl_c_enabled() -> Iterator[None]:
    """Let child processes react to Ctrl-C, even if a shell's & disabled it for the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_ctrl_c_waits_for_the_training_to_save(tmp_path: Path) -> None:
    words = ["train.py", *flags("WaveGlow", tmp_path), "--epochs", "100000"]
    process = start(sys.executable, "-c", WATCH, *words)
    try:
        wait_for_epoch_1(process, tmp_path)
        os.killpg(process.pid, signal.SIGINT)  # a terminal signals both
        process.wait(timeout=60)
        names = {path.name for path in tmp_path.iterdir()}  # read at once, since no process may still run
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert err.splitlines() == ["stopping after this step; once more to stop without saving", "stopped"]
    assert out.startswith("$ python train.py -m WaveGlow")
    assert "checkpoint_WaveGlow_last.pt" in names
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert saved["iteration"] == sum(len(step) == 2 for step, _ in read_steps(tmp_path / "nvlog.json"))


@pytest.fixture
def few_clips(tmp_path: Path, monkeypatch) -> Path:
    """A folder for the quickstart's output, with the filelists reduced to a few clips of the clock."""
    clips(tmp_path)
    lists = {"train": tmp_path / "training.txt", "val": tmp_path / "validation.txt"}
    monkeypatch.setattr(quickstart, "LISTS", lists)
    monkeypatch.chdir(ROOT)
    return tmp_path


@pytest.fixture
def in_this_process(monkeypatch) -> None:
    """Run the quickstart's commands without a new process, but for the trainings."""

    def execute(command: list[str], stdout: TextIO | None = None) -> SimpleNamespace:
        module = command[1] == "-m"
        script = f"{command[2].replace('.', '/')}.py" if module else command[1]
        result = run(script, *command[2 + module :])
        print(result.out, file=stdout)
        print(result.err, file=sys.stderr)
        return SimpleNamespace(returncode=result.code)

    own = SimpleNamespace(run=execute, Popen=subprocess.Popen, PIPE=subprocess.PIPE)
    monkeypatch.setattr(quickstart, "subprocess", own)


@pytest.mark.parametrize("waveglow", [False, True])
@pytest.mark.parametrize("pulse_noise", [False, True])
def test_plans(waveglow: bool, pulse_noise: bool) -> None:
    """Every minute is used; what is trained last speaks best, and every vocoder is given its own checkpoint."""
    plan = quickstart.make_plan(waveglow, pulse_noise)
    assert sum(part.share for part in plan.trainings) == pytest.approx(1) and plan.trainings[0].share >= 0.8
    assert plan.vocoders[-1] == ("pulse-noise" if pulse_noise else "waveglow" if waveglow else "griffin-lim")
    assert ("--waveglow" in plan.command) == waveglow
    for vocoder in plan.vocoders:
        words = quickstart.clock_flags(plan, vocoder)
        given = {key: Path(value).name for key, value in zip(words[::2], words[1::2], strict=True)}
        trained = {"waveglow": "WaveGlow", "pulse-noise": "PulseNoise"}.get(vocoder)
        own = {f"--{vocoder}": f"checkpoint_{trained}_last.pt"} if trained else {}
        assert given == {"--tacotron2": "checkpoint_Tacotron2_last.pt", "--vocoder": vocoder, **own}


@pytest.mark.slow
def test_mels_of_its_own_and_a_training_on_them(few_clips: Path, in_this_process, capfd) -> None:
    """The mels have the channels that are trained. On a slow machine a training says how many minutes it needs."""
    part = quickstart.TACOTRON2._replace(flags=f"{MODELS['Tacotron2']} -bs 2 --cpu")
    plan = quickstart.make_plan(True, True)._replace(output=few_clips / "out")
    plan.output.mkdir()
    quickstart.prepare_mels(plan)
    for split, path in quickstart.LISTS.items():
        rows = [line.split("|") for line in plan.list_of(split).read_text().splitlines()]
        assert [text for _, text in rows] == [line.split("|")[1] for line in path.read_text().splitlines()]
        assert all(load_mel(Path(mel), 80).shape[1] > 100 for mel, _ in rows)
    for one in plan.trainings:
        words = quickstart.train_command(plan, one, few_clips)[2:]
        assert parse_training_arguments(words, REGISTRY, "")[0].audio.n_mel_channels == 80
    assert quickstart.train(plan, part, 0.01) > 0.01
    printed = capfd.readouterr().out
    steps = sum("train_iter_time" in data for _, data in read_steps(plan.output / "Tacotron2" / "nvlog.json"))
    assert f"\n   {steps} steps; with fewer than 1,100," in printed and "   DLL" not in printed
    assert re.search(rf"\n   epoch {steps // 2} of {steps // 2}, loss \d", printed), printed
    with pytest.raises(SystemExit, match="exit code 2"):
        quickstart.run([sys.executable, "-m", "common.data.mels", "--nothing"])


SCRIPT = ROOT / "scripts" / "slurm" / "train.sbatch"
SRUN = """#!/usr/bin/env bash
# The command on each of two nodes; signals go to both, as srun sends them on.
while [[ $1 == --* ]]; do shift; done
echo "$@" >"$COMMAND"
nodes=()
for number in 0 1; do
  SLURM_NODEID=$number "$@" &
  nodes+=("$!")
done
trap 'kill -TERM "${nodes[@]}"' TERM
failed=0
for node in "${nodes[@]}"; do
  while kill -0 "$node" 2>/dev/null; do wait "$node"; status=$?; done
  [ "$status" -eq 0 ] || failed=$status
done
exit "$failed"
"""
SCONTROL = """#!/usr/bin/env bash
case $1 in
  show) echo localhost && echo other ;;
  requeue) echo "$2" >>"$REQUEUED" ;;
esac
"""


@pytest.mark.slow
def test_a_job_at_its_time_limit_saves_and_is_queued_again(tmp_path: Path) -> None:
    """A job of two nodes with one process each."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, content in (("srun", SRUN), ("scontrol", SCONTROL)):
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    environment = {
        **os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_SUBMIT_DIR": str(ROOT),
        "SLURM_JOB_ID": str(os.getpid()), "SLURM_JOB_NODELIST": "node[1-2]", "SLURM_NNODES": "2",
        "REQUEUED": str(tmp_path / "requeued"), "COMMAND": str(tmp_path / "command"), "PYTHON": sys.executable,
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    words = ["bash", SCRIPT, *flags("WaveGlow", tmp_path, 8), "--epochs", "100000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    job = subprocess.Popen(words, env=environment, text=True, start_new_session=True, **pipes)
    wait_for_epoch_1(job, tmp_path)
    job.terminate()  # as --signal=B:TERM does: the batch shell alone
    try:
        out, err = job.communicate(timeout=300)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, err
    assert "on 2 x cpu" in out and out.strip().endswith("saved; back into the queue")
    assert (tmp_path / "requeued").read_text().split() == [str(os.getpid())]
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    assert saved["iteration"] == sum(len(step) == 2 for step, _ in read_steps(tmp_path / "nvlog.json"))
    assert saved["random_rng_states_all"].shape == (2, len(torch.get_rng_state()))
    assert "--resume-from-last" in (tmp_path / "command").read_text().split()  # for the job's next turn


def test_it_must_start_in_the_project_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = subprocess.run(["bash", SCRIPT], env=environment, capture_output=True, text=True)
    expected = f"error: no train.py in {tmp_path}: submit from the project's folder\n"
    assert (done.returncode, done.stderr) == (2, expected)
