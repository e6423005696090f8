"""Speech for a listener who does not wait for its end."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType

from torch import Tensor

from common.audio.audio_processing import to_pcm
from common.errors import DataError


class Live:
    """Writes sound to a pipe or file as it is made: samples of 16 bits, low byte first, one channel, no header.

    A pipe waits here until someone reads it. Where the reader leaves, the rest is not written, and `left` is True.

    Raises:
        DataError: a path that cannot be written to; sound that is not finite.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, False
        self.first: float | None = None  # time.perf_counter() when the first sound had been written
        try:
            self.file = path.open("wb", buffering=0)
        except OSError as error:
            raise DataError(f"--stream {path}: cannot be written to ({error.strerror})") from None

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.file.close()

    def __call__(self, sound: Tensor) -> None:
        """Write audio (N,) in [-1, 1]."""
        try:
            samples = memoryview(to_pcm(sound).tobytes())
        except ValueError as error:
            raise DataError(f"--stream {self.path}: {error}") from None
        try:
            while samples and not self.left:
                samples = samples[self.file.write(samples) :]
        except BrokenPipeError:
            self.left = True
        except OSError as error:
            raise DataError(f"--stream {self.path}: cannot be written to ({error.strerror})") from None
        if self.first is None and len(sound):
            self.first = time.perf_counter()
