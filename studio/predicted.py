"""Mels that the acoustic model predicts for the clips, to train a vocoder on: PROJECT/predicted/."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from common.data.filelist import read_filelist
from common.errors import DataError
from common.files import atomic_write
from studio.plan.commands import PREDICTED, option_words
from studio.plan.machine import ROOT, message_of
from studio.plan.warm_starts import audio_of
from studio.prepare.sources import file_digest
from studio.project import Project

SOURCE = "source.txt"  # digest of the checkpoint and the filelists that the mels come from
FOLDER = "data"  # of the wavs and mels, as scripts.predict_mels expects them


def predict_mels(project: Project, checkpoint: Path, cpu: bool) -> None:
    """Compute the clips' mels, let the acoustic model predict them, and write the vocoder's filelists.

    Mels of the same checkpoint and filelists are not predicted again.

    Raises DataError with the message of the command that fails.
    """
    source, target = project.root / "mels", project.root / PREDICTED
    wavs = source / FOLDER / "wavs"
    wavs.parent.mkdir(parents=True, exist_ok=True)
    if not wavs.is_symlink():
        wavs.symlink_to(project.clips.resolve(), target_is_directory=True)
    lists = {"training": project.training_list, "validation": project.validation_list}
    digest = hashlib.sha256(" ".join(map(file_digest, [checkpoint, *lists.values()])).encode()).hexdigest()
    stored = target / SOURCE
    if stored.is_file() and stored.read_text() == f"{digest}\n":
        return
    rows = {part: read_filelist(path) for part, path in lists.items()}
    audio, mels = {}, {}
    for part, items in rows.items():
        names = [(Path(row.path).relative_to(project.clips.name).with_suffix(""), row.text) for row in items]
        audio[part] = _write(source / f"{part}.txt", [f"{FOLDER}/wavs/{name}.wav|{text}" for name, text in names])
        mels[part] = _write(source / f"{part}_mels.txt", [f"{FOLDER}/mels/{name}.pt|{text}" for name, text in names])
    settings = option_words({key: value for key, value in audio_of(checkpoint).items() if key != "max_wav_value"})
    words = ["--audio-filelist", *audio.values(), "--mel-filelist", *mels.values(), "--dataset-path", str(source)]
    _run("common.data.mels", [*words, *settings])
    words = [str(checkpoint), *mels.values(), "-d", str(source), "-o", str(target), *(["--cpu"] if cpu else [])]
    _run("scripts.predict_mels", words)
    for part, path in audio.items():
        _write(target / f"{part}.txt", Path(path).read_text(encoding="utf-8").splitlines())
    _write(stored, [digest])  # at last: it marks the work as complete


def _write(path: Path, lines: Sequence[str]) -> str:
    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())
    return str(path)


def _run(module: str, words: Sequence[str]) -> None:
    print(f"python -m {module}", flush=True)
    absolute = (str(Path(word).resolve()) if Path(word).exists() else word for word in words)  # as ROOT is its folder
    command = [sys.executable, "-m", module, *absolute]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise DataError(f"{module} failed: {message_of(done.stderr)}")
