"""The plain decoder: teacher forcing, free running with its stop rules, and its parts by their formulas."""

import pytest
import torch

from common.draws import Draws
from tacotron2.config import Tacotron2Config
from tacotron2.decoder import Decoder, Prenet
from tests.float64 import assert_close, randn

SIZES = {
    "n_mel_channels": 3, "encoder_embedding_dim": 8, "attention_rnn_dim": 6, "attention_dim": 5,
    "attention_location_n_filters": 4, "attention_location_kernel_size": 3, "decoder_rnn_dim": 7, "prenet_dim": 4,
}  # fmt: skip


def make_decoder(**config) -> Decoder:
    off = {"p_attention_dropout": 0.0, "p_decoder_dropout": 0.0}
    decoder = Decoder(Tacotron2Config(**{**SIZES, **off, **config})).double()
    decoder.prenet.p_dropout = 0.0
    return decoder


def test_dropped_frames_are_zeros_in_training_only():
    """About so many steps get zeros, all frames of a step or none."""
    decoder, mels = make_decoder(n_frames_per_step=2), randn(3, SIZES["n_mel_channels"], 400)
    inputs = []
    decoder.prenet.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    memory = randn(3, 5, 8), torch.full((3,), 5), mels, torch.full((3,), 400)
    for rate, training in ((0.0, True), (0.3, False), (0.3, True)):
        decoder.train(training).drop_frame_rate = rate
        decoder(*memory)
    assert torch.equal(inputs[0], inputs[1])
    dropped = (inputs[2] == 0).all(dim=2)[1:]
    assert 0.24 < dropped.double().mean() < 0.36
    assert torch.equal(inputs[2][1:][~dropped], inputs[0][1:][~dropped])


STEP = 0.05  # of the counter below, in each step


def counting_decoder(**config) -> Decoder:
    """A decoder whose gate fires in the step that the memory's first channel says.

    The decoder LSTM's first cell adds STEP each step and its hidden value is the cell's tanh; the gate's logit is 1e3 times
    hidden less context, so that tanh((n - 1/2) * STEP) in the memory is passed in the n-th step.
    """
    decoder = make_decoder(**config)
    rnn, gate = decoder.decoder_rnn, decoder.gate_layer.linear_layer
    with torch.no_grad():
        for rows in (rnn.weight_ih, rnn.weight_hh):
            rows[::7] = 0
        rnn.bias_hh[::7] = 0
        rnn.bias_ih[::7] = torch.tensor([40.0, 40.0, torch.atanh(torch.tensor(STEP)).item(), 40.0])
        gate.bias.zero_()
        gate.weight.zero_()
        gate.weight[0, 0], gate.weight[0, 7] = 1e3, -1e3
    return decoder


def counting_memory(firing_steps):
    memory = randn(len(firing_steps), 4, 8)
    memory[:, :, 0] = torch.tanh((torch.tensor(firing_steps) - 0.5) * STEP)[:, None]
    return memory, torch.tensor([4, 3, 4, 2])[: len(firing_steps)]


@pytest.mark.parametrize("r", [1, 2, 3])
def test_a_clip_is_as_long_as_the_frames_before_its_gate_fired(r):
    decoder = counting_decoder(n_frames_per_step=r)
    outputs = decoder.infer(*counting_memory([3, 1, 6, 2]))
    assert outputs.lengths.tolist() == [2 * r, 0, 5 * r, r]
    assert outputs.mels.shape == (4, 3, 6 * r)  # the last item's firing step is the last step
    assert outputs.gates.shape == (4, 6 * r)
    assert outputs.alignments.shape == (4, 6, 4)
    fired = torch.arange(6).repeat_interleave(r) >= torch.tensor([[2], [0], [5], [1]])
    assert torch.equal(outputs.gates > 0, fired)


def test_a_clip_whose_gate_never_fires_ends_at_the_limit_as_all_do_without_early_stopping():
    decoder = counting_decoder(n_frames_per_step=2, max_decoder_steps=5)
    outputs = decoder.infer(*counting_memory([3, 100]))
    assert outputs.lengths.tolist() == [4, 10]
    assert outputs.mels.shape == (2, 3, 10)
    exactly = decoder.infer(*counting_memory([5, 6]))
    assert exactly.lengths.tolist() == [8, 10]
    outputs = counting_decoder(max_decoder_steps=9, decoder_no_early_stopping=True).infer(*counting_memory([3, 1]))
    assert outputs.lengths.tolist() == [2, 0]
    assert outputs.mels.shape == (2, 3, 9)
    outputs = make_decoder(max_decoder_steps=2).infer(randn(1, 3, 8, grad=True), torch.tensor([3]))
    assert not any(x.requires_grad for x in outputs)


def test_prenet_dropout_stays_on_in_evaluation_and_its_masks_are_each_items_own():
    """Over many draws: half of the values are 0, and the mean is that of the layers alone where ReLU is linear."""
    prenet = Prenet(4, 20).double().eval()
    for layer in prenet.layers:
        torch.nn.init.uniform_(layer.linear_layer.weight, 0.1, 0.3)
    x = torch.rand(4).double() + 0.5
    drawn = prenet(x.expand(20, 1000, 4)).flatten(0, 1)
    expected = prenet.layers[1].linear_layer.weight @ (prenet.layers[0].linear_layer.weight @ x)
    torch.testing.assert_close(drawn.mean(0), expected, rtol=0.05, atol=0)
    assert (drawn == 0).double().mean().item() == pytest.approx(0.5, abs=0.01)
    prenet.p_dropout = 0.0
    assert_close(prenet(x[None, None])[0, 0], expected)
    keys = [(1, 0), (1, 1), (1, 2)]
    masks = Prenet(3, 4).keep_masks(Draws.of(keys, "dropout", torch.device("cpu")), 5)
    assert masks.shape == (5, 2, 3, 4)
    for item, key in enumerate(keys):
        (alone,) = Draws.of([key], "dropout", torch.device("cpu")).uniform(5, 2, 4)
        assert torch.equal(masks[:, :, item], alone >= 0.5)


def test_each_lstm_has_its_own_dropout_in_training_only():
    """The first step of many equal clips: shares of zeros are the rates, and the rest is divided by the share that stays."""
    decoder = make_decoder(p_attention_dropout=0.2, p_decoder_dropout=0.6)
    memory = decoder.attention_layer.memory(randn(1, 3, 8).expand(2000, -1, -1), torch.full((2000,), 3))
    x, start = randn(1, 4).expand(2000, -1), decoder.start(memory)
    h, _ = decoder.attention_rnn(torch.cat((x, start.context), dim=1))
    dropped = decoder.train().step(x, start, memory)
    for hidden, rate in ((dropped.attention_hidden, 0.2), (dropped.decoder_hidden, 0.6)):
        assert (hidden == 0).double().mean().item() == pytest.approx(rate, abs=0.02)  # five standard errors
    assert_close(dropped.attention_hidden, (h / 0.8).where(dropped.attention_hidden != 0, 0.0))
    whole = decoder.eval().step(x, start, memory)
    d, _ = decoder.decoder_rnn(torch.cat((h, whole.context), dim=1))
    assert_close(whole.attention_hidden, h)
    assert_close(whole.decoder_hidden, d)
