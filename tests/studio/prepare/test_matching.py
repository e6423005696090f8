"""Which transcript belongs to which recording, and what is said of the others; formats with times; files of hostile content."""

import json
import unicodedata
from pathlib import Path

import pytest

from common.data.sources import find_sources
from common.data.tables import read_table
from common.data.text_files import ends_sentence, plain_text
from common.errors import DataError
from studio.prepare.matching import Matches, find_transcripts, read_transcript
from studio.prepare.transcripts import Cue

SRT = "1\n00:00:01,000 --> 00:00:02,500\nGood morning.\n"


def match(folder: Path, recordings: str, **files: str | bytes) -> Matches:
    """Match empty recordings and files of this content, whose names have / as __ and . as _."""
    for name in recordings.split():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    listing = find_sources(folder)
    return find_transcripts(listing, "en")


def texts(found: Matches) -> dict[str, str]:
    return {name: transcript.text for name, transcript in found.transcripts.items()}


def test_files_beside_the_audio_are_found_by_name(tmp_path: Path) -> None:
    files = {
        "a.txt": "Text of a,\n  second line.\n",
        "b.mp3.txt": "Text of b.",
        "c.de.srt": SRT.replace("Good morning", "Guten Morgen"),
        "c.en.srt": SRT,
        "d.txt": "loses against the subtitles",
        "D.VTT": f"WEBVTT\n\n{SRT}".replace(",", "."),
        "texts/E.TXT": "Text of e.",
        "g.txt": "of which?",
        "k.txt": "Text of k.",
        "archive/k.txt": "farther away",
        "m.txt": "loses against subtitles from afar",
        "archive/m.srt": SRT,
        "y/h.txt": "Text of h.",
        "notes.txt": "e was recorded in March.\nAll others later, in a room; quiet.\n",
    }
    recordings = "a.wav b.mp3 c.wav d.wav sub/a.wav sub/e.wav f.wav x/g.wav y/g.wav y/z/h.wav y2/h.wav k.wav m.wav"
    found = match(tmp_path, recordings, **files)
    ours = {path: f"Text of {Path(path).stem}." for path in ("b.mp3", "sub/e.wav", "y/z/h.wav", "k.wav")}
    ours |= dict.fromkeys(("c.wav", "d.wav", "m.wav"), "Good morning.") | {"a.wav": "Text of a, second line."}
    assert texts(found) == ours
    assert [str(fate) for fate in found.fates if not fate.is_used] == [
        "archive/k.txt: not used: k.txt is taken for k.wav",
        "c.de.srt: not used: c.en.srt is taken for c.wav",
        "d.txt: not used: D.VTT is taken for d.wav",
        "g.txt: not used: it may belong to x/g.wav, y/g.wav; put it into the folder of one of them",
        "m.txt: not used: archive/m.srt is taken for m.wav",
        "notes.txt: not used: no recording has this name; a transcript of x.wav is called x.srt, x.txt …",
    ]
    assert "texts/E.TXT: the words of sub/e.wav" in map(str, found.fates)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata.csv", "a|Raw 1.|One.\né|Two.\n"),
        ("METADATA.CSV", "C:\\Users\\me\\wavs\\A.mp3|One.\nC:\\Users\\me\\wavs\\É.mp3|Two.\n"),
        ("lists/train.txt", unicodedata.normalize("NFD", "wavs/a.wav|One.\nwavs/é.wav|Two.\n")),
        ("x-metadata.txt", "a|One.|Anna\né|Two.|Anna\nb|Three.|Anna\n"),
        ("metadata.csv", "a|anna|One.\né|anna|Two.\nb|anna|Three.\n"),
        ("validated.tsv", "client_id\tpath\tsentence\tage\nx\ta.wav\tOne.\t\nx\té.wav\tTwo.\t\nx\tz.wav\tabsent\t\n"),
        ("list.csv", 'file,text\na.wav,One.\n"é.wav", "Two."\n'),
        ("list.csv", "a.wav;One.\ré.wav;Two.\r"),
        ("list.csv", "Audio File Name;Sentence text;Length\r\na.wav;One.;3\r\né.wav;Two.;3\r\n".encode("cp1252")),
        ("list.csv", "Datei;Satz\na.wav;One.\né.wav;Two.\n"),
        ("list.csv", "id\ttext\r\na\tOne.\r\né\tTwo.\r\n".encode("utf-16")),
        ("84-1.trans.txt", "a One.\né Two.\n"),
        ("txt.done.data", '( a "One." )\n( é "Two." )\n'),
        ("list.jsonl", '{"audio_filepath": "/x/a.wav", "text": "One."}\n{"audio_filepath": "é.wav", "text": "Two."}\n'),
        ("texts.json", '{"a": "One.", "é.wav": "Two."}'),
    ],
)
def test_tables(tmp_path: Path, name: str, content: str | bytes) -> None:
    found = match(tmp_path, "wavs/a.wav wavs/é.WAV", **{name: content})
    assert texts(found) == {"wavs/a.wav": "One.", "wavs/é.WAV": "Two."}
    (fate,) = found.fates
    assert fate.is_used and f"{name}: 2 of " in str(fate)


@pytest.mark.parametrize(
    ("name", "row"),
    [("a.csv", "{}|Text."), ("a.jsonl", '{{"file": "{}", "text": "Text."}}'), ("a.data", '( {} "Text." )')],
)
def test_rows_have_the_numbers_of_their_lines(tmp_path: Path, name: str, row: str) -> None:
    """Blank lines count, and rows stay in order beyond ten."""
    names = [f"clip{number}" for number in range(12)]
    lines = [row.format(name) for name in names]
    (tmp_path / name).write_text("\n".join([*lines[:3], "", "", *lines[3:]]))
    table = read_table(tmp_path / name)
    assert list(table.rows) == [1, 2, 3, *range(6, 15)] and [first for first, _ in table.rows.values()] == names
    (tmp_path / name).write_text(f"{lines[0]}\n\n{{not\n")
    assert name != "a.jsonl" or list(read_table(tmp_path / name).problems) == [2]


@pytest.mark.parametrize(
    ("name", "content", "fate"),
    [
        ("metadata.csv", "x1|One.\nx2|Two.\n", "0 of 2 rows name a recording here: there is none called 'x1'; exp"),
        ("list.csv", "Datei;Ort;Satz\nx.wav;Ulm;One.\n", "or headings such as file and text"),
        ("metadata.csv", b"\xff\xfe\x00", "not used: cut short or damaged, not UTF-16; save it as UTF-8"),
        ("package.json", '{"name": "x", "files": []}', "not used: no recording has this name"),
    ],
)
def test_tables_that_name_no_recording_are_reported(tmp_path: Path, name: str, content: str | bytes, fate: str) -> None:
    found = match(tmp_path, "a.wav", **{name: content})
    assert texts(found) == {} and [f.is_used for f in found.fates] == [False]
    assert fate in str(found.fates[0])


@pytest.mark.parametrize(
    ("text", "encoding", "name"),
    [
        ("“Café” – né à Zürich.", "cp1252", "Windows-1252"),
        ("Zażółć gęślą jaźń, proszę bardzo.", "cp1250", "cp1250"),
        ("Съешь ещё этих мягких французских булок, да выпей чаю.", "cp1251", "cp1251"),
        ("Schöne Grüße", "utf-16-le", "UTF-16"),
    ],
)
def test_texts_in_other_encodings_are_read_and_said_so(tmp_path: Path, text: str, encoding: str, name: str) -> None:
    found = match(tmp_path, "a.wav", **{"a.txt": text.encode(encoding)})
    assert texts(found) == {"a.wav": text}
    assert str(found.fates[0]) == f"a.txt: the words of a.wav; read as {name}, since it is not UTF-8"


def test_a_file_of_its_own_comes_before_a_row_of_a_table(tmp_path: Path) -> None:
    """Two recordings of one stem share a file; a row names one of them by its ending."""
    rows = "a.wav|Of the table.\nb.flac|Two.\n"
    found = match(tmp_path, "a.wav a.flac b.wav b.flac", **{"a.txt": "Own.", "metadata.csv": rows})
    assert texts(found) == {"a.wav": "Own.", "a.flac": "Own.", "b.flac": "Two."}
    said = "metadata.csv: 2 of 2 rows name a recording here; a file of its own is taken for 1 of them"
    assert said in map(str, found.fates)


def test_all_bad_rows_of_a_table_are_one_error(tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        match(tmp_path, "a.wav b.wav b.flac c.wav", **{"metadata.csv": "a|One.\nb|Two.\nc|\na|Another.\na|b|c|d\n"})
    lines = [line.partition("metadata.csv")[2] for line in str(error.value).splitlines()]
    parts = (":2: names several recordings: b.flac, b.wav", ":3: no text", ":4: a.wav has another text already, in")
    parts += (":5: 'a|b|c|d', expected rows id|text",)
    assert all(line.startswith(part) for line, part in zip(lines, parts, strict=True))


def test_plain_text_and_ends_of_sentences() -> None:
    assert plain_text(" a\tb\u200b|c\x00 e\u0301\n") == "a b c \u00e9"
    texts = ("Yes.", '"Yes!"', "Yes,", "", "是。")
    assert [ends_sentence(text) for text in texts] == [True, True, False, False, True]


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
        ("a.srt", b"00:00:01,000 --> soon\nx\n", "a.srt:1: '00:00:01,000 --> soon', expected times such as"),
        ("a.srt", b"00:00:02,000 --> 00:00:01,000\nx\n", "a.srt:1: .* ends before it begins"),
        ("a.srt", b"99999999999999999999:00:01,000 --> 00:00:02,000\nx\n", "expected times"),
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
