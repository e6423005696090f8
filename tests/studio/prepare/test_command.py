"""python -m studio.prepare from recordings to filelists, on the embedded corpus's speech."""

import csv
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.filelist import read_filelist
from common.errors import DataError, UsageError
from common.quality import recogniser
from common.quality.words import normalise
from studio.prepare import __main__ as prepare
from studio.project import Project
from tests.recipe import skip_without_evaluators, start, wait_for
from tests.sounds import SENTENCES, sentence

pytestmark = pytest.mark.slow

NUMBERS = range(1, 15)


@pytest.fixture(scope="module", autouse=True)
def _evaluators() -> None:
    skip_without_evaluators("resemblyzer")


def write_talk(path: Path, numbers: range, pause: float = 0.8, **options: object) -> str:
    """Join sentences to one recording; return its text."""
    silence = 1e-4 * np.random.default_rng(0).standard_normal(round(pause * 22050))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.concatenate([part for n in numbers for part in (sentence(n), silence)]), 22050, **options)
    return " ".join(SENTENCES[n - 1] for n in numbers)


def run(folder: Path, projects: Path, *words: object) -> Project:
    """Prepare a folder. The recogniser errs in some words of synthetic speech: only texts with hardly a word right are refused."""
    flags = ["--name", "mine", "--projects", str(projects), "--num-workers", "1", "--max-words-wrong", "0.9"]
    flags += (
        [] if "--language" in words else ["--language", "en"]
    )  # otherwise Whisper would look for it, where it is installed
    prepare.main([str(folder), *flags, *map(str, words)])
    return Project(name="mine", projects=projects)


def apply(projects: Path) -> None:
    prepare.main(["--name", "mine", "--projects", str(projects), "--apply"])


def table(project: Project) -> list[dict[str, str]]:
    with project.review.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def write_table(project: Project, rows: list[dict[str, str]]) -> None:
    with project.review.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t")  # ends lines by CRLF, as spreadsheets do
        writer.writeheader()
        writer.writerows(rows)


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def talk(tmp_path_factory) -> tuple[Path, Project]:
    """A recording of 14 sentences with one text, prepared; no test may change it."""
    folder = tmp_path_factory.mktemp("talk")
    (folder / "in").mkdir()
    (folder / "in" / "talk.txt").write_text(write_talk(folder / "in" / "talk.wav", NUMBERS))
    return folder / "in", run(folder / "in", folder / "out")


def copy_of(talk: tuple[Path, Project], folder: Path) -> Project:
    shutil.copytree(talk[0], folder / "in")
    shutil.copytree(talk[1].root, folder / "out" / "mine")
    return Project(name="mine", projects=folder / "out")


def test_a_long_recording_with_a_text_becomes_clips_with_its_words(talk: tuple[Path, Project]) -> None:
    folder, project = talk
    rows = sorted(table(project), key=lambda row: float(row["start"]))
    assert " ".join(row["text"] for row in rows).split() == (folder / "talk.txt").read_text().split()
    assert all(row["use"] == "yes" for row in rows)
    assert all(row["text"].rstrip()[-1] in ".?!" for row in rows)  # cut at sentence ends
    words = (project.state / "words.jsonl").read_text().splitlines()
    assert len(words) == len(NUMBERS)  # each part is recognised once, no clip again
    assert not (project.state / "parts").exists()
    for row in rows:
        audio, rate = soundfile.read(project.clips / f"{row['clip']}.wav")
        assert rate == 22050 and audio.ndim == 1 and 1 <= len(audio) / rate <= 11
        assert len(audio) / rate == pytest.approx(float(row["end"]) - float(row["start"]), abs=0.002)
    training, validation = read_filelist(project.training_list), read_filelist(project.validation_list)
    assert not {row.path for row in training} & {row.path for row in validation}
    assert len(training) + len(validation) == len(rows)
    settings = json.loads(project.settings.read_text())
    expected = {"text_cleaners": ["english_cleaners"], "symbols_file": None, "sampling_rate": 22050}
    assert settings.items() >= expected.items()


def test_a_killed_run_resumes_to_the_same_bytes(talk: tuple[Path, Project], tmp_path: Path) -> None:
    folder, project = talk
    recordings = content(folder)
    words = [sys.executable, "-m", "studio.prepare", folder, "--name", "mine"]
    words += ["--projects", tmp_path, "--num-workers", 2, "--language", "en"]
    mine = Project(name="mine", projects=tmp_path)
    signs: list[Callable[[], bool]] = [  # of the stages: parts are written, words are recognised, clips are cut
        lambda: len(list((mine.state / "parts").glob("*.wav"))) >= 3,
        lambda: (mine.state / "words.jsonl").exists() and (mine.state / "words.jsonl").stat().st_size > 0,
        lambda: len(list(mine.state.glob("*.json"))) == 1,
    ]
    for sign in signs:
        process = start(*words)
        wait_for(process, sign)
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    before = {path.name: path.stat().st_mtime_ns for path in mine.clips.glob("*.wav")}
    run(folder, tmp_path)
    assert {path.name: path.stat().st_mtime_ns for path in mine.clips.glob("*.wav")} == before  # nothing is cut twice
    assert content(mine.root) == content(project.root)
    assert content(folder) == recordings


def test_bad_rows_of_a_review_are_one_error_and_good_edits_survive_a_further_run(talk, tmp_path: Path) -> None:
    project = copy_of(talk, tmp_path)
    rows, before = table(project), project.training_list.read_bytes()
    write_table(project, [rows[0], rows[1] | {"start": "1.5"}, rows[2] | {"clip": "unknown"}, *rows[3:]])
    with pytest.raises(
        DataError, match=r"clips\.tsv:3: start: '1\.5', expected .*\n.*clips\.tsv:4: clip: 'unknown' is not"
    ):
        apply(tmp_path / "out")
    write_table(project, [*rows[:5], rows[5] | {"text": "An {open brace."}, *rows[6:]])
    with pytest.raises(DataError, match=r"clips\.tsv:7: text: "):
        apply(tmp_path / "out")
    assert project.training_list.read_bytes() == before

    rows[0]["use"], rows[1]["text"] = "No", "Another “text”, with a quote."
    write_table(project, rows)
    apply(tmp_path / "out")
    listed = {**dict(read_filelist(project.training_list)), **dict(read_filelist(project.validation_list))}
    assert f"clips/{rows[0]['clip']}.wav" not in listed
    assert listed[f"clips/{rows[1]['clip']}.wav"] == rows[1]["text"]
    write_talk(tmp_path / "in" / "more.wav", range(30, 34))
    run(tmp_path / "in", tmp_path / "out")
    later = {row["clip"]: row for row in table(project)}
    assert later[rows[0]["clip"]]["use"] == "no" and later[rows[1]["clip"]]["text"] == rows[1]["text"]


def test_files_that_cannot_be_used_are_listed_and_the_others_are_prepared(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "in"
    write_talk(folder / "deep" / "good.wav", range(1, 6))
    (folder / "noise.wav").write_bytes(b"RIFF no sound")
    soundfile.write(folder / "silent.wav", np.zeros(22050), 22050)
    soundfile.write(folder / "nan.wav", np.full(22050, np.nan), 22050, subtype="FLOAT")
    (folder / "gone.wav").symlink_to(tmp_path / "nowhere.wav")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.wav")
    for name in ("one.xyz", "notes.txt"):
        (folder / name).write_text("no sound")
    project = run(folder, tmp_path / "out")
    out = capsys.readouterr().out
    assert {row["recording"] for row in table(project)} == {"deep/good.wav"}
    assert "left out, 6 files" in out
    assert "not read, since their endings are those of neither recordings nor transcripts: one.xyz" in out
    problems = ["noise.wav", "silent.wav: no speech", "nan.wav: samples that are NaN"]
    problems += ["pipe.wav: not a regular", "gone.wav: cannot be read", "notes.txt: not used: no recording has"]
    assert all(part in out for part in problems)
    assert f"    python -m studio.plan mine --projects {tmp_path / 'out'}\n" in out


def test_bad_folders_are_one_error(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.wav").touch()
    for name, kind, message in (
        ("empty", DataError, "empty: no recordings, only nothing"),
        ("file.wav", UsageError, "a file; expected the folder"),
        ("absent", UsageError, "no such folder"),
        ("", UsageError, "contains the project"),
    ):
        with pytest.raises(kind, match=message):
            run(tmp_path / name, tmp_path / "out")
    with pytest.raises(DataError, match=r"run python -m studio\.prepare"):
        apply(tmp_path / "out")


def test_two_speakers_are_refused_with_advice(tmp_path: Path) -> None:
    """The second voice is the first one with formants and pitch a quarter higher."""
    from common.audio.audio_processing import at_rate

    (tmp_path / "in").mkdir()
    for number in range(1, 9):
        soundfile.write(tmp_path / "in" / f"one_{number}.wav", sentence(number), 22050)
        soundfile.write(tmp_path / "in" / f"two_{number}.wav", at_rate(sentence(number + 20), 22050, 17000), 22050)
    with pytest.raises(DataError, match=r"several speakers: 8 of 16 clips .*two_1\.wav") as error:
        run(tmp_path / "in", tmp_path / "out")
    assert "--allow-several-speakers" in str(error.value)
    project = run(tmp_path / "in", tmp_path / "out", "--allow-several-speakers")
    assert len(table(project)) == 16
    assert len(read_filelist(project.validation_list)) == 1


def test_wrong_transcripts_come_first_and_are_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(1, 13):
        soundfile.write(folder / f"clip{number}.wav", sentence(number), 22050)
    rows = [f"clip{n}|{SENTENCES[(40 if n == 5 else n) - 1]}\n" for n in range(1, 13)]
    (folder / "metadata.csv").write_text("".join(rows))
    first, *others = table(run(folder, tmp_path / "out"))
    assert first["clip"] == "clip5" and first["use"] == "no" and float(first["words_wrong"]) > 0.5
    assert first["faults"].startswith("words (")
    assert all(row["use"] == "yes" for row in others)


def test_recordings_without_a_usable_clip_name_the_faults_and_the_remedies(tmp_path: Path) -> None:
    write_talk(tmp_path / "in" / "a.wav", range(1, 2))
    (tmp_path / "in" / "a.txt").write_text("A train to the city leaves much later than usual today.")
    with pytest.raises(DataError, match=r"^0 usable clips, expected more than the 1 for validation") as error:
        run(tmp_path / "in", tmp_path / "out", "--max-words-wrong", "0.4")
    for part in ("not used: words 1", "clips.tsv, then run python -m studio.prepare --apply"):
        assert part in str(error.value)


def without_whisper(name: str) -> object:
    return None if name == "faster_whisper" else find_spec(name)


def test_recordings_whose_words_nothing_recognises_are_left_out(tmp_path, capsys, monkeypatch) -> None:
    """In German: clips with a text each are used, one without a text and a long one whose text has no times are named."""
    monkeypatch.setattr(recogniser, "find_spec", without_whisper)
    for number in range(1, 5):
        write_talk(tmp_path / "in" / f"clip{number}.wav", range(number, number + 1))
        (tmp_path / "in" / f"clip{number}.txt").write_text("Heute kommt der Zug sehr viel später an.")
    write_talk(tmp_path / "in" / "silent.wav", range(5, 6))
    write_talk(tmp_path / "in" / "long.wav", range(6, 14))
    (tmp_path / "in" / "long.txt").write_text("Ein langer Text ohne Zeiten.")
    rows = table(run(tmp_path / "in", tmp_path / "out", "--language", "de"))
    assert sorted(row["recording"] for row in rows) == [f"clip{number}.wav" for number in range(1, 5)]
    out = capsys.readouterr().out
    assert "left out, 2 files" in out and all(f"{name}.wav: no text with times" in out for name in ("silent", "long"))


def test_a_recording_without_a_text_is_cut_at_the_sentences_that_whisper_hears(tmp_path, capsys) -> None:
    """Pauses as long as those within sentences tell nothing; a second run hears nothing again."""
    pytest.importorskip("faster_whisper", reason="of requirements/whisper.txt")
    write_talk(tmp_path / "in" / "talk.wav", range(1, 8), pause=0.4)
    words = ("--recogniser", "whisper", "--validation", "1")
    project = run(tmp_path / "in", tmp_path / "out", *words)
    texts = [normalise(row["text"]) for row in sorted(table(project), key=lambda row: float(row["start"]))]
    ends = list(accumulate(len(normalise(SENTENCES[n - 1]).split()) for n in range(1, 8)))
    assert set(accumulate(len(text.split()) for text in texts)) <= set(ends)
    assert {row["source"] for row in table(project)} == {"recognised"} and len(texts) > 1
    keys = (project.state / "words.jsonl").read_text()
    assert "whisper base en times " in keys and "moonshine" not in keys
    run(tmp_path / "in", tmp_path / "out", *words)
    assert (project.state / "words.jsonl").read_text() == keys


def test_a_copy_in_another_format_is_a_double(tmp_path) -> None:
    """The clip with a text by people counts. Without voices to compare, only the same samples are known as a copy."""
    for number in range(1, 6):
        text = write_talk(tmp_path / "in" / f"clip{number}.wav", range(number, number + 1))
        (tmp_path / "in" / f"clip{number}.txt").write_text(text)
    samples, rate = soundfile.read(tmp_path / "in" / "clip1.wav")
    soundfile.write(tmp_path / "in" / "another.ogg", samples, rate)
    soundfile.write(tmp_path / "in" / "another.flac", samples, rate, subtype="PCM_16")
    for words, copies in (((), ["another.flac", "another.ogg"]), (["--allow-several-speakers"], ["another.flac"])):
        project = run(tmp_path / "in", tmp_path / "out", "--validation", "1", *words)
        found = {row["recording"]: row["faults"] for row in table(project) if "double" in row["faults"]}
        assert found == dict.fromkeys(copies, "double of clip1")
        (tmp_path / "in" / "clip5.wav").unlink(missing_ok=True)
    assert not list(project.clips.glob("clip5*")) and list(project.clips.glob("clip4*"))
    assert json.loads(project.settings.read_text())["validation"] == 1  # for later edits
