"""Damaged files of tensors: each flipped bit and each cut is refused, or leaves the content as it was."""

from __future__ import annotations

import random
import re
import tracemalloc
import warnings
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from common.checkpoint import tensors as tensor_files
from common.checkpoint.files import load_checkpoint, prune, save_copy
from common.checkpoint.tensors import DamagedFileError, check_archive, checksum, load_tensors, named_tensors
from common.data.mels import load_mel, save_mel
from common.errors import DataError
from tests.recipe import train_tiny_model
from tests.test_train import differences

TRIALS = 60
Load = Callable[[Path], Any]


def parts_of(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {entry.filename: archive.read(entry) for entry in archive.infolist()}


def kinds(folder: Path) -> dict[str, tuple[Path, Load]]:
    """A checkpoint, its weights as safetensors, and a mel, each with the function that reads it."""
    trained = load_checkpoint(train_tiny_model("WaveGlow"))
    save_copy(folder / "a.pt", trained)
    save_copy(folder / "b.safetensors", trained)
    save_mel(folder / "c.pt", torch.randn(10, 150, generator=torch.Generator().manual_seed(1)))
    return {
        "checkpoint": (folder / "a.pt", load_checkpoint),
        "safetensors": (folder / "b.safetensors", load_checkpoint),
        "mel": (folder / "c.pt", lambda path: load_mel(path, 10)),
    }


def refusals(path: Path, load: Load, damages: list[bytes]) -> int:
    """Count the damaged contents that `load` refuses by the file's name; all others must load as the whole file does."""
    before, refused = load(path), 0
    for damaged in damages:
        path.write_bytes(damaged)
        try:
            assert differences({"": load(path)}, {"": before}) == []
        except DataError as error:
            assert re.search(
                rf"^{re.escape(str(path))}: .*; (copy or save it again|delete it and prepare mels again)$", str(error)
            )
            refused += 1
    return refused


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["checkpoint", "safetensors", "mel"])
def test_a_flipped_bit_is_refused_or_harmless_and_a_cut_file_refused(tmp_path: Path, kind: str) -> None:
    path, load = kinds(tmp_path)[kind]
    content, draw = path.read_bytes(), random.Random(5)
    flips, cuts = [], [content[: draw.randrange(len(content))] for _ in range(TRIALS)]
    for _ in range(TRIALS):
        place = draw.randrange(len(content))
        flipped = content[place] ^ 1 << draw.randrange(8)
        flips.append(content[:place] + bytes([flipped]) + content[place + 1 :])
    assert refusals(path, load, flips) > TRIALS // 2  # the rest are in padding and in fields that no reader uses
    path.write_bytes(content)
    assert refusals(path, load, cuts) == TRIALS


def test_every_bit_of_an_archives_directory_is_refused_or_harmless(tmp_path: Path) -> None:
    """A bit of an entry's attributes makes it a folder, of which PyTorch reads nothing: the weights were what the memory held."""
    path = tmp_path / "a.pt"
    torch.save({"state_dict": {"a": torch.randn(3, 4), "b": torch.randn(3, 4), "c": torch.arange(5.0)}}, path)
    content = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        places = range(archive.start_dir, len(content))
    flips = [
        content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]
        for place in places
        for bit in range(8)
    ]
    assert refusals(path, load_checkpoint, flips) > len(flips) // 2


@pytest.mark.parametrize(
    ("names", "problem"), [("aa", "a is there 2 times"), (["a", ""], "an entry without a name is")]
)
def test_an_entry_twice_or_without_a_name_is_refused(tmp_path: Path, names: Sequence[str], problem: str) -> None:
    with zipfile.ZipFile(tmp_path / "a.pt", "w") as archive, warnings.catch_warnings(action="ignore"):
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), b"1")
    with pytest.raises(DamagedFileError, match=f"damaged: {problem}"):
        check_archive(tmp_path / "a.pt")


def test_a_compressed_archive_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """torch.load reads one; a part of 10 GB may be 10 MB in the file."""
    torch.save({"state_dict": {"w": torch.zeros(10**6)}}, tmp_path / "c.pt")
    with zipfile.ZipFile(tmp_path / "d.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts_of(tmp_path / "c.pt").items():
            archive.writestr(name, content)
    assert torch.load(tmp_path / "d.pt")["state_dict"]["w"].shape == (10**6,)
    with pytest.raises(DataError, match=r"d\.pt: compressed, which no file of torch\.save is: .*data\.pkl; "):
        load_checkpoint(tmp_path / "d.pt")


def test_the_checksums_are_those_of_the_standard_and_may_be_absent(tmp_path: Path) -> None:
    torch.save(torch.arange(6.0), tmp_path / "t.pt")
    with zipfile.ZipFile(tmp_path / "t.pt") as archive:
        assert all(zlib.crc32(archive.read(entry)) == entry.CRC for entry in archive.infolist())
    assert check_archive(tmp_path / "t.pt")
    tensor = torch.arange(6, dtype=torch.int16).reshape(2, 3).T
    parts = b'["a", "torch.int16", [3, 2]]' + np.array([0, 3, 1, 4, 2, 5], "<i2").tobytes() + b'["epoch", "4"]'
    assert checksum({"a": tensor}, {"epoch": "4"}) == f"crc32:{zlib.crc32(parts):08x}"
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"w": torch.ones(3)}, tmp_path / "t.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    assert torch.equal(load_tensors(tmp_path / "t.pt")["w"], torch.ones(3))


def test_tensors_are_named_by_their_keys_and_found_without_a_list_of_all_values() -> None:
    """30 million numbers under one key took 4.8 GB."""
    loop: list[Any] = [torch.zeros(1)]
    loop.append(loop)
    content = {"numbers": [7] * 100_000, "optimizer": {"state": {3: {"exp_avg": torch.ones(1)}}}, "rng": loop}
    tracemalloc.start()
    try:
        assert sorted(name for name, _ in named_tensors(content)) == ["optimizer.state.3.exp_avg", "rng.0"]
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_many_values_that_are_no_tensors_are_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensor_files, "MOST_PLAIN", 1_000_000)
    torch.save({"state_dict": {"a": torch.ones(400_000)}, "x": [7] * 400_000}, tmp_path / "a.pt")
    load_checkpoint(tmp_path / "a.pt")
    torch.save({"state_dict": {"a": torch.ones(1)}, "x": [7] * 600_000}, tmp_path / "b.pt")
    monkeypatch.delattr(torch, "load")
    message = "b.pt: 1 MB of values that are no tensors, expected at most 1; copy or save it again"
    with pytest.raises(DataError, match=message):
        load_checkpoint(tmp_path / "b.pt")


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (torch.ones(1).expand(10**12), r"w: claims 1,000,000,000,000 elements, but the file has 1$"),
        (torch.eye(3).to_sparse(), "w: sparse, quantised, nested or without data"),
        (torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "w: sparse, quantised"),
    ],
)
def test_only_dense_tensors_with_all_their_elements(tmp_path: Path, tensor: torch.Tensor, problem: str) -> None:
    torch.save({"w": tensor}, tmp_path / "t.pt")
    with pytest.raises(DamagedFileError, match=problem):
        load_tensors(tmp_path / "t.pt")


def test_a_storage_larger_than_its_part_of_the_file_is_refused(tmp_path: Path) -> None:
    """PyTorch before 2.13 takes the size from the pickle and reads past the end of the part."""
    torch.save({"w": torch.ones(1000)}, tmp_path / "t.pt")
    parts = parts_of(tmp_path / "t.pt")
    (pickle,) = [name for name in parts if name.endswith("data.pkl")]
    assert parts[pickle].count(b"M\xe8\x03") == 2  # the storage's elements, and the tensor's
    parts[pickle] = parts[pickle].replace(b"M\xe8\x03", b"J\x00\xca\x9a\x3b")  # 1e9
    with zipfile.ZipFile(tmp_path / "t.pt", "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    with pytest.raises((DamagedFileError, RuntimeError), match=r"4,000,000,000 bytes|record size \(4000 bytes\)"):
        load_tensors(tmp_path / "t.pt")
    several = {"a": torch.ones(10), "b": torch.ones(10)}  # by our own check, whatever PyTorch refuses
    found = tensor_files._storage_problems(several, Counter([40, 39]))
    assert found == ["b: claims 40 bytes, but no part of the file has so many"]
    assert not tensor_files._storage_problems(several, Counter([40, 40]))


def test_pruning_keeps_the_checkpoints_that_were_saved_last_and_those_of_other_runs(tmp_path: Path) -> None:
    """A run that resumes from an older epoch saves lower epochs after higher ones. It has not saved those of 2 and 99."""
    for epoch in (1, 2, 3, 7, 9, 99):
        for suffix in (".pt", ".safetensors"):
            (tmp_path / f"checkpoint_X_{epoch}{suffix}").touch()
    assert prune(tmp_path, "X", [7, 3, 9, 1], 2) == [9, 1]
    expected = [f"checkpoint_X_{epoch}{suffix}" for epoch in (1, 2, 9, 99) for suffix in (".pt", ".safetensors")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(expected)
    assert prune(tmp_path, "X", [9, 1], 5) == [9, 1]
