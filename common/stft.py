"""The STFT and log-mel transforms under the name that users import; they live in common/audio/stft.py."""

from common.audio.stft import STFT, AudioConfig, TacotronSTFT

__all__ = ["STFT", "AudioConfig", "TacotronSTFT"]
