"""Writing files whole or not at all."""

from __future__ import annotations

import os

import pytest

from common.files import atomic_write, move_aside


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


def test_moving_aside_takes_the_first_free_number(tmp_path):
    (tmp_path / "n_2.json").touch()
    for number, wanted in enumerate(["n_1.json", "n_3.json"]):
        (tmp_path / "n.json").write_text(str(number))
        assert move_aside(tmp_path / "n.json") == tmp_path / wanted
        assert (tmp_path / wanted).read_text() == str(number)
    (tmp_path / "folder").mkdir()
    assert move_aside(tmp_path / "folder") == tmp_path / "folder_1"
    assert move_aside(tmp_path / "none.json") is None
    assert names(tmp_path) == ["folder_1", "n_1.json", "n_2.json", "n_3.json"]


def test_moving_aside_leaves_devices_and_links_alone(tmp_path):
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "log").symlink_to("file")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for name in ("device", "log", "pipe"):
        assert move_aside(tmp_path / name) is None
    assert names(tmp_path) == ["device", "file", "log", "pipe"]
