"""A line's speech does not depend on its batch: alone and in batches of other lines, in each precision, through both vocoders."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from synthesizer import Line, Speech, SynthesisConfig, Synthesizer

pytestmark = pytest.mark.slow

TEXTS = ["Two.", "The ferry waits until noon, and then it leaves.", "Good morning."]
TEXTS += ["It is a quarter past eleven.", "Yes!"]


def voice(**settings: object) -> Synthesizer:
    pytest.importorskip("safetensors")
    return Synthesizer.embedded(config=SynthesisConfig(**settings), device="cpu")  # type: ignore[arg-type]


def lines(*numbers: int) -> list[Line]:
    return [Line(TEXTS[number], 7, number) for number in numbers]


def batches() -> list[list[int]]:
    """Batches of 2, 3 and all texts, in orders of no length."""
    generator = random.Random(5)
    return [generator.sample(range(len(TEXTS)), size) for size in (2, 3, 5)]


def error(result: Tensor, expected: Tensor) -> float:
    assert result.shape == expected.shape
    return float((result - expected).abs().max() / expected.abs().max())


def assert_same(result: Speech | None, expected: Speech | None, bound: float) -> None:
    assert result is not None and expected is not None
    assert result.finished and expected.finished
    for name in ("mel", "alignment", "audio"):
        assert error(getattr(result, name), getattr(expected, name)) <= bound, name


@pytest.mark.parametrize("vocoder", ["griffin-lim", "waveglow"])
@pytest.mark.parametrize("settings", [{}, {"half": True}, {"int8": True}], ids=["float32", "half", "int8"])
def test_a_line_is_the_same_alone_and_in_any_batch(settings: dict, vocoder: str) -> None:
    ours = voice(vocoder=vocoder, **settings)
    alone = [ours.speak_batch(lines(number)).speeches[0] for number in range(len(TEXTS))]
    frames = [speech.mel.shape[1] for speech in alone if speech]
    assert max(frames) > 4 * min(frames)
    for batch in batches():
        for number, speech in zip(batch, ours.speak_batch(lines(*batch)).speeches, strict=True):
            assert_same(speech, alone[number], 0.0)


def test_plain_models_differ_by_rounding_alone() -> None:
    ours = voice(vocoder="waveglow", plain=True)
    alone = [ours.speak_batch(lines(number)).speeches[0] for number in range(3)]
    for batch in ([0, 1], [2, 1, 0]):
        for number, speech in zip(batch, ours.speak_batch(lines(*batch)).speeches, strict=True):
            assert_same(speech, alone[number], 1e-4)


def test_a_line_depends_on_its_number_and_its_seed() -> None:
    ours = voice()
    same, again, other_number, other_seed = (
        ours.speak_batch([Line("Two.", seed, number)]).speeches[0] for seed, number in ((7, 0), (7, 0), (7, 1), (8, 0))
    )
    assert same and again and other_number and other_seed
    assert torch.equal(same.audio, again.audio)
    for other in (other_number, other_seed):
        assert other.mel.shape != same.mel.shape or not torch.equal(other.mel, same.mel)


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


@pytest.mark.parametrize("vocoder", ["griffin-lim", "waveglow"])
def test_a_stream_joined_is_the_whole(vocoder: str) -> None:
    ours = voice(vocoder=vocoder)
    for line in (Line(f"{TEXTS[1]} {TEXTS[3]} {TEXTS[1]}", 7, 1), Line(TEXTS[3], 8, 0)):
        (whole,) = ours.speak_batch([line]).speeches
        parts = list(ours.stream_line(line))
        assert whole
        assert error(torch.cat(parts), whole.audio) < 1e-3
        assert len(parts) > 2 and len(parts[0]) <= 32 * 256


@pytest.mark.parametrize(("settings", "bound"), [({"half": True}, 1e-2), ({"int8": True}, 0.2)], ids=["half", "int8"])
def test_a_stream_of_rounded_numbers_differs_by_their_rounding(settings: dict, bound: float) -> None:
    """An int8 vocoder takes the step of its levels from each part."""
    ours, line = voice(vocoder="waveglow", **settings), Line(TEXTS[1], 7, 1)
    (whole,) = ours.speak_batch([line]).speeches
    assert whole
    assert error(torch.cat(list(ours.stream_line(line))), whole.audio) < bound
