"""Readers of foreign input as functions of bytes. Each returns or raises DataError or UsageError; all else is a finding."""

from __future__ import annotations

import contextlib
import functools
import io
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import torch

from common.audio.audio_processing import count_samples, read_audio
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import restore_model
from common.data.filelist import read_filelist, read_phrases, sift_filelist
from common.data.mels import load_mel
from common.data.sources import TRANSCRIPTS
from common.data.tables import TABLES, read_table
from common.errors import DataError, UsageError
from common.inference.voice_folder import read_config
from common.training.arguments import parse_training_arguments
from exports.manifest import read_manifest
from models import REGISTRY, default_options
from serving.answers import read_entries
from serving.sentences import SentenceCutter
from studio.plan.file import read_plan, write_plan
from studio.plan.inputs import clip_length, read_text_options
from studio.prepare.lists import select_usable
from studio.prepare.matching import read_transcript
from studio.prepare.review import ClipRow, read_proposals, read_review, sort_worst_first, store_proposals
from studio.project import Project, read_settings
from tacotron2.data_function import TEXT_READINGS
from tacotron2.spec import SPEC
from tacotron2.text import CLEANERS, read_symbols

SECONDS = 2.0  # of the processor, for each kilobyte that has begun
MEGABYTES = 256  # that a reader may add to the resident memory of the process, for inputs of up to LONGEST bytes
LONGEST = 4096  # bytes of an input
CORPUS = Path(__file__).parent / "corpus"
N_MELS = 4
STAGES = SPEC.inference
OPTIONS = default_options()

Read = Callable[[bytes, Path], object]


def read_lists(content: bytes, folder: Path) -> None:
    """Filelists, phrases, alphabets, and questions with answers."""
    path = _write(folder / "list.txt", content)
    for read in (read_filelist, sift_filelist, read_phrases, read_symbols, read_entries):
        with contextlib.suppress(DataError):
            read(path)


def read_text(content: bytes, folder: Path) -> None:
    """A text for inference: its symbols, its pieces, and its sentences. Two bytes choose the limit of pieces and the options."""
    limit, choice = (*content[:2], 0, 0)[:2]
    text = content[2:].decode("utf-8", "replace")
    lists = [[name] for name in CLEANERS] + [["basic_cleaners", "english_cleaners"]]
    reading = TEXT_READINGS[choice // len(lists) % 2]
    options = OPTIONS | {"text_cleaners": lists[choice % len(lists)], "text_reading": reading}
    pieces = STAGES.pieces(text, limit, options)
    assert all(piece.pause >= 0 for piece in pieces)
    try:
        whole = _words(text, options)
    except DataError:
        assert [piece.text for piece in pieces] == [text], "a text with mistakes does not stay whole"
        raise
    assert [symbol for piece in pieces for symbol in _words(piece.text, options)] == whole, "words of the pieces differ"
    STAGES.unspoken(text, options)
    STAGES.dropped(text, options)
    cutter = SentenceCutter(STAGES.sentence_ends)
    cutter.add(text)
    cutter.finish()


def _words(text: str, options: dict) -> list[str]:
    return [symbol for symbol in STAGES.spell(text, options) if symbol[-1].isalnum()]


def read_sound(content: bytes, folder: Path) -> None:
    """Audio files of any format, by their headers and as samples."""
    path = _write(folder / "sound", content)
    for rate in (None, 22050):
        with contextlib.suppress(DataError):
            samples = read_audio(path, rate).samples
            assert samples.isfinite().all() and samples.abs().max() <= 1
    for measure in (lambda: count_samples(path, 22050), lambda: clip_length(path)):
        with contextlib.suppress(DataError):
            measure()


def read_mel(content: bytes, folder: Path) -> None:
    """A cached mel; content that is no archive becomes the pickle of one, with the right checksums."""
    mel = load_mel(_write(folder / "mel.pt", _archive(content)), N_MELS)
    assert mel.isfinite().all() and mel.shape[0] == N_MELS and float(mel.sum()) is not None


def read_checkpoint(content: bytes, folder: Path) -> None:
    """A checkpoint, and the model in it; content that is no archive becomes the pickle of one, with the right checksums."""
    _restore(_write(folder / "checkpoint.pt", _archive(content)))


def read_safetensors(content: bytes, folder: Path) -> None:
    """A checkpoint in safetensors, and the model in it."""
    _restore(_write(folder / "checkpoint.safetensors", content))


def _restore(path: Path) -> None:
    checkpoint = load_checkpoint(path)
    for spec in REGISTRY.values():
        with contextlib.suppress(DataError, UsageError):
            restore_model(spec, checkpoint, path)


def _archive(content: bytes) -> bytes:
    """Return content that begins as an archive or an old file; put other content into an archive as torch.save writes it."""
    if content[:2] in (b"PK", b"\x80\x02\x8a"):
        return content
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        parts = {"data.pkl": content, "byteorder": b"little", "data/0": bytes(160), "version": b"3\n"}
        for name, data in parts.items():
            archive.writestr(f"archive/{name}", data)
    assert zlib.crc32(content) == 0 or any(entry.CRC for entry in zipfile.ZipFile(file).infolist())
    return file.getvalue()


def read_training_config(content: bytes, folder: Path) -> None:
    """A file of --config-file, for each model."""
    path = _write(folder / "config.json", content)
    for name in REGISTRY:
        words = ["-m", name, "-o", str(folder / "output"), "--config-file", str(path)]
        quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
        with quiet[0], quiet[1], contextlib.suppress(DataError, UsageError):
            try:
                parse_training_arguments(words, REGISTRY, "")
            except SystemExit as error:  # the parser's own message about a value
                assert error.code == 2, f"exit code {error.code}"


def read_json(content: bytes, folder: Path) -> None:
    """config.json of a voice, and export.json."""
    _write(folder / "config.json", content)
    with contextlib.suppress(DataError):
        read_config(folder)
    _write(folder / "export.json", content)
    read_manifest(folder)


def read_training_plan(content: bytes, folder: Path) -> None:
    """plan.json: a plan that is accepted is equal after a write."""
    path = _write(folder / "plan.json", content)
    plan = read_plan(path)
    write_plan(path, plan.groups)
    assert read_plan(path) == plan


def read_project(content: bytes, folder: Path) -> None:
    """project.json."""
    project = Project(name="voice", projects=folder)
    project.root.mkdir(exist_ok=True)
    _write(project.settings, content)
    with contextlib.suppress(DataError):
        read_text_options(project)
    read_settings(project)


PROPOSALS = [
    ClipRow("yes", "talk_0001", "talk.wav", "0.00", "1.50", "Good morning.", "subtitles", "good morning", "0.000", ""),
    ClipRow("no", "talk_0002", "talk.wav", "2.00", "3.50", "It is ten.", "recognised", "it is tin", "0.333", "quiet"),
]


def read_clips(content: bytes, folder: Path) -> None:
    """clips.tsv after people have edited it, and the rows that are chosen for training."""
    rows = read_review(_write(folder / "clips.tsv", content), PROPOSALS)
    chosen = list(rows.values())
    select_usable(chosen)
    sort_worst_first(chosen)
    store_proposals(folder / "proposals.jsonl", chosen)
    assert read_proposals(folder / "proposals.jsonl") == chosen


def read_subtitles(content: bytes, folder: Path) -> None:
    """Subtitles, texts and tables beside recordings. The first byte chooses the kind."""
    endings = sorted(TRANSCRIPTS)
    ending = endings[content[0] % len(endings)] if content else ".srt"
    path = _write(folder / f"talk{ending}", content[1:])
    if ending in TABLES:
        read_table(path)
    read_transcript(path, path.name)


TARGETS: dict[str, Read] = {
    "lists": read_lists,
    "text": read_text,
    "sound": read_sound,
    "mel": read_mel,
    "checkpoint": read_checkpoint,
    "safetensors": read_safetensors,
    "config": read_training_config,
    "json": read_json,
    "plan": read_training_plan,
    "project": read_project,
    "clips": read_clips,
    "subtitles": read_subtitles,
}


def check(target: str, content: bytes) -> None:
    """Feed bytes to a reader.

    Raises AssertionError beyond the bounds of time and memory, and any exception of the reader but DataError and UsageError.
    """
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        _reset_peak_memory()
        memory, start = _peak_memory(), time.process_time()
        with contextlib.suppress(DataError, UsageError):
            TARGETS[target](content, Path(folder))
        seconds, added = time.process_time() - start, _peak_memory() - memory
    limit = SECONDS * (1 + len(content) // 1000)
    assert seconds < limit, f"{seconds:.1f} s of the processor, expected less than {limit:.0f} s"
    assert added < MEGABYTES, f"{added:.0f} MB of memory, expected less than {MEGABYTES} MB"


@functools.cache
def warm_up() -> None:
    """Load what a first call loads, so that an input is not charged with it."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        for read in TARGETS.values():
            with contextlib.suppress(Exception):
                read(b"", Path(folder))
    STAGES.spell("Dr. No. 5 é", OPTIONS)


def _write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _peak_memory() -> float:
    """Return the most resident memory in MB since the last reset. Linux only: getrusage's peak includes the parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))


def _reset_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5")
