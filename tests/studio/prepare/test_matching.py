"""studio/prepare/matching.py and its readers: which transcript belongs to which recording, and what is said of the others."""

import unicodedata
from pathlib import Path

import pytest

from common.data.sources import find_sources
from common.data.text_files import plain_text
from common.errors import DataError
from studio.prepare.matching import Matches, find_transcripts
from studio.prepare.transcripts import ends_sentence

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
    return find_transcripts(folder, listing.sources, listing.others, "en")


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
        "y/h.txt": "Text of h.",
        "notes.txt": "e was recorded in March.\nAll others later, in a room; quiet.\n",
    }
    recordings = "a.wav b.mp3 c.wav d.wav sub/a.wav sub/e.wav f.wav x/g.wav y/g.wav y/z/h.wav y2/h.wav k.wav"
    found = match(tmp_path, recordings, **files)
    ours = {path: f"Text of {Path(path).stem}." for path in ("b.mp3", "sub/e.wav", "y/z/h.wav", "k.wav")}
    ours |= {"a.wav": "Text of a, second line.", "c.wav": "Good morning.", "d.wav": "Good morning."}
    assert texts(found) == ours
    assert [str(fate) for fate in found.fates if not fate.is_used] == [
        "archive/k.txt: not used: k.txt is taken for k.wav",
        "c.de.srt: not used: c.en.srt is taken for c.wav",
        "d.txt: not used: D.VTT is taken for d.wav",
        "g.txt: not used: it may belong to x/g.wav, y/g.wav; put it into the folder of one of them",
        "notes.txt: not used: no recording has this name; a transcript of x.wav is called x.srt, x.txt …",
    ]
    assert "texts/E.TXT: the words of sub/e.wav" in map(str, found.fates)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("metadata.csv", "a|Raw 1.|One.\né|Two.\n"),
        ("metadata.csv", "wavs/a.wav|One.\nwavs/é|Two.\n"),
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
        ("Schöne Grüße", "cp1252", "Windows-1252"),
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
