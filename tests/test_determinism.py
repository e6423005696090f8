"""Equal seeds give equal bits, in training and in synthesis, and a line's speech does not depend on its batch."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from common import precision
from common.audio.stft import TacotronSTFT
from common.checkpoint.files import load_checkpoint
from common.errors import UsageError
from synthesizer import Line, Speech, SynthesisConfig, Synthesizer
from tests.recipe import finish, flags, losses, start_ranks, succeed
from tests.test_train import differences

slow = pytest.mark.slow
OF_THE_LAUNCH = ("launch", "saved", "data_files")


def final(folder: Path) -> dict:
    checkpoint = load_checkpoint(folder / "checkpoint_Tacotron2_last.pt")
    return {key: value for key, value in checkpoint.items() if key not in OF_THE_LAUNCH}


@slow
def test_equal_runs_end_with_equal_bits(tmp_path: Path) -> None:
    """Two runs of two processes, one of them with loader processes and --deterministic."""
    ways = {"a": [], "b": ["--num-workers", 2, "--deterministic"]}
    for name, words in ways.items():
        own = [*flags("Tacotron2", tmp_path / name), "-bs", 1, "--ema-decay", 0.9, "--epochs", 2, *words]
        finish(start_ranks("train.py", *own))
    assert differences(final(tmp_path / "a"), final(tmp_path / "b")) == []
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_the_switches_are_set_inside_the_context_alone(monkeypatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with precision.deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()
    with precision.deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert precision.balance_threads(torch.device("cpu"), fixed=True) is None
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with precision.deterministic(True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"  # the user's


def test_an_operator_without_a_deterministic_algorithm_is_named() -> None:
    message = r"^--deterministic: \S+ has no deterministic algorithm here; leave the flag out$"
    with pytest.raises(UsageError, match=message), precision.deterministic(True):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    with pytest.raises(RuntimeError, match="shape"), precision.deterministic(True):
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert not torch.are_deterministic_algorithms_enabled()


@slow
def test_threads_stay_as_they_are(tmp_path: Path, monkeypatch) -> None:
    """Without a fixed number, the run adapts its threads to the load, and sums are added in another order."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    chosen = []
    monkeypatch.setattr(precision, "ThreadBalance", lambda *words: chosen.append(words))
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1, "--deterministic")
    assert chosen == []
    assert re.search(r"PARAMETER.*deterministic", (tmp_path / "nvlog.json").read_text())


# A line's speech does not depend on its batch: alone and in batches of other lines, in each precision, through both vocoders


TEXTS = ["Two.", "The ferry waits until noon, and then it leaves.", "Good morning."]
TEXTS += ["It is a quarter past eleven.", "Yes!"]


def voice(**settings: object) -> Synthesizer:
    pytest.importorskip("safetensors")
    return Synthesizer.embedded(config=SynthesisConfig(**settings), device="cpu")  # type: ignore[arg-type]


def lines(*numbers: int) -> list[Line]:
    return [Line(TEXTS[number], 7, number) for number in numbers]


def batches() -> list[list[int]]:
    """Batches of 3 and of all texts, in orders of no length."""
    generator = random.Random(5)
    return [generator.sample(range(len(TEXTS)), size) for size in (3, 5)]


def error(result: Tensor, expected: Tensor) -> float:
    assert result.shape == expected.shape
    return float((result - expected).abs().max() / expected.abs().max())


def mel_distance(result: Tensor, expected: Tensor) -> float:
    """The mean difference of log-mels, in nats."""
    found, wanted = TacotronSTFT().mel_spectrogram(torch.stack([result, expected]))
    return float((found - wanted).abs().mean())


def assert_same(result: Speech | None, expected: Speech | None, bound: float) -> None:
    assert result is not None and expected is not None
    assert result.finished and expected.finished
    # A vocoder that was trained through its inverse makes up to eight times as much of a difference of mels.
    for name, growth in (("mel", 1), ("alignment", 1), ("audio", 5)):
        assert error(getattr(result, name), getattr(expected, name)) <= growth * bound, name


@slow
@pytest.mark.parametrize(
    ("vocoder", "settings", "bound"),
    [
        *(("griffin-lim", {}, 0.0), ("waveglow", {}, 0.0), ("waveglow", {"half": True}, 0.0)),
        *(("waveglow", {"int8": True}, 0.0), ("waveglow", {"plain": True}, 2e-6)),
    ],
)
def test_a_line_is_the_same_alone_and_in_any_batch(vocoder: str, settings: dict, bound: float) -> None:
    """Plain models differ by rounding alone, which adds up over the decoder's steps: the bound is that of one."""
    ours = voice(vocoder=vocoder, **settings)
    alone = [ours.speak_batch(lines(number)).speeches[0] for number in range(len(TEXTS))]
    frames = [speech.mel.shape[1] for speech in alone if speech]
    assert max(frames) > 4 * min(frames)
    for batch in batches():
        for number, speech in zip(batch, ours.speak_batch(lines(*batch)).speeches, strict=True):
            expected = alone[number]
            assert expected is not None
            assert_same(speech, expected, bound * expected.alignment.shape[0])


@slow
def test_pieces_of_a_line_are_those_of_the_line_alone() -> None:
    """The line is cut in four, and the pieces are batched with other lines."""
    text = "The first one is short. The second, which is longer, has two commas in it; and so on! Is it the end?"
    ours = voice(longest_piece=40)
    (alone,) = ours.speak_batch([Line(text, 7, 3)]).speeches
    among = ours.speak_batch([Line("Two.", 7, 0), Line(text, 7, 3), Line("Yes!", 7, 4)], most_pieces=2).speeches[1]
    assert alone and alone.pieces > 2
    assert among and torch.equal(among.audio, alone.audio)
    streamed = torch.cat(list(ours.stream_line(Line(text, 7, 3))))
    assert error(streamed, alone.audio) < 1e-3


@slow
@pytest.mark.parametrize(
    ("vocoder", "settings", "distance", "bound"),
    [
        *(("griffin-lim", {}, error, 1e-3), ("waveglow", {}, error, 1e-3), ("waveglow", {"half": True}, error, 1e-2)),
        # It takes the step of its levels from each part, so that phases differ.
        ("waveglow", {"int8": True}, mel_distance, 0.1),
    ],
)
def test_a_stream_joined_is_the_whole(vocoder: str, settings: dict, distance: Callable, bound: float) -> None:
    ours = voice(vocoder=vocoder, **settings)
    for line in (Line(f"{TEXTS[1]} {TEXTS[3]} {TEXTS[1]}", 7, 1), Line(TEXTS[3], 8, 0)):
        (whole,) = ours.speak_batch([line]).speeches
        parts = list(ours.stream_line(line))
        assert whole
        assert distance(torch.cat(parts), whole.audio) < bound
        assert len(parts) > 2 and len(parts[0]) <= 32 * 256
