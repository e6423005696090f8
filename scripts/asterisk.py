"""The Asterisk prompts as a data set: one professional speaker, 16 kHz, about 500 clips; downloaded, never shipped.

They are in the Debian packages asterisk-core-sounds-en and -en-g722. If these are not installed, apt and dpkg download and unpack
them without root. Their licence, CC-BY-SA 3.0, requires attribution to the speaker and the same licence for copies.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import soundfile

from common.errors import DataError
from common.files import atomic_write, is_current
from common.progress import show_progress
from scripts.recordings import Recording, Rows

PACKAGES = ("asterisk-core-sounds-en", "asterisk-core-sounds-en-g722")
SOUNDS = Path("usr/share/asterisk/sounds/en_US_f_Allison")  # in the packages, as the next one
PACKED_TRANSCRIPTS = Path("usr/share/doc", PACKAGES[0], "core-sounds-en.txt.gz")
TRANSCRIPTS = "core-sounds-en.txt"
FOLDER_VARIABLE = "ASTERISK_SOUNDS"
NOTICE = "Asterisk core sounds, spoken by Allison Smith, CC-BY-SA 3.0: not part of this project and not shipped with it"
NOT_SPEECH = re.compile(r"[\[(<]")  # in notes such as [ascending tones]
RATE = 16_000  # Hz


def prepare(folder: Path, environment: Mapping[str, str]) -> Rows:
    """Decode all prompts that are speech to folder/decoded/*.wav at 16 kHz, and return their rows.

    `environment` may name a folder of the prompts in FOLDER_VARIABLE. Raises DataError if they cannot be downloaded or decoded.
    """
    try:
        sounds, transcripts = find_sounds(folder, environment.get(FOLDER_VARIABLE))
        texts = read_transcripts(transcripts)
        there = {prompt: sounds / f"{prompt}.g722" for prompt in texts}
        there = {prompt: path for prompt, path in there.items() if path.is_file()}
        if not there:
            raise DataError(f"{sounds}: none of the .g722 files that {transcripts} lists")
        decoded = folder / "decoded"
        pairs = [(source, decoded / f"{prompt.replace('/', '_')}.wav") for prompt, source in there.items()]
        decode(pairs)
    except OSError as error:
        raise DataError(f"{error.filename or folder}: {error.strerror or error}") from None
    recordings = [Recording(row, wav, texts[prompt]) for row, (prompt, (_, wav)) in enumerate(zip(there, pairs))]
    return Rows(decoded, recordings, {})


def find_sounds(folder: Path, given: str | None) -> tuple[Path, Path]:
    """Find the folder of the prompts and the file of transcripts: given, downloaded, installed, or else downloaded now."""
    if given:
        files = [Path(given, TRANSCRIPTS), Path(given, f"{TRANSCRIPTS}.gz")]
        found = next((path for path in files if path.is_file()), None)
        if not found:
            raise DataError(
                f"{FOLDER_VARIABLE}={given}: no {TRANSCRIPTS} or {TRANSCRIPTS}.gz in it, next to the .g722 files"
            )
        return Path(given), found
    unpacked = folder / "packages"
    for root in (unpacked, Path("/")):  # what was downloaded first, so that an upgrade does not change a data set
        if (root / SOUNDS).is_dir() and (root / PACKED_TRANSCRIPTS).is_file():
            return root / SOUNDS, root / PACKED_TRANSCRIPTS
    fetch(unpacked)
    return unpacked / SOUNDS, unpacked / PACKED_TRANSCRIPTS


def fetch(target: Path) -> None:
    """Download the packages and unpack them into `target`, completely or not at all."""
    wanted = " ".join(PACKAGES)
    if missing := [tool for tool in ("apt-get", "dpkg") if not shutil.which(tool)]:
        raise DataError(
            f"{wanted}: not installed, and without {' and '.join(missing)} they cannot be fetched; name a folder with "
            f"{TRANSCRIPTS} and the .g722 files (asterisk.org has them as an archive) in {FOLDER_VARIABLE}"
        )
    print(f"asterisk: fetching {wanted}, 11 MB", flush=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(target, ignore_errors=True)  # may contain another version with other paths
    with tempfile.TemporaryDirectory(prefix="packages.", dir=target.parent) as staging:
        _download(Path(staging), PACKAGES)
        for package in sorted(Path(staging).glob("*.deb")):
            _run(["dpkg", "-x", package.name, "unpacked"], Path(staging))
        unpacked = Path(staging, "unpacked")
        for place in (SOUNDS, PACKED_TRANSCRIPTS):
            if not (unpacked / place).exists():
                raise DataError(f"{wanted}: no {place} in them; these are not the packages of Debian and Ubuntu")
        os.replace(unpacked, target)


def _download(folder: Path, names: Sequence[str]) -> None:
    """Download the packages with the system's package lists, or else with new lists in `folder`."""
    sandbox = ["-o", "APT::Sandbox::User=root"]  # apt's own user cannot write into this folder
    try:
        _run(["apt-get", *sandbox, "download", *names], folder)
    except DataError:
        (folder / "lists/partial").mkdir(parents=True)
        own = [*sandbox, "-o", f"Dir::State::Lists={folder.resolve()}/lists", "-o", f"Dir::Cache={folder.resolve()}"]
        _run(["apt-get", *own, "update"], folder)
        _run(["apt-get", *own, "download", *names], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    """Run a tool in a folder. Raises DataError with the last line of its output if it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode:
        message = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise DataError(f"{Path(command[0]).name}: {message}")


def read_transcripts(path: Path) -> dict[str, str]:
    """Read the transcripts that consist of spoken words alone, by prompt, such as digits/1.

    Rows are `prompt: text`; rows that begin with a semicolon are comments.
    """
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [row.partition(":") for row in content.decode("utf-8", "replace").splitlines() if not row.startswith(";")]
    return {prompt.strip(): text.strip() for prompt, _, text in rows if text.strip() and not NOT_SPEECH.search(text)}


def decode(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Decode the G.722 files whose wav is missing or older to 16-bit wavs. Raises DataError without PyAV, or for a damaged file."""
    try:
        import av
    except ImportError:
        raise DataError("the Asterisk prompts are G.722, which PyAV decodes: `pip install av`, and run again") from None
    todo = [(g722, wav) for g722, wav in pairs if not is_current(wav, g722)]
    for g722, wav in show_progress(todo, len(todo), "decoding", "clip"):
        try:
            with av.open(str(g722), format="g722") as container:
                parts = [frame.to_ndarray()[0] for frame in container.decode(audio=0)]
        except av.error.FFmpegError as error:
            raise DataError(f"{g722}: not G.722, or damaged ({error.strerror})") from None
        if not parts:
            raise DataError(f"{g722}: no samples in it")
        with atomic_write(wav) as file:
            soundfile.write(file, np.concatenate(parts), RATE, "PCM_16", format="WAV")
