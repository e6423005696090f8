"""Writing files whole or not at all, and the lines of text files."""

import contextlib
import errno
import fcntl
import os
import secrets
import socket
import stat
import threading

import pytest

from common import files
from common.errors import DataError


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def write(path, content=b"x"):
    with files.atomic_write(path) as file:
        file.write(content)


def test_nothing_shows_before_the_end_nor_after_a_failure(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with files.atomic_write(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new" and names(tmp_path) == ["f"]
    with pytest.raises(RuntimeError, match="half-way"), files.atomic_write(path) as file:
        file.write(b"ne")
        raise RuntimeError("half-way")
    assert path.read_bytes() == b"new" and names(tmp_path) == ["f"]
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    write(tmp_path / ("n" * 255))  # as long a name as the system allows
    files.atomic_link(tmp_path / ("l" * 255), "n" * 255)
    assert (tmp_path / ("l" * 255)).read_bytes() == b"x"


def test_refusals_name_the_file_and_not_the_temporary_one(tmp_path, monkeypatch):
    (tmp_path / "f").mkdir()
    with pytest.raises(IsADirectoryError) as refusal, files.atomic_write(tmp_path / "f"):
        pass
    assert (refusal.value.filename, names(tmp_path)) == (str(tmp_path / "f"), ["f"])

    def refuse(place, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(place))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(OSError, match=f"{tmp_path}/g'$"), files.atomic_write(tmp_path / "g"):
        pass


def test_bytes_reach_the_disk_before_the_name_and_the_name_before_the_end(tmp_path, monkeypatch):
    events = []
    sync, rename = os.fsync, os.replace

    def note_sync(descriptor):
        status = os.fstat(descriptor)
        events.append("folder" if stat.S_ISDIR(status.st_mode) else status.st_size)
        sync(descriptor)

    def note_rename(source, target):
        events.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_rename)
    write(tmp_path / "f", b"x" * 100)  # few enough to stay in Python's buffer
    assert events == [100, "rename", "folder"]


def test_a_file_that_was_taken_for_a_leftover_before_its_lock_is_made_again(tmp_path, monkeypatch):
    lock, lost = fcntl.flock, []

    def lose_the_first(descriptor, operation):
        if not lost:
            (temporary,) = tmp_path.iterdir()
            lost.append(temporary)
            temporary.unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lose_the_first)
    write(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"x"
    assert lost and names(tmp_path) == ["f"]


def test_writing_follows_no_link_of_a_temporary_name(tmp_path, monkeypatch):
    (tmp_path / "f.tmp").symlink_to(tmp_path / "victim")
    tokens = iter(["0" * 16, "1" * 16, "2" * 16])
    monkeypatch.setattr(secrets, "token_hex", lambda size: next(tokens))
    (tmp_path / f".{'0' * 16}.tmp").symlink_to(tmp_path / "victim")
    (tmp_path / f".{'1' * 16}.tmp").write_text("another's")
    write(tmp_path / "f")
    assert (tmp_path / "f").read_bytes() == b"x"
    assert (tmp_path / f".{'1' * 16}.tmp").read_text() == "another's"
    assert not (tmp_path / "victim").exists()


def test_only_files_of_killed_writers_are_leftovers(tmp_path):
    leftover, old_link, new_link = (tmp_path / f".{digit * 16}.tmp" for digit in "abc")
    leftover.touch()
    old_link.symlink_to("gone")
    new_link.symlink_to("gone")
    os.utime(old_link, (1, 1), follow_symlinks=False)
    (tmp_path / "mine.tmp").touch()
    with files.atomic_write(tmp_path / "f") as file:
        file.write(b"x")
        files.remove_leftovers(tmp_path)
    assert names(tmp_path) == [new_link.name, "f", "mine.tmp"]
    files.remove_leftovers(tmp_path / "none")


def test_moving_aside_takes_the_first_free_number_and_leaves_devices_and_links_alone(tmp_path):
    (tmp_path / "n_2.json").touch()
    (tmp_path / "n_3.json").symlink_to("gone")
    for number, wanted in enumerate(["n_1.json", "n_4.json"]):
        (tmp_path / "n.json").write_text(str(number))
        assert files.move_aside(tmp_path / "n.json") == tmp_path / wanted
        assert (tmp_path / wanted).read_text() == str(number)
    assert files.move_aside(tmp_path / "none.json") is None
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "log").symlink_to("file")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    for name in ("device", "log", "pipe"):
        assert files.move_aside(tmp_path / name) is None
    assert {"device", "file", "log", "pipe"} <= set(names(tmp_path))


def test_appends_reach_regular_files_alone(tmp_path):
    for text in (b"one", b"two"):
        with files.open_to_append(tmp_path / "file") as file:
            file.write(text)
    assert (tmp_path / "file").read_bytes() == b"onetwo"
    (tmp_path / "dangling").symlink_to("none")
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.path.relpath(tmp_path / "socket"))
    for name, kind in (("dangling", "symbolic link"), ("pipe", "named pipe"), ("socket", "socket")):
        with pytest.raises(DataError, match=f"{name}: is a {kind}, expected a regular file to append to"):
            files.open_to_append(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        files.open_to_append(tmp_path)
    assert names(tmp_path) == ["dangling", "file", "pipe", "socket"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("/dev/zero", None, "is a device, expected a file or a pipe"),  # which filled the memory
        ("none", None, "no such file; expected phrases"),
        (".", None, "cannot be read (Is a directory); expected phrases"),
        ("f", b"", "empty, expected at least one line"),
        ("f", b"\xef\xbb\xbf", "empty, expected at least one line"),
        ("f", b" \r\n\n", "empty, expected at least one line"),
        *(("f", "\ufeffno\ta\n".encode(f"utf-16-{order}e"), "not UTF-8 but UTF-16, as spreadsheets") for order in "lb"),
    ],
)
def test_files_without_lines(tmp_path, name, content, message):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError) as caught:
        files.read_lines(path, "expected phrases")
    assert str(caught.value).startswith(f"{path}: {message}") and "\n" not in str(caught.value)


def test_pipes_are_texts_up_to_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MOST_PIPED_MB", 1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    @contextlib.contextmanager
    def feed(content):
        def write():
            with contextlib.suppress(BrokenPipeError):
                pipe.write_bytes(content)

        writer = threading.Thread(target=write)
        writer.start()
        yield
        writer.join()

    with feed(b"one\ntwo\n" + b" " * 999_991):
        assert files.read_lines(pipe) == ["one", "two"]
    message = "pipe: more than 1 MB from a named pipe; save it as a file"
    with feed(b"x" * 1_000_001), pytest.raises(DataError, match=message):
        files.read_lines(pipe)


def test_lines_are_those_of_pythons_text_mode(tmp_path):
    """As io.TextIOWrapper reads a file with LF and CRLF; its mark and its blank end are left out."""
    path = tmp_path / "f"
    lines = ["one", "  zwölf\t", "", "\u2028third\x0c", "last "]
    path.write_bytes("\ufeff".encode() + "\r\n".join(lines).encode() + b"\r\n \n\r\n")
    with path.open(encoding="utf-8-sig") as file:
        expected = [line.removesuffix("\n") for line in file]
    assert files.read_lines(path) == expected[:5] == lines
    assert files.decode_lines(path, keep_blank_end=True) == (expected, {})
    path.write_bytes(b"\xef\xbb\xbf \n")
    assert files.decode_lines(path) == ([], {})


def test_every_line_that_is_not_utf_8_is_named(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"good\ncaf\xe9\n\0\nalso good\n\xff\xfe\n")
    assert files.decode_lines(path).texts == ["good", "", "", "also good", ""]
    message = (
        rf"{path}:2: byte 0xe9 at column 4 is not UTF-8\n{path}:3: holds a NUL .*\n{path}:5: byte 0xff at column 1"
    )
    with pytest.raises(DataError, match=message):
        files.read_lines(path)
