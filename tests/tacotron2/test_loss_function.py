"""The criterion in closed form, float64 numpy."""

import numpy as np
import pytest
import torch

from common.errors import UsageError
from tacotron2.loss_function import Tacotron2Loss, Tacotron2LossConfig, Tacotron2Targets
from tacotron2.model import Tacotron2Output

MEL_LENGTHS, TEXT_LENGTHS = torch.tensor([4, 7, 5]), torch.tensor([6, 4, 3])


def make_outputs(dtype=torch.float64, r=1):
    alignments = torch.rand(3, -(-7 // r), 6).to(dtype)
    return Tacotron2Output(*(torch.randn(3, 5, 7).to(dtype) for _ in range(2)), torch.randn(3, 7).to(dtype), alignments)


def make_targets():
    gates = (torch.arange(7) >= MEL_LENGTHS[:, None] - 1).double()
    return Tacotron2Targets(torch.randn(3, 5, 7).double(), gates, MEL_LENGTHS, TEXT_LENGTHS)


def criterion(**options):
    return Tacotron2Loss(Tacotron2LossConfig(**options))


def numbers(terms):
    return {name: term.item() for name, term in terms.items()}


def closed_form(outputs, targets, lengths):
    """Means over the first frames of each clip; every frame has the same weight."""
    mel, refined, gate, _ = (x.double().numpy() for x in outputs)
    mels, stop = targets.mels.numpy(), targets.gates.numpy()
    p = 1 / (1 + np.exp(-gate))
    entropy = -(stop * np.log(p) + (1 - stop) * np.log(1 - p))

    def mean(frames):
        return np.concatenate([clip[..., :n].reshape(-1) for clip, n in zip(frames, lengths)]).mean()

    errors = {"mel": (mel - mels) ** 2, "mel_postnet": (refined - mels) ** 2, "gate": entropy}
    return {name: mean(error) for name, error in errors.items()}


def test_means_over_the_padded_batch_or_over_real_frames():
    outputs, targets = make_outputs(), make_targets()
    terms = criterion().terms(outputs, targets)
    assert numbers(terms) == pytest.approx(closed_form(outputs, targets, [7, 7, 7]), rel=1e-12)
    loss = criterion()(outputs, targets)
    assert loss.shape == ()
    assert loss.item() == pytest.approx(sum(numbers(terms).values()), rel=1e-12)
    terms = criterion(mask_padding=True).terms(outputs, targets)
    assert numbers(terms) == pytest.approx(closed_form(outputs, targets, MEL_LENGTHS.tolist()), rel=1e-12)


def test_targets_of_mels_and_gates_suffice_and_a_certain_gate_costs_nothing():
    """Without lengths, with or without --mask-padding, all frames count."""
    outputs, targets = tuple(make_outputs()), make_targets()
    want = criterion()(outputs, targets).item()
    for options in ({}, {"mask_padding": True}, {"guided_attention_weight": 2.0}):
        assert criterion(**options)(outputs, tuple(targets[:2])).item() == pytest.approx(want, rel=1e-14)
    outputs, targets = make_outputs(), make_targets()
    right = (targets.gates - 0.5) * 2e3
    assert criterion().terms(outputs._replace(gate_outputs=right), targets)["gate"] == 0
    assert criterion().terms(outputs._replace(gate_outputs=-right), targets)["gate"] == 1e3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("mask_padding", [False, True])
def test_half_precision_outputs_are_summed_in_float32(dtype, mask_padding):
    targets = make_targets()
    outputs = make_outputs(dtype)
    outputs = outputs._replace(mel_outputs=outputs.mel_outputs * 300)  # 300^2 is beyond float16
    lengths = MEL_LENGTHS.tolist() if mask_padding else [7, 7, 7]
    for kind in (torch.float32, dtype):
        rounded = targets._replace(mels=targets.mels.to(kind), gates=targets.gates.to(kind))
        terms = criterion(mask_padding=mask_padding).terms(outputs, rounded)
        assert {term.dtype for term in terms.values()} == {torch.float32}
        wide = rounded._replace(mels=rounded.mels.double(), gates=rounded.gates.double())
        assert numbers(terms) == pytest.approx(closed_form(outputs, wide, lengths), rel=1e-5)


@pytest.mark.parametrize("r", [1, 2, 3])
def test_guided_attention_of_a_batch(r):
    outputs, targets, sigma, total, count = make_outputs(r=r), make_targets(), 0.3, 0.0, 0
    for weights, symbols, frames in zip(outputs.alignments.numpy(), TEXT_LENGTHS.tolist(), MEL_LENGTHS.tolist()):
        steps = int(np.ceil(frames / r))
        for k in range(steps):
            for s in range(symbols):
                total += weights[k, s] * (1 - np.exp(-((s / symbols - k / steps) ** 2) / (2 * sigma**2)))
                count += 1
    outputs.alignments.requires_grad_()
    loss = criterion(n_frames_per_step=r, guided_attention_weight=2.5, guided_attention_sigma=sigma)
    terms = loss.terms(outputs, targets)
    assert terms["guided_attention"].item() == pytest.approx(2.5 * total / count, rel=1e-6)
    assert loss(outputs, targets).item() == pytest.approx(sum(numbers(terms).values()), rel=1e-12)
    (gradient,) = torch.autograd.grad(loss(outputs, targets), outputs.alignments)
    assert gradient.min() == 0 < gradient.max()


def test_guided_attention_decays_and_is_for_training():
    outputs, targets = make_outputs(), make_targets()
    loss = criterion(guided_attention_weight=4.0, guided_attention_decay=0.9)
    at = [loss.terms(outputs, targets, iteration)["guided_attention"].item() for iteration in (0, 1, 10)]
    assert at == pytest.approx([at[0], 0.9 * at[0], 0.9**10 * at[0]], rel=1e-12)
    assert at[0] > 0.1
    loss.eval()
    assert list(loss.terms(outputs, targets)) == ["mel", "mel_postnet", "gate"]
    assert list(criterion().terms(outputs, targets)) == ["mel", "mel_postnet", "gate"]


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("weight", (-1.0, float("nan")), "0 or more"),
        ("sigma", (0.0, float("nan")), "more than 0"),
        ("decay", (0.0, 1.5), r"a factor in \(0, 1\]"),
    ],
)
def test_invalid_options_are_errors(name, values, expected):
    for value in values:
        with pytest.raises(UsageError, match=f"^--guided-attention-{name}: {value}, expected {expected}"):
            Tacotron2LossConfig(**{f"guided_attention_{name}": value})
