"""The STFT and log-mel transforms under the name that users import them by; they live in common/sound/stft.py."""

from common.sound.stft import STFT, AudioConfig, TacotronSTFT

__all__ = ["STFT", "AudioConfig", "TacotronSTFT"]
