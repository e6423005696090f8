"""Ranges of files that are computed on request: browsers ask for them to seek, and Safari to play at all."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from starlette.responses import Response

# One range, of numbers that Python reads; a server may ignore others (RFC 9110, 14.2).
RANGE = re.compile(r"bytes=(?=\d|-\d)(\d{0,18})-(\d{0,18})", re.ASCII)
MOST_FILES, MOST_BYTES = 16, 2**25


class File(NamedTuple):
    """A file and the headers of its answer."""

    contents: bytes
    headers: Mapping[str, str]


class FileCache:
    """The latest files, by request, so that a browser's next range is not computed again."""

    def __init__(self) -> None:
        self._files: OrderedDict[str, File] = OrderedDict()

    def get(self, key: str) -> File | None:
        """Return a file that is still here."""
        return self._files.get(key)

    def add(self, key: str, contents: bytes, headers: Mapping[str, str]) -> File:
        """Keep a file, and drop the oldest beyond the limits."""
        kept = {name: value for name, value in headers.items() if name != "content-length"}
        self._files[key] = File(contents, kept)
        while len(self._files) > MOST_FILES or sum(len(file.contents) for file in self._files.values()) > MOST_BYTES:
            self._files.popitem(last=False)
        return File(contents, kept)


def ranged(wanted: str, contents: bytes, headers: Mapping[str, str]) -> Response:
    """Answer 206 with the bytes of a header Range that RANGE matches, or 416 where the file has none of them (RFC 9110, 14)."""
    match = RANGE.fullmatch(wanted)
    assert match is not None
    size = len(contents)
    first = int(match[1]) if match[1] else max(0, size - int(match[2]))
    last = min(size - 1, int(match[2])) if match[1] and match[2] else size - 1
    if first >= size or (match[1] and match[2] and int(match[2]) < first):
        return Response(status_code=416, headers={"Content-Range": f"bytes */{size}"})
    own = {"Content-Range": f"bytes {first}-{last}/{size}", "Accept-Ranges": "bytes"}
    return Response(contents[first : last + 1], 206, headers={**headers, **own})
