"""Guards of free running: the plain steps against loops over what they return, the fast ones against the plain ones."""

import argparse
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from common.errors import UsageError
from common.fast import Request
from common.inference.stages import mels_from_texts, prepare_model
from common.inference.vocoders import LoadedModel
from common.options import from_options
from tacotron2.arg_parser import add_tacotron2_arguments
from tacotron2.decoder import Decoder, DecoderOutput
from tacotron2.fast.prepared import PreparedDecoder
from tacotron2.guard import SPARE_FRAMES, AttentionStop, DecodingGuard, StopRule
from tacotron2.model import Tacotron2
from tacotron2.spec import SPEC
from tests.recipe import read_parameters, succeed, train_tiny_model
from tests.tacotron2.fast.test_prepared import SIZES as SMALL
from tests.tacotron2.fast.test_prepared import make_decoder as small_decoder
from tests.tacotron2.fast.test_prepared import prepare as prepare_in_chunks

SIZES = SMALL | {"gate_threshold": 1.0, "max_decoder_steps": 40}  # no probability exceeds it: the gate never fires
TINY = {**SIZES, "n_symbols": 11, "symbols_embedding_dim": 8, "postnet_embedding_dim": 8}
TEXTS = [(1,), (5,), (5, 1, 3), (20, 2)]


def make_decoder(dtype: torch.dtype = torch.float64, scale: float = 3, **config) -> Decoder:
    """Random; at a scale of 3 its attention is far from even and jumps, and rounding grows from step to step."""
    return small_decoder(0.0, dtype, scale, **{**SIZES, **config})


def inputs(*lengths: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(len(lengths))
    return torch.randn(len(lengths), max(lengths), 8, dtype=dtype), torch.tensor(lengths)


def walking_decoder(**config) -> Decoder:
    """Attention starts at symbol 0, moves by a symbol a step, and stays at the last.

    Energies: 50·tanh(3·previous[j - 1] + previous[j] + 0.3·memory[j, 0]), so that where it comes from wins over where it is,
    and that over the mark in the memory; the smallest of the differences is 23.
    """
    decoder = make_decoder(**config)
    attention = decoder.attention_layer
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.zero_()
        conv = attention.location_layer.location_conv.conv.weight  # (filters, [previous, cumulative], width)
        conv[0, 0, 2], conv[0, 0, 3] = 3, 1
        attention.location_layer.location_dense.linear_layer.weight[0, 0] = 1
        attention.memory_layer.linear_layer.weight[0, 0] = 0.3
        attention.v.linear_layer.weight[0, 0] = 50
    return decoder


def marked_inputs(*lengths: int) -> tuple[torch.Tensor, torch.Tensor]:
    memory, symbols = inputs(*lengths)
    memory[:, :, 0] = 0
    memory[:, 0, 0] = 1
    return memory, symbols


def prepare(decoder: Decoder, chunk: int | None) -> Decoder:
    return decoder if chunk is None else prepare_in_chunks(decoder, chunk)


def end_by_attention(alignment: np.ndarray, symbols: int, frames: int, r: int) -> int | None:
    """The step at which attention (K, S) has been at the last symbol for so many frames without a break."""
    there = 0
    for step, weights in enumerate(alignment):
        there = there + r if int(weights[:symbols].argmax()) == symbols - 1 else 0
        if there >= frames:
            return step
    return None


GUARDS = {"none": {}, "stop": {"attention_stop": 3}, "window": {"attention_window": 1}}
GUARDS |= {"limit": {"max_frames_per_symbol": 1.5}}
GUARDS |= {"all": {"attention_stop": 5, "attention_window": 2, "max_frames_per_symbol": 0.7}}
GUARDS = {name: DecodingGuard(**values) for name, values in GUARDS.items()}


@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("lengths", TEXTS, ids=str)
def test_the_fast_way_is_the_plain_way(lengths: tuple[int, ...], r: int, chunk: int, guard: DecodingGuard) -> None:
    """One text, one symbol, several frames a step, texts of unlike lengths, chunks that do not fit."""
    decoder, batch = make_decoder(scale=1.5, n_frames_per_step=r, max_decoder_steps=70), inputs(*lengths)
    decoder.guard = guard
    plain = decoder.infer(*batch)
    for got, want in zip(prepare(decoder, chunk).infer(*batch), plain, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=0, atol=1e-9)


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("chunk", [None, 1, 4])
def test_gates_and_guards_end_as_plainly(early: bool, chunk: int | None) -> None:
    """The first reason counts; lengths equal those that a loop finds in the outputs of a run without a guard."""
    decoder = make_decoder(decoder_no_early_stopping=not early, gate_threshold=0.5, n_frames_per_step=2)
    batch = inputs(6, 1, 3, 2, 4, 2, 3)
    decoder.early_stopping = False
    free, decoder.early_stopping = decoder.infer(*batch), early
    decoder.gate_threshold = threshold = torch.sigmoid(free.gates).quantile(0.96).item()
    decoder.guard = DecodingGuard(attention_stop=4, max_frames_per_symbol=3)
    reasons, wanted, made_steps = set(), [], 0
    for gates, alignment, symbols in zip(free.gates[:, ::2].sigmoid(), free.alignments, batch[1].tolist(), strict=True):
        ends = {"limit": (3 * symbols + SPARE_FRAMES) // 2 + symbols % 2, "most": 40}
        fired = [step for step, gate in enumerate(gates.tolist()) if gate > threshold]
        ends |= {"gate": fired[0]} if fired else {}
        stayed = end_by_attention(alignment.numpy(), symbols, 4, 2)
        ends |= {} if stayed is None else {"attention": stayed}
        reasons.add(min(ends, key=ends.__getitem__))
        wanted.append(2 * min(ends.values()))
        made_steps = max(made_steps, min(*(ends[name] for name in ("limit", "most")), min(ends.values()) + 1))
    assert reasons >= {"gate", "attention", "limit"}
    outputs = prepare(decoder, chunk).infer(*batch)
    assert outputs.lengths.tolist() == wanted
    steps = made_steps if early else (3 * 6 + SPARE_FRAMES) // 2  # the longest text's limit
    assert outputs.mels.shape[2] == 2 * steps
    torch.testing.assert_close(outputs.alignments, free.alignments[:, :steps], rtol=0, atol=1e-8)


@pytest.mark.parametrize("chunk", [None, 1, 7])
@pytest.mark.parametrize(("r", "frames"), [(1, 1), (1, 9), (2, 9), (3, 10)])
def test_attention_ends_a_clip_whose_gate_never_fires(chunk: int | None, r: int, frames: int) -> None:
    """It is at the last of S symbols from step S - 1 on, so it has been there for n steps at step S - 2 + n.

    A window of 1 moves with it, though the sum of weights stays behind.
    """
    decoder = walking_decoder(n_frames_per_step=r)
    batch = marked_inputs(6, 1, 3, 11)
    free = prepare(decoder, chunk).infer(*batch)
    assert free.lengths.tolist() == [40 * r] * 4
    decoder.guard = DecodingGuard(attention_window=1)
    inside = prepare(decoder, chunk).infer(*batch)
    assert torch.equal(inside.alignments.argmax(2), free.alignments.argmax(2))
    decoder.guard = DecodingGuard(attention_stop=frames)
    outputs, n = prepare(decoder, chunk).infer(*batch), math.ceil(frames / r)
    assert outputs.lengths.tolist() == [r * (symbols - 2 + n) for symbols in (6, 1, 3, 11)]
    assert outputs.mels.shape[2] == r * (11 - 1 + n)  # with the step of the last end, as a gate's
    torch.testing.assert_close(outputs.mels, free.mels[:, :, : outputs.mels.shape[2]], rtol=0, atol=1e-9)


def test_a_stay_is_without_a_break() -> None:
    """Over chunks of any size: attention at the last of 3 symbols in steps 1, 2, 4, 5, 6 has been there for 3 at step 6."""
    weights = torch.eye(4)[torch.tensor([[0], [2], [2], [1], [2], [2], [2], [0], [2]])]  # (9, 1, 4)
    for chunk in (1, 2, 4, 9):
        stop = AttentionStop(3, 1, torch.tensor([3]))
        seen = torch.cat([stop.fires(part) for part in weights.split(chunk)])
        assert seen[:, 0].nonzero().flatten().tolist() == [6]


@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("window", [1, 3])
def test_attention_stays_inside_its_window(window: int, chunk: int | None) -> None:
    """No weight further than W from the step before's peak, from symbol 0 on; without a window there is."""
    decoder, batch = make_decoder(), inputs(20, 2, 9, 1)

    def furthest(outputs: DecoderOutput) -> int:
        """Symbols between the last step's peak and any weight; all weights of a step sum to one."""
        most = 0
        for alignment, symbols in zip(outputs.alignments.numpy(), batch[1].tolist(), strict=True):
            np.testing.assert_allclose(alignment.sum(1), 1, atol=1e-12)
            assert not alignment[:, symbols:].any()
            peak = 0
            for weights in alignment:
                most = max(most, *abs(weights.nonzero()[0] - peak))
                peak = int(weights.argmax())
        return most

    assert furthest(prepare(decoder, chunk).infer(*batch)) > 10
    decoder.guard = DecodingGuard(attention_window=window)
    assert furthest(prepare(decoder, chunk).infer(*batch)) == window


@pytest.mark.gpu
@pytest.mark.parametrize("guard", GUARDS.values(), ids=GUARDS)
def test_recorded_steps_keep_to_the_guard(guard: DecodingGuard) -> None:
    """CUDA graphs of chunks against the plain steps on the CPU."""
    decoder = make_decoder(torch.float32, 1.5, n_frames_per_step=2)
    memory, lengths = inputs(5, 1, 3, dtype=torch.float32)
    decoder.guard = guard
    plain = decoder.infer(memory, lengths)
    outputs = PreparedDecoder.of(decoder.cuda(), half=False).infer(memory.cuda(), lengths.cuda())
    assert outputs.lengths.tolist() == plain.lengths.tolist()
    for got, want in zip(outputs, plain, strict=True):
        torch.testing.assert_close(got.cpu(), want, rtol=0, atol=1e-3)


def tiny_model(**config) -> Tacotron2:
    torch.manual_seed(1)
    model = Tacotron2(**{**TINY, **config}).double().eval()
    model.decoder.prenet.p_dropout = 0.0
    return model


def test_a_cut_item_does_not_depend_on_its_batch() -> None:
    """Its last frames have nothing to their right, alone or beside a longer text."""
    model = tiny_model(max_decoder_steps=100)
    model.decoder.guard = DecodingGuard(max_frames_per_symbol=2)
    text, lengths = torch.randint(1, 11, (2, 9)), torch.tensor([9, 4])
    both, alone = model.infer(text, lengths), model.infer(text[1:, :4], lengths[1:])
    assert (both.mel_lengths.tolist(), alone.mels.shape[2]) == ([68, 58], 58)
    torch.testing.assert_close(both.mels[1, :, :58], alone.mels[0], rtol=0, atol=1e-12)


def test_items_that_run_to_their_own_limits_are_unfinished() -> None:
    """Each of the ways to end, in one batch: only the limits, here 58 and 56 frames, leave an item unfinished."""
    model = tiny_model(max_decoder_steps=500)
    model.decoder = walking_decoder(max_decoder_steps=500)
    model.encoder.forward = lambda embedded, lengths, mask_padding: marked_inputs(*lengths.tolist())[0]
    options = {"attention_stop": 56, "max_frames_per_symbol": 2.0, "text_cleaners": ["basic_cleaners"]}
    loaded = prepare_model(LoadedModel(SPEC, model, options), Request(), plain=True)
    model.embedding = torch.nn.Embedding(148, 8).double()
    spoken, _ = mels_from_texts(["abcd", "a", "abc"], loaded, torch.device("cpu"), half=False)
    assert spoken.lengths.tolist() == [58, 52, 56]  # at step S + 54 attention would end them: 58, 55, 57
    assert spoken.finished == [False, False, False]
    loaded.model.decoder.guard = DecodingGuard(attention_stop=55, max_frames_per_symbol=2)
    spoken, _ = mels_from_texts(["abcd", "a", "abc"], loaded, torch.device("cpu"), half=False)
    assert spoken.lengths.tolist() == [57, 52, 56]
    assert spoken.finished == [True, False, False]
    loaded.model.decoder.guard = DecodingGuard(attention_stop=9)
    spoken, _ = mels_from_texts(["abcd", "a", "abc"], loaded, torch.device("cpu"), half=False)
    assert (spoken.lengths.tolist(), spoken.finished) == ([11, 8, 10], [True] * 3)


def test_teacher_forcing_knows_no_guard_and_a_gate_at_the_threshold_goes_on() -> None:
    """The published decoder stops above the threshold; sigmoid(0) is 0.5."""
    decoder = make_decoder()
    memory, lengths = inputs(9, 4)
    mels = torch.randn(2, 3, 12).double()
    unguarded = decoder(memory, lengths, mels, torch.tensor([12, 12]))
    decoder.guard = GUARDS["all"]
    assert torch.equal(decoder(memory, lengths, mels, torch.tensor([12, 12])).alignments, unguarded.alignments)
    rule = StopRule(torch.tensor([9, 9]), 0.5, True, None)
    rule.update(torch.tensor([[0.0, 1e-3], [0.0, 0.0]]), torch.zeros(2, 2, 3))
    assert rule.steps.tolist() == [2, 0]
    assert rule.running.tolist() == [True, False]
    assert (rule.total_steps(), rule.finished) == (3, False)


def test_flags_are_the_guard() -> None:
    parser = argparse.ArgumentParser()
    add_tacotron2_arguments(parser)
    assert from_options(DecodingGuard, vars(parser.parse_args([]))) == DecodingGuard()
    words = ["--attention-stop", "30", "--attention-window", "4", "--max-frames-per-symbol", "12.5"]
    options = vars(parser.parse_args(words))
    wanted = DecodingGuard(attention_stop=30, attention_window=4, max_frames_per_symbol=12.5)
    for set_guard in (SPEC.inference.guard, SPEC.prepare_training):
        model = tiny_model()
        assert model.decoder.guard == DecodingGuard()
        set_guard(model, options)
        assert model.decoder.guard == wanted
    assert not set(SPEC.run_options) & {*SPEC.config_from_options(options), *SPEC.stored_options}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("max_frames_per_symbol", value) for value in (-0.5, math.inf, math.nan)),
        ("attention_stop", -1),
        ("attention_window", 10**30),
    ],
)
def test_values_that_cannot_be_followed(name: str, value: float) -> None:
    expected = "at most 1000000" if value == 10**30 else r"0 \(off\) or more"
    with pytest.raises(UsageError, match=rf"^--{name.replace('_', '-')}: {value}, expected {expected}$"):
        DecodingGuard(**{name: value})


@pytest.mark.slow
def test_inference_cuts_each_line_at_its_own_limit(tmp_path: Path) -> None:
    """A checkpoint that stores nothing of guards: 4 and 15 symbols, 2 frames each and 50 more, in steps of 5 frames."""
    (tmp_path / "phrases.txt").write_text("Two.\nHalf past nine.\n")
    words = ["-i", tmp_path / "phrases.txt", "-o", tmp_path, "--vocoder", "griffin-lim", "--cpu", "--gate-threshold", 1]
    words += ["--tacotron2", train_tiny_model("Tacotron2"), "--max-frames-per-symbol", 2]
    assert succeed("inference.py", *words).count("never stopped by itself") == 2
    for i, frames in enumerate((60, 80)):
        assert len(wavfile.read(tmp_path / f"audio_{i}.wav")[1]) == frames * 256
    logged = read_parameters(tmp_path / "nvlog.json")
    assert (logged["max_frames_per_symbol"], logged["attention_stop"]) == (2.0, 0)
    assert not {*SPEC.run_options} & {*logged["tacotron2_config"]}
