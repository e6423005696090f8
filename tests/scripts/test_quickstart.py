"""scripts/quickstart.sh, and the job script for Slurm."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from common.data.mels import load_mel
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from tests.recipe import MODELS, ROOT, clips, flags, read_steps, wait_for_epoch_1
from tests.scripts.shell import bash, program

# What stands in for speech and its report: 5 % of the words wrong through the best vocoder, 2 % in the recordings.
REPORT = {"systems": [{"name": name, "summary": {"wer": [wer, 0, 1]}} for name, wer in (
    ("recordings", 0.02), ("Tacotron2, ", 0.05), ("other: Tacotron2, PulseNoise", 0.5),
)]}  # fmt: skip
SPOKEN = f"""
echo "$@" >>commands
for word; do case $word in */report) mkdir -p "$word" && echo '{json.dumps(REPORT)}' >"$word/report.json" ;; esac; done
"""
STAND_IN = f"""
case $* in
  *mport*pyworld*) exit $NO_PITCH ;;
  -c*torch*) ;;
  *common.checkpoint*) echo "iteration          $STEPS" ;;
  -c*) exec {shlex.quote(sys.executable)} "$@" ;;
  *) {SPOKEN} ;;
esac
"""
TRAINED = f"""
case $* in
  inference.py* | evaluate.py*) {SPOKEN} ;;
  train.py*) exec {shlex.quote(sys.executable)} "$@" $TINY --cpu ;;
  *mport*pyworld*) exit 1 ;;
  *) exec {shlex.quote(sys.executable)} "$@" ;;
esac
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The parts of the project that the quickstart needs, with the filelists reduced to a few clips of the clock."""
    folder = tmp_path / "project"
    for name in ("quickstart.sh", "environment.sh"):
        program(folder / "scripts" / name, (ROOT / "scripts" / name).read_text())
    program(folder / "scripts" / "evaluation.sh", "exit ${NO_RECOGNISER:-0}")
    (folder / ".venv").mkdir()
    for name in ("requirements.txt", ".venv/installed-4294967295"):  # the checksum of an empty file
        (folder / name).touch()
    for name in ("phrases", "train.py", "corpus", "common", "models.py", "data_functions.py"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("loss_functions.py", "tacotron2", "waveglow", "pulse_noise"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "filelists").mkdir()
    clips(tmp_path)
    for part, name in (("training", "train"), ("validation", "val")):
        (tmp_path / f"{part}.txt").rename(folder / f"filelists/clock_audio_text_{name}_filelist.txt")
    return folder


@pytest.mark.parametrize(
    ("words", "no_pitch", "best", "steps"),
    [
        ("", 0, "pulse-noise", 2000),
        ("--waveglow", 0, "pulse-noise", 900),
        ("--waveglow", 1, "waveglow", 2000),
        ("", 1, "griffin-lim", 9),
    ],
)
def test_plans(project: Path, words: str, no_pitch: int, best: str, steps: int) -> None:
    """Every minute is used; what is trained last speaks best, every vocoder is given its own checkpoint, every flag exists."""
    program(project / ".venv/bin/python", STAND_IN)
    settings = {"NO_PITCH": str(no_pitch), "STEPS": str(steps), "QUICKSTART_MINUTES": "20"}
    done = bash("scripts/quickstart.sh", *words.split(), cwd=project, **settings)
    assert done.returncode == 0, done.stderr
    commands = [line.split() for line in (project / "commands").read_text().splitlines()]
    trained = [command[1:] for command in commands if command[0] == "train.py"]
    options = [parse_training_arguments(command, REGISTRY, "")[0] for command in trained]
    minutes = [one.flat["max_minutes"] for one in options]
    assert sum(minutes) == pytest.approx(20) and minutes[0] >= 16
    assert all(one.flat["n_mel_channels"] == 80 for one in options)
    spoken = [command for command in commands if command[0] in ("inference.py", "evaluate.py")]
    for script, *words_of_script in spoken:
        import_module(script.removesuffix(".py")).parse_args(words_of_script)
    for command in spoken[1:]:  # after the included voice
        named = {flag: value for flag, value in pairwise(command) if flag.startswith("--")}
        vocoder = named["--vocoder"]
        model = {"waveglow": "WaveGlow", "pulse-noise": "PulseNoise"}.get(vocoder)
        assert model is None or named[f"--{vocoder}"].endswith(f"/checkpoint_{model}_last.pt")
        assert named["--tacotron2"].endswith("/checkpoint_Tacotron2_last.pt")
    assert [command[command.index("--vocoder") + 1] for command in spoken[-2:]] == [best, best]
    assert f'Play it:     output/quickstart/{best}/audio_0.wav says "' in done.stdout
    assert "Understood:  95 of 100 words, of the recordings 98 (output/quickstart/report/report.html)" in done.stdout
    longer = max(60, -(-20 * 1100 // steps))
    assert done.stdout.endswith(
        f"Train on:    QUICKSTART_MINUTES={longer} bash scripts/quickstart.sh {words}".rstrip() + "\n"
    )
    assert ("more than a third of the words are wrong" in done.stdout) == (steps < 1100)
    without = bash("scripts/quickstart.sh", cwd=project, NO_RECOGNISER="1", **settings)
    assert "Understood:  not measured" in without.stdout and without.returncode == 0
    for refused in ({"QUICKSTART_MINUTES": "0"}, {"QUICKSTART_MINUTES": "ten"}):
        done = bash("scripts/quickstart.sh", cwd=project, **settings | refused)
        assert done.returncode == 2 and "expected a number of minutes above 0" in done.stderr


@pytest.mark.slow
def test_ctrl_c_waits_for_the_training_to_save_and_the_next_run_continues(project: Path) -> None:
    """On mels of its own, which have the channels that are trained. On a slow machine it says how many minutes it needs."""
    program(project / ".venv/bin/python", TRAINED)
    tiny = f"{MODELS['Tacotron2']} -bs 2"
    environment = {**os.environ, "TINY": tiny, "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        ["bash", "scripts/quickstart.sh"], cwd=project, env=environment, text=True, start_new_session=True, **pipes,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # even if a shell's & disabled it
    )  # fmt: skip
    output = project / "output/quickstart"
    try:
        wait_for_epoch_1(process, output / "Tacotron2")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        out, err = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "stopping after this step; once more to stop without saving"
    assert "\n$ python train.py -m Tacotron2" in out and "   DLL" not in out
    steps = sum("train_iter_time" in data for _, data in read_steps(output / "Tacotron2/nvlog.json"))
    assert load_checkpoint(output / "Tacotron2/checkpoint_Tacotron2_last.pt")["iteration"] == steps
    for name in ("train", "val"):
        texts = (project / f"filelists/clock_audio_text_{name}_filelist.txt").read_text().splitlines()
        rows = [line.split("|") for line in (output / f"mel_text_{name}.txt").read_text().splitlines()]
        assert [text for _, text in rows] == [line.split("|")[1] for line in texts]
        assert all(load_mel(project / mel, 80).shape[1] > 100 for mel, _ in rows)
    done = bash("scripts/quickstart.sh", cwd=project, TINY=tiny, QUICKSTART_MINUTES="0.01")
    assert done.returncode == 0, done.stderr
    steps = sum("train_iter_time" in data for _, data in read_steps(output / "Tacotron2/nvlog.json"))
    assert f"\n   {steps} steps; with fewer than 1100," in done.stdout
    assert re.search(r"\nUnderstood:  95 of 100 words", done.stdout)


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
