"""The command that counts a recogniser's errors: the pairs of audio and text, errors of its input, its report."""

import re
from pathlib import Path

import pytest

from benchmarks.studio import wer
from common.errors import DataError

pytestmark = pytest.mark.slow

NOT_INSTALLED = "of requirements/eval.txt"


def test_audio_of_a_folder_goes_by_the_line_number(tmp_path: Path) -> None:
    text = tmp_path / "phrases.txt"
    text.write_text("one\n\nthree\n")
    pairs = dict(wer.pairs_of_text([tmp_path], text, "_x"))
    assert pairs == {tmp_path / "audio_0_x.wav": "one", tmp_path / "audio_2_x.wav": "three"}
    with pytest.raises(DataError, match="got 3 lines for 2 audio files"):
        list(wer.pairs_of_text([tmp_path / "a.wav", tmp_path / "b.wav"], text, ""))


def test_filelist_rows_are_relative_to_the_dataset(tmp_path: Path) -> None:
    filelist = tmp_path / "list.txt"
    filelist.write_text("a/b.ogg|Hello.\nbroken\n")
    pairs = wer.pairs_of_filelist(filelist, Path("/data"))
    assert next(pairs) == (Path("/data/a/b.ogg"), "Hello.")
    with pytest.raises(DataError, match=r"list\.txt:2: got 'broken'"):
        next(pairs)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("gone.ogg|Hello.\n", "no such audio file: .*gone.ogg"),
        ("", "empty, expected at least one line"),
        ("a.ogg|caf\xe9\n", "list.txt:1: byte 0xe9 at column 10 is not UTF-8"),
    ],
)
def test_what_is_wrong_with_a_list_is_said_in_one_line(tmp_path: Path, capsys, content: str, message: str) -> None:
    filelist = tmp_path / "list.txt"
    filelist.write_text(content, encoding="latin-1")
    with pytest.raises(SystemExit) as stopped:
        wer.main(["--filelist", str(filelist), "--dataset-path", str(tmp_path)])
    assert stopped.value.code == 1
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1


@pytest.mark.parametrize("words", [[], ["--filelist", "a", "--audio", "b"], ["--filelist", "a", "--model", "base"]])
def test_flags_that_do_not_go_together(words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        wer.parse_args(words)
    assert stopped.value.code == 2


def test_report_of_counted_errors(capsys) -> None:
    pytest.importorskip("jiwer", reason=NOT_INSTALLED)
    texts = ["It is 6:45 p.m.", "The red, red rose.", "Good day."]
    pairs = [wer.Pair(Path(f"{index}.wav"), text) for index, text in enumerate(texts)]
    wer.report(pairs, ["it is six forty five p m", "The rad rose", "good day to you"])
    # by hand: `red` became `rad`, another went missing, `to you` came in; 7 + 4 + 2 words
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "  0.wav"
    assert lines[3:6] == ["* 1.wav", "    ref  the red red rose", "    hyp  the rad rose    [The rad rose]"]
    # 24 + 16 + 8 characters: e became a, `red ` is gone, ` to you` is new
    assert lines[-3:] == [
        "word error rate 30.77 %: 4 errors in 13 words (1 substituted, 1 deleted, 2 inserted)",
        "character error rate 25.00 %: 12 errors in 48 characters (1 substituted, 4 deleted, 7 inserted)",
        "1 of 3 lines without an error",
    ]
