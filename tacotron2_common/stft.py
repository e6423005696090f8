"""The STFT; audio of its `inverse` is (B, N), where the published one has (B, 1, N)."""

from common.audio.stft import STFT as STFT
