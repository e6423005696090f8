"""Results by key in a text file that grows line by line, so that a killed process loses no finished result."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import explain_refusal
from common.files import make_folder, parse_json, write_text


class ClipSound(NamedTuple):
    """A clip's file, and the digest of its samples."""

    path: Path
    digest: str


class Ledger:
    """A file of JSON lines [key, value], used as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.values: dict[str, Any] = {}
        self._file: Any = None

    def __enter__(self) -> Ledger:
        make_folder(self.path.parent)
        with explain_refusal(f"{self.path}: cannot be opened"):
            self._file = self.path.open("a+b")
            self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read(self) -> None:
        """Read the complete lines, and cut off an unfinished last one."""
        self._file.seek(0)
        content: bytes = self._file.read()
        end = content.rfind(b"\n") + 1
        os.truncate(self._file.fileno(), end)
        for line in content[:end].split(b"\n"):
            try:
                key, value = parse_json(line)
            except (ValueError, TypeError):  # damaged; its result is computed again
                continue
            self.values[key] = value

    def add(self, key: str, value: Any) -> None:
        """Append a value, and store it at once."""
        self.values[key] = value
        self._file.write(f"{json.dumps([key, value], ensure_ascii=False)}\n".encode())
        self._file.flush()

    def complete(
        self, sounds: Sequence[ClipSound], compute: Callable[[list[Path]], Iterable[Any]], prefix: str = ""
    ) -> dict[str, Any]:
        """Return a value for each sound by its digest; keys are digests after `prefix`.

        Those that are missing are computed, once for equal digests, from the paths of their sounds, and stored one by one.
        """
        keys = {sound.digest: f"{prefix}{sound.digest}" for sound in sounds}
        todo = {keys[sound.digest]: sound.path for sound in sounds if keys[sound.digest] not in self.values}
        for key, value in zip(todo, compute([*todo.values()]), strict=True):
            self.add(key, value)
        return {digest: self.values[key] for digest, key in keys.items()}

    def keep_only(self, keys: Iterable[str]) -> None:
        """Rewrite the file with only these keys, in order: the same bytes after any number of interruptions."""
        known = [key for key in dict.fromkeys(keys) if key in self.values]
        lines = [json.dumps([key, self.values[key]], ensure_ascii=False) for key in known]
        write_text(self.path, "".join(f"{line}\n" for line in lines))


def remembered(
    path: Path,
    sounds: Sequence[ClipSound],
    compute: Callable[[list[Path]], Iterable[Any]],
    prefix: str = "",
    tidy: Callable[[Ledger], Iterable[str]] | None = None,
) -> dict[str, Any]:
    """Return a value for each sound by its digest, as Ledger.complete does with the file at `path`.

    `tidy` returns the keys that the file keeps, in order; without it all stay as they were written.
    """
    with Ledger(path) as ledger:
        values = ledger.complete(sounds, compute, prefix)
        if tidy:
            ledger.keep_only(tidy(ledger))
    return values
