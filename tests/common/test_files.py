"""Writing files whole or not at all."""

from __future__ import annotations

import pytest

from common.files import atomic_write


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_nothing_shows_before_the_end(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["f"]


def test_a_failure_leaves_the_old_file_and_no_trace(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="half-way"), atomic_write(path) as file:
        file.write(b"ne")
        raise RuntimeError("half-way")
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["f"]


def test_missing_folders_are_made(tmp_path):
    with atomic_write(tmp_path / "a" / "b" / "f") as file:
        file.write(b"x")
    assert (tmp_path / "a" / "b" / "f").read_bytes() == b"x"
