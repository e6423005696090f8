"""The recordings of a folder: sound files of any kind, found by file extension and read in blocks."""

# N samples of a file, n of a block, C channels

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile

from common.audio.audio_processing import LOSSY_CODECS, LOSSY_PEAK
from common.audio.mpeg import estimates_length, quiet_decoder
from common.errors import DataError, printable

WAVES = (".wav", ".wave", ".w64", ".rf64", ".aif", ".aiff", ".aifc", ".flac")
STREAMS = (".ogg", ".oga", ".opus", ".mp3", ".mp2", ".mpga")
COMPRESSED = (".au", ".snd", ".caf", ".m4a", ".m4b", ".aac", ".wma", ".amr", ".ac3", ".eac3", ".dts")
RARE = (".wv", ".tta", ".ape", ".mpc", ".spx", ".gsm", ".dsf", ".dff", ".voc", ".sph")
VIDEOS = (".mp4", ".m4v", ".mkv", ".mka", ".mov", ".webm", ".avi", ".3gp", ".mpg", ".mpeg", ".flv", ".wmv", ".ogv")
ENDINGS = frozenset(WAVES + STREAMS + COMPRESSED + RARE + VIDEOS)
TRANSCRIPTS = frozenset({".txt", ".srt", ".vtt", ".textgrid", ".lab", ".json", ".jsonl", ".csv", ".tsv", ".data"})
BLOCK = 2**18  # samples read at once, over all channels
SHOWN = 3  # names of files with one ending in a message
LONGEST_SLUG = 80  # characters of the name that a recording's clips share


class SourceFile(NamedTuple):
    """A recording: its path, its path within the folder as text, and a name unique to its clips."""

    path: Path
    name: str
    slug: str


class Listing(NamedTuple):
    """The recordings of a folder by name, problems of files, and the other files."""

    sources: list[SourceFile]
    problems: list[str]
    others: list[Path]

    def describe_others(self, folder: Path) -> str:
        """Name the files that are neither recordings nor transcripts, a few of each extension; "" without any."""
        by_ending: dict[str, list[str]] = defaultdict(list)
        for path in self.others:
            if path.suffix.lower() not in TRANSCRIPTS:
                by_ending[path.suffix.lower()].append(readable_name(path.relative_to(folder)))
        return "; ".join(
            ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more {ending}" if len(names) > SHOWN else "")
            for ending, names in sorted(by_ending.items())
        )


class OpenSound(NamedTuple):
    """An open sound file: rate in Hz, channels, and blocks (n, C) of float32 to be read once, in order.

    Its header states a number of samples; 0 if it does not.
    """

    rate: int
    channels: int
    blocks: Iterator[np.ndarray]
    stated: int = 0


def find_sources(folder: Path) -> Listing:
    """Find the sound files in a folder and below it. Links to files are followed, links to folders are not.

    Raises DataError if the folder cannot be listed.
    """
    problems: list[str] = []
    found: list[tuple[Path, str]] = []
    others: list[Path] = []

    def report(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DataError(f"{folder}: cannot be listed ({error.strerror})")
        problems.append(f"{error.filename}: cannot be listed ({error.strerror})")

    for place, _, names in os.walk(folder, onerror=report):
        for name in names:
            path = Path(place, name)
            if name.startswith("."):
                continue
            if path.suffix.lower() not in ENDINGS:
                others.append(path)
            elif problem := _problem_of_file(path):
                problems.append(f"{path}: {problem}")
            else:
                found.append((path, readable_name(path.relative_to(folder))))
    found.sort(key=lambda pair: pair[1])
    return Listing(_with_slugs(found), sorted(problems), sorted(others))


def readable_name(path: Path) -> str:
    """Spell a path for a text file: with slashes, and without control characters or bytes that are not UTF-8."""
    text = os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _problem_of_file(path: Path) -> str:
    """Say why a file cannot be opened; "" if it can."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if not stat.S_ISREG(mode):  # reading a pipe would block for ever
        return "not a regular file"
    return "" if os.access(path, os.R_OK) else "cannot be read (Permission denied)"


def _with_slugs(found: list[tuple[Path, str]]) -> list[SourceFile]:
    """Give each recording an ASCII name for its clips; names that two would share end in a digest of the path."""
    plain = {name: re.sub(r"[^A-Za-z0-9]+", "_", name.rpartition(".")[0]).strip("_") for _, name in found}
    counts = Counter(slug.lower()[:LONGEST_SLUG] for slug in plain.values())
    sources = []
    for path, name in found:
        slug = plain[name][:LONGEST_SLUG]
        if not slug or counts[slug.lower()] > 1:
            digest = hashlib.sha256(name.encode()).hexdigest()[:8]
            slug = f"{slug or 'recording'}-{digest}"
        sources.append(SourceFile(path, name, slug))
    return sources


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content. Raises DataError if it cannot be read."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None
    return digest.hexdigest()


def drop_copies(sources: Sequence[SourceFile], transcripts: Collection[str]) -> tuple[list[SourceFile], list[str]]:
    """Leave out recordings without a transcript that are copies of one with a transcript. Returns the others, and messages."""
    by_size: dict[int, list[SourceFile]] = defaultdict(list)
    for source in sources:
        by_size[source.path.stat().st_size].append(source)
    messages, copies = [], set()
    for group in by_size.values():
        with_text = [source for source in group if source.name in transcripts]
        without = [source for source in group if source.name not in transcripts]
        if with_text and without:
            first = {file_digest(source.path): source.name for source in reversed(with_text)}
            for source in without:
                if original := first.get(file_digest(source.path)):
                    copies.add(source)
                    messages.append(f"{source.path}: a copy of {original}, which has a transcript")
    return [source for source in sources if source not in copies], messages


@contextmanager
def open_sound(path: Path) -> Iterator[OpenSound]:
    """Open a sound file with libsndfile or else, if PyAV is installed, with FFmpeg's libraries.

    Raises DataError for a file that neither of them reads, and, while its blocks are read, for damage and for samples that are
    NaN, infinite or far above full scale.
    """
    if estimates_length(path) and find_spec("av"):  # libsndfile may stop too early
        with _open_with_av(path, "it does not state its length") as sound:
            yield sound
        return
    try:
        with quiet_decoder(path):
            file = soundfile.SoundFile(os.fspath(path))
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a name that ends in .raw
        reason = getattr(error, "error_string", str(error)).strip()
        with _open_with_av(path, reason) as sound:
            yield sound
        return
    with file:
        limit = LOSSY_PEAK if file.subtype in LOSSY_CODECS else 1.0
        stated = 0 if estimates_length(path) else file.frames
        yield OpenSound(file.samplerate, file.channels, _read_with_libsndfile(path, file, limit), stated)


def _read_with_libsndfile(path: Path, file: Any, limit: float) -> Iterator[np.ndarray]:
    size = max(1, BLOCK // file.channels)
    while True:
        try:
            with quiet_decoder(path):
                block = file.read(size, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise DataError(f"{path}: damaged ({error.error_string.strip()})") from None
        if not len(block):
            return
        yield _check_block(path, block, limit)


def _check_block(path: Path, block: np.ndarray, limit: float) -> np.ndarray:
    """Clip a block (n, C) to [-1, 1]. Raises DataError for samples that are NaN, infinite or above `limit`."""
    peak = float(np.abs(block).max())
    if not np.isfinite(peak):
        raise DataError(f"{path}: samples that are NaN or infinite")
    if peak > limit:
        raise DataError(f"{path}: samples up to {peak:g}, expected -1 to 1: scale the audio down")
    return block.clip(-1.0, 1.0)


@contextmanager
def _open_with_av(path: Path, reason: str) -> Iterator[OpenSound]:
    """Open a file with PyAV, after libsndfile has refused it for `reason`."""
    try:
        import av
    except ImportError:
        raise DataError(
            f"{path}: libsndfile does not read it ({reason}); pip install -r requirements/studio.txt adds FFmpeg's formats"
        ) from None
    try:
        # A playlist may name other files and hosts: read this file only.
        with av.open(os.fspath(path), options={"protocol_whitelist": "file"}) as container:
            if not container.streams.audio:
                raise DataError(f"{path}: no sound in it")
            stream = container.streams.audio[0]
            yield OpenSound(stream.rate, stream.channels, _read_with_av(path, container, stream))
    except DataError:
        raise
    except (av.error.FFmpegError, ValueError) as error:
        raise DataError(f"{path}: not an audio file, or damaged ({getattr(error, 'strerror', error)})") from None


def _read_with_av(path: Path, container: Any, stream: Any) -> Iterator[np.ndarray]:
    import av
    from av.audio.resampler import AudioResampler

    converter = AudioResampler(format="fltp")  # of the file's own rate and channels
    try:
        for frame in container.decode(stream):
            for part in converter.resample(frame):
                yield _check_block(path, part.to_ndarray().T.astype(np.float32), LOSSY_PEAK)
    except (av.error.FFmpegError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({getattr(error, 'strerror', error)})") from None
