"""inference.py over many lines: resumed after a kill, in two processes, short of memory, and in other file formats."""

import json
import signal
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import models
from common.checkpoint.files import load_checkpoint
from tests.recipe import read_steps, run, speech_flags, start, start_ranks, succeed, train_tiny_model, wait_for
from tests.test_third_model import BEEPER, Beeper

HOURS = ["one", "two", "three", "four", "five", "six"]
LINES = [f"{hour} o'clock, and all is well{'!' * number}" for number, hour in enumerate(HOURS)] * 2


def words(folder: Path, *more: object, lines: list[str] = LINES) -> list[object]:
    return [*speech_flags(folder, *lines), "--vocoder", "griffin-lim", "--no-alignments", *more]


def sounds(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("audio_*") if path.suffix != ".tmp"}


def seed_of(folder: Path) -> int:
    return json.loads((folder / "inference.jsonl").read_text().splitlines()[0])["seed"]


@pytest.mark.slow
def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    """SIGKILL in the middle; the resumed run takes the seed that the first one drew, and computes the missing lines alone."""
    killed = tmp_path / "killed"
    process = start(sys.executable, "inference.py", *words(killed, "-bs", 1))
    wait_for(process, lambda: len(sounds(killed)) > 2)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    there = sounds(killed)
    assert 3 <= len(there) < len(LINES)
    times = {name: (killed / name).stat().st_mtime_ns for name in there}
    printed = succeed("inference.py", *words(killed, "-bs", 5, "--resume"))
    skipped = int(printed.split("--resume: ")[1].split()[0])
    assert len(there) - 1 <= skipped <= len(there)
    same_files = [name for name, written in times.items() if (killed / name).stat().st_mtime_ns == written]
    assert len(same_files) == skipped
    whole = tmp_path / "whole"
    succeed("inference.py", *words(whole, "--seed", seed_of(killed)))
    assert sounds(killed) == sounds(whole) and len(sounds(whole)) == len(LINES)


@pytest.mark.slow
def test_resuming_repeats_lines_that_changed_or_are_gone(tmp_path: Path) -> None:
    succeed("inference.py", *words(tmp_path, "--seed", 3))
    first = sounds(tmp_path)
    (tmp_path / "audio_4.wav").unlink()
    (tmp_path / "audio_5.wav").write_bytes(b"cut short")
    lines = [*LINES[:7], "Other words.", *LINES[8:]]
    out = succeed("inference.py", *words(tmp_path, "--resume", lines=lines))
    assert f"--resume: {len(LINES) - 3} of {len(LINES)}" in out
    again = sounds(tmp_path)
    assert {name for name in first if first[name] != again[name]} == {"audio_7.wav"}
    assert f"--resume: {len(LINES)} of" in succeed("inference.py", *words(tmp_path, "--resume", lines=lines))
    for changed in (["--seed", 4], ["--normalize", "peak"], ["--sample-format", "float32"]):
        assert f"--resume: 0 of {len(LINES)}" in succeed("inference.py", *words(tmp_path, "--resume", *changed))


def test_resuming_notices_a_checkpoint_that_was_trained_again_in_place(tmp_path: Path) -> None:
    """The same path and size, with other weights."""
    checkpoint, contents = tmp_path / "voice.pt", load_checkpoint(train_tiny_model("Tacotron2"))
    torch.save(contents, checkpoint)
    flags = words(tmp_path / "out", "--seed", 3, "--tacotron2", checkpoint, lines=LINES[:2])
    succeed("inference.py", *flags)
    first, size = sounds(tmp_path / "out"), checkpoint.stat().st_size
    assert "--resume: 2 of 2" in succeed("inference.py", *flags, "--resume")
    contents["state_dict"]["decoder.linear_projection.linear_layer.bias"] += 0.5
    torch.save(contents, checkpoint)
    assert checkpoint.stat().st_size == size
    assert "--resume: 0 of 2" in succeed("inference.py", *flags, "--resume")
    again = sounds(tmp_path / "out")
    assert all(again[name] != first[name] for name in first)


@pytest.mark.slow
def test_a_run_that_does_not_resume_starts_anew_with_another_seed(tmp_path: Path) -> None:
    outputs = []
    for _ in range(2):
        succeed("inference.py", *words(tmp_path, lines=LINES[:2]))
        outputs.append((seed_of(tmp_path), sounds(tmp_path)))
    assert outputs[0][0] != outputs[1][0] and outputs[0][1] != outputs[1][1]
    succeed("inference.py", *words(tmp_path, "--seed", outputs[0][0], lines=LINES[:2]))
    assert sounds(tmp_path) == outputs[0][1]
    # a mistake leaves the record of the earlier run
    assert run("inference.py", *words(tmp_path, lines=[*LINES[:1], "Two {AH9}"])).code == 1
    assert "--resume: 2 of 2" in succeed("inference.py", *words(tmp_path, "--resume", lines=LINES[:2]))


@pytest.mark.slow
def test_two_processes_share_the_lines(tmp_path: Path) -> None:
    """The same files bit for bit as one process; one log with the totals of both."""
    one, two = tmp_path / "one", tmp_path / "two"
    succeed("inference.py", *words(one, "--seed", 3, "-bs", 12))
    processes = start_ranks("inference.py", *words(two, "--seed", 3, "-bs", 2))
    out, err = (process.communicate(timeout=300) for process in processes)
    assert [process.returncode for process in processes] == [0, 0], (out, err)
    assert sounds(one) == sounds(two) and len(sounds(two)) == len(LINES)
    assert ", in 2 processes" in out[0]
    totals = [data for step, data in read_steps(two / "nvlog.json") if step == ()]
    assert len(totals) == 1 and set(totals[0]) == set(read_steps(one / "nvlog.json")[-1][1])
    records = [(two / f"inference{rank}.jsonl").read_text().count('"line"') for rank in ("", ".1")]
    assert records == [6, 6]
    assert f"--resume: {len(LINES)} of {len(LINES)}" in succeed("inference.py", *words(two, "--resume"))


class CrampedBeeper(Beeper):
    """Has memory for 40 letters at once."""

    def infer(self, ids, lengths):
        if ids.numel() > 40:
            raise torch.OutOfMemoryError("no room")
        return super().infer(ids, lengths)


def test_lines_that_do_not_fit_are_reported_and_the_others_written(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(models.REGISTRY, "Beeper", replace(BEEPER, build=CrampedBeeper))
    checkpoint, lines = tmp_path / "beeper.pt", ["ab", "c" * 41, "abc", "b" * 30, "a" * 50, "ba"]
    torch.save({"config": {"n_mel_channels": 80}, "state_dict": Beeper().state_dict()}, checkpoint)
    (tmp_path / "phrases.txt").write_text("\n".join(lines))
    names = ["-i", tmp_path / "phrases.txt", "-o", tmp_path, "--beeper", checkpoint, "--vocoder", "griffin-lim"]
    result = run("inference.py", *names)
    assert result.code == 1
    assert result.out.count("not enough memory for 6 lines at once: such batches run in halves") == 1
    assert [line.split(":")[-2:-1] for line in result.err.splitlines()] and "phrases.txt:2: does not fit" in result.err
    assert "phrases.txt:5: does not fit" in result.err and "phrases.txt:1:" not in result.err
    assert set(sounds(tmp_path)) == {f"audio_{number}.wav" for number in (0, 2, 3, 5)}
    assert len(list(tmp_path.glob("alignment_*.png"))) == 4
    result = run("inference.py", *names, "--stream", tmp_path / "live")
    assert result.code == 1 and [":2: does" in result.err, ":5: does" in result.err] == [True, True]


@pytest.mark.slow
def test_formats_of_sounds_and_samples(tmp_path: Path) -> None:
    """flac is lossless, ogg close; float32 samples are those of int16 before rounding."""
    for more in (["--format", "flac"], ["--format", "ogg"], ["--sample-format", "float32"], []):
        succeed("inference.py", *words(tmp_path, "--seed", 3, *more, lines=LINES[:1]))
        if "float32" in more:
            assert soundfile.info(tmp_path / "audio_0.wav").subtype == "FLOAT"
            exact, _ = soundfile.read(tmp_path / "audio_0.wav", dtype="float32")
    assert soundfile.info(tmp_path / "audio_0.wav").subtype == "PCM_16"
    (wav, rate), (flac, _), (ogg, _) = (soundfile.read(tmp_path / f"audio_0.{name}") for name in ("wav", "flac", "ogg"))
    assert rate == 22050 and np.array_equal(wav, flac) and np.corrcoef(wav, ogg)[0, 1] > 0.95
    assert not np.array_equal(exact, wav)
    assert np.array_equal(np.rint(exact * 32768).clip(-32768, 32767), wav * 32768)
