"""The machine's limit: operations against closed forms, and the arithmetic of the least time."""

import pytest
import torch
from torch import nn

from benchmarks.cases import step_bytes
from benchmarks.machine import Machine, Work, count_flops, limit_seconds
from common.kernels.int8 import can_multiply
from tacotron2.model import Tacotron2


def test_operations_of_products_and_convolutions_and_of_their_backward() -> None:
    a, b = torch.randn(5, 7), torch.randn(7, 3)
    assert count_flops(lambda: torch.tanh(a @ b)) == 2 * 5 * 7 * 3
    layer, x, forward = nn.Conv1d(4, 6, 3, padding=1), torch.randn(2, 4, 20), 2 * 2 * 20 * 6 * 4 * 3
    with torch.inference_mode():
        assert count_flops(lambda: layer(x)) == forward
    assert count_flops(lambda: layer(x).sum().backward()) == 2 * forward  # the weight's
    assert count_flops(lambda: layer(x.requires_grad_()).sum().backward()) == 3 * forward  # and the input's


@pytest.mark.parametrize("training", [False, True])
def test_operations_of_an_lstm_on_several_lengths(training: bool) -> None:
    lstm, lengths = nn.LSTM(5, 4, batch_first=True), torch.tensor([6, 2])
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(2, 6, 5), lengths, batch_first=True)
    with torch.set_grad_enabled(training):
        assert count_flops(lambda: lstm(packed)) == 2 * 8 * 16 * (5 + 4)


def test_a_decoder_step_multiplies_by_the_weights_that_step_bytes_counts() -> None:
    model = Tacotron2(gate_threshold=1.0, prenet_dim=32, attention_rnn_dim=48, decoder_rnn_dim=40).eval()
    text, lengths = torch.randint(1, 100, (1, 9)), torch.tensor([9])
    counts = [count_flops(lambda steps=steps: model.infer(text, lengths, steps)) for steps in (2, 3)]
    once = 80 * 32 + 32 * 32 + 192 * (32 + 512 + 48) + 48 * 128 + 160 * (48 + 512 + 40) + (40 + 512) * 81
    of_each_symbol = 2 * 31 * 32 + 32 * 128 + 128
    postnet = 5 * (2 * 80 * 512 + 3 * 512 * 512)  # of the frame
    projections = (40 + 512) * 81  # these products run again for all frames together
    assert counts[1] - counts[0] == 2 * (once + 9 * (of_each_symbol + 512) + postnet + projections)
    biases = 2 * 192 + 2 * 160 + 81
    assert step_bytes(model, half=False) == 4 * (once + of_each_symbol + biases)
    assert step_bytes(model, half=True) == 2 * (once + of_each_symbol + biases)


def test_the_limit_is_the_slower_of_products_and_reading_at_the_rates_of_this_machine() -> None:
    def read_rate(n_bytes: int) -> float:
        return {100: 1000.0, 400: 500.0}[n_bytes]

    assert limit_seconds([Work(3000)], 100, read_rate) == 30
    assert limit_seconds([Work(30, 100, reads=50)], 100, read_rate) == 5
    assert limit_seconds([Work(3000, 100, reads=50)], 100, read_rate) == 30
    assert limit_seconds([Work(30, 100, reads=50), Work(10, 400), Work(700)], 100, read_rate) == 5 + 0.8 + 7
    machine = Machine(torch.device("cpu"), quick=True)
    said = machine.describe()
    assert said["flops_per_sec"]["float32"] == machine.product_rate(half=False) > 1e8
    assert machine.product_rate(half=True) == machine.rates[machine.half or torch.float32]
    if can_multiply(machine.device):
        assert said["flops_per_sec"]["int8"] == machine.product_rate(half=False, int8=True)
    assert said["read_bytes_per_sec"] == machine.read_rate(2**22) > 1e8
    assert (said["device"], said["threads"], said["torch"]) == ("cpu", 1, torch.__version__)
