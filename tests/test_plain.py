"""--plain, the references of the fast ways: the same training curves and the same speech from the same seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from common.kernels.private_ops import Processor
from tests.recipe import MODELS, flags, read_steps, succeed, train_tiny_model

pytestmark = pytest.mark.slow

OPTIONS = {
    # the LSTMs' masks are drawn in another order
    "Tacotron2": "--learning-rate 1e-3 --p-attention-dropout 0 --p-decoder-dropout 0 --drop-frame-rate 0.1",
    # tiles start at 256 channels; at this size a rate of 1e-3 diverges, and rounding grows with it
    "WaveGlow": "--learning-rate 1e-4 --wn-channels 256 --flows 2 --early-every 1 --segment-length 2048",
}


def losses(model: str, folder: Path, *words: object) -> np.ndarray:
    """Training losses of 80 steps."""
    succeed("train.py", *flags(model, folder, 4), *OPTIONS[model].split(), "--epochs", 40, *words)
    return np.array([data["train_loss"] for step, data in read_steps(folder / "nvlog.json") if len(step) == 2])


@pytest.mark.parametrize("model", MODELS)
def test_eighty_steps_are_the_same(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding grows as training goes on, and stays far below the loss."""
    monkeypatch.setattr("waveglow.fast.table.processor", Processor)  # a Zen 5 would train the plain model twice
    saving = ["--epochs-per-checkpoint", 40]
    fast, plain = (losses(model, tmp_path / name, *more, *saving) for name, more in (("f", []), ("p", ["--plain"])))
    assert len(fast) == len(plain) == 80
    assert plain[-20:].mean() < plain[:20].mean() - 0.3
    np.testing.assert_allclose(fast[:20], plain[:20], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(fast, plain, rtol=0.02, atol=0.02)


def test_plain_speech_is_the_same(tmp_path: Path) -> None:
    """Down to the wav's steps, nearly: the vocoder's noise is drawn after as many numbers."""
    (tmp_path / "phrases.txt").write_text("Two.\nHalf past nine.\n")
    words = ["-i", tmp_path / "phrases.txt", "--cpu", "--seed", 0, "--gate-threshold", 1, "--max-decoder-steps", 7]
    words += ["--tacotron2", train_tiny_model("Tacotron2"), "--waveglow", train_tiny_model("WaveGlow")]
    succeed("inference.py", *words, "-o", tmp_path / "fast")
    succeed("inference.py", *words, "-o", tmp_path / "plain", "--plain")
    for i in range(2):
        (_, fast), (_, plain) = (wavfile.read(tmp_path / name / f"audio_{i}.wav") for name in ("fast", "plain"))
        assert plain.shape == (7 * 5 * 256,)
        np.testing.assert_allclose(fast.astype(float), plain.astype(float), rtol=0, atol=4)
