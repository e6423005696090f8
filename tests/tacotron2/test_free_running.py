"""The decoder prepared for free running against its plain steps, which tests/tacotron2/test_decoder.py holds to the rules."""

from __future__ import annotations

import copy

import pytest
import torch

from common.kernels.packed import can_round
from tacotron2.config import Tacotron2Config
from tacotron2.decoder import Decoder, DecoderOutput
from tacotron2.model import Tacotron2

SIZES = {
    "n_mel_channels": 3,
    "encoder_embedding_dim": 8,
    "attention_rnn_dim": 6,
    "attention_dim": 5,
    "attention_location_n_filters": 4,
    "attention_location_kernel_size": 7,
    "decoder_rnn_dim": 7,
    "prenet_dim": 4,
    "max_decoder_steps": 9,
}


def make_decoder(p_dropout: float = 0.0, dtype: torch.dtype = torch.float64, **config) -> Decoder:
    """With weights so large that what is fed back matters."""
    torch.manual_seed(4)
    decoder = Decoder(Tacotron2Config(**{**SIZES, **config})).to(dtype).eval()
    decoder.prenet.p_dropout = p_dropout
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(2)
    return decoder


def inputs(*lengths: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(len(lengths), max(lengths), 8, dtype=dtype), torch.tensor(lengths)


def assert_same(fast: DecoderOutput, plain: DecoderOutput, bound: float) -> None:
    for got, want in zip(fast, plain, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("r", [1, 2])
@pytest.mark.parametrize("lengths", [(1,), (5,), (5, 1, 3), (40, 2)], ids=str)
def test_prepared_is_plain(lengths: tuple[int, ...], r: int, chunk: int) -> None:
    """One symbol, several frames a step, texts of unlike lengths, steps by one and in chunks that do not fit the limit."""
    decoder = make_decoder(n_frames_per_step=r, gate_threshold=1.0)
    memory, symbols = inputs(*lengths)
    plain = decoder.infer(memory, symbols)
    decoder.prepare(half=False)
    decoder.prepared.chunk, decoder.prepared.multiple = chunk, 8 * chunk
    assert_same(decoder.infer(memory, symbols), plain, 1e-12)
    assert plain.mels.shape[2] == 9 * r
    assert plain.mels[:, :, -1].std() > 0.01


@pytest.mark.parametrize("chunk", [1, 4])
@pytest.mark.parametrize("early", [True, False])
def test_gates_end_as_plainly(chunk: int, early: bool) -> None:
    """A gate's share of one in several steps: items end one after the other, and the last one ends the run."""
    decoder = make_decoder(decoder_no_early_stopping=not early, max_decoder_steps=30)
    memory, symbols = inputs(6, 4, 5, 3)
    gates = torch.sigmoid(decoder.infer(memory, symbols, 1).gates)
    seen = set()
    for threshold in torch.linspace(gates.min() - 0.2, gates.max() + 0.2, 9).tolist():
        decoder.gate_threshold, decoder.prepared = threshold, None
        plain = decoder.infer(memory, symbols)
        decoder.prepare(half=False)
        decoder.prepared.chunk = chunk
        assert_same(decoder.infer(memory, symbols), plain, 1e-11)
        seen |= set(plain.lengths.tolist())
    assert len(seen) > 2


@pytest.mark.parametrize("chunk", [1, 4, 8, 9])
@pytest.mark.parametrize("threshold", [1.0, 0.5, 0.0])
def test_dropout_falls_on_the_same_numbers(chunk: int, threshold: float) -> None:
    """From the same seed, and so do what is drawn next and the next text; float32, in which the plain steps draw as well."""
    decoder = make_decoder(0.5, torch.float32, gate_threshold=threshold, prenet_dim=16)
    memory, symbols = inputs(5, 3, dtype=torch.float32)
    made, following = [], []
    for prepare in (False, True):
        if prepare:
            decoder.prepare(half=False)
            decoder.prepared.chunk = chunk
        torch.manual_seed(7)
        made.append(decoder.infer(memory, symbols))
        following.append((torch.rand(3), decoder.infer(memory, symbols)))
    assert_same(made[1], made[0], 1e-4)
    assert torch.equal(following[1][0], following[0][0])
    assert_same(following[1][1], following[0][1], 1e-4)
    if threshold == 1:
        assert (following[0][1].mels - made[0].mels).abs().max() > 0.01


def test_float16_weights_are_within_their_rounding() -> None:
    decoder = make_decoder(0.0, torch.float32, gate_threshold=1.0)
    memory, symbols = inputs(5, 3, dtype=torch.float32)
    plain = decoder.infer(memory, symbols)
    decoder.prepare(half=True)
    rounded = decoder.infer(memory, symbols)
    assert 0 < (rounded.mels - plain.mels).norm() / plain.mels.norm() < 0.01
    assert (rounded.alignments - plain.alignments).abs().max() < 0.01


@pytest.mark.parametrize("r", [1, 3])
@pytest.mark.parametrize("half", [False, True])
def test_int8_weights_are_within_a_few_percent(half: bool, r: int) -> None:
    """Products by rounded weights, in steps of which each feeds the next."""
    decoder = make_decoder(
        0.0, torch.float32, gate_threshold=1.0, attention_rnn_dim=64, decoder_rnn_dim=64, n_frames_per_step=r
    )
    memory, symbols = torch.rand(2, 5, 8) - 0.5, torch.tensor([5, 3])
    plain = decoder.infer(memory, symbols)
    decoder.prepare(half, int8=True)
    rounded = decoder.infer(memory, symbols)
    if can_round(memory.device):
        assert 0.001 < (rounded.mels - plain.mels).norm() / plain.mels.norm() < 0.05
    assert (rounded.alignments - plain.alignments).abs().max() < 0.05
    other = decoder.infer(torch.cat((memory[:1], 2 * memory[1:])), symbols)
    assert torch.equal(other.mels[0], rounded.mels[0])  # items do not hear each other


def test_int8_leaves_a_model_in_float64_as_it_is() -> None:
    exact, batch = make_decoder(gate_threshold=1.0), inputs(5, 3)
    plain = exact.infer(*batch)
    exact.prepare(half=False, int8=True)
    assert_same(exact.infer(*batch), plain, 1e-12)


def test_batches_do_not_hear_each_other() -> None:
    """The same buffers serve the next batch of a size, inside inference_mode and out of it."""
    decoder = make_decoder(gate_threshold=1.0)
    batches = [inputs(5, 3), inputs(4, 5), inputs(2), inputs(5, 5)]
    plain = [decoder.infer(*batch) for batch in batches]
    decoder.prepare(half=False)
    with torch.inference_mode():
        for batch, want in zip(batches, plain, strict=True):
            assert_same(decoder.infer(*batch), want, 1e-12)
    for batch, want in zip(batches, plain, strict=True):
        assert_same(decoder.infer(*batch), want, 1e-12)
    assert set(decoder.prepared.ready) == {(2, 5), (1, 2)}


def test_sizes_kept_are_few() -> None:
    decoder = make_decoder(gate_threshold=1.0, max_decoder_steps=1)
    decoder.prepare(half=False)
    for symbols in range(1, 20):
        decoder.infer(*inputs(symbols))
    assert [size for _, size in decoder.prepared.ready] == list(range(12, 20))


def test_other_weights_are_heard() -> None:
    """Loading a state dict undoes the preparation."""
    decoder, other = make_decoder(gate_threshold=1.0), make_decoder(gate_threshold=1.0)
    with torch.no_grad():
        other.linear_projection.linear_layer.weight.mul_(3)
    decoder.prepare(half=False)
    batch = inputs(5, 3)
    decoder.load_state_dict(copy.deepcopy(other.state_dict()))
    assert_same(decoder.infer(*batch), other.infer(*batch), 0)


def test_a_prepared_model_speaks_in_autocast_and_has_no_gradients() -> None:
    """What is around the decoder in bfloat16, which the decoder widens."""
    torch.manual_seed(0)
    sizes = {**SIZES, "encoder_embedding_dim": 8, "symbols_embedding_dim": 8, "postnet_embedding_dim": 8}
    model = Tacotron2(**sizes, gate_threshold=1.0).eval()
    model.decoder.prenet.p_dropout = 0.0
    text, lengths = torch.randint(1, 40, (2, 6)), torch.tensor([6, 4])
    plain = model.infer(text, lengths)
    assert model.prepare(half=False) is model
    with torch.autocast("cpu", dtype=torch.bfloat16):
        made = model.infer(text, lengths)
    assert (made.mels.float() - plain.mels).norm() / plain.mels.norm() < 0.05
    assert not any(p.requires_grad for p in model.parameters())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize(("half", "bound"), [(False, 1e-4), (True, 0.02)])
def test_recorded_steps_are_plain_steps(half: bool, bound: float) -> None:
    """CUDA graphs of chunks, for two sizes in turn, each replayed twice, against the plain steps on the CPU."""
    decoder = make_decoder(0.0, torch.float32, gate_threshold=1.0, max_decoder_steps=45)
    batches = [inputs(5, 3, dtype=torch.float32), inputs(40, dtype=torch.float32)] * 2
    plain = [decoder.infer(*batch) for batch in batches]
    decoder.cuda().prepare(half)
    for batch, want in zip(batches, plain, strict=True):
        made = decoder.infer(*(tensor.cuda() for tensor in batch))
        assert (made.mels.cpu() - want.mels).norm() / want.mels.norm() < bound
        assert (made.alignments.cpu() - want.alignments).abs().max() < bound
    assert set(decoder.prepared.ready) == {(2, 32), (1, 64)}


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_recording_takes_no_random_numbers() -> None:
    """The same seed gives the same frames whether a size's graph is there already or not."""
    decoder = make_decoder(0.5, torch.float32, gate_threshold=1.0, prenet_dim=16).cuda()
    decoder.prepare(half=False)
    batch = [tensor.cuda() for tensor in inputs(5, 3, dtype=torch.float32)]
    made = []
    for _ in range(2):
        torch.manual_seed(7)
        made.append(decoder.infer(*batch).mels)
    assert torch.equal(*made)
