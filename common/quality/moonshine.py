"""A recogniser of English: Moonshine tiny (Jeffries et al. 2024, arXiv:2410.15608), with the weights of its package."""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np

from common.audio.audio_processing import at_rate
from common.quality.evaluators import optional_import

# N samples
RATE = 16000  # Hz of the recogniser's input
PAD_BEFORE, PAD_AFTER = 0.1, 0.3  # seconds of silence around a clip, without which words at its ends are dropped
TOKENS_PER_SECOND = 10  # faster than anyone speaks; keeps the recogniser from looping on noise
SHORTEST = 0.1  # seconds; anything shorter is no word and too short for the recogniser
LONGEST = 25.0  # seconds; it was trained on clips of up to 30
CUT_FROM, CUT_TO = 17.5, 22.5  # seconds within which a longer clip is cut
CUT_WINDOW = 0.1  # seconds over which the level is measured to choose the cut


class Moonshine:
    """Moonshine and its tokenizer: audio to text."""

    def __init__(self, threads: int | None = None) -> None:
        """Load it on so many CPU threads, None: one per core. Raises DataError if a package is missing.

        Processes that run side by side should take one thread each.
        """
        with optional_import():
            import moonshine_onnx

            # located without importing it, which would need a microphone library
            folder = Path(str(distribution("moonshine-voice").locate_file("moonshine_voice/assets/tiny-en")))
        self.model = moonshine_onnx.MoonshineOnnxModel(models_dir=str(folder), model_name="tiny", model_format="ort")
        if threads is not None:
            paths = (folder / f"{part}.ort" for part in ("encoder_model", "decoder_model_merged"))
            self.model.encoder, self.model.decoder = (_session(path, threads) for path in paths)
        self.tokenizer = moonshine_onnx.load_tokenizer()

    def __call__(self, audio: np.ndarray, rate: int) -> str:
        """Return the words in audio (N,) in [-1, 1] at `rate` Hz; "" for less than a tenth of a second.

        Clips longer than 25 s are transcribed in pieces, cut where they are quietest.
        """
        texts = [self._transcribe(piece) for piece in pieces(at_rate(audio, rate, RATE))]
        return " ".join(text for text in texts if text)

    def _transcribe(self, audio: np.ndarray) -> str:
        if len(audio) < SHORTEST * RATE:
            return ""
        padded = np.pad(audio, (int(PAD_BEFORE * RATE), int(PAD_AFTER * RATE)))[None]
        tokens = self.model.generate(padded, max_len=int(TOKENS_PER_SECOND * padded.size / RATE))
        return self.tokenizer.decode_batch(tokens)[0].strip()


def _session(path: Path, threads: int) -> Any:
    """Load a model in ONNX Runtime with a given number of threads, which the recogniser's package cannot set."""
    with optional_import():
        import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = threads
    return onnxruntime.InferenceSession(str(path), options)


def pieces(audio: np.ndarray) -> list[np.ndarray]:
    """Cut audio (N,) at RATE into pieces of at most LONGEST, each cut in the middle of the quietest window near 20 s."""
    cut: list[np.ndarray] = []
    window = round(CUT_WINDOW * RATE)
    while len(audio) > LONGEST * RATE:
        region = audio[round(CUT_FROM * RATE) : round(CUT_TO * RATE)].astype(np.float64)
        energy = np.convolve(region**2, np.ones(window), mode="valid")
        at = round(CUT_FROM * RATE) + int(energy.argmin()) + window // 2
        cut.append(audio[:at])
        audio = audio[at:]
    return [*cut, audio]
