"""Third-party models that measure speech, and what calling them takes: optional imports, and audio at their rate.

Distill-MOS (Stahl and Gamper 2025, arXiv:2502.05356) and DNSMOS (Reddy et al. 2022, arXiv:2110.01763) predict opinion scores
without a reference. Resemblyzer embeds voices, so that clips of one speaker point in similar directions (Wan et al. 2018,
"Generalized end-to-end loss for speaker verification", arXiv:1710.10467). All packages bring their weights.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch

from common.audio.audio_processing import at_rate
from common.errors import DataError

# N samples
RATE = 16000  # Hz, of the input of all models
LEVEL = -30.0  # dBFS, the RMS of the clips that the voice encoder was trained on
INSTALL = "`bash scripts/evaluation.sh` installs what is missing"


@contextmanager
def optional_import(install: str = INSTALL, /, **stand_ins: Mapping[str, Any]) -> Iterator[None]:
    """Context for importing an evaluator; a missing package becomes a DataError that names the installer.

    Args:
        install: names the installer.
        stand_ins: modules that an evaluator imports but does not use here, as name → attributes. One that cannot be found is placed
            in sys.modules while the block runs, and removed afterwards so that nothing else takes it for the real one.
    """
    placed = [name for name in stand_ins if name not in sys.modules and find_spec(name) is None]
    for name in placed:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # without one, find_spec of the name raises instead of answering
        vars(module).update(stand_ins[name])
        sys.modules[name] = module
    try:
        yield
    except ImportError as error:
        raise DataError(f"the evaluation needs a package that cannot be imported ({error}); {install}") from error
    finally:
        for name in placed:
            sys.modules.pop(name, None)


class OpinionScore:
    """A predicted mean opinion score, from 1 (bad) to 5 (excellent)."""

    def __init__(self) -> None:
        """Load the model on the CPU. Raises DataError if its package is not installed."""
        # It reads files with torchaudio, which is not used here, and each version of which fits one version of PyTorch.
        with optional_import(torchaudio={}):
            import distillmos
        with redirect_stdout(io.StringIO()):  # the model prints the path of its weights
            self.model = distillmos.ConvTransformerSQAModel().eval()

    def __call__(self, audio: np.ndarray, rate: int) -> float:
        """Return the score of audio (N,) in [-1, 1] at `rate` Hz; its level does not matter.

        The model takes 7.68 s at a time: longer audio is scored by the mean over windows, shorter audio is padded with silence, as
        its authors do. So any length works, but a few samples, or none, score as silence does.
        """
        model_input = torch.from_numpy(at_rate(audio, rate, RATE))
        with torch.inference_mode():
            return self.model(model_input[None]).item()


class NoiseScore:
    """DNSMOS P.835: predicted overall score, from 1 to 5, of listeners who judge the speech and the noise in it."""

    def __init__(self) -> None:
        """Find the package. Raises DataError if it is not installed."""
        with optional_import(requests={"session": None}):  # imported for other models, which are not used here
            from speechmos import dnsmos
        self.run = dnsmos.run

    def __call__(self, audio: np.ndarray, rate: int) -> float:
        """Return the score of audio (N,) in [-1, 1] at `rate` Hz. The model repeats clips until they last nine seconds."""
        samples = at_rate(audio, rate, RATE).clip(-1, 1)
        at_least_one = np.pad(samples, (0, max(0, 1 - len(samples))))  # nothing can be repeated without end
        return float(self.run(at_least_one, RATE)["ovrl_mos"])


class VoiceEmbedder:
    """Encoder of voices: audio to a vector of length 1. Raises DataError if its package is not installed."""

    def __init__(self) -> None:
        import scipy.ndimage

        # Its own audio preparation, which is not used here, imports a voice detector and a module that scipy no longer has.
        morphology = {"binary_dilation": scipy.ndimage.binary_dilation}
        with optional_import(webrtcvad={}, **{"scipy.ndimage.morphology": morphology}):
            import resemblyzer
        self.model = resemblyzer.VoiceEncoder("cpu", verbose=False)

    def __call__(self, audio: np.ndarray, rate: int) -> np.ndarray:
        """Return the embedding (256,) of audio (N,) in [-1, 1] at `rate` Hz."""
        samples = at_rate(audio, rate, RATE)
        level = float(np.std(samples, dtype=np.float64))
        embedding: np.ndarray = self.model.embed_utterance(samples * (10 ** (LEVEL / 20) / max(level, 1e-6)))
        return embedding
