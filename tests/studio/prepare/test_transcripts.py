"""studio/prepare/transcripts.py: subtitles, texts and tables beside recordings, and those of hostile content."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from common.errors import DataError
from studio.prepare.sources import SourceFile
from studio.prepare.transcripts import Cue, ends_sentence, find_transcripts, plain_text, read_transcript

SRT = """1
00:00:01,000 --> 00:00:02,500
<i>Good morning.</i>

2
00:00:03,000 --> 00:00:04,250
It is
half past nine. [bell]

3
00:01:05,5 --> 01:00:00,000
♪♪
"""
VTT = """WEBVTT
Kind: captions

NOTE no words

00:01.000 --> 00:02.000 align:start position:0%
one two

00:02.000 --> 00:03.000
one two
three<00:00:02.500><c> four</c>

intro
01:00:03.000 --> 01:00:04.000
five &amp; six
"""


def sources(folder: Path, *names: str) -> list[SourceFile]:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return [SourceFile(folder / name, name, name.replace("/", "_")) for name in names]


def test_subrip(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("\ufeff" + SRT.replace("\n", "\r\n"))
    transcript = read_transcript(tmp_path / "a.srt", "a.srt")
    assert transcript.cues == (Cue(1.0, 2.5, "Good morning."), Cue(3.0, 4.25, "It is half past nine."))
    assert transcript.text == "Good morning. It is half past nine."


def test_webvtt_with_rolling_lines(tmp_path: Path) -> None:
    (tmp_path / "a.vtt").write_text(VTT)
    cues = read_transcript(tmp_path / "a.vtt", "a.vtt").cues
    assert cues == (Cue(1, 2, "one two"), Cue(2, 3, "three four"), Cue(3603, 3604, "five & six"))


def test_a_number_without_a_blank_line_before_it_is_no_word(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("1\n00:00:01,0 --> 00:00:02,0\nRoom 7\n2\n00:00:03,0 --> 00:00:04,0\n7\n")
    assert [cue.text for cue in read_transcript(tmp_path / "a.srt", "a").cues] == ["Room 7", "7"]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("00:00:01,5 --> 00:00:02,05", (1.5, 2.05)),
        ("00:01.050 --> 00:01.50", (1.05, 1.5)),
        ("01:02:03,007 --> 1:02:04,1", (3723.007, 3724.1)),
    ],
)
def test_decimals_of_times_are_fractions_of_a_second(tmp_path: Path, times: str, expected: tuple[float, float]) -> None:
    (tmp_path / "a.srt").write_text(f"1\n{times}\nx\n")
    (cue,) = read_transcript(tmp_path / "a.srt", "a.srt").cues
    assert (cue.start, cue.end) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no subtitles in it"),
        (b"\x00\x01\x02", "NUL"),
        (b"00:00:01,000 --> soon\nx\n", "a.srt:1: '00:00:01,000 --> soon', expected times such as"),
        (b"00:00:02,000 --> 00:00:01,000\nx\n", "a.srt:1: .* ends before it begins"),
        (b"00:00:05,0 --> 00:00:06,0\nx\n\n00:00:01,0 --> 00:00:02,0\ny\n", "a.srt:4: .* sort them by time"),
        (b"caf\xe9\n", "byte 0xe9 at column 4 is not UTF-8"),
        (b"99999999999999999999:00:01,000 --> 00:00:02,000\nx\n", "expected times"),
        (b"no times at all\n", "no subtitles in it"),
    ],
)
def test_a_bad_file_is_one_error_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.srt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_transcript(tmp_path / "a.srt", "a.srt")


def test_a_huge_file_of_subtitles_takes_time_in_proportion(tmp_path: Path) -> None:
    """12,000 subtitles without blank lines, and one line of 1 MB with brackets that never close."""
    lines = [
        f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02},000 --> {n // 3600:02}:{n // 60 % 60:02}:{n % 60:02},900\nx"
        for n in range(12000)
    ]
    (tmp_path / "a.srt").write_text("\n".join(lines) + "\n\n99:00:00,0 --> 99:00:01,0\n" + "[<{\\" * 250_000)
    start = time.process_time()
    assert len(read_transcript(tmp_path / "a.srt", "a.srt").cues) == 12001
    assert time.process_time() - start < 20  # a quadratic reader takes an hour


def test_files_beside_the_audio_are_found_by_name(tmp_path: Path) -> None:
    found = sources(tmp_path, "a.wav", "b.mp3", "c.wav", "d.wav", "sub/a.wav", "e.wav")
    (tmp_path / "a.txt").write_text("Text of a,\n  second line.\n")
    (tmp_path / "b.mp3.txt").write_text("Text of b.")
    (tmp_path / "c.en.srt").write_text(SRT)
    (tmp_path / "d.txt").write_text("loses against the subtitles")
    (tmp_path / "d.vtt").write_text(VTT)
    transcripts = find_transcripts(tmp_path, found)
    assert set(transcripts) == {"a.wav", "b.mp3", "c.wav", "d.wav"}
    assert transcripts["a.wav"].text == "Text of a, second line."
    assert transcripts["c.wav"].origin == "c.en.srt"
    assert transcripts["d.wav"].cues


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata.csv", "a|Raw 1.|One.\nb|Two.\n"),
        ("metadata.csv", "wavs/a.wav|One.\nwavs/b|Two.\n"),
        ("validated.tsv", "client_id\tpath\tsentence\tage\nx\ta.wav\tOne.\t\nx\tb.wav\tTwo.\t\nx\tz.wav\tabsent\t\n"),
        ("list.csv", 'file,text\na.wav,One.\n"b.wav","Two."\n'),
        ("list.csv", "a.wav;One.\nb.wav;Two.\n"),
    ],
)
def test_tables(tmp_path: Path, name: str, content: str) -> None:
    found = sources(tmp_path, "wavs/a.wav", "wavs/b.wav")
    (tmp_path / name).write_text(content)
    transcripts = find_transcripts(tmp_path, found)
    assert {key: transcript.text for key, transcript in transcripts.items()} == {
        "wavs/a.wav": "One.",
        "wavs/b.wav": "Two.",
    }


def test_all_bad_rows_of_a_table_are_one_error(tmp_path: Path) -> None:
    found = sources(tmp_path, "a.wav", "x/b.wav", "y/b.wav", "c.wav")
    (tmp_path / "metadata.csv").write_text("a|One.\nb|Two.\nc|\na|Another.\na|b|c|d\n")
    with pytest.raises(DataError) as error:
        find_transcripts(tmp_path, found)
    assert "metadata.csv:5: 'a|b|c|d', expected id|text" in str(error.value)
    (tmp_path / "metadata.csv").write_text("a|One.\nb|Two.\nc|\na|Another.\n")
    with pytest.raises(DataError) as error:
        find_transcripts(tmp_path, found)
    lines = str(error.value).splitlines()
    assert [line.partition("metadata.csv")[2][:3] for line in lines] == [":2:", ":3:", ":4:"]
    assert "several recordings" in lines[0] and "no text" in lines[1] and "another text already" in lines[2]


def test_a_table_of_something_else_is_left_alone(tmp_path: Path) -> None:
    found = sources(tmp_path, "a.wav")
    (tmp_path / "prices.csv").write_text("apples,3\npears,4\n")
    assert find_transcripts(tmp_path, found) == {}


def test_plain_text() -> None:
    assert plain_text(" a\tb\u200b|c\x00 e\u0301\n") == "a b c \u00e9"


@pytest.mark.parametrize(
    ("text", "expected"), [("Yes.", True), ('"Yes!"', True), ("Yes,", False), ("", False), ("是。", True)]
)
def test_ends_sentence(text: str, expected: bool) -> None:
    assert ends_sentence(text) is expected
