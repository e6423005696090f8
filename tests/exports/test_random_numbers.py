"""The graphs' random numbers: distributions by statistics, independence of neighbours, the hash by its inverse.

test_single_file.py has the same numbers in a graph.
"""

import numpy as np
import torch
from scipy import stats

from exports.random_numbers import BITS, MULTIPLIERS, KeepMasks, Noise, mix, normal, uniform

N = 200_000


def unmix(x: int) -> int:
    """The inverse of the hash: shifts undone bit group by bit group, products by the inverse modulo 2^32."""
    x ^= x >> 15
    x ^= x >> 30
    for multiplier in reversed(MULTIPLIERS):
        x = x * pow(multiplier, -1, BITS) % BITS
        x ^= x >> 16
    return x


def test_the_hash_is_a_permutation_of_32_bits() -> None:
    numbers = torch.randint(0, BITS, (1000,))
    outputs = mix(numbers)
    assert ((outputs >= 0) & (outputs < BITS)).all()
    assert [unmix(output) for output in outputs.tolist()] == numbers.tolist()


def test_numbers_pass_tests_of_their_distributions() -> None:
    for seed in (0, 1, 12345):
        numbers = uniform(torch.tensor(seed), 1, torch.arange(N)).double().numpy()
        assert stats.kstest(numbers, "uniform").pvalue > 1e-3
        assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / N**0.5
    numbers = normal(torch.tensor(7), torch.arange(N)).double().numpy()
    assert stats.kstest(numbers, "norm").pvalue > 1e-3
    assert np.isfinite(numbers).all()
    spectrum = np.abs(np.fft.rfft(numbers)[1:]) ** 2 / N  # of white noise: exponential with mean 1
    assert stats.kstest(spectrum, "expon").pvalue > 1e-3


def test_seeds_streams_and_noise_do_not_correlate() -> None:
    places = torch.arange(N)
    series = [uniform(torch.tensor(seed), stream, places).double() for seed in (0, 1, 2) for stream in (1, 2)]
    correlations = torch.corrcoef(torch.stack(series)).fill_diagonal_(0)
    assert correlations.abs().max() < 5 / N**0.5
    z = Noise(8, 16)(torch.zeros(6, 5, 600), torch.tensor([0, 1, 2, 3, 400, 2**32 - 1]))
    series = z.transpose(1, 2).flatten(1)
    assert largest_correlation(series) < 6 / series.shape[1] ** 0.5
    assert len(z.unique()) > 0.999 * z.numel()  # float32 has few values near 0


def test_an_item_depends_on_its_own_seed_alone() -> None:
    keep, noise = KeepMasks(16, 0.5), Noise(8, 16)
    seeds, mels = torch.tensor([3, 4, 2**40]), torch.zeros(3, 5, 11)
    masks, z = keep(torch.tensor(6), seeds), noise(mels, seeds)
    assert masks.shape == (2, 3, 16) and z.shape == (3, 8, 22)
    for i in range(3):
        assert torch.equal(masks[:, i : i + 1], keep(torch.tensor(6), seeds[i : i + 1]))
        assert torch.equal(z[i : i + 1], noise(mels[:1], seeds[i : i + 1]))
    assert torch.equal(z[:, :, :4], noise(mels[:, :, :2], seeds))  # more frames add numbers and change none
    assert 0.45 < keep(torch.tensor(0), torch.arange(2000)).double().mean() < 0.55


def largest_correlation(series: torch.Tensor) -> float:
    """The largest correlation of two series, or of a series with itself, at any shift but none; series (B, N) of ±1 or N(0, 1)."""
    spectra = torch.fft.rfft(series.double(), 2 * series.shape[1])
    correlations = torch.fft.irfft(spectra[:, None] * spectra.conj(), 2 * series.shape[1]) / series.shape[1]
    correlations.diagonal().T[:, 0] = 0
    return correlations.abs().max().item()


def test_dropout_coincides_neither_between_steps_nor_layers_nor_seeds() -> None:
    keep, seeds = KeepMasks(64, 0.5), torch.tensor([0, 1, 2, 3, 400, 401, 2**16, 2**31, 2**32 - 1])
    masks = torch.stack([keep(torch.tensor(step), seeds) for step in range(120)])  # (K, 2, B, P)
    rows = masks.flatten(0, 2)
    assert len(rows.unique(dim=0)) == len(rows)
    series = 2 * masks.permute(2, 0, 1, 3).flatten(1).double() - 1
    assert largest_correlation(series) < 6 / series.shape[1] ** 0.5
