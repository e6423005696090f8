"""The training decoder against the plain one: outputs and every gradient."""

import pytest
import torch

from common.fast import shallow_copy
from tacotron2.decoder import Decoder
from tacotron2.fast.training import TrainingDecoder
from tests.float64 import randn
from tests.tacotron2.test_decoder import make_decoder


def fast(decoder: Decoder) -> Decoder:
    return shallow_copy(decoder, TrainingDecoder)


def plain(decoder: Decoder) -> Decoder:
    return decoder


@pytest.mark.parametrize(("batch", "symbols", "steps"), [(1, 1, 1), (1, 9, 4), (8, 20, 30)])
def test_all_steps_in_bfloat16(batch, symbols, steps):
    """Outputs and gradients against the plain steps in float64, relative to each tensor's norm; products are oneDNN's.

    The attention's kernel is longer than some of the texts. tests/test_fast_ways.py compares in float64 and float32.
    """
    sizes = {"attention_rnn_dim": 64, "decoder_rnn_dim": 48, "encoder_embedding_dim": 32, "attention_dim": 16}
    decoder = make_decoder(**sizes, attention_location_kernel_size=7).train()
    prenet, memory, lengths = randn(steps, batch, 4), randn(batch, symbols, 32), torch.full((batch,), symbols)
    directions = randn(steps, batch, 48 + 32), randn(batch, steps, symbols)
    results = []
    for way, dtype in ((plain, torch.float64), (fast, torch.float32)):
        inputs = [x.detach().to(dtype).requires_grad_() for x in (prenet, memory)]
        unused = ("prenet", "linear_projection", "gate_layer")
        weights = [p for name, p in decoder.to(dtype).named_parameters() if not name.startswith(unused)]
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.float32):
            outputs = way(decoder).run(inputs[0], decoder.attention_layer.memory(inputs[1], lengths))
        loss = sum((output * direction).sum() for output, direction in zip(outputs, directions))
        results.append([*outputs, *torch.autograd.grad(loss, [*inputs, *weights])])
    largest = max(tensor.norm() for tensor in results[0])
    for want, got in zip(*results):
        # a softmax over one symbol has a gradient of 0, which rounding leaves below that of others
        assert (got - want).norm() < 0.05 * max(want.norm(), 1e-2 * largest)


def test_gradients_through_dropout():
    """Slopes of the loss along random directions, every tensor on its own, with the same masks at each call."""
    decoder = make_decoder(p_attention_dropout=0.3, p_decoder_dropout=0.2).train()
    prenet, memory, lengths = randn(6, 3, 4, grad=True), randn(3, 5, 8, grad=True), torch.tensor([5, 3, 1])
    directions = 5 * randn(6, 3, 7 + 8), 5 * randn(3, 6, 5)

    def loss():
        torch.manual_seed(1)
        outputs = fast(decoder).run(prenet, decoder.attention_layer.memory(memory, lengths))
        return sum((output * direction).sum() for output, direction in zip(outputs, directions))

    named = dict(decoder.named_parameters()) | {"prenet": prenet, "memory": memory}
    unused = ("prenet.layers", "linear_projection", "gate_layer")
    named = {name: tensor for name, tensor in named.items() if not name.startswith(unused)}
    for name, gradient in zip(named, torch.autograd.grad(loss(), list(named.values()))):
        tensor, step = named[name], 1e-5 * torch.randn_like(gradient)
        with torch.no_grad():
            tensor.add_(step)
            above = loss()
            tensor.sub_(2 * step)
            below = loss()
            tensor.add_(step)
        slope = (gradient * step).sum() * 2
        torch.testing.assert_close(above - below, slope, rtol=1e-5, atol=1e-11, msg=lambda m, name=name: f"{name}: {m}")


def test_dropout_on_both_lstms():
    """A share of the decoder LSTM's hidden state is 0; the attention LSTM's dropout alone reaches context and weights."""
    decoder = make_decoder(p_decoder_dropout=0.3, decoder_rnn_dim=50).train()
    prenet, memory = randn(20, 8, 4), decoder.attention_layer.memory(randn(8, 5, 8), torch.full((8,), 5))

    def twice():
        return fast(decoder).run(prenet, memory), fast(decoder).run(prenet, memory)

    (outputs, weights), (others, same_weights) = twice()
    assert (outputs[:, :, :50] == 0).double().mean().item() == pytest.approx(0.3, abs=0.03)
    assert not torch.equal(outputs[:, :, :50], others[:, :, :50])
    assert torch.equal(weights, same_weights)
    decoder.p_decoder_dropout, decoder.p_attention_dropout = 0.0, 0.3
    (outputs, weights), (_, others) = twice()
    assert not (outputs == 0).any()
    assert (weights[:, -1] - others[:, -1]).abs().max() > 1e-3
    decoder.eval()
    assert torch.equal(*(weights for _, weights in twice()))
