"""Results by key in a text file that grows line by line, so that a killed process loses no finished result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from common.errors import explain_refusal
from common.files import make_folder, parse_json, write_text


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

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self.values.get(key)

    def add(self, key: str, value: Any) -> None:
        """Append a value, and store it at once."""
        self.values[key] = value
        self._file.write(f"{json.dumps([key, value], ensure_ascii=False)}\n".encode())
        self._file.flush()

    def keep_only(self, keys: Iterable[str]) -> None:
        """Rewrite the file with only these keys, in order: the same bytes after any number of interruptions."""
        known = [key for key in dict.fromkeys(keys) if key in self.values]
        lines = [json.dumps([key, self.values[key]], ensure_ascii=False) for key in known]
        write_text(self.path, "".join(f"{line}\n" for line in lines))
