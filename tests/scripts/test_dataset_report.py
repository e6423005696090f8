"""The report of a corpus as a command: its text, pictures, refusals and exit codes."""

import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from scripts.dataset_report import parse_args
from tacotron2.data_function import Tacotron2DataConfig
from tests.recipe import ROOT, Result, run
from tests.sounds import RATE, save, tone


def write(path: Path, seconds: float, amplitude: float = 0.25, rate: int = RATE, frequency: int = 300) -> None:
    save(path, tone(seconds, rate, frequency, amplitude), rate, "PCM_16")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Twelve plain clips, c0 to c11, of 2.0 to 3.1 s, each of another tone, with 15 or 16 characters a second."""
    rows = []
    for i in range(12):
        seconds = 2 + i / 10
        write(tmp_path / f"c{i}.wav", seconds, frequency=200 + 10 * i)
        text = f"Clip {'abcdefghijkl'[i]} "
        rows.append(f"c{i}.wav|{text + 'x' * (round((15 + i % 2) * seconds) - len(text))}")
    (tmp_path / "list.txt").write_text("\n".join(rows) + "\n")
    return tmp_path


def report(folder: Path, *words: object, names=("list.txt",), script: str = "scripts/dataset_report.py") -> Result:
    paths = [folder / name for name in names]
    return run(script, *paths, "-d", folder, "-o", folder / "out", "--num-workers", 1, *words)


def append(folder: Path, *rows: str, name: str = "list.txt") -> None:
    with (folder / name).open("a") as file:
        file.writelines(f"{row}\n" for row in rows)


def cells(out: str, start: str) -> list[str]:
    """The cells of the first line that starts with these words, cut where there are two blanks."""
    line = next(line.strip() for line in out.splitlines() if line.strip().startswith(start))
    return re.split(r"\s{2,}", line)


def test_a_sound_corpus(corpus: Path) -> None:
    result = report(corpus)
    assert (result.code, result.err) == (0, "")
    durations = [2 + i / 10 for i in range(12)]
    characters = sum(round((15 + i % 2) * seconds) for i, seconds in enumerate(durations))
    hours = f"{sum(durations) / 3600:.3f}"
    assert cells(result.out, str(corpus / "list.txt"))[1:] == ["12", "0", hours, "36", str(characters)]
    assert cells(result.out, "22050") == ["22050", "12"]
    assert cells(result.out, "WAV PCM_16") == ["WAV PCM_16", "12"]
    assert cells(result.out, "duration (s)")[1:] == ["2.00", "2.00", "2.55", "2.55", "3.10", "3.10"]
    level = f"{20 * np.log10(0.25 / np.sqrt(2)):.1f}"
    assert cells(result.out, "level, RMS")[1:] == [level] * 6
    assert cells(result.out, "peak")[1:] == ["-12.0"] * 6
    assert cells(result.out, "silence at the end")[1:] == ["0.00"] * 6
    assert "frames of 10 ms more than 40 dB below the clip's loudest" in result.out
    assert result.out.count(": none\n") == 9
    picture = corpus / "out" / "dataset_report.png"
    assert result.out.endswith(f"\npicture: {picture}\n")
    with Image.open(picture) as image:
        assert (image.format, image.size[0]) == ("PNG", 1560)


def test_what_stands_out_is_named(corpus: Path) -> None:
    write(corpus / "long.wav", 12.5)
    write(corpus / "short.wav", 0.2, frequency=400)
    write(corpus / "loud.wav", 2.4, amplitude=1.5)
    write(corpus / "mute.wav", 2.5, amplitude=0.0)
    append(corpus, "long.wav|" + "y" * 201, "short.wav|Hm.", "loud.wav|“Loud” ½ " + "z" * 27, "mute.wav|" + "m" * 38)
    result = report(corpus)
    assert result.code == 0
    where = [f"{corpus / 'list.txt'}:{line}" for line in range(13, 17)]
    sections = {part.split(":")[0]: part.splitlines()[1:] for part in result.out.split("\n\n")}

    def rows(title: str) -> list[list[str]]:
        (body,) = [lines for name, lines in sections.items() if name.startswith(title)]
        return [re.split(r"\s{2,}", line.strip()) for line in body[1:]]

    assert [row[2:] for row in rows("Duration (s) beyond 5 MADs")] == [[where[0], "long.wav"], [where[1], "short.wav"]]
    assert rows("Texts of over 200") == [["201", where[0], "long.wav"]]
    assert rows("Longer than 11 s") == [["12.50", where[0], "long.wav"]]
    assert rows("Shorter than 0.3 s") == [["0.20", where[1], "short.wav"]]
    assert rows("Silent throughout") == [["2.50", where[3], "mute.wav"]]
    ((runs, longest, *named),) = rows("Clipping")
    assert named == [where[2], "loud.wav"]
    assert int(runs.replace(",", "")) == round(2.4 * 2 * 300)  # two half periods of 300 Hz, each over full scale
    # sin(x) > 2/3 for 1 - 2 asin(2/3) / pi of a half period
    assert abs(int(longest) - (1 - 2 * np.arcsin(2 / 3) / np.pi) * RATE / 600) <= 1
    lost = [(row[0], row[1], row[3], row[4]) for row in rows("Characters that english_cleaners drop")]
    assert lost == [("1", f"U+{ord(sign):04X}", where[2], sign) for sign in "“”½"]


def test_repetitions_in_and_across_lists(corpus: Path) -> None:
    samples, _ = soundfile.read(corpus / "c3.wav", dtype="int16")
    save(corpus / "copy.flac", samples)
    save(corpus / "backwards.wav", samples[::-1])
    first_text = (corpus / "list.txt").read_text().splitlines()[0].split("|")[1]
    append(corpus, f"c4.wav|{'w' * 36}", "copy.flac|" + "v" * 35, "backwards.wav|" + "u" * 35)
    append(corpus, f"./c5.wav|{first_text}", name="val.txt")
    result = report(corpus, names=("list.txt", "val.txt"))
    assert result.code == 0
    counts = "2 groups of the same path, 1 group of the same text, 1 group of the same audio, other path"
    assert f"Repetitions: {counts}\n" in result.out
    rows = [r"path +2 +no +c4\.wav", r"path +2 +yes +c5\.wav", "text +2 +yes +'Clip a x"]
    assert all(re.search(row, result.out) for row in (*rows, r"audio, other path +2 +no +c3\.wav"))
    assert f"{corpus}/list.txt:4, {corpus}/list.txt:14" in result.out
    assert f"{corpus}/list.txt:6, {corpus}/val.txt:1" in result.out
    assert cells(result.out, "together")[1:3] == ["16", "0"]


def test_unusable_rows_come_after_the_report(corpus: Path) -> None:
    write(corpus / "rate.wav", 1, rate=16000)
    (corpus / "junk.wav").write_bytes(b"nope" * 50)
    (corpus / "headerless.raw").write_bytes(b"nope" * 50)
    problems = {
        "gone.wav|Text.": "no such audio file",
        "rate.wav|Text.": "16000 Hz, expected 22050 Hz",
        "junk.wav|Text.": "not an audio file",
        "headerless.raw|Text.": "one without a header",
        "c1.wav|": "no text",
        "c1.wav": "0 '|'",
        "c1.wav|caf\udce9": "UTF-8",
    }
    with (corpus / "list.txt").open("ab") as file:
        file.write("".join(f"{row}\n" for row in problems).encode("utf-8", "surrogateescape"))
    append(corpus, "no bar", "c1.wav|In another list.", "gone.wav|—", name="a.txt")
    result = report(corpus, names=("list.txt", "a.txt"))
    assert result.code == 1
    assert cells(result.out, str(corpus / "list.txt"))[1:3] == ["12", "7"]
    assert cells(result.out, "together")[1:3] == ["13", "9"]
    assert cells(result.out, "16000") == ["16000", "1"]  # of every header that can be read
    assert cells(result.out, "WAV PCM_16") == ["WAV PCM_16", "14"]
    assert (corpus / "out" / "dataset_report.png").exists()
    head, *lines, tail = result.err.splitlines()
    assert head == "error: unusable rows"
    places = [f"{corpus / 'list.txt'}:{n}" for n in range(13, 20)] + [f"{corpus / 'a.txt'}:{n}" for n in (1, 3)]
    assert [line.split(": ")[0] for line in lines] == places
    assert all(words in line for words, line in zip(problems.values(), lines, strict=False))
    assert [line.count("16000 Hz") for line in lines] == [0, 1, *[0] * 7]  # once is enough
    assert "nothing to speak" in lines[-1] and "no such audio file" in lines[-1]
    assert tail.startswith(f"unusable: 9 of 22 rows (paths are relative to --dataset-path, now {corpus})")


def test_mels_missing_lists_and_missing_clips_are_refused(corpus: Path) -> None:
    result = run("scripts/dataset_report.py", "filelists/clock_mel_text_val_filelist.txt", "-o", corpus)
    assert (result.code, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert "pass the audio list, here filelists/clock_audio_text_val_filelist.txt" in result.err
    append(corpus, "a.pt|One.", name="mels.txt")
    append(corpus, "gone.wav|One.", name="gone.txt")
    for name, message in (
        ("none.txt", "no such file"),
        ("mels.txt", "expected audio files: pass the audio list\n"),
        ("gone.txt", "unusable: 1 of 1 row "),
    ):
        result = report(corpus, names=(name,))
        assert result.code == 1 and message in result.err
    assert not (corpus / "out").exists()


def test_flags(corpus: Path) -> None:
    picture = corpus / "sub" / "picture.PNG"
    words = ["-o", picture, "--text-cleaners", "basic_cleaners"]
    result = report(corpus, *words)
    assert (result.code, picture.is_file()) == (0, True)
    assert "Characters that basic_cleaners drop: none" in result.out
    result = report(corpus, "--sampling-rate", 16000)
    assert result.code == 1 and result.err.count("22050 Hz, expected 16000 Hz") == 12
    assert report(corpus, "-o", ROOT / "README.md").code == 2
    result = report(corpus, "-o", "/dev/null/no")
    assert result.code == 1 and "cannot write the picture" in result.err
    assert parse_args(["x.txt"]).text_cleaners == list(Tacotron2DataConfig().text_cleaners)
