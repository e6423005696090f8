"""export.json, the manifest of an export directory, written after all the files it lists."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from common.errors import DataError, UsageError
from common.files import atomic_write, parse_json

NAME, FORMAT = "export.json", 1
EXPECTED = "expected a directory that `python -m exports TARGET -o DIR` wrote"


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
class Manifest:
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
    """Writes an export directory: files first, the manifest last, so that a directory with a manifest is complete.

    Raises:
        UsageError: the directory has files but no manifest.
        DataError: the directory cannot be written.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.files = directory, dict[str, FileRecord]()
        if directory.is_dir() and any(directory.iterdir()) and not (directory / NAME).exists():
            raise UsageError(
                f"-o {directory}: has files but no {NAME}, expected a new, an empty or an export directory"
            )
        self._refusals(self._remove_older)

    def _remove_older(self) -> None:
        """Remove an older export: first its manifest, then the files it lists."""
        path = self.directory / NAME
        if not path.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            return
        older = _read(path).get("files", {})
        path.unlink()
        for name in older if isinstance(older, dict) else ():
            if _is_inside(name):
                (self.directory / name).unlink(missing_ok=True)
                self._remove_empty_folders(self.directory / name)

    def _remove_empty_folders(self, path: Path) -> None:
        """Remove the empty folders that a removed file leaves inside the export, innermost first."""
        for folder in path.parents[: len(path.relative_to(self.directory).parts) - 1]:
            if any(folder.iterdir()):
                break
            folder.rmdir()

    def add(self, name: str, contents: bytes, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
        """Write a file of the export."""
        digest = hashlib.sha256(contents).hexdigest()
        self._write(name, contents)
        record = FileRecord(bytes=len(contents), sha256=digest, inputs=dict(inputs), outputs=dict(outputs))
        self.files[name] = record

    def finish(self, **settings: Any) -> Manifest:
        """Write the manifest."""
        manifest = Manifest(format=FORMAT, files=self.files, **settings)
        self._write(NAME, json.dumps(asdict(manifest), indent=1, ensure_ascii=False).encode())
        return manifest

    def _write(self, name: str, contents: bytes) -> None:
        def write() -> None:
            with atomic_write(self.directory / name) as file:
                file.write(contents)

        self._refusals(write)

    def _refusals(self, act: Any) -> None:
        try:
            act()
        except OSError as error:
            raise DataError(f"{self.directory}: cannot be written ({error.strerror}); choose another -o") from None


def read_manifest(directory: Path) -> Manifest:
    """Read the manifest of an export directory, and check each file against it.

    Raises:
        DataError: no manifest, another format, or missing or changed files; all in one message.
    """
    path = directory / NAME
    contents = _read(path)
    names = {field.name for field in fields(Manifest)}
    if contents.get("format") != FORMAT or set(contents) != names:
        odd = ", ".join(sorted(set(contents) ^ names)) or "none"
        found = f"format {contents.get('format')!r}, keys missing or unknown: {odd}"
        raise DataError(f"{path}: {found}; expected format {FORMAT}: export again with this version")
    try:
        files = {name: FileRecord(**record) for name, record in contents["files"].items()}
    except (TypeError, AttributeError):
        raise DataError(f"{path}: `files` is not a table of files; {EXPECTED}") from None
    if wrong := [
        f"{name}: {contents[name]!r}, expected {kind}" for name, kind in _kinds() if not _is_a(kind, contents[name])
    ]:
        raise DataError(f"{path}: {'; '.join(wrong)}; export again")
    problems = [problem for name, record in files.items() if (problem := _problem(directory, name, record))]
    if problems:
        raise DataError("\n".join([*problems, f"{directory}: copy the whole directory again, or export again"]))
    return Manifest(**contents | {"files": files})


def _read(path: Path) -> dict[str, Any]:
    try:
        contents = parse_json(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path}: no such file; {EXPECTED}") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {EXPECTED}") from None
    except ValueError as error:
        raise DataError(f"{path}: not JSON ({error}); {EXPECTED}") from None
    if not isinstance(contents, dict):
        raise DataError(f"{path}: not a JSON object; {EXPECTED}")
    return contents


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
    return "\0" not in name and not Path(name).is_absolute() and ".." not in Path(name).parts


def _kinds() -> list[tuple[str, str]]:
    """Each entry of a manifest and the kind of its value."""
    words = {"str": "text", "float": "a number", "int": "a whole number"}
    return [(field.name, words.get(str(field.type), "an object")) for field in fields(Manifest)]


def _is_a(kind: str, value: Any) -> bool:
    if kind == "a number":
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return isinstance(value, {"text": str, "a whole number": int, "an object": dict}[kind])
