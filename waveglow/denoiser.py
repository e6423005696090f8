"""Takes the hum that WaveGlow adds by itself out of its audio, by spectral subtraction (Boll, 1979)."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.stft import STFT
from common.errors import UsageError
from waveglow.model import WaveGlow

# B batch, N samples, F frequency bins, T frames

N_BIAS_FRAMES = 88  # mel frames of silence to listen to: part of the definition, although only the first frame counts
N_REACHES = (2, 3, 4)  # shorter silences that are tried, in lengths that one flow's layers see to one side
SETTLED = 1e-5  # of the bias; what is behind two that agree so far is not heard: far more than float32 rounds, far less than an ear


class Denoiser(nn.Module):
    """Subtracts the magnitudes of what the model says of zero mels without noise.

    Raises:
        UsageError: lengths of the STFT that cannot work.
    """

    bias_spectrum: Tensor

    def __init__(
        self, model: WaveGlow, filter_length: int = 1024, hop_length: int = 256, win_length: int = 1024
    ) -> None:
        super().__init__()
        weight = model.upsample.weight
        self.stft = STFT(filter_length, hop_length, win_length).to(weight.device)
        self.register_buffer("bias_spectrum", self._listen(model), persistent=False)  # (1, F, 1)

    @torch.no_grad()
    def _listen(self, model: WaveGlow) -> Tensor:
        """Magnitudes of the first frame of N_BIAS_FRAMES of silence; of fewer, where more would not change them.

        A plain model listens to all of them.
        """

        def bias(n_frames: int) -> Tensor:
            silence = torch.zeros(1, model.config.n_mel_channels, n_frames, device=model.upsample.weight.device)
            return self.stft.spectrum(model.infer(silence, sigma=0.0)).abs()[:, :, :1]

        lengths = [n * model.config.reach for n in N_REACHES]
        fitting = lengths[0] * model.hop_length >= self.stft.filter_length and lengths[-1] < N_BIAS_FRAMES
        if fitting and not model.plain:
            for shorter, longer in pairwise(map(bias, lengths)):
                level = longer.norm()
                if level.isfinite() and (longer - shorter).norm() <= SETTLED * level:
                    return longer
        return bias(N_BIAS_FRAMES)

    def forward(self, audio: Tensor, strength: float = 0.1) -> Tensor:
        """Denoise audio (B, N) into audio (B, N), float32: strength 0 keeps it, 1 takes away the whole of the bias.

        Raises:
            UsageError: a negative strength.
        """
        if not strength >= 0:
            raise UsageError(f"--denoising-strength {strength}: expected 0 or more")
        n_samples = audio.shape[1]
        # A clip of a frame or two is shorter than what the STFT reflects at its edges.
        audio = F.pad(audio, (0, max(0, self.stft.filter_length - n_samples)))
        spectrum = self.stft.spectrum(audio)
        magnitude = spectrum.abs()
        kept = (magnitude - strength * self.bias_spectrum).clamp(min=0)
        gain = kept / magnitude.clamp(min=torch.finfo(magnitude.dtype).tiny)  # real, hence the phase stays
        return self.stft.from_spectrum(gain * spectrum, length=audio.shape[1])[:, :n_samples]
