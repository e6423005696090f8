"""The stages of inference on models with simple outputs that a test can compute."""

import argparse
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from common.audio.stft import AudioConfig
from common.data.filelist import BadRows
from common.draws import Draws
from common.inference.stages import (
    Line,
    MelBatch,
    Pipeline,
    check_texts,
    combine_numbers,
    cut_line,
    join_pieces,
    mels_from_texts,
    plan_batches,
    stream,
    stream_pieces,
    synthesise,
    trim,
)
from common.inference.vocoders import LoadedModel
from common.spec import AcousticInference, Piece

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
    ids = [torch.tensor([ord(letter) - ord("a") + options["first"] for letter in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor([len(text) for text in texts])


def acoustic() -> LoadedModel:
    stages = AcousticInference(encode=encode, spell=lambda text, options: list(text))
    return LoadedModel(argparse.Namespace(flag="reader", inference=stages), Reader(), {"first": 1})  # type: ignore[arg-type]


def test_mels_are_in_the_order_of_texts_with_silence_past_their_ends() -> None:
    batch, numbers = mels_from_texts(["ab", "cdcde", "a"], acoustic(), CPU, half=False)
    assert isinstance(batch, MelBatch)
    assert batch.lengths.tolist() == [4, 10, 2]
    assert batch.steps.tolist() == [2, 5, 1]
    assert batch.text_lengths.tolist() == [2, 5, 1]
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
    loaded = acoustic()

    class Endless(Reader):
        def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
            outputs = super().infer(ids, lengths)
            return outputs._replace(lengths=torch.tensor([outputs.mels.shape[2], 4]))

    batch, _ = mels_from_texts(["abc", "ab"], loaded._replace(model=Endless()), CPU, half=False)
    assert batch.finished == [False, True]
    batch, _ = mels_from_texts(["a"], acoustic(), CPU, half=False)
    assert batch.mels.shape == (1, 3, 8)
    assert batch.lengths.tolist() == [2]
    assert batch.mels[0, 0].tolist() == pytest.approx([1.0, 1.0] + [SILENCE] * 6)


# --- long texts: "ab-c" is two pieces with half a second between ---

OPTIONS = {"first": 1, "sampling_rate": 8, "hop_length": 4, "mel_fmax": 4.0}


class Batches(Reader):
    """Remembers how many texts each batch has and how long they are; an item of five letters never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[list[int]] = []

    def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
        outputs = super().infer(ids, lengths)
        self.sizes.append(lengths.tolist())
        return outputs._replace(lengths=torch.where(lengths == 5, outputs.mels.shape[2], outputs.lengths))


def in_pieces(text: str, limit: int, options: dict) -> list[Piece]:
    parts = text.split("-") if limit and len(text) > limit else [text]
    return [Piece(part, 0.5 if number else 0.0) for number, part in zip(range(len(parts))[::-1], parts, strict=True)]


def encode_joined(texts: list[str], options: dict) -> tuple[Tensor, Tensor]:
    return encode([text.replace("-", "") for text in texts], options)


class FirstMels:
    """Four samples a frame, and numbers that are easy to add up."""

    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> tuple[Tensor, dict[str, float]]:
        assert draws is not None and len(draws.generators) == len(mels)
        rate = lengths.sum().item() / len(mels)
        numbers = {"vocoder_items_per_sec": rate, "vocoder_latency": float(len(mels))}
        return mels[:, 0].repeat_interleave(4, dim=1), numbers

    def stream(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None):
        yield mels[0, 0, : int(lengths[0])].repeat_interleave(4)
        return self(mels, lengths, draws)


def exhaust(steps) -> tuple[list[Tensor], object]:
    """The parts of a stream, and its result."""
    parts = []
    while True:
        try:
            parts.append(next(steps))
        except StopIteration as end:
            return parts, end.value


def pipeline() -> Pipeline:
    stages = AcousticInference(encode=encode_joined, spell=lambda text, options: list(text), pieces=in_pieces)
    loaded = LoadedModel(argparse.Namespace(flag="reader", inference=stages), Batches(), OPTIONS)  # type: ignore[arg-type]
    return Pipeline(loaded, FirstMels(), AudioConfig(sampling_rate=8, hop_length=4, mel_fmax=4.0), CPU, False)


def lines_from(texts: list[str]) -> list[Line]:
    return [Line(text, 0, number) for number, text in enumerate(texts)]


def synthesise_pieces(texts: list[str], limit: int, size: int = 0) -> tuple[list, dict[str, float], Batches]:
    stages = pipeline()
    batch = synthesise(lines_from(texts), stages, limit, size)
    assert not batch.halved
    return batch.speeches, batch.numbers, stages.acoustic.model


def test_pieces_are_joined_with_their_pauses() -> None:
    (long, short), _, _ = synthesise_pieces(["ab-c-de", "b"], 3)
    pause = [0.0] * 4  # half a second of 8 Hz, between letters of 2 frames of 4 samples
    assert long.audio.tolist() == [*[1.0] * 8, *[2.0] * 8, *pause, *[3.0] * 8, *pause, *[4.0] * 8, *[5.0] * 8]
    assert short.audio.tolist() == [2.0] * 8
    assert (long.pieces, short.pieces) == (3, 1)
    assert (long.finished, short.finished) == (True, True)
    nan = float("nan")
    wanted = torch.tensor([[1, 0], [0, 1], [1, nan], [1, 0], [0, 1]])
    torch.testing.assert_close(long.alignment, wanted, equal_nan=True)
    assert short.alignment.tolist() == [[1.0]]
    whole = join_pieces([long, short], [Piece("", 0.5, lead=1.0), Piece("", 0.0)], pipeline().audio)
    assert whole is not None and whole.audio.tolist() == [*pause, *pause, *long.audio, *pause, *short.audio]
    assert [part.start for part in whole.parts] == [1.0, 3.5, 5.0, 7.5]


def test_lines_of_one_batch_keep_their_order() -> None:
    texts = ["a", "ab-c", "abc"] * 10
    speeches, numbers, model = synthesise_pieces(texts, 4)
    assert model.sizes == [[3] * 20 + [1] * 10]  # the longest first
    assert [len(speech.audio) for speech in speeches] == [8, 24, 24] * 10
    assert numbers["vocoder_latency"] == 30.0
    assert synthesise_pieces(["ab-" * 50 + "c"], 0)[2].sizes == [[101]]


def test_pieces_are_batched_by_their_lengths() -> None:
    texts = ["-".join(["ab"] * 10), "a", "-".join(["abcd"] * 8)]
    speeches, numbers, model = synthesise_pieces(texts, 4, 16)
    assert model.sizes == [[4] * 8 + [2] * 8, [2, 2, 1]]
    assert [speech.pieces for speech in speeches] == [10, 1, 8]
    assert [len(speech.audio) for speech in speeches] == [10 * 16 + 9 * 4, 8, 8 * 32 + 7 * 4]
    measures = ("items_per_sec", "latency")
    assert set(numbers) == {f"{of}_{name}" for of in ("reader", "vocoder") for name in measures} | {"attention_focus"}
    assert numbers["vocoder_latency"] == 19.0  # a second for each piece
    frames = 2 * (8 * 4 + 10 * 2 + 1)
    assert numbers["vocoder_items_per_sec"] * 19 == pytest.approx(frames)
    assert numbers["reader_items_per_sec"] * numbers["reader_latency"] == pytest.approx(frames)
    assert numbers["attention_focus"] == pytest.approx(1.0)


@pytest.mark.parametrize("limit", [0, 3])
@pytest.mark.parametrize("last_pause", [0.0, 0.5])
def test_a_stream_has_the_pieces_in_their_order_with_pauses(limit: int, last_pause: float) -> None:
    stages = pipeline()
    parts, (speech, numbers) = exhaust(stream(Line("ab-c-de"), stages, limit, last_pause))
    sizes = stages.acoustic.model.sizes
    assert sizes == ([[5]] if limit == 0 else [[2], [1], [2]])
    after = torch.zeros(round(8 * last_pause))  # of 8 Hz
    assert torch.cat(parts).tolist() == torch.cat([speech.audio, after]).tolist()
    assert speech.audio.tolist() == synthesise_pieces(["ab-c-de"], limit)[0][0].audio.tolist()
    assert numbers["vocoder_latency"] == len(sizes)


def test_streams_of_one_batch_are_those_of_each_line_alone() -> None:
    """Advanced in turn; the pauses between pieces are left to the caller."""
    stages = pipeline()
    parts = [part for line in lines_from(["ab-c", "defg", "a"]) for part in cut_line(line, stages.acoustic, 3)]
    assert [(part.text, part.key) for part in parts][:2] == [("ab", (0, 0, 0)), ("c", (0, 0, 1))]
    streams = stream_pieces(parts, stages)
    assert stages.acoustic.model.sizes == [[len(part.text) for part in parts]]
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


NO_ROOM = "[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 1500000000 bytes."


@pytest.mark.parametrize(
    ("error", "message"), [(torch.OutOfMemoryError, ""), (MemoryError, ""), (RuntimeError, NO_ROOM)]
)
def test_a_batch_that_does_not_fit_runs_in_halves(error: type[Exception], message: str) -> None:
    """Down to one line, which is left out where it does not fit by itself; the other lines are what they are with memory."""
    texts, stages = ["ab", "abcdefghi", "a", "abc", "abcd", "ab-cd"], pipeline()
    want, _, _ = synthesise_pieces(texts, 4)
    model = SmallMemory(6, error, message)
    cramped = stages._replace(acoustic=stages.acoustic._replace(model=model))
    batch = synthesise(lines_from(texts), cramped, 4)
    assert batch.halved
    assert model.sizes == [[4], [3], [2, 2], [2, 1]]
    assert batch.speeches[1] is None
    for number in (0, 2, 3, 4, 5):
        assert batch.speeches[number].audio.tolist() == want[number].audio.tolist()  # type: ignore[union-attr]
    nothing = synthesise([Line("abcdefghi")], cramped)
    assert nothing == ([None], {}, False)


def test_mels_of_streams_are_computed_in_halves_where_memory_is_short() -> None:
    stages = pipeline()
    parts = [cut_line(line, stages.acoustic, 0)[0] for line in lines_from(["ab", "abcd", "a", "abc"])]

    class Scaled(FirstMels):
        def __init__(self, factor: float) -> None:
            self.factor = factor

        def __call__(self, *words: object) -> tuple[Tensor, dict[str, float]]:
            audio, numbers = super().__call__(*words)  # type: ignore[arg-type]
            return self.factor * audio, numbers

    vocoders = [Scaled(factor) for factor in (1.0, 2.0, 3.0, 4.0)]
    model = SmallMemory(4)
    cramped = stages._replace(acoustic=stages.acoustic._replace(model=model))
    sounds = [exhaust(piece.steps)[1][0].audio.tolist() for piece in stream_pieces(parts, cramped, vocoders)]
    assert model.sizes == [[2], [4], [1], [3]]
    plain = [exhaust(piece.steps)[1][0].audio for piece in stream_pieces(parts, stages)]
    assert sounds == [(number * audio).tolist() for number, audio in enumerate(plain, 1)]
    with pytest.raises(torch.OutOfMemoryError):
        stream_pieces(parts, stages._replace(acoustic=stages.acoustic._replace(model=SmallMemory(3))))


def test_a_line_is_left_out_where_a_piece_does_not_fit_and_other_errors_pass() -> None:
    stages = pipeline()
    cramped = stages._replace(acoustic=stages.acoustic._replace(model=SmallMemory(4)))
    assert synthesise(lines_from(["ab-abcdef", "ab"]), cramped, 4).speeches[0] is None
    broken = stages._replace(acoustic=stages.acoustic._replace(model=SmallMemory(0, RuntimeError, "shapes do not fit")))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        synthesise([Line("a")], broken)


def test_mistakes_have_the_numbers_of_their_lines() -> None:
    def encode_small(texts: list[str], options: dict) -> tuple[Tensor, Tensor]:
        if bad := {number: "a capital" for number, text in enumerate(texts) if text != text.lower()}:
            raise BadRows(bad)
        return encode(texts, options)

    loaded = pipeline().acoustic
    stages = AcousticInference(encode=encode_small, spell=lambda text, options: list(text))
    loaded = loaded._replace(spec=argparse.Namespace(flag="reader", inference=stages))  # type: ignore[arg-type]
    texts = ["a"] * 200
    check_texts(texts, loaded)
    texts[3] = texts[170] = "A"
    with pytest.raises(BadRows) as caught:
        check_texts(texts, loaded)
    assert caught.value.problems == {3: "a capital", 170: "a capital"}


def test_batches_are_of_about_one_length_and_numbers_and_sounds_are_those_of_each() -> None:
    lines = lines_from(["a" * length for length in (3, 9, 1, 7, 5)])
    assert plan_batches(lines, 2) == [[1, 3], [4, 0], [2]]
    assert plan_batches(lines, 0) == [[1, 3, 4, 0, 2]]
    assert plan_batches([], 0) == []
    first = {"x_items_per_sec": 10.0, "x_latency": 2.0, "focus": 0.5}
    second = {"x_items_per_sec": 4.0, "x_latency": 3.0, "focus": 0.9}
    focus = pytest.approx((3 * 0.5 + 0.9) / 4)
    numbers = [(3, first), (1, second)]
    assert combine_numbers(numbers, at_once=True) == {"x_items_per_sec": 14.0, "x_latency": 3.0, "focus": focus}
    rate = pytest.approx((20 + 12) / 5)
    assert combine_numbers(numbers) == {"x_items_per_sec": rate, "x_latency": 5.0, "focus": focus}
    assert combine_numbers([]) == {}
    audio = torch.arange(20.0).expand(3, 20)
    cut = trim(audio, torch.tensor([5, 2, 0]), hop_length=4)
    assert [sound.tolist() for sound in cut] == [list(range(20)), list(range(8)), []]
