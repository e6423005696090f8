"""Subtracts WaveGlow's own noise from its audio, by spectral subtraction (Boll, 1979)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from common.audio.stft import STFT
from common.errors import UsageError
from waveglow.model import WaveGlow

# B batch, N samples, F frequency bins, T frames

MODES = {"zeros": torch.zeros, "normal": torch.randn}
N_BIAS_FRAMES = 88  # mel frames of the bias's audio, as published; its first STFT frame is the bias


class Denoiser(nn.Module):
    """Subtracts the magnitudes of the model's audio for zero mels without noise; the model is plain or prepared.

    n_overlap frames overlap, filter_length / hop_length; `hop_length` itself may stand in its place. The mode "normal" takes mels
    of random numbers instead of zeros.

    Raises:
        UsageError: lengths of the STFT that cannot work, or another mode.
    """

    bias_spectrum: Tensor

    def __init__(
        self,
        model: WaveGlow,
        filter_length: int = 1024,
        n_overlap: int = 4,
        win_length: int = 1024,
        mode: str = "zeros",
        *,
        hop_length: int | None = None,
    ) -> None:
        super().__init__()
        if mode not in MODES:
            raise UsageError(f"mode: {mode!r}, expected one of {', '.join(MODES)}")
        device = model.upsample.weight.device
        self.stft = STFT(filter_length, hop_length or filter_length // n_overlap, win_length).to(device)
        with torch.no_grad():
            mels = MODES[mode](1, model.config.n_mel_channels, N_BIAS_FRAMES, device=device)
            bias = model.infer(mels, sigma=0.0)
        self.register_buffer("bias_spectrum", self.stft.spectrum(bias).abs()[:, :, :1], persistent=False)  # (1, F, 1)

    def forward(self, audio: Tensor, strength: float = 0.1) -> Tensor:
        """Denoise audio (B, N) into audio (B, N), float32; strength 0 returns it as it is, 1 subtracts the whole bias.

        Raises:
            UsageError: a negative strength.
        """
        if not strength >= 0:
            raise UsageError(f"--denoising-strength {strength}: expected 0 or more")
        n_samples = audio.shape[1]
        # A clip of a frame or two is shorter than the samples that the STFT reflects at its edges.
        audio = F.pad(audio, (0, max(0, self.stft.filter_length - n_samples)))
        spectrum = self.stft.spectrum(audio)
        magnitude = spectrum.abs()
        remainder = (magnitude - strength * self.bias_spectrum).clamp(min=0)
        gain = remainder / magnitude.clamp(min=torch.finfo(magnitude.dtype).tiny)  # real, hence the phase stays
        return self.stft.from_spectrum(gain * spectrum, length=audio.shape[1])[:, :n_samples]
