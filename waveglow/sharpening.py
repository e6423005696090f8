"""Training WaveGlow in the direction in which it is used: its inverse as a generator of audio from noise and mels.

Likelihood takes GPU-weeks to make clear speech. The inverse pass is differentiable, so the same tensors can go on training there:
on spectra alone at first (Yamamoto et al. 2020, arXiv:1910.11480), then also against discriminators of complex spectra (Jang et al.
2021, arXiv:2106.07889). The flow stays invertible, but its likelihood means nothing afterwards.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.stft import AudioConfig, mel_filters
from common.checkpoint.fields import SHARPENED
from common.layers import at_least_float32
from common.precision import autocast
from common.run.nvlog import Log
from common.spec import Key
from common.training.adversarial import Layer, Networks, PictureDiscriminator, deceive, unmask
from waveglow.data_function import MelAudioDataset, WaveGlowBatch
from waveglow.model import WaveGlow

# B batch, N samples, M mels, T frames, F frequency bins, g samples in a group

FRAMES, MARGIN = 28, 3  # of a crop, and of mels on each side, whose audio is cut off before the losses
TRAINED_SIGMA, SIGMA = 0.3, 0.9  # of the noise that is learned best, and of inference's
WINDOWS = (2048, 1024, 512, 256, 128, 64)  # samples; hop a quarter
FINE = 512  # samples of the shortest window whose bins below 4 kHz count twice, since harmonics stand there
HARMONIC = 4000  # Hz
MEL_WINDOWS = {1024: 80, 256: 40}  # bands of the mels that are compared as well
FLOOR = 3e-4  # added to magnitudes: that of white noise at -70 dB
JUDGED = (2048, 1024, 256)  # windows whose spectra a discriminator judges
LAYERS = (Layer(24, (5, 3), (2, 1)), Layer(32, (5, 3), (2, 2)), Layer(48, (3, 3), (2, 1)), Layer(64, (3, 3), (2, 2)))
SPECTRAL, ADVERSARIAL, FEATURES = 2.0, 1.0, 2.0  # weights of the losses
RATES = (5e-4, 2e-4)  # of generator and discriminators
BETAS = (0.8, 0.99)
AVERAGE = 0.998
LARGEST_NORM = 10.0
WARM_UP = 50  # steps
SPECTRAL_STEPS, SPECTRAL_SHARE = 2000, 1 / 3  # without discriminators: so many steps, but at most a third of all
BALANCE = 0.25  # loss of the discriminators below which they do not learn, as the flow could not follow; 0.5 is a guess
SPENT = "trained on through its inverse: its likelihood means nothing"


class Spectrum(NamedTuple):
    """Of one window: complex values (B, F, T), and magnitudes (B, F, T)."""

    values: Tensor
    magnitude: Tensor


SpectraByWindow = dict[int, Spectrum]  # by the window's length in samples


class Spectra(nn.Module):
    """Spectra of audio with each of WINDOWS, scaled so that white noise of deviation r has magnitude r."""

    def __init__(self) -> None:
        super().__init__()
        for length in WINDOWS:
            window = torch.hann_window(length)
            self.register_buffer(f"window_{length}", window / window.square().sum().sqrt(), persistent=False)

    def forward(self, audio: Tensor) -> SpectraByWindow:
        """Audio (B, N) -> its spectra by length of the window in samples."""
        found = {}
        for length in WINDOWS:
            window = getattr(self, f"window_{length}")
            values = torch.stft(audio, length, length // 4, length, window, return_complex=True)
            power = values.real.square() + values.imag.square()
            found[length] = Spectrum(values, (power + FLOOR**2).sqrt())
        return found


class SpectralDistance(nn.Module):
    """How far spectra are from others: log magnitudes, spectral convergence, log-mels, and lines at the groups' rate."""

    def __init__(self, audio: AudioConfig, n_group: int) -> None:
        super().__init__()
        self.harmonic = HARMONIC / audio.sampling_rate  # cycles a sample
        # Groups of g samples come through the same weights, so what they have in common sounds as tones at multiples of rate / g.
        length = max(WINDOWS)
        spacing = length // n_group
        self.lines = torch.arange(spacing, length // 2 - spacing // 2, spacing)
        self.near = min(12, spacing // 4)
        for length, bands in MEL_WINDOWS.items():
            config = AudioConfig(
                sampling_rate=audio.sampling_rate,
                filter_length=length,
                hop_length=length // 4,
                win_length=length,
                n_mel_channels=bands,
                mel_fmax=audio.mel_fmax,
            )
            filters = mel_filters(config)
            # In each band white noise has about the same level, as in each bin.
            filters = filters / filters.square().sum(1, keepdim=True).sqrt().clamp(min=1e-9)
            self.register_buffer(f"filters_{length}", filters, persistent=False)

    def forward(self, made: SpectraByWindow, real: SpectraByWindow) -> Tensor:
        """The distance of spectra of equal audio lengths, a scalar."""
        total = self.line_excess(made[max(WINDOWS)]).sub(self.line_excess(real[max(WINDOWS)])).abs().mean()
        for length in WINDOWS:
            magnitudes = made[length].magnitude, real[length].magnitude
            total = total + _distance(*magnitudes)
            if length >= FINE:
                bins = int(length * self.harmonic)
                total = total + _distance(*(magnitude[:, :bins] for magnitude in magnitudes))
            if length in MEL_WINDOWS:
                filters = getattr(self, f"filters_{length}")
                made_mels, real_mels = (torch.matmul(filters, part).clamp(min=1e-9).log() for part in magnitudes)
                total = total + 2 * F.l1_loss(made_mels, real_mels)
        return total / len(WINDOWS)

    def line_excess(self, spectrum: Spectrum) -> Tensor:
        """How far each line at a multiple of the groups' rate stands above its neighbours, in nepers."""
        log = spectrum.magnitude.log().mean(dim=(0, 2))
        near = torch.cat([torch.arange(4, self.near + 1), -torch.arange(4, self.near + 1)])
        return log[self.lines] - log[self.lines[:, None] + near].mean(dim=1)


def _distance(made: Tensor, real: Tensor) -> Tensor:
    return F.l1_loss(made.log(), real.log()) + (made - real).norm() / real.norm()


class Discriminators(nn.Module):
    """One for each of JUDGED: log magnitude, real and imaginary part of a spectrum as a picture."""

    def __init__(self) -> None:
        super().__init__()
        self.each = nn.ModuleList(PictureDiscriminator(3, LAYERS) for _ in JUDGED)

    def forward(self, spectra: SpectraByWindow) -> list[list[Tensor]]:
        """The features of each discriminator, its verdict last."""
        found = []
        for length, judge in zip(JUDGED, self.each, strict=True):
            values, magnitude = spectra[length]
            small = 2 * magnitude.pow(-0.7)  # loud parts do not outweigh the others
            picture = torch.stack([(magnitude.log() + 5) / 2, values.real * small, values.imag * small], dim=1)
            found.append(judge(picture.contiguous(memory_format=torch.channels_last)))
        return found


class Sharpening:
    """A WaveGlow and its discriminators in training."""

    def __init__(
        self,
        model: WaveGlow,
        generator: Any,
        kept: dict[str, Any],
        dataset: MelAudioDataset,
        batch_size: int,
        seed: int,
        device: torch.device,
        half: torch.dtype | None,
    ) -> None:
        """Prepare both.

        Args:
            model: on the device; its parameters are trained.
            generator: what infers with them: the model itself, or its fast way.
            kept: the checkpoint's entries beside its weights.
            dataset: crops as segments.
            batch_size: crops a step.
            seed: of crops, noise and the discriminators' first weights.
            device: of both networks.
            half: the dtype of autocast, None for float32.
        """
        self.model, self.generator, self.kept, self.dataset = model, generator, kept, dataset
        self.batch_size = batch_size
        self.seed, self.device, self.half = seed, device, half
        self.spectra = Spectra().to(device)
        self.distance = SpectralDistance(dataset.audio, model.n_group).to(device)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            discriminators = Discriminators().to(device)
        self.networks = Networks(model, discriminators, RATES, BETAS, AVERAGE, LARGEST_NORM)
        self.cut = MARGIN * model.hop_length

    def crops(self, step: int) -> WaveGlowBatch:
        """The crops of a step, the same for the same seed; each pass over the clips has an order of its own."""
        total, first = len(self.dataset), step * self.batch_size
        places = [divmod(place, total) for place in range(first, first + self.batch_size)]
        orders = {epoch: torch.randperm(total, generator=self._draws(epoch, 0)).tolist() for epoch, _ in places}
        return self.dataset.collate([self.dataset[Key(epoch, orders[epoch][place])] for epoch, place in places])

    def _draws(self, number: int, use: int) -> torch.Generator:
        return torch.Generator().manual_seed(hash((self.seed, number, use)) % 2**63)

    def make(self, mels: Tensor, step: int) -> Tensor:
        """Mels (B, M, T) -> audio (B, N) without the margins, with gradients; the noise is the same for the same step."""
        config = self.model.config
        groups = mels.shape[2] * config.hop_length // config.n_group
        z = torch.randn(len(mels), config.n_group, groups, generator=self._draws(step, 1)).to(self.device)
        with autocast(self.device, self.half):
            audio: Tensor = self.generator.infer(mels, SIGMA, z)
        return at_least_float32(audio)[:, self.cut : -self.cut]

    def step(self, number: int, share: float) -> dict[str, float]:
        """Train the discriminators, then the flow, on the same crops; on spectra alone at first."""
        rate = 0.5 * (1 + math.cos(math.pi * share))  # Loshchilov and Hutter 2017, arXiv:1608.03983
        self.networks.scale_rates((rate * min(1.0, (number + 1) / WARM_UP), rate))
        batch = self.crops(number)
        mels, audio = batch.mels.to(self.device), batch.audio.to(self.device)
        real = self.spectra(audio[:, self.cut : -self.cut])
        made = self.spectra(self.make(mels[:, :, : FRAMES + 2 * MARGIN], number))
        spectral = self.distance(made, real)
        if number < SPECTRAL_STEPS and share < SPECTRAL_SHARE:
            norm = self.networks.train_generator(spectral)
            return {"spectral_loss": spectral.item(), "gradient_norm": norm.item()}
        return {"spectral_loss": spectral.item(), **self._adversarial_step(spectral, made, real)}

    def _adversarial_step(self, spectral: Tensor, made: SpectraByWindow, real: SpectraByWindow) -> dict[str, float]:
        judges = self.networks.discriminator
        with autocast(self.device, self.half):
            wanted, seen = judges(real), judges(detached(made))
        unmasking = torch.stack([unmask(a[-1], b[-1]) for a, b in zip(wanted, seen, strict=True)]).mean()
        if unmasking > BALANCE:  # host sync, once a step
            self.networks.train_discriminator(unmasking)
        judges.requires_grad_(False)
        with autocast(self.device, self.half):
            seen = judges(made)
        judges.requires_grad_(True)
        deceiving = torch.stack([deceive(features[-1]) for features in seen]).mean()
        likeness = feature_distance(wanted, seen)
        norm = self.networks.train_generator(SPECTRAL * spectral + ADVERSARIAL * deceiving + FEATURES * likeness)
        return {
            "discriminator_loss": unmasking.item(),
            "adversarial_loss": deceiving.item(),
            "feature_loss": likeness.item(),
            "gradient_norm": norm.item(),
        }

    def checkpoint(self) -> dict[str, Any]:
        """An ordinary WaveGlow's, of the averaged weights, with a word on its likelihood."""
        return {**self.kept, SHARPENED: SPENT, "state_dict": self.networks.average.module.state_dict()}

    def show(self, log: Log, step: int) -> None:
        """Log the first clip as recorded and as vocoded by the averaged weights, and how far its tones stand out."""
        model, audio = cast(WaveGlow, self.networks.average.module), self.dataset[Key(0, 0)]
        with torch.inference_mode():
            mels = audio.mel[None, :, : FRAMES + 2 * MARGIN].to(self.device)
            vocoded = model.infer(mels, SIGMA)[0]
        rate = self.dataset.audio.sampling_rate
        log.audio("sharpen/recorded", audio.audio, step, rate)
        log.audio("sharpen/vocoded", vocoded, step, rate)
        tones = self.distance.line_excess(self.spectra(vocoded[None])[max(WINDOWS)]).mean().item()
        log.scalars("sharpen", {"tones": tones}, step)


def detached(spectra: SpectraByWindow) -> SpectraByWindow:
    """The spectra without their gradients."""
    return {length: Spectrum(*(part.detach() for part in spectrum)) for length, spectrum in spectra.items()}


def feature_distance(wanted: list[list[Tensor]], seen: list[list[Tensor]]) -> Tensor:
    """The mean distance of features, each layer's as a share of the recordings' size."""
    layers = [pair for both in zip(wanted, seen, strict=True) for pair in zip(both[0][:-1], both[1][:-1], strict=True)]
    shares = [F.l1_loss(b.float(), a.detach().float()) / a.detach().float().abs().mean() for a, b in layers]
    return torch.stack(shares).mean()


def crop_length(model: WaveGlow) -> int:
    """Samples of a crop with both margins."""
    return (FRAMES + 2 * MARGIN) * model.hop_length


@torch.no_grad()
def fold_sigma(model: WaveGlow, factor: float) -> None:
    """Change the weights so that infer(mels, sigma, z) gives what infer(mels, factor * sigma, z) gave."""
    config = model.config
    for k in range(config.n_flows):
        wn: Any = model.WN[k]
        convinv: Any = model.convinv[k]
        scale = torch.ones(len(convinv.conv.weight), dtype=torch.float64, device=wn.end.weight.device)
        if k == config.n_flows - 1:
            scale[:] = factor
        elif (k + 1) % config.n_early_every == 0:  # in inference its early channels come back just before this flow
            scale[: config.n_early_size] = factor
        first, second = scale.to(wn.end.weight).chunk(2)
        weight = wn.start.weight_v
        norm = torch.linalg.vector_norm(weight, dim=(1, 2), keepdim=True)
        merged = wn.start.weight_g * weight / norm * first[None, :, None]
        wn.start.weight_v.copy_(merged)
        wn.start.weight_g.copy_(torch.linalg.vector_norm(merged, dim=(1, 2), keepdim=True))
        # (c x - b) / s = c (x - b / c) / s: the shift b has half of end's rows
        wn.end.weight[: len(second)] /= second[:, None, None]
        wn.end.bias[: len(second)] /= second
        convinv.conv.weight /= scale.to(wn.end.weight)[:, None, None]  # columns of the inverse times c
