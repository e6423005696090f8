"""The prepared decoder against the plain one, which tests/tacotron2/test_decoder.py tests."""

import pytest
import torch

from common.draws import Draws
from common.fast import Request
from common.kernels import private_ops
from tacotron2.config import Tacotron2Config
from tacotron2.decoder import Decoder, DecoderOutput
from tacotron2.fast import prepared as fast_way
from tacotron2.fast.prepared import PreparedDecoder
from tacotron2.model import Tacotron2
from tests.tacotron2.test_decoder import SIZES as PLAIN

SIZES = PLAIN | {"attention_location_kernel_size": 7, "max_decoder_steps": 9}


def make_decoder(p_dropout: float = 0.0, dtype: torch.dtype = torch.float64, scale: float = 2, **config) -> Decoder:
    torch.manual_seed(4)
    decoder = Decoder(Tacotron2Config(**{**SIZES, **config})).to(dtype).eval()
    decoder.prenet.p_dropout = p_dropout
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(scale)
    return decoder


def prepare(decoder: Decoder, chunk: int | None = None, half: bool = False) -> PreparedDecoder:
    prepared = PreparedDecoder.of(decoder, half)
    if chunk:
        prepared.chunk, prepared.multiple = chunk, 8 * chunk
    return prepared


def inputs(*lengths: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(len(lengths), max(lengths), 8, dtype=dtype), torch.tensor(lengths)


def assert_same(fast: DecoderOutput, plain: DecoderOutput, bound: float) -> None:
    for got, want in zip(fast, plain, strict=True):
        assert got.shape == want.shape
        torch.testing.assert_close(got, want, rtol=0, atol=bound)


@pytest.mark.parametrize("chunk", [1, 4, 9])
@pytest.mark.parametrize("threshold", [1.0, 0.5, 0.0])
def test_dropout_falls_on_the_same_numbers(chunk: int, threshold: float) -> None:
    """From the same seed, and so are the next numbers and the next text."""
    decoder = make_decoder(0.5, torch.float32, gate_threshold=threshold, prenet_dim=16)
    memory, symbols = inputs(5, 3, dtype=torch.float32)
    first, following = [], []
    for model in (decoder, prepare(decoder, chunk)):
        torch.manual_seed(7)
        first.append(model.infer(memory, symbols))
        following.append((torch.rand(3), model.infer(memory, symbols)))
    assert_same(first[1], first[0], 1e-4)
    assert torch.equal(following[1][0], following[0][0])
    assert_same(following[1][1], following[0][1], 1e-4)
    if threshold == 1:
        assert (following[0][1].mels - first[0].mels).abs().max() > 0.01


@pytest.mark.parametrize("chunk", [1, 4, 8])
def test_items_with_draws_have_the_same_numbers_in_every_decoder_and_batch(chunk: int) -> None:
    """The generator of the process stays where it is."""
    decoder = make_decoder(0.5, torch.float32, gate_threshold=1.0, prenet_dim=16)
    memory, symbols = inputs(5, 3, 4, dtype=torch.float32)

    def run(model: Decoder, *items: int) -> DecoderOutput:
        draws = Draws.of([(9, item) for item in items], "acoustic", torch.device("cpu"))
        return model.infer(memory[list(items)], symbols[list(items)], draws=draws)

    before = torch.get_rng_state()
    plain = run(decoder, 0, 1, 2)
    assert_same(run(prepare(decoder, chunk), 0, 1, 2), plain, 1e-4)
    for items in ([2], [1, 0], [2, 0, 1]):
        alone = run(prepare(decoder, chunk), *items)
        for row, item in enumerate(items):
            torch.testing.assert_close(alone.mels[row], plain.mels[item], rtol=0, atol=1e-4)
    assert (plain.mels[0] - plain.mels[1]).abs().max() > 0.01
    assert torch.equal(torch.get_rng_state(), before)


def test_float16_weights_are_within_their_rounding_and_float64_has_none() -> None:
    decoder = make_decoder(0.0, torch.float32, gate_threshold=1.0)
    memory, symbols = inputs(5, 3, dtype=torch.float32)
    plain = decoder.infer(memory, symbols)
    rounded = prepare(decoder, half=True).infer(memory, symbols)
    assert 0 < (rounded.mels - plain.mels).norm() / plain.mels.norm() < 0.01
    assert (rounded.alignments - plain.alignments).abs().max() < 0.01
    exact, batch = make_decoder(gate_threshold=1.0), inputs(5, 3)
    assert_same(prepare(exact, half=True).infer(*batch), exact.infer(*batch), 1e-12)


@pytest.mark.skipif(
    not (private_ops.has_float16_linear() and private_ops.float16_rows_agree()), reason="products of float16 weights"
)
def test_weights_stored_in_half_precision_are_read_in_it_without_rounding(monkeypatch) -> None:
    """All but the product that joins projection and prenet, which float16 does not hold; of other weights none is."""
    packed, pack = [], private_ops.pack_float16_linear
    monkeypatch.setattr(
        private_ops, "pack_float16_linear", lambda weight, bias: packed.append(weight.shape) or pack(weight, bias)
    )
    decoder, batch = make_decoder(0.0, torch.float32, gate_threshold=1.0), inputs(5, 3, dtype=torch.float32)
    prepare(decoder)
    assert not packed
    decoder.half().float()
    want = decoder.double().infer(batch[0].double(), batch[1])
    found = prepare(decoder.float()).infer(*batch)
    assert len(packed) == 4
    assert_same(DecoderOutput(*(value.to(other) for value, other in zip(found, want, strict=True))), want, 2e-5)


def test_batches_do_not_change_each_other_and_buffers_of_few_sizes_stay() -> None:
    """The same buffers serve the next batch of a size, inside inference_mode and out of it."""
    decoder = make_decoder(gate_threshold=1.0)
    batches = [inputs(5, 3), inputs(4, 5), inputs(2), inputs(5, 5)]
    plain = [decoder.infer(*batch) for batch in batches]
    prepared = prepare(decoder)
    with torch.inference_mode():
        for batch, want in zip(batches, plain, strict=True):
            assert_same(prepared.infer(*batch), want, 1e-12)
    for batch, want in zip(batches, plain, strict=True):
        assert_same(prepared.infer(*batch), want, 1e-12)
    assert set(prepared.sizes) == {(2, 16), (1, 16)}
    prepared = prepare(make_decoder(gate_threshold=1.0, max_decoder_steps=1))
    for symbols in range(16, 161, 16):
        prepared.infer(*inputs(symbols))
    assert [size for _, size in prepared.sizes] == list(range(48, 161, 16))


def small_model() -> Tacotron2:
    torch.manual_seed(0)
    sizes = {**SIZES, "symbols_embedding_dim": 8, "postnet_embedding_dim": 8}
    model = Tacotron2(**sizes, gate_threshold=1.0).eval()
    model.decoder.prenet.p_dropout = 0.0
    return model


def test_the_plain_model_stays_as_it_was_and_trains_on() -> None:
    """Preparing changes nothing of it, its later steps change nothing of the prepared one, and that has infer alone.

    In autocast encoder and postnet are in bfloat16, which the decoder widens.
    """
    model, text, lengths = small_model(), torch.randint(1, 40, (2, 6)), torch.tensor([6, 4])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prepared = fast_way.convert(model, Request())
    plain, first = model.infer(text, lengths), prepared.infer(text, lengths)
    torch.testing.assert_close(first.mels, plain.mels, rtol=0, atol=1e-5)
    assert not any(p.requires_grad for p in prepared.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = prepared.infer(text, lengths).mels.float()
    assert 0 < (rounded - plain.mels).norm() / plain.mels.norm() < 0.05
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    output = model.train()(text, lengths, torch.randn(2, 3, 9), torch.tensor([9, 5]))
    output.mel_outputs_postnet.square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    assert torch.equal(prepared.infer(text, lengths).mels, first.mels)
    assert (model.eval().infer(text, lengths).mels - plain.mels).abs().max() > 1e-3
    with pytest.raises(RuntimeError, match="only infer"):
        prepared(text, lengths, torch.randn(2, 3, 9), torch.tensor([9, 5]))


def test_int8_rounds_to_float16_on_cpus_alone_and_the_encoders_lstm_has_one_block(monkeypatch) -> None:
    """Weights of a copy are apart, which cuDNN gathers in every call, with a warning."""
    model = small_model()
    on_cpu = private_ops.has_float16_linear()
    requests = (Request(), Request(half=True), Request(int8=True))
    assert [fast_way.rounds(model, request) for request in requests] == [False, on_cpu, on_cpu]
    model.to("meta")  # as a GPU, which --int8 has no effect on
    assert [fast_way.rounds(model, request) for request in (Request(half=True), Request(int8=True))] == [True, False]
    flattened: list[torch.nn.Module] = []
    model = small_model()
    monkeypatch.setattr(torch.nn.LSTM, "flatten_parameters", lambda lstm: flattened.append(lstm))
    assert flattened == [fast_way.convert(model, Request()).encoder.lstm]


@pytest.mark.gpu
@pytest.mark.parametrize(("half", "bound"), [(False, 1e-4), (True, 0.02)])
def test_recorded_steps_are_plain_steps(half: bool, bound: float) -> None:
    """CUDA graphs of chunks, for two sizes in turn, each replayed twice, against the plain steps on the CPU."""
    decoder = make_decoder(0.0, torch.float32, gate_threshold=1.0, max_decoder_steps=45)
    batches = [inputs(5, 3, dtype=torch.float32), inputs(40, dtype=torch.float32)] * 2
    plain = [decoder.infer(*batch) for batch in batches]
    prepared = prepare(decoder.cuda(), half=half)
    for batch, want in zip(batches, plain, strict=True):
        outputs = prepared.infer(*(tensor.cuda() for tensor in batch))
        assert (outputs.mels.cpu() - want.mels).norm() / want.mels.norm() < bound
        assert (outputs.alignments.cpu() - want.alignments).abs().max() < bound
    assert set(prepared.sizes) == {(2, 32), (1, 64)}
