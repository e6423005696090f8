"""Plots, sounds and numbers from validating WaveGlow: a segment vocoded from its own mels, beside the original."""

from __future__ import annotations

from common.audio.stft import TacotronSTFT
from common.data.pictures import plot_mel_pair
from common.spec import Preview
from waveglow.data_function import WaveGlowBatch
from waveglow.model import WaveGlow, WaveGlowOutput

SIGMA = 0.9


def preview(model: WaveGlow, batch: WaveGlowBatch, outputs: WaveGlowOutput, stft: TacotronSTFT) -> Preview:
    """Pictures and sounds of the batch's first segment, and the latent's standard deviation (1 where the fit is good)."""
    mel = batch.mels[:1]
    audio = model.infer(mel, sigma=SIGMA)[:, : batch.audio.shape[1]].float().clamp(-1, 1)
    vocoded = stft.to(mel.device).mel_spectrogram(audio)[0]
    hop_length, sampling_rate = stft.config.hop_length, stft.config.sampling_rate
    return Preview(
        figures={"mel": plot_mel_pair(mel[0].cpu(), vocoded.cpu(), hop_length=hop_length, sampling_rate=sampling_rate)},
        sounds={"target": batch.audio[0].cpu(), "vocoded": audio[0].cpu()},
        scalars={"latent_std": outputs.z.float().std().item()},
    )
