"""Sounds for tests: tones of a known level, and files of them."""

from pathlib import Path

import numpy as np
import soundfile

from common.data.filelist import read_filelist
from tests.recipe import ROOT

RATE = 22050
SENTENCES = [row.text for row in read_filelist(ROOT / "filelists/sentences_audio_text_train_filelist.txt")]


def tone(seconds: float, rate: int = RATE, hertz: float = 440.0, amplitude: float = 0.5) -> np.ndarray:
    """A sine (N,) in float64 that starts at zero."""
    return amplitude * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)


def save(path: Path, samples: np.ndarray, rate: int = RATE, subtype: str | None = None) -> Path:
    """Write a sound (N,) or (N, C), making its folder, and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


def truncate(path: Path, lost: int) -> Path:
    path.write_bytes(path.read_bytes()[:-lost])
    return path


def sentence(number: int) -> np.ndarray:
    """A sentence of the embedded corpus (N,), at RATE."""
    return soundfile.read(ROOT / "corpus" / "sentences" / f"sentence_{number:04}.ogg")[0]
