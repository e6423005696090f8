"""Faults of machines and of weights in inference: memory, overflow, disks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from common.checkpoint.files import load_checkpoint
from tests.recipe import ROOT, train_tiny_model
from tests.test_errors import speech, stderr_of


@pytest.mark.parametrize(
    ("model", "weight", "name", "streamed"),
    [
        ("Tacotron2", "decoder.linear_projection.linear_layer.weight", "mels", False),
        ("WaveGlow", "WN.3.end.weight", "audio", True),
    ],
)
def test_finite_weights_that_overflow_are_named_with_the_line(
    tmp_path: Path, model: str, weight: str, name: str, streamed: bool
) -> None:
    path, checkpoint = tmp_path / "large.pt", load_checkpoint(train_tiny_model(model))
    large = checkpoint["state_dict"][weight]
    checkpoint["state_dict"][weight] = torch.full_like(large, 3e38)
    torch.save(checkpoint, path)
    words = [*speech(tmp_path, "Two."), f"--{model.lower()}", path, "--seed", 1]
    words += ["--stream", tmp_path / "sound.raw"] if streamed else []
    assert stderr_of(1, "inference.py", *words) == (
        f"error: {tmp_path}/phrases.txt:1: NaN or infinite {name}: the weights of {path} overflow with this text; "
        "take another checkpoint"
    )
    assert not list((tmp_path / "speech").glob("*.wav"))


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--longest-piece", 20], ["--stream", "sound.raw"]], ids=["files", "stream"])
def test_lines_without_sound_are_errors_and_get_no_files(tmp_path: Path, words: list[object]) -> None:
    """They had empty files, or pauses alone, and a run that ended well; --resume left them out."""
    words = [tmp_path / word if word == "sound.raw" else word for word in words]
    lines = [*speech(tmp_path, "One.", "Two is a number. Three is another."), *words, "--gate-threshold", 0]
    problem = "no sound, since the voice stopped before its first frame: add words or a full stop, or check"
    for _ in range(2):
        message = stderr_of(1, "inference.py", *lines, *[] if "--stream" in words else ["--resume"]).splitlines()
        assert len(message) == 2
        for number, line in enumerate(message, start=1):
            assert line.removeprefix("error: ").startswith(f"{tmp_path}/phrases.txt:{number}: {problem}")
    assert {path.name for path in (tmp_path / "speech").iterdir()} == {"nvlog.json", "inference.jsonl"}


def test_a_pipe_in_place_of_the_record_is_refused(tmp_path: Path) -> None:
    words = speech(tmp_path)
    (tmp_path / "speech").mkdir()
    os.mkfifo(tmp_path / "speech" / "inference.jsonl")
    message = stderr_of(1, "inference.py", *words, "--resume")
    assert message.startswith(f"error: {tmp_path}/speech/inference.jsonl: is a named pipe, expected a regular file")


IN_LITTLE_MEMORY = """
import os, resource
import torch
from common import precision
from synthesizer import SynthesisConfig, Synthesizer

torch.set_num_threads(1)
precision.keep_freed_memory(torch.device("cpu"))
voice = Synthesizer.embedded(config=SynthesisConfig(seed=1), device="cpu")
lines = voice.lines(["It is half past nine, and the train leaves."] * 4)
alone = voice.speak_batch(lines[:1]).speeches[0].audio


def spoken_with(room):  # MB above the memory of the voice and one line -> was the batch halved, how many lines fitted
    ours, theirs = os.pipe()
    if os.fork() == 0:
        size = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (size + room * 10**6, resource.RLIM_INFINITY))
        speeches, _, halved = voice.speak_batch(lines)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert speeches[0] is None or torch.allclose(speeches[0].audio, alone, atol=1e-3)
        os.write(theirs, bytes([halved, sum(speech is not None for speech in speeches)]))
        os._exit(0)
    assert os.wait()[1] == 0
    halved, spoken = os.read(ours, 2)
    print(room, halved, spoken, flush=True)
    return halved, spoken


none, all_at_once = 0, 120
assert spoken_with(all_at_once) == (0, 4)
while all_at_once - none > 1:
    room = (none + all_at_once) // 2
    halved, spoken = spoken_with(room)
    if halved and spoken:
        break
    none, all_at_once = (room, all_at_once) if halved else (none, room)
else:
    raise AssertionError(f"no limit between {none} and {all_at_once} MB makes a batch run in halves")
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the size of the process in /proc")
def test_a_batch_that_the_system_has_no_memory_for_runs_in_halves() -> None:
    """A bisection finds a limit of address space; oneDNN and malloc report full memory in their own ways."""
    done = subprocess.run(
        [sys.executable, "-c", IN_LITTLE_MEMORY], cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
