"""Length limits of clips, checked by file header or size before training, because a single overlong row can exhaust memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from common.audio.audio_processing import count_samples
from common.audio.stft import AudioConfig
from common.data.filelist import BadRows
from common.data.mels import load_mel
from common.errors import DataError

SMALL_MEL = 2**14  # bytes; smaller files are read, since little of them is the mel itself


def audio_seconds(path: Path, audio: AudioConfig, shortest: int) -> float:
    """Return the seconds of a sound file, read from its header. Raises DataError for a file that training cannot use.

    Args:
        path: the file.
        audio: the settings it must have.
        shortest: the smallest allowed number of samples.
    """
    samples = count_samples(path, audio.sampling_rate)
    if samples < shortest:
        raise DataError(
            f"{path}: {samples} samples, expected at least {shortest}: drop the clip or lengthen it with silence"
        )
    return samples / audio.sampling_rate


def mel_seconds(path: Path, audio: AudioConfig) -> float:
    """Return the seconds of a stored mel; for a large file, the most its size allows. Raises what load_mel raises."""
    size = path.stat().st_size
    frames = load_mel(path, audio.n_mel_channels).shape[1] if size < SMALL_MEL else size / (4 * audio.n_mel_channels)
    return frames * audio.hop_length / audio.sampling_rate


def check_clips(paths: Iterable[Path], problem_of: Callable[[int, Path], str | None]) -> None:
    """Raise one BadRows for all clips with a problem. `problem_of` takes a row's index and file, and may raise DataError."""
    problems: dict[int, str] = {}
    for index, path in enumerate(paths):
        try:
            problem = problem_of(index, path)
        except DataError as error:
            problem = str(error)
        if problem:
            problems[index] = problem
    if problems:
        raise BadRows(problems)


def length_problem(path: Path, seconds: float, longest: float) -> str | None:
    """Return the problem of a clip longer than `longest` seconds, otherwise None."""
    if seconds <= longest:
        return None
    return f"{path}: {seconds:.1f} s, expected at most {longest:g} s (--longest-clip): cut it, or raise the limit"
