"""What a synthesis leaves behind: sound file, picture and subtitles of each line, a live stream, the record of finished lines.

The record, which a later run with --resume reads to skip lines, is inference.jsonl in the output folder, with one JSON object per
line. The first object has the seed and a digest of the settings; each other one has a line's number, its file, and a digest of
everything its audio depends on. Each process of several writes a file of its own, because appends of several machines to one file
may be lost.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import shlex
import shutil
import textwrap
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from common.audio.audio_processing import SAMPLE_FORMATS, save_audio, to_pcm
from common.data.pictures import plot_alignment, save_figure
from common.data.text_files import ends_sentence
from common.errors import DataError, explain_refusal, shorten
from common.files import atomic_write, make_folder, open_to_append, parse_json, writing
from common.inference.stages import Line, Speech
from common.inference.words import Word

DIGEST_BYTES = 12
WAV_ONLY = "aplay"
PLAYERS = ("afplay", WAV_ONLY, "paplay", "pw-play", "ffplay -nodisp -autoexit")
OTHERS_WRITTEN = "the other lines are written"
UNFIT = f"does not fit into memory, not even as the only line of a batch; {OTHERS_WRITTEN}"


def write_sound(path: Path, text: str, speech: Speech, sample_format: str = SAMPLE_FORMATS[0]) -> str:
    """Save the sound of a text and return a message about it. Raises what save_audio raises."""
    save_audio(path, speech.audio, speech.sampling_rate, sample_format)
    warning = "" if speech.finished else "  (never stopped by itself: cut at the decoder's limit)"
    pieces = f"  ({speech.pieces} pieces)" if speech.pieces > 1 else ""
    shown = shorten(" ".join(text.split()))
    return f"{path}  {len(speech.audio) / speech.sampling_rate:.2f} s  {shown}{pieces}{warning}"


def write_picture(path: Path, text: str, speech: Speech, symbols: list[str]) -> None:
    """Draw the alignment of a text's frames with its symbols, which are named unless the text was cut."""
    names = symbols if speech.pieces == 1 else None  # the pieces have different symbols
    save_figure(path, plot_alignment(speech.alignment, names, title=shorten(text)))


def how_to_play(path: Path) -> str:
    """Return a line on how to hear a sound file: by the first of PLAYERS on this machine, otherwise by any."""
    players = (
        player
        for player in PLAYERS
        if shutil.which(player.split()[0]) and (player != WAV_ONLY or path.suffix == ".wav")
    )
    player = next(players, None)
    return f"to hear it: {player} {shlex.quote(str(path))}" if player else f"to hear it, open {path} in a player"


class Live:
    """Writes sound to a pipe or file as it is made: mono, 16-bit little-endian samples without a header.

    Opening a pipe waits for its reader. If the reader leaves, the rest is not written and `left` becomes True.

    Raises:
        DataError: a path that cannot be written to; sound that is not finite.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.left = path, False
        self.first: float | None = None  # time.perf_counter() after the first sound was written
        with explain_refusal(f"--stream {path}: cannot be written to"):
            self.file = path.open("wb", buffering=0)

    def __enter__(self) -> Live:
        return self

    def __exit__(self, *_: object) -> None:
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


class EarlierRun(NamedTuple):
    """An earlier run's seed (None if there was no run), and the file and digest of each finished line."""

    seed: int | None
    files: dict[int, tuple[str, str]]


class Manifest:
    """Record of this process's finished lines, appended one by one.

    Raises DataError if the file cannot be written or is not a regular file.

    Args:
        folder: the output folder.
        suffix: the output files' suffix, so that runs with different ones do not share a record.
        settings: the digest of the settings.
        seed: the seed of all lines.
        rank: the number of this process.
    """

    def __init__(self, folder: Path, suffix: str, settings: str, seed: int, rank: int = 0) -> None:
        self.path = folder / f"inference{suffix}{f'.{rank}' if rank else ''}.jsonl"
        self.settings = settings
        with writing(self.path, "choose another --output"):
            make_folder(folder)
            self.file = open_to_append(self.path)
            if self.path.stat().st_size:
                self.file.write(b"\n")  # ends a line that a killed run left unfinished
        self._append({"settings": settings, "seed": seed})

    def __enter__(self) -> Manifest:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def add(self, line: Line, path: Path) -> None:
        """Record a line whose file is complete."""
        digest = line_digest(line, self.settings)
        self._append({"line": line.number, "file": path.name, "bytes": path.stat().st_size, "digest": digest})

    def _append(self, record: Mapping[str, Any]) -> None:
        with writing(self.path, "choose another --output"):
            self.file.write(f"{json.dumps(record)}\n".encode())


def read_finished(folder: Path, suffix: str) -> EarlierRun:
    """Read the records of earlier runs, from all their processes; files that are missing or changed in size do not count."""
    seed, files = None, {}
    for record in _records(_manifests(folder, suffix)):
        if isinstance(record.get("seed"), int):
            seed = record["seed"]
        name, number = record.get("file"), record.get("line")
        if not isinstance(name, str) or not isinstance(number, int):
            continue
        path = folder / name
        if path.is_file() and path.stat().st_size == record.get("bytes"):
            files[number] = (name, str(record.get("digest")))
    return EarlierRun(seed, files)


def is_finished(line: Line, name: str, settings: str, finished: EarlierRun) -> bool:
    """True if an earlier run wrote this line to a file with this name, with the same text, seed and settings."""
    return finished.files.get(line.number) == (name, line_digest(line, settings))


def remove_manifests(folder: Path, suffix: str) -> None:
    """Remove the records of earlier runs; called before a run that does not resume."""
    for path in _manifests(folder, suffix):
        path.unlink(missing_ok=True)


def settings_digest(settings: Mapping[str, Any], checkpoints: Sequence[Path]) -> str:
    """Digest settings and the identity of checkpoint files: path, size, and time of the last change.

    The time tells a checkpoint that was trained again in place from the one before, which has the same path and size.
    """
    stats = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in checkpoints]
    return _digest([settings, stats])


def line_digest(line: Line, settings: str) -> str:
    """Digest everything a line's audio depends on."""
    return _digest([settings, *line])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def _manifests(folder: Path, suffix: str) -> list[Path]:
    name = re.compile(rf"inference{re.escape(suffix)}(\.\d+)?\.jsonl")
    return sorted(path for path in folder.glob("*.jsonl") if name.fullmatch(path.name))


def _records(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the records of files, skipping lines that a killed run cut short."""
    for path in paths:
        if not path.is_file():  # reading a pipe would block; Manifest refuses it
            continue
        with explain_refusal(f"{path}: cannot be read"):
            lines = path.read_bytes().splitlines()
        for line in lines:
            try:
                record = parse_json(line)
            except ValueError:  # not JSON, or not UTF-8
                continue
            if isinstance(record, dict):
                yield record


# --- subtitles: SubRip (srt) and WebVTT (vtt) files from the times of words ---

SUBTITLES = ("srt", "vtt", "srt-words", "vtt-words")  # a cue for some words, or for each word
# Limits of a cue, as usual in television.
CUE_LINE, CUE_LINES, LONGEST_CUE = 42, 2, 7.0  # characters, lines, seconds
# Seconds of silence that end a cue, and after a point, which may be an abbreviation's
LONGEST_GAP, SENTENCE_GAP = 1.0, 0.15


def write_subtitles(path: Path, words: Sequence[Word], kind: str) -> None:
    """Write subtitles of a kind in SUBTITLES, atomically. Raises DataError if the file cannot be written."""
    is_vtt = kind.startswith("vtt")
    blocks = ["WEBVTT"] if is_vtt else []
    cues = ([word] for word in words) if kind.endswith("-words") else cut_cues(words)
    for number, cue in enumerate(cues, 1):
        lines = textwrap.wrap(_text(cue), CUE_LINE, break_on_hyphens=False)
        text = "\n".join(lines)
        times = f"{timestamp(cue[0].start, is_vtt)} --> {timestamp(cue[-1].end, is_vtt)}"
        blocks.append(f"{times}\n{html.escape(text, quote=False)}" if is_vtt else f"{number}\n{times}\n{text}")
    with explain_refusal(f"{path}: cannot write the subtitles", "choose another --output"), atomic_write(path) as file:
        file.write("".join(f"{block}\n\n" for block in blocks).encode())


def cut_cues(words: Sequence[Word]) -> Iterator[list[Word]]:
    """Cut words into cues: at the ends of sentences, at long silences, and where a cue would be too long."""
    cue: list[Word] = []
    for word in words:
        if cue:
            longest_gap = SENTENCE_GAP if ends_sentence(cue[-1].text) else LONGEST_GAP
            if word.start - cue[-1].end > longest_gap or not _fits([*cue, word]):
                yield cue
                cue = []
        cue.append(word)
    if cue:
        yield cue


def timestamp(seconds: float, is_vtt: bool) -> str:
    """Return HH:MM:SS,mmm, or with a point for WebVTT. Milliseconds are rounded down: no cue ends after its audio."""
    milliseconds = int(seconds * 1000 + 1e-6)  # 1.001 s are 1000.99… ms
    minutes, rest = divmod(milliseconds, 60_000)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest // 1000:02}{'.' if is_vtt else ','}{rest % 1000:03}"


def _fits(cue: Sequence[Word]) -> bool:
    lines = textwrap.wrap(_text(cue), CUE_LINE, break_on_hyphens=False)
    return len(lines) <= CUE_LINES and cue[-1].end - cue[0].start <= LONGEST_CUE


def _text(cue: Sequence[Word]) -> str:
    return " ".join(word.text for word in cue)
