"""Tensors in files, read without running code from them and only if every byte is as it was written.

torch.save writes a ZIP archive with a CRC-32 of each entry, which torch.load does not check. A checksum of named tensors serves
formats without one, such as safetensors. Files from before PyTorch 1.6 and those written under
torch.serialization.set_crc32_options(False) have no checksum.
"""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

ZIP_START = b"PK\x03\x04"
READ_AT_ONCE = 2**20  # bytes
MOST_PLAIN = 16 * 10**6  # bytes of everything but tensors; reading a megabyte or two of them takes a second
PROBLEMS_SHOWN = 4
DOS_ATTRIBUTES = 0xFF  # of an entry: hidden, folder and the like; the bits above are Unix permissions


class DamagedFileError(ValueError):
    """Content that differs from its checksum, or tensors whose description does not match the file."""


def save_tensors(value: Any, file: BinaryIO) -> None:
    """Write tensors to an open file. Raises OSError where the system refuses, instead of torch.save's RuntimeError."""
    try:
        torch.save(value, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from None
        raise


def load_tensors(path: Path, safe: Sequence[Any] = ()) -> Any:
    """Read a file of torch.save onto the CPU after checking its checksums.

    `safe` lists classes allowed besides tensors and containers.

    Raises DamagedFileError, OSError, or any error that damaged bytes cause in torch.load.
    """
    sizes = check_archive(path)
    with torch.serialization.safe_globals(list(safe)):
        content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = dict(named_tensors(content))
    problems = [f"{name}: {problem}" for name, tensor in tensors.items() if (problem := tensor_problem(tensor))]
    if not problems and sizes is not None:
        problems = _storage_problems(tensors, sizes)
    if problems:
        raise DamagedFileError("; ".join(problems[:PROBLEMS_SHOWN]))
    return content


def check_archive(path: Path) -> Counter[int] | None:
    """Compare each entry of a ZIP archive with its CRC-32. Returns the number of entries of each size; None for other formats.

    Raises DamagedFileError for an entry that differs and for values that would take minutes to read, zipfile.BadZipFile for a
    truncated archive, OSError if the file cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(ZIP_START)) != ZIP_START:
            return None
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            if problem := _directory_problem(entries):
                raise DamagedFileError(problem)
            if plain := [
                entry for entry in entries if entry.filename.endswith("/data.pkl") and entry.file_size > MOST_PLAIN
            ]:
                size = f"{plain[0].file_size / 1e6:,.0f} MB"
                raise DamagedFileError(
                    f"{size} of values that are no tensors, expected at most {MOST_PLAIN / 1e6:,.0f}"
                )
            if any(entry.CRC for entry in entries):  # all are 0 in a file that was written without
                for entry in entries:
                    _check_entry(archive, entry)
    return Counter(entry.file_size for entry in entries)


def _directory_problem(entries: Sequence[zipfile.ZipInfo]) -> str | None:
    """Return what the archive's directory has that torch.save never writes; None if nothing.

    The checksums cover what entries hold, not the directory, and PyTorch reads nothing for an entry that is marked as a folder: its
    tensor would have whatever the memory held before.
    """
    names = Counter(entry.filename for entry in entries)
    for entry in entries:
        name = entry.filename
        if entry.compress_type != zipfile.ZIP_STORED:  # a few bytes may unpack to more than the memory
            return f"compressed, which no file of torch.save is: {name}"
        if not name or name.endswith("/") or entry.external_attr & DOS_ATTRIBUTES:
            return f"damaged: {name or 'an entry without a name'} is marked as a folder or a special file"
        if names[name] > 1:
            return f"damaged: {name} is there {names[name]} times"
        if entry.compress_size != entry.file_size:
            return f"damaged: {name} has {entry.compress_size} bytes of {entry.file_size}"
    return None


def _check_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    size = 0
    try:
        with archive.open(entry) as content:  # its end raises BadZipFile if the CRC-32 differs
            while part := content.read(READ_AT_ONCE):
                size += len(part)
    except Exception as error:  # a damaged header leads to many kinds of error
        raise DamagedFileError(f"damaged: {error or type(error).__name__}") from None
    if size != entry.file_size:
        raise DamagedFileError(f"damaged: {entry.filename} has {size} bytes of {entry.file_size}")


def named_tensors(content: Any) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors in nested containers, named by the path of keys that leads to them: optimizer.state.3.exp_avg."""
    if isinstance(content, Tensor):
        yield "tensor", content
        return
    stack = [_inner_values("", content)]  # no recursion: a file may nest deeper than Python's stack
    seen = {id(content)}  # a container may contain itself
    while stack:
        found = next(stack[-1], None)
        if found is None:
            stack.pop()
        elif isinstance(found[1], Tensor):
            yield found[0] or "tensor", found[1]
        elif id(found[1]) not in seen:
            seen.add(id(found[1]))
            stack.append(_inner_values(*found))


def _inner_values(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the tensors and containers in a container, one at a time: a list may have millions of numbers."""
    if not isinstance(value, (Mapping, list, tuple)):
        return
    for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
        if isinstance(item, (Tensor, Mapping, list, tuple)):
            yield f"{name}.{key}".lstrip("."), item


def tensor_problem(tensor: Tensor) -> str | None:
    """Return the reason why a tensor is not a dense one with all its elements in memory; None if it is."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested or tensor.device.type == "meta":
        return "sparse, quantised, nested or without data, expected a dense tensor"
    held = tensor.untyped_storage().nbytes() // tensor.element_size()
    if tensor.numel() > held:
        return f"claims {tensor.numel():,} elements, but the file has {held:,}"
    return None


def _storage_problems(tensors: Mapping[str, Tensor], sizes: Counter[int]) -> list[str]:
    """List tensors with a storage of a size that no entry of the archive has: PyTorch would read past the entry's end."""
    storages: dict[int, tuple[str, int]] = {}
    for name, tensor in tensors.items():
        storages.setdefault(tensor.untyped_storage().data_ptr(), (name, tensor.untyped_storage().nbytes()))
    left = Counter(sizes)
    problems = []
    for name, size in storages.values():
        left[size] -= 1
        if size and left[size] < 0:
            problems.append(f"{name}: claims {size:,} bytes, but no part of the file has so many")
    return problems


def checksum(tensors: Mapping[str, Tensor], texts: Mapping[str, str]) -> str:
    """Return a CRC-32 over names, dtypes, shapes and bytes of dense tensors and over texts, in order of their names."""
    total = 0
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        total = zlib.crc32(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode(), total)
        content = tensor.reshape(-1).view(torch.uint8)
        for start in range(0, len(content), READ_AT_ONCE):
            total = zlib.crc32(content[start : start + READ_AT_ONCE].numpy().data, total)
    for pair in sorted(texts.items()):
        total = zlib.crc32(json.dumps(pair).encode(), total)
    return f"crc32:{total:08x}"
