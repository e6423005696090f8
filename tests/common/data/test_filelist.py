"""Filelists and phrases: forms that are tolerated, and the message of every refusal."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.data.filelist import (
    BadRows,
    Utterance,
    check_files,
    lines_of,
    read_filelist,
    read_phrases,
    sift_filelist,
)
from common.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def failure(call, *arguments: object) -> str:
    with pytest.raises(DataError) as error:
        call(*arguments)
    return str(error.value)


def test_rows_in_order(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", "wavs/b.wav|Second, “quoted”.\nwavs/a b.wav|{HH AH0 L OW1}\n")
    rows = read_filelist(path)
    assert rows == [("wavs/b.wav", "Second, “quoted”."), ("wavs/a b.wav", "{HH AH0 L OW1}")]
    assert isinstance(rows[0], Utterance)
    assert (rows[1].path, rows[1].text) == rows[1]
    assert read_filelist(str(path)) == rows


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbfa.wav|one\nb.wav|two\n",
        b"a.wav|one\r\nb.wav|two\r\n",
        b"a.wav|one\nb.wav|two",
        b"a.wav|one\nb.wav|two\n\n  \r\n\n",
        b"  a.wav |one\t\nb.wav|two \n",
    ],
    ids=["byte-order mark", "CRLF", "no newline at the end", "blank lines at the end", "stray blanks"],
)
def test_harmless_differences_are_tolerated(tmp_path: Path, content: bytes) -> None:
    assert read_filelist(write(tmp_path / "list.txt", content)) == [("a.wav", "one"), ("b.wav", "two")]


def test_only_newlines_end_a_line(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", "a.wav|one\u2028still one\x0cand\x85so on\nb.wav|two\n")
    assert [text for _, text in read_filelist(path)] == ["one\u2028still one\x0cand\x85so on", "two"]


def test_all_bad_rows_are_reported_at_once(tmp_path: Path) -> None:
    rows = [b"a.wav|fine", b"no bar", b"", b"|no path", b"b.wav| ", b"c.wav|id|text", b"d.wav|caf\xe9", b"e.wav|\0x"]
    path = write(tmp_path / "bad.txt", b"\n".join([*rows, b"f.wav|fine", b""]))
    assert failure(read_filelist, path).splitlines() == [
        f"{path}:2: 0 '|' in the line, expected one: path|text",
        f"{path}:3: blank line, expected path|text",
        f"{path}:4: no path before '|', expected path|text",
        f"{path}:5: no text after '|', expected path|text",
        f"{path}:6: 2 '|' in the line, expected one: path|text",
        f"{path}:7: byte 0xe9 at column 10 is not UTF-8",
        f"{path}:8: holds a NUL character: not a text file, or not UTF-8",
    ]


def test_very_many_bad_rows_are_counted(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.txt", "x\n" * 105)
    lines = failure(read_filelist, path).splitlines()
    assert len(lines) == 101
    assert lines[99].startswith(f"{path}:100: ")
    assert lines[100] == "… and 5 more lines"


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("read", [read_filelist, read_phrases])
def test_empty_file(tmp_path: Path, read, content: bytes) -> None:
    path = write(tmp_path / "empty.txt", content)
    assert failure(read, path) == f"{path}: empty, expected at least one line"


@pytest.mark.parametrize("read", [read_filelist, read_phrases])
def test_folder(tmp_path: Path, read) -> None:
    assert failure(read, tmp_path).startswith(f"{tmp_path}: cannot be read (Is a directory); expected a text file")


@pytest.mark.parametrize(("kind", "part"), [("audio", "train_subset_300"), ("mel", "val")])
def test_missing_ljspeech_list_names_both_ways_out(kind: str, part: str) -> None:
    name = f"filelists/nowhere/ljs_{kind}_text_{part}_filelist.txt"
    message = failure(read_filelist, name)
    assert message.startswith(f"{name}: no such file; ")
    assert "`bash scripts/prepare_dataset.sh`" in message
    assert f"--training-files filelists/clock_{kind}_text_train_filelist.txt " in message
    assert message.endswith(f"--validation-files filelists/clock_{kind}_text_val_filelist.txt")


@pytest.mark.parametrize(("read", "form"), [(read_filelist, "path|text a line"), (read_phrases, "phrase a line (-i)")])
def test_a_missing_list_of_another_name(tmp_path: Path, read, form: str) -> None:
    path = tmp_path / "mine.txt"
    assert failure(read, path) == f"{path}: no such file; expected a text file with one {form}"


def test_present_files_pass(tmp_path: Path) -> None:
    (tmp_path / "wavs").mkdir()
    write(tmp_path / "wavs" / "a.wav", b"")
    check_files([Utterance("wavs/a.wav", "one"), Utterance(str(tmp_path / "wavs/a.wav"), "two")], "x.txt", tmp_path)


def test_all_missing_files_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", b"")
    (tmp_path / "folder.wav").mkdir()
    rows = [Utterance(path, "text") for path in ("b.wav", "a.wav", "folder.wav", "sub/a.wav")]
    assert failure(check_files, rows, "lists/x.txt", tmp_path).splitlines() == [
        "lists/x.txt:1: no file b.wav",
        "lists/x.txt:3: no file folder.wav",
        "lists/x.txt:4: no file sub/a.wav",
        f"3 of 4 files are missing under {tmp_path}: paths are relative to --dataset-path, now {tmp_path}",
    ]


def test_first_hundred_missing_files_and_a_count(tmp_path: Path) -> None:
    rows = [Utterance(f"LJSpeech-1.1/wavs/{i}.wav", "text") for i in range(300)]
    lines = failure(check_files, rows, "x.txt", tmp_path).splitlines()
    assert len(lines) == 102
    assert lines[99] == "x.txt:100: no file LJSpeech-1.1/wavs/99.wav"
    assert lines[100] == "… and 200 more lines"
    assert lines[101].startswith("300 of 300 files are missing")
    assert lines[101].endswith("`bash scripts/prepare_dataset.sh` fetches LJSpeech")


def test_missing_folder_and_mels(tmp_path: Path) -> None:
    rows = [Utterance("LJSpeech-1.1/mels/LJ001-0001.pt", "text")]
    message = failure(check_files, rows, "x.txt", tmp_path / "none")
    assert f"since there is no folder {tmp_path / 'none'}" in message
    assert "--dataset-path" in message
    assert "`bash scripts/prepare_mels.sh`" in message


def test_phrases_are_lines(tmp_path: Path) -> None:
    content = "\ufeffThe first | phrase.\r\n  Second.\u2028Still second. \r\n\r\n"
    path = write(tmp_path / "phrases.txt", content)
    assert read_phrases(path) == ["The first | phrase.", "Second.\u2028Still second."]


def test_all_bad_phrases_are_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "phrases.txt", b"\nOne.\n \t\nTwo.\xff\nThree.\n")
    assert failure(read_phrases, path).splitlines() == [
        f"{path}:1: blank line, expected a phrase: remove the line",
        f"{path}:3: blank line, expected a phrase: remove the line",
        f"{path}:4: byte 0xff at column 5 is not UTF-8",
    ]


def test_sifting_parts_good_rows_from_bad_ones(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"a.wav|one\nno bar\n\nb.wav|\xff\nc.wav|two\n")
    good, bad = sift_filelist(path)
    assert good == {1: Utterance("a.wav", "one"), 5: Utterance("c.wav", "two")}
    assert list(bad) == [2, 3, 4] and "not UTF-8" in bad[4]


def test_bad_items_are_lines_of_their_file() -> None:
    with pytest.raises(DataError) as error, lines_of("phrases.txt"):
        raise BadRows({0: "first", 4: "fifth"})
    assert str(error.value).splitlines() == ["phrases.txt:1: first", "phrases.txt:5: fifth"]
    assert not isinstance(error.value, BadRows)
