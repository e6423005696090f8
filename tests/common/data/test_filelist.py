"""Filelists and phrases: forms that are tolerated, and the message of every refusal."""

import hashlib
from pathlib import Path

import pytest

from common.data.filelist import (
    BadRows,
    Utterance,
    check_files,
    choose_held_out,
    lines_of,
    list_path,
    path_in_filelist,
    read_filelist,
    read_phrases,
    sift_filelist,
    write_list,
)
from common.errors import DataError


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def failure(call, *arguments: object) -> str:
    with pytest.raises(DataError) as error:
        call(*arguments)
    return str(error.value)


def test_rows_in_order_whose_lines_end_at_newlines_alone(tmp_path: Path) -> None:
    path = write(tmp_path / "list.txt", "a.wav|one\u2028still one\x0cand\x85so on\nb.wav|two\n")
    rows = [Utterance("a.wav", "one\u2028still one\x0cand\x85so on"), Utterance("b.wav", "two")]
    assert read_filelist(path) == read_filelist(str(path)) == rows


# A byte-order mark, CRLF, no newline at the end, blank lines there, and stray blanks.
HARMLESS = [b"\xef\xbb\xbfa.wav|one\nb.wav|two\n", b"a.wav|one\r\nb.wav|two\r\n", b"a.wav|one\nb.wav|two"]
HARMLESS += [b"a.wav|one\nb.wav|two\n\n  \r\n\n", b"  a.wav |one\t\nb.wav|two \n"]


@pytest.mark.parametrize("content", HARMLESS)
def test_harmless_differences_are_tolerated(tmp_path: Path, content: bytes) -> None:
    assert read_filelist(write(tmp_path / "list.txt", content)) == [("a.wav", "one"), ("b.wav", "two")]


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
    many = failure(read_filelist, write(tmp_path / "many.txt", "x\n" * 105)).splitlines()
    assert many[100:] == ["… and 5 more lines"]


def test_missing_ljspeech_list_names_both_ways_out() -> None:
    name = "filelists/nowhere/ljs_mel_text_val_filelist.txt"
    message = failure(read_filelist, name)
    assert message.startswith(f"{name}: no such file; ") and "`bash scripts/prepare_dataset.sh`" in message
    assert "--training-files filelists/clock_mel_text_train_filelist.txt " in message


def test_empty_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    for read, form in ((read_filelist, "path|text a line"), (read_phrases, "phrase a line (-i)")):
        assert failure(read, path) == f"{path}: no such file; expected a text file with one {form}"
    for content in (b"", b"\n \r\n", b"\xef\xbb\xbf"):
        assert failure(read_phrases, write(path, content)) == f"{path}: empty, expected at least one line"
        path.unlink()


def test_all_missing_files_are_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path / "a.wav", b"")
    check_files([Utterance("a.wav", "one"), Utterance(str(tmp_path / "a.wav"), "two")], "x.txt", tmp_path)
    (tmp_path / "folder.wav").mkdir()
    rows = [Utterance(path, "text") for path in ("b.wav", "a.wav", "folder.wav", "sub/a.wav")]
    assert failure(check_files, rows, "lists/x.txt", tmp_path).splitlines() == [
        "lists/x.txt:1: no file b.wav",
        "lists/x.txt:3: no file folder.wav",
        "lists/x.txt:4: no file sub/a.wav",
        f"3 of 4 files are missing under {tmp_path}: paths are relative to --dataset-path, now {tmp_path}",
    ]
    for path, hint in (
        ("LJSpeech-1.1/wavs/a.wav", "`bash scripts/prepare_dataset.sh` fetches LJSpeech"),
        ("LJSpeech-1.1/mels/a.pt", "`bash scripts/prepare_mels.sh` makes LJSpeech's mels"),
        ("wavs\\a.wav", "have / where Windows has \\"),
    ):
        assert failure(check_files, [Utterance(path, "text")], "x.txt", tmp_path).endswith(hint)


def test_phrases_are_lines(tmp_path: Path) -> None:
    path = write(tmp_path / "phrases.txt", "\ufeffThe first | phrase.\r\n \t\n  Second.\u2028Still second. \r\n\r\n")
    assert read_phrases(path) == ["The first | phrase.", "", "Second.\u2028Still second."]


def test_sifting_parts_good_rows_from_bad_ones_and_bad_items_are_lines_of_their_file(tmp_path: Path) -> None:
    good, bad = sift_filelist(write(tmp_path / "list.txt", b"a.wav|one\nno bar\n\nb.wav|\xff\nc.wav|two\n"))
    assert good == {1: Utterance("a.wav", "one"), 5: Utterance("c.wav", "two")}
    assert list(bad) == [2, 3, 4] and "not UTF-8" in bad[4]
    with pytest.raises(DataError) as error, lines_of("phrases.txt"):
        raise BadRows({0: "first", 4: "fifth"})
    assert str(error.value).splitlines() == ["phrases.txt:1: first", "phrases.txt:5: fifth"]
    assert not isinstance(error.value, BadRows)


def test_a_list_is_written_unless_it_exists_and_one_with_other_rows_stays(tmp_path: Path) -> None:
    path, rows = list_path(tmp_path / "new", "mine", "mel", "val"), [("mels/a.pt", "One."), ("mels/b.pt", "Two.")]
    assert path == tmp_path / "new" / "mine_mel_text_val_filelist.txt"
    assert list_path(tmp_path, "ljs", "mel", "") == tmp_path / "ljs_mel_text_filelist.txt"
    assert write_list(path, []) and not path.exists()
    assert write_list(path, rows) and read_filelist(path) == rows
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))  # as some editors save it
    assert write_list(path, rows)
    edited = path.read_bytes()
    assert not write_list(path, rows[:1]) and path.read_bytes() == edited


def test_paths_in_a_list_start_at_the_data_set_where_they_are_below_it(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"data/wavs/a.wav": "wavs/a.wav", "data/../other/a.wav": f"{tmp_path}/other/a.wav"}
    assert {path: path_in_filelist(Path(path), tmp_path / "data") for path in places} == places
    message = "a|b/a.wav: '|' in a path, which separates fields"
    assert failure(path_in_filelist, Path("a|b/a.wav"), Path()).startswith(message)


def cut(n_recordings: int, n_clips: int) -> dict[str, list[str]]:
    return {f"r{r:02}.wav": [f"r{r:02}_{c:03}" for c in range(n_clips)] for r in range(n_recordings)}


def test_recordings_of_one_clip_are_held_out_by_the_lowest_digests_of_their_names() -> None:
    names = [f"clip{number}" for number in range(200)]
    ranked = sorted(names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())

    def chosen(names: list[str], validation: float) -> set[str]:
        return choose_held_out({name: [name] for name in names}, validation)

    assert chosen(names, 0.05) == set(ranked[:10]) and chosen(names[::-1], 7.0) == set(ranked[:7])
    assert len(chosen(names, 0.048)) == 10  # of 9.6
    assert chosen(ranked[5::-1], 0.05) == {ranked[0]}
    grown = chosen([*names, "one more"], 10)  # no clip comes back to training but those that new ones push out
    assert len(chosen(names, 10) - grown) <= 1


def test_many_recordings_are_kept_apart_up_to_twice_the_wanted_clips() -> None:
    chosen = choose_held_out(cut(20, 10), 0.05)
    assert 10 <= len(chosen) <= 20
    assert chosen == {clip for clips in cut(20, 10).values() if chosen & set(clips) for clip in clips}
    assert len({clip[:3] for clip in choose_held_out(cut(10, 2), 1)}) == 1  # both clips of one recording
    assert len(choose_held_out(cut(10, 2), 1)) == 2 and len(choose_held_out(cut(10, 3), 1)) == 1


def test_recordings_are_divided_where_they_are_few_or_one_of_them_is_huge() -> None:
    assert choose_held_out(cut(2, 50), 0.06) == {f"r{r:02}_{c:03}" for r in range(2) for c in range(47, 50)}
    assert choose_held_out(cut(9, 2), 2) == {"r00_001", "r01_001"}
    uneven = {"short.wav": ["s0", "s1"], "long.wav": [f"l{n}" for n in range(5)]}
    assert choose_held_out(uneven, 2) == {"s1", "l4"}  # shares of 0.57 and 1.43: the larger remainder rounds up
    huge = cut(1, 500) | {f"s{n}.wav": [f"s{n}"] for n in range(11)}
    assert 1 <= len(choose_held_out(huge, 1)) <= 2
    assert failure(choose_held_out, huge, 511).startswith("511 usable clips, expected more than the 511")
    assert failure(choose_held_out, {}, 0.05).startswith("0 usable")
