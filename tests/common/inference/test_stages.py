"""The stages of inference on models with simple outputs that a test can compute."""

import argparse
import sys
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from common.draws import Draws
from common.errors import DataError, UsageError
from common.inference.stages import Line, combine_numbers, join_pieces, mels_from_texts, plan_batches, trim
from common.inference.vocoders import LoadedModel
from common.spec import AcousticInference, Piece
from synthesizer import SynthesisConfig, Synthesizer

CPU = torch.device("cpu")
SILENCE = float(np.float32(np.log(1e-5)))


class Outputs(NamedTuple):
    mels: Tensor
    lengths: Tensor
    alignments: Tensor


class Reader(nn.Module):
    """Outputs id i as 2 frames of i; takes one step more than the longest text, as the stop gate of a real one does."""

    def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
        steps = ids.shape[1] + 1
        frames = torch.cat((ids.float(), torch.zeros(len(ids), 1)), dim=1).repeat_interleave(2, dim=1)
        alignments = torch.eye(steps)[:, : ids.shape[1]].expand(len(ids), -1, -1)
        return Outputs(frames[:, None].expand(-1, 3, -1), 2 * lengths, alignments)


def encode(texts: list[str], options: dict) -> tuple[Tensor, Tensor]:
    """The letters of each text, without the marks between its pieces."""
    ids = [
        torch.tensor([ord(letter) - ord("a") + options["first"] for letter in text if letter != "-"]) for text in texts
    ]
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor([len(sequence) for sequence in ids])


def acoustic() -> LoadedModel:
    stages = AcousticInference(encode=encode, spell=lambda text, options: list(text))
    return LoadedModel(argparse.Namespace(flag="reader", inference=stages), Reader(), {"first": 1})  # type: ignore[arg-type]


def test_mels_are_in_the_order_of_texts_with_silence_past_their_ends() -> None:
    batch, numbers = mels_from_texts(["ab", "cdcde", "a"], acoustic(), CPU, half=False)
    assert batch.lengths.tolist() == [4, 10, 2]
    assert batch.steps.tolist() == batch.text_lengths.tolist() == [2, 5, 1]
    assert batch.finished == [True, True, True]
    wanted = torch.full((3, 12), SILENCE)
    for row, text in enumerate(["ab", "cdcde", "a"]):
        for step, letter in enumerate(text):
            wanted[row, 2 * step : 2 * step + 2] = ord(letter) - ord("a") + 1
    assert torch.allclose(batch.mels, wanted[:, None].expand(-1, 3, -1))
    assert numbers["attention_focus"] == 1.0  # one symbol a step
    assert set(numbers) == {"reader_items_per_sec", "reader_latency", "attention_focus"}
    assert numbers["reader_items_per_sec"] * numbers["reader_latency"] == pytest.approx(16)


def test_an_item_that_runs_to_the_limit_is_unfinished_and_very_short_mels_are_lengthened_with_silence() -> None:
    batch, _ = mels_from_texts(["abcde", "ab"], acoustic()._replace(model=Batches()), CPU, half=False)
    assert batch.finished == [False, True]
    batch, _ = mels_from_texts(["a"], acoustic(), CPU, half=False)
    assert batch.mels.shape == (1, 3, 8)
    assert batch.lengths.tolist() == [2]
    assert batch.mels[0, 0].tolist() == pytest.approx([1.0, 1.0] + [SILENCE] * 6)


LEVEL = 1 / 8  # of the audio, so that no sample is clipped
OPTIONS = {"first": 1, "sampling_rate": 8, "hop_length": 4, "mel_fmax": 4.0}


class Batches(Reader):
    """Remembers how many texts each batch has and how long they are; an item of five letters never ends.

    Three items at once have half of the attention on their symbols.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[list[int]] = []

    def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
        outputs = super().infer(ids, lengths)
        self.sizes.append(lengths.tolist())
        lengths = torch.where(lengths == 5, outputs.mels.shape[2], outputs.lengths)
        return outputs._replace(lengths=lengths, alignments=outputs.alignments * (0.5 if len(ids) == 3 else 1.0))


def in_pieces(text: str, limit: int, options: dict) -> list[Piece]:
    parts = text.split("-") if limit and len(text) > limit else [text]
    return [Piece(part, 0.5 if number else 0.0) for number, part in zip(range(len(parts))[::-1], parts, strict=True)]


class FirstMels:
    """Four samples a frame, of a share of its first mel, and numbers that are easy to add up."""

    def __init__(self, share: float = LEVEL) -> None:
        self.share = share

    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> tuple[Tensor, dict[str, float]]:
        assert draws is not None and len(draws.generators) == len(mels)
        rate = lengths.sum().item() / len(mels)
        numbers = {"vocoder_items_per_sec": rate, "vocoder_latency": float(len(mels))}
        return self.share * mels[:, 0].repeat_interleave(4, dim=1), numbers

    def stream(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None):
        yield self.share * mels[0, 0, : int(lengths[0])].repeat_interleave(4)
        return self(mels, lengths, draws)


def exhaust(steps) -> tuple[list[Tensor], object]:
    parts = []
    while True:
        try:
            parts.append(next(steps))
        except StopIteration as end:
            return parts, end.value


def simple_voice(model: nn.Module | None = None, vocoder: Any = None, **config: Any) -> Synthesizer:
    """A voice whose audio is LEVEL x the number of each letter, from 1, for eight samples."""
    stages = AcousticInference(encode=encode, spell=lambda text, options: list(text), pieces=in_pieces)
    loaded = LoadedModel(argparse.Namespace(flag="reader", inference=stages), model or Batches(), OPTIONS)  # type: ignore[arg-type]
    voice = Synthesizer(loaded, None, SynthesisConfig(**config), CPU)
    voice.vocoder = vocoder or FirstMels()
    return voice


def lines_from(texts: list[str]) -> list[Line]:
    return [Line(text, 0, number) for number, text in enumerate(texts)]


def synthesise_pieces(texts: list[str], limit: int, size: int = 0) -> tuple[list, dict[str, float], Batches]:
    voice = simple_voice(longest_piece=limit)
    batch = voice.speak_batch(lines_from(texts), size)
    assert not batch.halved
    return batch.speeches, batch.numbers, voice.acoustic.model


def levels(*letters: float) -> list[float]:
    """The audio of letters, and of silence (0) for half a second."""
    return [LEVEL * letter for letter in letters for _ in range(8 if letter else 4)]


def test_pieces_are_joined_with_their_pauses() -> None:
    (long, short), _, _ = synthesise_pieces(["ab-c-de", "b"], 3)
    assert (long.audio.tolist(), short.audio.tolist()) == (levels(1, 2, 0, 3, 0, 4, 5), levels(2))
    assert (long.pieces, short.pieces, long.finished, short.finished) == (3, 1, True, True)
    for text in ("abcde-b", "b-abcde", "abcde-abcde"):  # a piece of five letters runs to the limit
        assert [one.finished for one in synthesise_pieces([text, "b-b-b-b"], 4)[0]] == [False, True]
    wanted = torch.tensor([[1, 0], [0, 1], [1, torch.nan], [1, 0], [0, 1]])
    torch.testing.assert_close(long.alignment, wanted, equal_nan=True)
    assert short.alignment.tolist() == [[1.0]]
    whole = join_pieces([long, short], [Piece("", 0.5, lead=1.0), Piece("", 0.0)], simple_voice().audio)
    assert whole is not None and whole.audio.tolist() == levels(0, 0, 1, 2, 0, 3, 0, 4, 5, 0, 2)
    assert [part.start for part in whole.parts] == [1.0, 3.5, 5.0, 7.5]


def test_pieces_are_batched_by_their_lengths() -> None:
    texts = ["-".join(["ab"] * 10), "a", "-".join(["abcd"] * 8)]
    speeches, numbers, model = synthesise_pieces(texts, 4, 16)
    assert model.sizes == [[4] * 8 + [2] * 8, [2, 2, 1]]
    assert [len(speech.audio) for speech in speeches] == [10 * 16 + 9 * 4, 8, 8 * 32 + 7 * 4]
    assert numbers["vocoder_latency"] == 19.0  # a second for each piece
    frames = 2 * (8 * 4 + 10 * 2 + 1)
    assert numbers["vocoder_items_per_sec"] * 19 == pytest.approx(frames)
    assert numbers["reader_items_per_sec"] * numbers["reader_latency"] == pytest.approx(frames)
    assert numbers["attention_focus"] == pytest.approx((16 * 1.0 + 3 * 0.5) / 19)  # each piece counts once


@pytest.mark.parametrize("limit", [0, 3])
@pytest.mark.parametrize("last_pause", [0.0, 0.5])
def test_a_stream_has_the_pieces_in_their_order_with_pauses(limit: int, last_pause: float) -> None:
    voice = simple_voice(longest_piece=limit)
    parts, (speech, numbers) = exhaust(voice.stream_line(Line("ab-c-de"), last_pause))
    sizes = voice.acoustic.model.sizes
    assert sizes == ([[5]] if limit == 0 else [[2], [1], [2]])
    after = torch.zeros(round(8 * last_pause))  # of 8 Hz
    assert torch.cat(parts).tolist() == torch.cat([speech.audio, after]).tolist()
    assert speech.audio.tolist() == synthesise_pieces(["ab-c-de"], limit)[0][0].audio.tolist()
    assert numbers["vocoder_latency"] == len(sizes)


def test_streams_of_one_batch_are_those_of_each_line_alone() -> None:
    voice = simple_voice(longest_piece=3)
    parts = [part for line in lines_from(["ab-c", "defg", "a"]) for part in voice.cut_line(line)]
    assert [(part.text, part.key) for part in parts][:2] == [("ab", (0, 0, 0)), ("c", (0, 0, 1))]
    streams = voice.stream_pieces(parts)
    assert voice.acoustic.model.sizes == [[len(part.text) for part in parts]]
    sounds: dict[int, list[float]] = {number: [] for number in range(len(parts))}
    speeches = {}
    while len(speeches) < len(parts):
        for number, steps in enumerate(streams):
            try:
                sounds[number] += next(steps.steps).tolist()
            except StopIteration as end:
                if end.value is not None:
                    speeches[number], _ = end.value
    for number, part in enumerate(parts):
        ((alone,), _, _) = synthesise_pieces([part.text], 0)
        assert sounds[number] == speeches[number].audio.tolist() == alone.audio.tolist()
        assert torch.equal(speeches[number].mel, alone.mel)
        assert torch.equal(speeches[number].alignment, alone.alignment)


class SmallMemory(Batches):
    """Has memory for so many symbols at once."""

    def __init__(self, room: int, error: type[Exception] = torch.OutOfMemoryError, message: str = "") -> None:
        super().__init__()
        self.room, self.error, self.message = room, error, message

    def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
        if ids.numel() > self.room:
            raise self.error(self.message)
        return super().infer(ids, lengths)


def test_a_batch_that_does_not_fit_runs_in_halves() -> None:
    texts = ["ab", "abcdefghi", "a", "abc", "abcd", "ab-cd"]
    want, _, _ = synthesise_pieces(texts, 4)
    model = SmallMemory(6)
    cramped = simple_voice(model, longest_piece=4)
    batch = cramped.speak_batch(lines_from(texts))
    assert batch.halved
    assert model.sizes == [[4], [3], [2, 2], [2, 1]]
    assert batch.speeches[1] is None
    for number in (0, 2, 3, 4, 5):
        assert batch.speeches[number].audio.tolist() == want[number].audio.tolist()  # type: ignore[union-attr]
    nothing = cramped.speak_batch([Line("abcdefghi")])
    assert nothing == ([None], {}, False)


def test_mels_of_streams_are_computed_in_halves_where_memory_is_short() -> None:
    model = SmallMemory(4)
    cramped, voice = simple_voice(model), simple_voice()
    parts = [voice.cut_line(line)[0] for line in lines_from(["ab", "abcd", "a", "abc"])]
    own = [simple_voice(vocoder=FirstMels(LEVEL / 2**number)) for number in range(4)]  # in halves each keeps its own
    sounds = [exhaust(piece.steps)[1][0].audio.tolist() for piece in cramped.stream_pieces(parts, own)]
    assert model.sizes == [[2], [4], [1], [3]]
    assert sounds == [exhaust(piece.steps)[1][0].audio.tolist() for piece in voice.stream_pieces(parts, own)]
    assert [sound[0] for sound in sounds] == [LEVEL / 2**number for number in range(4)]
    with pytest.raises(torch.OutOfMemoryError):
        simple_voice(SmallMemory(3)).stream_pieces(parts)


def test_a_line_is_left_out_where_a_piece_does_not_fit_and_other_errors_pass() -> None:
    cramped = simple_voice(SmallMemory(4), longest_piece=4)
    assert cramped.speak_batch(lines_from(["ab-abcdef", "ab"])).speeches[0] is None
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        simple_voice(SmallMemory(0, RuntimeError, "shapes do not fit")).speak_batch([Line("a")])
    with pytest.raises(DataError, match=r"^items 2, 3: not enough memory"):
        simple_voice(SmallMemory(3)).speak(["abc", "abcd", "abcde", "a"])


def test_batches_are_of_about_one_length_and_numbers_and_sounds_are_those_of_each() -> None:
    lines = lines_from(["a" * length for length in (3, 9, 1, 7, 5)])
    assert plan_batches(lines, 2) == [[1, 3], [4, 0], [2]]
    assert plan_batches(lines, 0) == [[1, 3, 4, 0, 2]]
    assert plan_batches([], 0) == []
    numbers = [(3, {"x_items_per_sec": 10.0, "x_latency": 2.0, "focus": 0.5})]
    numbers += [(1, {"x_items_per_sec": 4.0, "x_latency": 3.0, "focus": 0.9})]
    focus, rate = pytest.approx((3 * 0.5 + 0.9) / 4), pytest.approx((20 + 12) / 5)
    assert combine_numbers(numbers, at_once=True) == {"x_items_per_sec": 14.0, "x_latency": 3.0, "focus": focus}
    assert combine_numbers(numbers) == {"x_items_per_sec": rate, "x_latency": 5.0, "focus": focus}
    assert combine_numbers([]) == {}
    cut = trim(torch.arange(20.0).expand(3, 20), torch.tensor([5, 2, 0]), hop_length=4)
    assert [sound.tolist() for sound in cut] == [list(range(20)), list(range(8)), []]


class Tone(FirstMels):
    """A tone of 16 samples a period, all in one part."""

    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> tuple[Tensor, dict[str, float]]:
        return torch.sin(torch.arange(4 * mels.shape[2]) * torch.pi / 8).expand(len(mels), -1), {}

    def stream(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None):
        yield from self(mels, lengths)[0][0, : 4 * int(lengths[0])].split(1000)
        return self(mels, lengths)


@pytest.mark.parametrize("speed", [0.3, 0.75, 2.0])
def test_another_speed_keeps_the_pitch_and_moves_the_times(speed: float) -> None:
    pytest.importorskip("av", reason="of requirements/serving.txt")
    voice, text = simple_voice(vocoder=Tone(), speed=speed, longest_piece=1500), "a" * 1000 + "-" + "b" * 1000
    voice.audio = replace(voice.audio, sampling_rate=8000)
    (speech,) = voice.speak(text)
    assert len(speech.audio) / 8000 == pytest.approx((1 + 0.5 + 1) / speed, rel=0.03)
    loudest = torch.fft.rfft(speech.audio[1000:3000]).abs().argmax()
    assert loudest * 8000 / 2000 == 500  # Hz
    assert [(part.start, part.seconds) for part in speech.parts] == [(0.0, 1 / speed), (1.5 / speed, 1 / speed)]
    parts, (streamed, _) = exhaust(voice.stream_line(Line(text), 0.5))  # type: ignore[misc]
    assert torch.equal(streamed.audio, speech.audio) and streamed.parts == speech.parts
    assert sum(map(len, parts)) / 8000 == pytest.approx(3 / speed, rel=0.03)
    (first, _) = voice.stream_pieces(voice.cut_line(Line(text)))
    assert len(torch.cat(exhaust(first.steps)[0])) / 8000 == pytest.approx(1 / speed, rel=0.03)


def test_a_speed_out_of_range_or_without_its_package_is_an_error(monkeypatch) -> None:
    with pytest.raises(UsageError, match=r"--speed: 5, expected 0.25 to 4"):
        SynthesisConfig(speed=5)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UsageError, match="--speed: needs the package av, which `python -m pip install av` installs"):
        SynthesisConfig(speed=2)
