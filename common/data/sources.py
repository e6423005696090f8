"""The recordings of a folder: sound files of any kind, found by file extension, and the names that people give them."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from common.data.transliteration import compose
from common.errors import DataError, explain_refusal, listed, printable

WAVES = (".wav", ".wave", ".w64", ".rf64", ".aif", ".aiff", ".aifc", ".flac")
STREAMS = (".ogg", ".oga", ".opus", ".mp3", ".mp2", ".mpga")
COMPRESSED = (".au", ".snd", ".caf", ".m4a", ".m4b", ".aac", ".wma", ".amr", ".ac3", ".eac3", ".dts")
RARE = (".wv", ".tta", ".ape", ".mpc", ".spx", ".gsm", ".dsf", ".dff", ".voc", ".sph", ".g722")
VIDEOS = (".mp4", ".m4v", ".mkv", ".mka", ".mov", ".webm", ".avi", ".3gp", ".mpg", ".mpeg", ".flv", ".wmv", ".ogv")
ENDINGS = frozenset(WAVES + STREAMS + COMPRESSED + RARE + VIDEOS)
TRANSCRIPTS = frozenset({".txt", ".srt", ".vtt", ".textgrid", ".lab", ".json", ".jsonl", ".csv", ".tsv", ".data"})
PLACES = ("wavs", "clips")  # folders that identifiers in tables may leave out
SHOWN = 3  # names of files with one ending in a message
LONGEST_SLUG = 80  # characters of the name that a recording's clips share


class SourceFile(NamedTuple):
    """A recording: its path, its path within the folder as text, and a name unique to its clips."""

    path: Path
    name: str
    slug: str


class OtherFile(NamedTuple):
    """A file that is no recording: its path, and its path within the folder as text."""

    path: Path
    name: str


class Listing(NamedTuple):
    """The recordings of a folder by name, problems of files, and the other files by path."""

    sources: list[SourceFile]
    problems: list[str]
    others: list[OtherFile]

    def describe_others(self) -> str:
        """Name the files that are neither recordings nor transcripts, a few of each extension; "" without any."""
        by_ending: dict[str, list[str]] = defaultdict(list)
        for path, name in self.others:
            if path.suffix.lower() not in TRANSCRIPTS:
                by_ending[path.suffix.lower()].append(name)
        return "; ".join(listed(names, SHOWN, f" {ending}") for ending, names in sorted(by_ending.items()))


def find_sources(folder: Path) -> Listing:
    """Find the sound files in a folder and below it. Links to files are followed, links to folders are not.

    Raises DataError if the folder cannot be listed.
    """
    problems: list[str] = []
    found: list[tuple[Path, str]] = []
    others: list[OtherFile] = []

    def report(error: OSError) -> None:
        if Path(error.filename) == folder:
            raise DataError(f"{folder}: cannot be listed ({error.strerror})")
        problems.append(f"{error.filename}: cannot be listed ({error.strerror})")

    for place, _, names in os.walk(folder, onerror=report):
        for name in names:
            path = Path(place, name)
            if name.startswith("."):
                continue
            readable = readable_name(path.relative_to(folder))
            if path.suffix.lower() not in ENDINGS:
                others.append(OtherFile(path, readable))
            elif problem := _problem_of_file(path):
                problems.append(f"{path}: {problem}")
            else:
                found.append((path, readable))
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
    with explain_refusal(f"{path}: cannot be read"), path.open("rb") as file:
        while block := file.read(2**20):
            digest.update(block)
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


def name_key(name: str) -> str:
    """Spell a file's name or path so that all spellings agree: of its case, accents (NFC) and slashes."""
    return compose(name).casefold().replace("\\", "/").removeprefix("./")


class Names:
    """Recordings by the names that people give them: with or without folders and endings, in any case and Unicode form."""

    def __init__(self, recordings: Iterable[str]) -> None:
        self._by_key: dict[str, list[str]] = defaultdict(list)
        for name in recordings:
            for key in {suffix for stem in without_endings(name_key(name), ENDINGS) for suffix in _suffixes(stem)}:
                self._by_key[key].append(name)

    def find(self, identifier: str, place: str = "") -> list[str]:
        """Return the recordings that an identifier in the folder `place` names: the nearest of the longest match.

        Args:
            identifier: a path or a name, with or without ending.
            place: the folder of the file that it is from, relative to that of the recordings.
        """
        key, near = name_key(identifier), name_key(place)
        for folder in (near, *(f"{near}/{name}" for name in PLACES)):
            path = f"{folder}/{key}".lstrip("/")
            named = self._by_key.get(path, ())
            if exact := [name for name in named if path in without_endings(name_key(name), ENDINGS)]:
                return exact
        for stem in without_endings(key, ENDINGS):
            for suffix in _suffixes(f"{near}/{stem}"):
                if names := self._by_key.get(suffix):
                    return _nearest(names, near)
        return []


def _nearest(names: Sequence[str], place: str) -> list[str]:
    """Return the recordings in the folder `place` or below it, or else in the next folder above that has some."""
    while place:
        if inside := [name for name in names if name_key(name).startswith(f"{place}/")]:
            return inside
        place = place.rpartition("/")[0]
    return list(names)


def without_endings(key: str, endings: Sequence[str] | frozenset[str]) -> list[str]:
    """Return a name and what is left of it without its endings, one after the other: talk.wav.txt, talk.wav, talk."""
    stems = [key]
    while (suffix := PurePosixPath(stems[-1]).suffix) in endings and suffix:
        stems.append(stems[-1].removesuffix(suffix))
    return stems


def _suffixes(key: str) -> list[str]:
    """Return the ends of a path, the longest first: a/b/c, b/c, c."""
    parts = [part for part in key.split("/") if part not in ("", ".", "..")]
    return ["/".join(parts[first:]) for first in range(len(parts))]


def find_files(folder: Path, names: Sequence[str]) -> list[Path | None]:
    """Return the files with these paths from a folder, in any case, Unicode form and kind of slashes; None without one."""
    _entries.cache_clear()
    return [_find_file(folder, name) for name in names]


def _find_file(folder: Path, name: str) -> Path | None:
    path = folder / name
    if os.path.isfile(path):
        return path
    path = folder
    for part in name_key(name).split("/"):
        if part not in ("", "."):
            found = [part] if part == ".." else _entries(path).get(part, ())
            if len(found) != 1:
                return None
            path = path / found[0]
    return path if os.path.isfile(path) else None


@cache
def _entries(folder: Path) -> Mapping[str, Sequence[str]]:
    by_key: dict[str, list[str]] = defaultdict(list)
    try:
        for name in sorted(os.listdir(folder)):
            by_key[name_key(name)].append(name)
    except OSError:
        pass
    return by_key
