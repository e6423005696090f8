"""scripts/quickstart.sh, and the job script for Slurm."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TextIO

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from common.data.mels import load_mel
from common.run.nvlog import NvLog
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from scripts import quickstart
from tests.recipe import MODELS, ROOT, Process, clips, flags, read_steps, run, start, succeed, wait_for_epoch_1

pytestmark = pytest.mark.slow

WATCH = """
import sys
from pathlib import Path
from common.errors import exit_on_user_error
from scripts import quickstart
folder = Path(sys.argv[1])
with exit_on_user_error():
    quickstart.watch([sys.executable, *sys.argv[2:]], folder / "stdout.log", folder / "nvlog.json", 100000)
"""


@pytest.fixture(autouse=True)
def ctrl_c_enabled() -> Iterator[None]:
    """Let child processes react to Ctrl-C, even if a shell's & disabled it for the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_progress_at_any_moment_of_a_training(tmp_path: Path) -> None:
    log = tmp_path / "nvlog.json"
    assert quickstart.records(log) == []
    assert quickstart.progress_of(log)[0] == 0
    with NvLog(log) as training:
        training.log((0, 0), {"train_loss": 9.0})
        training.log((0,), {"train_loss": 5.0, "train_epoch_time": 1.0})
        training.log((1,), {"train_loss": 4.0, "train_epoch_time": 1.0})
    assert quickstart.progress_of(log) == (2, 4.0)
    whole = log.read_bytes()
    log.write_bytes(whole + whole.splitlines()[-1][:-9])  # killed while it wrote
    assert quickstart.progress_of(log) == (2, 4.0)
    with NvLog(log) as training:
        training.log((2,), {"train_loss": 3.0, "train_epoch_time": 1.0})
    assert quickstart.progress_of(log) == (3, 3.0)


def test_ctrl_c_waits_for_the_training_to_save(tmp_path: Path) -> None:
    words = ["train.py", *flags("WaveGlow", tmp_path), "--epochs", "100000"]
    process = start(sys.executable, "-c", WATCH, str(tmp_path), *words)
    try:
        log = tmp_path / "nvlog.json"
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
    assert saved["iteration"] == sum(len(step) == 2 for step, _ in read_steps(log))


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
    """Run the quickstart's commands without a new process, and the trainings that it watches as forks."""

    def execute(command: list[str], stdout: TextIO | None = None) -> SimpleNamespace:
        module = command[1] == "-m"
        script = f"{command[2].replace('.', '/')}.py" if module else command[1]
        result = run(script, *command[2 + module :])
        print(result.out, file=stdout)
        print(result.err, file=sys.stderr)
        return SimpleNamespace(returncode=result.code)

    def begin(command: list[str], stdout: TextIO) -> Process:
        return start(*command)

    own = SimpleNamespace(run=execute, Popen=begin, TimeoutExpired=subprocess.TimeoutExpired)
    monkeypatch.setattr(quickstart, "subprocess", own)


def test_each_plan_has_mels_of_its_own(few_clips: Path, in_this_process, capfd) -> None:
    """Their channels are the plan's, in every command; stale mels of other channels are an error and stay."""
    for plan in (quickstart.FROM_VOICE, quickstart.FROM_SCRATCH):
        plan = plan._replace(output=few_clips / str(plan.n_mel_channels))
        plan.output.mkdir()
        quickstart.prepare_mels(plan)
        for split, path in quickstart.LISTS.items():
            rows = [line.split("|") for line in plan.list_of(split).read_text().splitlines()]
            assert [text for _, text in rows] == [line.split("|")[1] for line in path.read_text().splitlines()]
            assert all(load_mel(Path(mel), plan.n_mel_channels).shape[1] > 100 for mel, _ in rows)
        channels = {n_mel_channels(quickstart.train_command(plan, part, few_clips)) for part in plan.trainings}
        assert channels == {plan.n_mel_channels}
        assert sum(part.share for part in plan.trainings) == pytest.approx(1)
    before = {path: path.read_bytes() for path in (plan.output / "mels").iterdir()}
    with pytest.raises(SystemExit, match="exit code 1"):
        quickstart.prepare_mels(plan._replace(n_mel_channels=48))
    assert "n_mel_channels 80, now 48" in capfd.readouterr().err
    assert before == {path: path.read_bytes() for path in (plan.output / "mels").iterdir()}


def test_waveglow_begins_from_the_voice(few_clips: Path) -> None:
    losses = {}
    for plan in (quickstart.FROM_VOICE, quickstart.FROM_SCRATCH):
        output = few_clips / str(plan.n_mel_channels)
        command = quickstart.train_command(plan, plan.waveglow, output)[1:]
        succeed(*command, "--epochs", 1, "-bs", 2, "--cpu")
        losses[plan] = [data["val_loss"] for step, data in read_steps(output / "nvlog.json") if "val_loss" in data]
    assert losses[quickstart.FROM_VOICE][0] < -5  # nats a sample; trained for a minute and a half from nothing: -4.2
    assert losses[quickstart.FROM_SCRATCH][0] > -2


def n_mel_channels(command: list[str]) -> int:
    args, _ = parse_training_arguments(command[2:], REGISTRY, "")
    return int(args.audio.n_mel_channels)


@pytest.mark.parametrize(("steps", "minutes"), [(550, 20), (1099, 11), (1100, None), (0, None)])
def test_minutes_that_a_slow_machine_needs(steps: int, minutes: int | None) -> None:
    for plan in (quickstart.FROM_VOICE, quickstart.FROM_SCRATCH):
        line = quickstart.advice(plan, plan.tacotron2, steps, 10 * plan.tacotron2.share)
        expected = f"QUICKSTART_MINUTES={minutes} {plan.command} trains long enough"
        assert line == "" if minutes is None else expected in line
        assert quickstart.advice(plan, plan.waveglow, steps, 1.0) == ""


def test_training_on_a_slow_machine_says_how_many_minutes_it_needs(few_clips: Path, in_this_process, capfd) -> None:
    part = quickstart.FROM_VOICE.tacotron2._replace(flags=f"{MODELS['Tacotron2']} -bs 2 --cpu")
    plan = quickstart.FROM_VOICE._replace(output=few_clips / "out", tacotron2=part)
    plan.output.mkdir()
    quickstart.prepare_mels(plan)
    quickstart.train(plan, part, 0.01)
    printed = capfd.readouterr().out
    epochs = int(re.search(r"per epoch: (\d+) epochs", printed)[1])
    steps = sum("train_iter_time" in data for _, data in read_steps(plan.output / "Tacotron2" / "nvlog.json"))
    assert steps > epochs and f"   about {steps} steps; with fewer than 1,100," in printed


def test_minutes_are_above_zero(capsys) -> None:
    assert quickstart.parse_args(["--minutes", "1.5"]).minutes == 1.5
    with pytest.raises(SystemExit):
        quickstart.parse_args(["--minutes", "0"])
    assert "--minutes: 0.0, expected more than 0 (QUICKSTART_MINUTES)" in capsys.readouterr().err


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


@pytest.fixture
def submit(tmp_path: Path):
    """Run the script as a job of two nodes with one process each."""
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

    def start(*words: object) -> subprocess.Popen[str]:
        command = ["bash", str(SCRIPT), *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, env=environment, text=True, start_new_session=True, **pipes)

    return start


def test_a_job_at_its_time_limit_saves_and_is_queued_again(submit, tmp_path: Path) -> None:
    words = flags("WaveGlow", tmp_path, 8)
    log, requeued = tmp_path / "nvlog.json", tmp_path / "requeued"
    job, deadline = submit(*words, "--epochs", 100000), time.monotonic() + 200
    while not (log.exists() and '"step": [1, 0]' in log.read_text()):
        assert job.poll() is None and time.monotonic() < deadline, job.communicate()
        time.sleep(0.05)
    job.terminate()  # as --signal=B:TERM does: the batch shell alone
    try:
        out, err = job.communicate(timeout=300)
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
    assert job.returncode == 0, err
    assert "on 2 x cpu" in out and out.strip().endswith("saved; back into the queue")
    assert requeued.read_text().split() == [str(os.getpid())]
    saved = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    taken = [step for step, _ in read_steps(log) if len(step) == 2]
    assert saved["iteration"] == len(taken)
    assert saved["random_rng_states_all"].shape == (2, len(torch.get_rng_state()))
    assert "--resume-from-last" in (tmp_path / "command").read_text().split()  # for the job's next turn


def test_it_must_start_in_the_project_folder(tmp_path: Path) -> None:
    environment = {**os.environ, "SLURM_SUBMIT_DIR": str(tmp_path)}
    done = subprocess.run(["bash", str(SCRIPT)], env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == f"error: no train.py in {tmp_path}: submit from the project's folder\n"
