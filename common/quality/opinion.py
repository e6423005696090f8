"""Predicted opinion score of speech: Distill-MOS (Stahl and Gamper 2025, arXiv:2502.05356), without a reference."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import numpy as np
import torch

from common.quality.evaluators import at_rate, optional_import

# N samples
RATE = 16000  # Hz, of the model's input


class OpinionScore:
    """A predicted mean opinion score, from 1 (bad) to 5 (excellent)."""

    def __init__(self) -> None:
        """Load the model and the weights that come with its package, on the CPU. DataError where it is not installed."""
        # it reads files with torchaudio, which is not used here, and each version of which fits one of PyTorch
        with optional_import(torchaudio={}):
            import distillmos
        with redirect_stdout(io.StringIO()):  # it prints the path of its weights
            self.model = distillmos.ConvTransformerSQAModel().eval()

    def __call__(self, audio: np.ndarray, rate: int) -> float:
        """Return the score of audio (N,) in [-1, 1] at `rate` Hz; its level does not matter.

        The model takes 7.68 s at a time: longer audio gets the mean over windows, shorter audio is followed by silence, as its
        authors have it. So any length works, but the score of a few samples, or of none, is that of silence.
        """
        model_input = torch.from_numpy(at_rate(audio, rate, RATE))
        with torch.inference_mode():
            return self.model(model_input[None]).item()
