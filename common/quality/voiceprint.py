"""Embeddings of voices: clips of one speaker point in similar directions (Wan et al. 2018, "Generalized end-to-end loss for speaker
verification", arXiv:1710.10467). The weights come with the package Resemblyzer.
"""

from __future__ import annotations

import numpy as np

from common.quality.evaluators import at_rate, optional_import

# N samples
RATE = 16000  # Hz, of the model's input
LEVEL = -30.0  # dBFS, the root mean square of clips in its training
SIZE = 256  # of an embedding


class VoiceEmbedder:
    """The encoder: audio in, a vector of length 1 out. Raises DataError where its package is not installed."""

    def __init__(self) -> None:
        import scipy.ndimage

        # Its own preparation of audio, which is not called here, imports a voice detector and a module that scipy no longer has.
        morphology = {"binary_dilation": scipy.ndimage.binary_dilation}
        with optional_import(webrtcvad={}, **{"scipy.ndimage.morphology": morphology}):
            import resemblyzer
        self.model = resemblyzer.VoiceEncoder("cpu", verbose=False)

    def __call__(self, audio: np.ndarray, rate: int) -> np.ndarray:
        """Return the embedding (SIZE,) of audio (N,) in [-1, 1] at `rate` Hz."""
        samples = at_rate(audio, rate, RATE)
        level = float(np.sqrt(np.mean(np.square(samples, dtype=np.float64))))
        embedding: np.ndarray = self.model.embed_utterance(samples * (10 ** (LEVEL / 20) / max(level, 1e-6)))
        return embedding
