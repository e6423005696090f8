"""export.json, the manifest of an export directory, with the size and the checksum of each file."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from common.errors import DataError, UsageError
from common.files import atomic_write, make_folder, read_object, writing
from common.options import NUMBER, TEXT, WHOLE_NUMBER, Check

NAME, FORMAT = "export.json", 1
FRESH = ".unfinished"  # folder of an export that is being written
EXPECTED = "expected a directory that `python -m exports TARGET -o DIR` wrote"
AN_OBJECT = Check(lambda value: isinstance(value, dict), "an object")
KINDS = {"str": TEXT, "float": NUMBER, "int": WHOLE_NUMBER}  # by the annotations of Manifest


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """A file of an export: its size, its SHA-256, and its inputs and outputs if they are fixed.

    `inputs` and `outputs` map names to {"type": element type, "shape": sizes, or names of axes of any size}.
    """

    bytes: int
    sha256: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ExportManifest:
    """What a runtime needs to know besides the files."""

    format: int
    target: str
    voice: str  # a description
    versions: dict[str, str]
    models: dict[str, dict[str, Any]]  # name: its config
    options: dict[str, Any]  # audio settings, alphabet and reading of text, and the decoding's
    sigma_infer: float
    denoising_strength: float
    files: dict[str, FileRecord]


class ExportWriter:
    """Writes an export in a fresh folder inside its directory; `finish` moves it into the place of an older one.

    Until then the older export is whole, and an interrupted writer leaves only the fresh folder, which the next one removes. Other
    files of the directory stay.

    Raises:
        UsageError: the directory has files but no manifest.
        DataError: the directory cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.fresh, self.files = directory, directory / FRESH, dict[str, FileRecord]()
        with writing(directory, "choose another -o"):
            entries = set(os.listdir(directory)) if directory.is_dir() else set()
            if entries - {FRESH} and NAME not in entries:
                raise UsageError(
                    f"-o {directory}: has files but no {NAME}, expected a new, an empty or an export directory"
                )
            older = _read(directory / NAME).get("files", {}) if NAME in entries else {}
            self.older = [name for name in older if _is_inside(name)] if isinstance(older, dict) else []
            shutil.rmtree(self.fresh, ignore_errors=True)
            self.fresh.mkdir(parents=True)

    def add(
        self,
        name: str,
        contents: bytes,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
    ) -> None:
        """Write a file of the export, and print a line about it."""
        self._write(name, contents)
        axes = {"inputs": dict(inputs or {}), "outputs": dict(outputs or {})}
        self.files[name] = FileRecord(bytes=len(contents), sha256=hashlib.sha256(contents).hexdigest(), **axes)
        print(f"{self.directory / name}  {len(contents):,} bytes")

    def add_all(self, files: Iterable[tuple[str, bytes]]) -> None:
        """Write files, given by names and contents."""
        for name, contents in files:
            self.add(name, contents)

    def finish(self, **settings: Any) -> ExportManifest:
        """Write the manifest, and replace the older export."""
        manifest = ExportManifest(format=FORMAT, files=self.files, **settings)
        self._write(NAME, json.dumps(asdict(manifest), indent=1, ensure_ascii=False).encode())
        with writing(self.directory, "choose another -o"):
            for name in self.older:
                (self.directory / name).unlink(missing_ok=True)
            # The manifest first: an export interrupted here can be repeated, and until then its checksums refuse it.
            for name in (NAME, *self.files):
                make_folder((self.directory / name).parent)
                os.replace(self.fresh / name, self.directory / name)
            shutil.rmtree(self.fresh)
            for name in self.older:
                with suppress(OSError):
                    os.removedirs((self.directory / name).parent)  # the empty ones; the manifest keeps the export's own
        return manifest

    def _write(self, name: str, contents: bytes) -> None:
        with writing(self.directory, "choose another -o"), atomic_write(self.fresh / name) as file:
            file.write(contents)


def read_manifest(directory: Path) -> ExportManifest:
    """Read the manifest of an export directory, and check each file against it.

    Raises:
        DataError: no manifest, another format, or missing or changed files; all in one message.
    """
    path = directory / NAME
    contents = _read(path)
    names = {field.name for field in fields(ExportManifest)}
    if contents.get("format") != FORMAT or set(contents) != names:
        odd = ", ".join(sorted(set(contents) ^ names)) or "none"
        found = f"format {contents.get('format')!r}, keys missing or unknown: {odd}"
        raise DataError(f"{path}: {found}; expected format {FORMAT}: export again with this version")
    try:
        files = {name: FileRecord(**record) for name, record in contents["files"].items()}
    except (TypeError, AttributeError):
        raise DataError(f"{path}: `files` is not a table of files; {EXPECTED}") from None
    kinds = {field.name: KINDS.get(str(field.type), AN_OBJECT) for field in fields(ExportManifest)}
    if wrong := [problem for name, kind in kinds.items() for problem in kind.problems(name, contents[name])]:
        raise DataError(f"{path}: {'; '.join(wrong)}; export again")
    problems = [problem for name, record in files.items() if (problem := _problem(directory, name, record))]
    if problems:
        raise DataError("\n".join([*problems, f"{directory}: copy the whole directory again, or export again"]))
    return ExportManifest(**contents | {"files": files})


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_object(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {EXPECTED}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {EXPECTED}") from None
    except ValueError as error:
        raise DataError(f"{path}: {error}; {EXPECTED}") from None


def _problem(directory: Path, name: str, record: FileRecord) -> str | None:
    """How a file differs from its record; None if it does not."""
    if not _is_inside(name):
        return f"{directory / NAME}: a file {name!r}, expected a path inside {directory}"
    path = directory / name
    try:
        if (size := path.stat().st_size) != record.bytes:
            return f"{path}: {size} bytes, expected {record.bytes} as {NAME} says"
        contents = path.read_bytes()
    except OSError as error:
        return f"{path}: cannot be read ({error.strerror})"
    digest = hashlib.sha256(contents).hexdigest()
    return None if digest == record.sha256 else f"{path}: SHA-256 {digest}, expected {record.sha256} as {NAME} says"


def _is_inside(name: str) -> bool:
    """True for a path that stays inside the export directory."""
    parts = Path(name).parts
    return "\0" not in name and bool(parts) and not Path(name).is_absolute() and ".." not in parts
