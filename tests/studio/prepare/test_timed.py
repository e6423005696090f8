"""studio/prepare/timed.py: formats with times, as their programs write them, and files of hostile content."""

import json
from pathlib import Path

import pytest

from common.errors import DataError
from studio.prepare.matching import read_transcript
from studio.prepare.transcripts import Cue

FILES = Path(__file__).with_name("transcripts")
# The TextGrid is in the long form of Praat's manual, "TextGrid file formats"; its tier of phones comes first.
LONG = (FILES / "talk.TextGrid").read_text()
WORDS = [(0, 1, ""), (1, 2, "Good"), (2, 2.5, "morning."), (2.5, 3, "sil"), (3, 3.2, "It"), (3.2, 3.4, "is")]
WORDS += [(3.4, 3.8, "half"), (3.8, 4.25, "past")]
GOOD = [(1.0, 2.5, "Good morning."), (3.0, 4.25, "It is half past")]
SEGMENTS = [{"id": n, "start": start, "end": end, "text": f" {text}"} for n, (start, end, text) in enumerate(GOOD)]
WORD_SEGMENTS = [{"word": word, "start": start, "end": end} for start, end, word in WORDS]
WHISPER_CPP = [{"offsets": {"from": 1000 * start, "to": 1000 * end}, "text": text} for start, end, text in GOOD]
AENEAS = [{"begin": f"{start:.3f}", "end": f"{end:.3f}", "lines": text.split(" ", 1)} for start, end, text in GOOD]
SHORT = 'File type = "ooTextFile"\nObject class = "TextGrid"\n\n0\n5\n<exists>\n1\n"IntervalTier"\n"a ""b"""\n0\n5\n2\n'
SHORT += "".join(f'{start}\n{end}\n"{text}"\n' for start, end, text in GOOD)


def cues_of(folder: Path, name: str, content: str | bytes) -> list[tuple[float, float, str]]:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return [tuple(cue) for cue in read_transcript(folder / name, name)[0].cues]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "".join(f"{a:.6f}\t{b:.6f}\t{t}\n\\\t100.0\t2000.0\n" for a, b, t in GOOD)),  # Audacity
        ("a.txt", "".join(f"{a:.6f}\t{b:.6f}\t{t}\n".replace(".", ",", 2) for a, b, t in reversed(GOOD))),
        ("a.lab", "".join(f"{a * 1e7:.0f} {b * 1e7:.0f} {t}\n" for a, b, t in GOOD)),  # HTK
        ("a.lab", "".join(f"{a * 1e7:.0f} {b * 1e7:.0f} {t or 'sil'}\n" for a, b, t in WORDS)),
        ("a.lab", "signal a\n#\n" + "".join(f"\t{b:.4f} 26 \t{t or 'pau'}\n" for _, b, t in WORDS)),  # Festival
        ("a.TextGrid", LONG),
        ("a.TextGrid", SHORT.encode("utf-16")),
        ("a.json", json.dumps({"text": "…", "segments": SEGMENTS, "language": "en"})),  # Whisper
        ("a.json", json.dumps({"segments": [], "word_segments": WORD_SEGMENTS})),
        ("a.json", json.dumps({"transcription": WHISPER_CPP})),
        ("a.json", json.dumps({"fragments": AENEAS})),
        ("a.tsv", "start\tend\ttext\n" + "".join(f"{1000 * a:.0f}\t{1000 * b:.0f}\t{t}\n" for a, b, t in GOOD)),
        ("a.csv", 'text,start,end\n"Good morning.",1.0,2.5\n"It is half past",3.0,4.25\n'),
        ("a.srt.txt", "00:00:03,000 --> 00:00:04,250\nIt is half past\n\n00:00:01,0 --> 00:00:02,500\nGood morning.\n"),
    ],
)
def test_formats_with_times(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert cues_of(tmp_path, name, content) == [(pytest.approx(a), pytest.approx(b), t) for a, b, t in GOOD]


def test_decimals_are_fractions_of_a_second_and_points_last_until_the_next(tmp_path: Path) -> None:
    assert cues_of(tmp_path, "a.txt", "1.0\t1.0\tone\n2.5\t2.5\ttwo\n") == [(1, 2.5, "one"), (2.5, float("inf"), "two")]
    assert cues_of(tmp_path, "a.txt", "1 2 buckle my shoe\n3 4 knock at the door\n5.5 is not 6\n") == []
    assert cues_of(tmp_path, "a.lab", "Only words, as for the Montreal aligner.") == []
    times = ("00:00:01,5 --> 00:00:02,05", "00:02.050 --> 00:02.50", "01:02:03,007 --> 1:02:04,1")
    cues = cues_of(tmp_path, "a.srt", "".join(f"{line}\nx\n\n" for line in times))
    edges = [edge for start, end, _ in cues for edge in (start, end)]
    assert edges == pytest.approx([1.5, 2.05, 2.05, 2.5, 3723.007, 3724.1], abs=1e-9)


def test_subrip_and_webvtt(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text("\ufeff" + (FILES / "talk.srt").read_text().replace("\n", "\r\n"))
    transcript, kind, _ = read_transcript(tmp_path / "a.srt", "a.srt")
    assert transcript.cues == (Cue(1.0, 2.5, "Good morning."), Cue(3.0, 4.25, "It is half past nine."))
    assert (transcript.text, kind) == ("Good morning. It is half past nine.", "2 subtitles")
    vtt = (FILES / "talk.vtt").read_text()
    assert cues_of(tmp_path, "a.vtt", vtt) == [(1, 2, "one two"), (2, 3, "three four"), (3603, 3604, "five & six")]
    found = cues_of(tmp_path, "a.srt", "1\n00:00:01,0 --> 00:00:02,0\nRoom 7\n2\n00:00:03,0 --> 00:00:04,0\n7\n")
    assert [text for _, _, text in found] == ["Room 7", "7"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.srt", b"", "no subtitles in it"),
        ("a.srt", b"\x00\x01\x02", "NUL"),
        ("a.srt", b"00:00:01,000 --> soon\nx\n", "a.srt:1: '00:00:01,000 --> soon', expected times such as"),
        ("a.srt", b"00:00:02,000 --> 00:00:01,000\nx\n", "a.srt:1: .* ends before it begins"),
        ("a.srt", b"99999999999999999999:00:01,000 --> 00:00:02,000\nx\n", "expected times"),
        ("a.srt", b"no times at all\n", "no subtitles in it"),
        ("a.txt", b"1.0\t2.0\tone\n2.0\t1.0\ttwo\n3.0\t4.0\tx\nfour\n", "a.txt:2: .*begins\n.*a.txt:4: 'four', exp"),
        ("a.lab", b"0 500000 dh\n500000 900000 ax\n900000 1200000 k\n1200000 1500000 ae\n", "sounds, such as 'dh'"),
        ("a.TextGrid", SHORT[:-9].encode(), "cut short .*1 of its 2 labels"),
        ("a.TextGrid", SHORT.replace('"a ""b"""', '"phones"').encode(), "no tier of words, only phones"),
        ("a.TextGrid", b"ooBinaryFile\x08TextGrid", "no TextGrid in Praat's text form"),
        ("a.json", b'{"name": "something else"}', "neither segments with start, end and text"),
        ("a.json", b'{"segments": [', "a.json:1: no JSON"),
        ("a.tsv", b"start\tend\ttext\n0\tx\tone\n", "a.tsv:2: .*expected start, end and text"),
    ],
)
def test_a_bad_file_is_one_error_with_its_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=f"(?s){message}"):
        cues_of(tmp_path, name, content)


def test_a_huge_file_of_subtitles_takes_time_in_proportion(tmp_path: Path) -> None:
    """12,000 subtitles without blank lines, and one line of 1 MB with brackets that never close: hours for a quadratic reader."""
    times = [f"{n // 3600:02}:{n // 60 % 60:02}:{n % 60:02}" for n in range(12000)]
    lines = [f"{time},000 --> {time},900\nx" for time in times]
    content = "\n".join(lines) + "\n\n99:00:00,0 --> 99:00:01,0\n" + "[<{\\" * 250_000
    assert len(cues_of(tmp_path, "a.srt", content)) == 12001
