"""The review, the filelists, the alphabet and the stored results of a studio project."""

import json
from pathlib import Path

import pytest

from common.errors import DataError, UsageError
from studio.prepare.arguments import parse_args
from studio.prepare.clips import CutClip, CutRecording, remove_stale
from studio.prepare.ledger import Ledger
from studio.prepare.levels import Measures
from studio.prepare.lists import choose_alphabet, select_usable
from studio.prepare.review import COLUMNS, ClipRow, carry_edits, read_review, sort_worst_first, write_review
from studio.project import (
    PROJECTS,
    Project,
    check_inside,
    create_project,
    find_project,
    last_settings,
    list_projects,
    recogniser_of,
    speaking_command,
)
from tacotron2.text import alphabet_of, dropped_symbols, read_symbols

GERMAN = "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich."
RUSSIAN = "Съешь же ещё этих мягких французских булок, да выпей чаю."
JAPANESE = "".join(chr(0x4E00 + n) for n in range(300))


def row(clip: str, recording: str = "a.wav", start: float = 0.0, **cells: str) -> ClipRow:
    times, text = (f"{start:.3f}", f"{start + 3:.3f}"), f"Text of {clip}."
    return ClipRow("yes", clip, recording, *times, text, "a.txt", "text", "0.100", "")._replace(**cells)


def test_commands_name_the_folder_of_projects_where_it_is_not_the_default(monkeypatch, tmp_path: Path) -> None:
    assert Project(name="mine").command("studio.plan") == "python -m studio.plan mine"
    monkeypatch.chdir(tmp_path)
    assert Project(name="mine", projects=tmp_path / PROJECTS).command("studio.plan") == "python -m studio.plan mine"
    other = Project(name="mine", projects=Path("my voices"))
    assert other.command("studio.prepare", "--name") == "python -m studio.prepare --name mine --projects 'my voices'"


def test_projects_are_folders_with_names(tmp_path):
    projects = tmp_path / "projects"
    assert list_projects(projects) == []
    project = create_project(projects, " mine ")
    (projects / ".uploads").mkdir()
    (projects / "file").write_text("")
    (tmp_path / "outside").mkdir()
    (projects / "linked").symlink_to(tmp_path / "outside")
    assert list_projects(projects) == ["mine"] and find_project(projects, "mine") == project
    for name in ("mine", "linked"):
        with pytest.raises(DataError, match=f"project {name}: a file or folder with this name exists already"):
            create_project(projects, name)
    assert list((tmp_path / "outside").iterdir()) == []
    refused = dict.fromkeys(("..", "a/b", "/etc", ".uploads", "ä", "a\n"), "expected at most 64")
    refused |= {"linked": "no such project", "missing": "no such project", None: "no project is chosen"}
    for name, words in refused.items():
        with pytest.raises((DataError, UsageError), match=words):
            find_project(projects, name)
    with pytest.raises(DataError, match=r"x: leads out of the project"):
        check_inside(project, project.root / ".." / "x")


def test_clips_of_recordings_that_are_gone_are_removed(project: Project) -> None:
    recordings = []
    for folder in (project.clips, project.state):
        folder.mkdir()
    for name in ("kept", "gone", "changed"):
        measures = Measures(level=-20.0, clipping=0, snr=40.0, bandwidth=8000.0)
        clips = [CutClip(f"{name}_{n}", 0.0, 1.0, "", False, "0", 0.0, measures) for n in (1, 2)]
        recordings.append(CutRecording(f"{name}.wav", f"key-{name}", 3.0, 22050, 1, 2.0, 0.0, clips))
        (project.state / f"key-{name}.json").write_text(json.dumps(recordings[-1]))
        for clip in clips:
            (project.clips / f"{clip.name}.wav").touch()
    now_one = recordings[2]._replace(key="key-other", clips=recordings[2].clips[:1])
    (project.state / "damaged.json").write_text("{")
    remove_stale(project.state, project.clips, [recordings[0], now_one])
    assert sorted(path.stem for path in project.clips.iterdir()) == ["changed_1", "kept_1", "kept_2"]
    assert [path.name for path in project.state.iterdir()] == ["key-kept.json"]


def test_edits_move_to_the_same_clip_alone_and_the_worst_rows_come_first(tmp_path: Path) -> None:
    old = [row("a"), row("b"), row("c", start=9.0)]
    edited = [old[0]._replace(use="no"), old[1], old[2]._replace(text="By hand.")]
    spelled = edited[2]._replace(start="9,0", end="12,0000")  # as a spreadsheet has formatted the numbers
    write_review(tmp_path / "clips.tsv", [*edited[:2], spelled])
    found = list(read_review(tmp_path / "clips.tsv", old).values())
    assert found == edited and select_usable(found) == edited[1:]
    new = [row("a", text="New proposal."), row("b", text="New too."), row("c", start=8.0)]
    result = carry_edits(new, found, old)
    assert [r.use for r in result.rows] == ["no", "yes", "yes"]
    assert [r.text for r in result.rows] == ["New proposal.", "New too.", "Text of c."]
    assert (result.n_edited, result.lost) == (1, ["c"])
    rows = [row("a"), row("b", words_wrong="0.900"), row("c", words_wrong="", faults="noise; pace")]
    rows.append(row("d", words_wrong="0.500", faults="words"))
    assert [r.clip for r in sort_worst_first(rows)] == ["d", "c", "b", "a"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "clips.tsv:1: no column use, clip"),
        ("\xff\xfe", "not UTF-8"),
        ("\t".join(COLUMNS) + "\nyes\rno\n", "clips.tsv:2: new-line character"),
    ],
)
def test_a_file_that_is_no_review(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "clips.tsv").write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        read_review(tmp_path / "clips.tsv", [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; run python -m studio.prepare"),
        ("[]", "cannot be used"),
        ("{}", "no entry 'texts'"),
        ('{"texts": {"language": "en"}, "cutting": {"sampling_rate": "x"}}', "sampling_rate 'x', expected"),
        ('{"texts": {"language": "en"}, "cutting": {"sampling_rate": 22050}, "validation": "x"}', "validation 'x'"),
    ],
)
def test_settings_of_a_project_that_are_damaged(project: Project, content: str | None, message: str) -> None:
    if content is not None:
        project.settings.write_text(content)
    with pytest.raises(DataError, match=message):
        last_settings(project)


def test_english_needs_no_alphabet_and_other_numbers_are_spelled() -> None:
    """Digits stayed in the texts of other languages, so that a model learned none of their words."""
    texts = ["A café, and José's piñata." + " Plain words" * 40]
    assert choose_alphabet(texts, "en") == (["english_cleaners"], None, [])
    alphabet = choose_alphabet([GERMAN, "Dr. Weiß war stumm. 7,50 € und 5 % mehr, Zbg. hier ± dort."], "de-AT")
    assert alphabet.cleaners == ["numbers_de", "basic_cleaners"]
    assert not set("0123456789€%") & set(alphabet.symbols or []) and "±" in (alphabet.symbols or [])
    assert "write these as words, which nothing spells: ±, Zbg." in alphabet.notes
    alphabet = choose_alphabet([JAPANESE], "ja")
    assert (alphabet.cleaners, alphabet.symbols) == (["numbers_ja", "transliteration_cleaners"], None)


@pytest.mark.parametrize("text", [GERMAN, RUSSIAN])
def test_other_alphabets_have_all_letters(text: str, tmp_path: Path) -> None:
    alphabet = choose_alphabet([text] * 3 + ["7 mal"], "xx")
    (tmp_path / "symbols.txt").write_text("\n".join(alphabet.symbols or []))
    symbols = read_symbols(tmp_path / "symbols.txt")
    assert dropped_symbols(text, alphabet.cleaners, alphabet_of(symbols)) == []
    assert alphabet.cleaners == ["basic_cleaners"] and symbols[:2] == ["_", " "]
    assert ("letters too rare to be learned: a l m" in alphabet.notes) == (text == RUSSIAN)


def test_a_ledger_keeps_whole_lines(tmp_path: Path) -> None:
    path, values = tmp_path / "words.jsonl", {"a": "one", "b": ["ü", 2]}
    with Ledger(path) as ledger:
        for key, value in values.items():
            ledger.add(key, value)
    content = path.read_bytes()
    for cut in range(len(content)):  # killed after any byte
        path.write_bytes(content[:cut])
        with Ledger(path) as ledger:
            assert ledger.values == dict(list(values.items())[: content[:cut].count(b"\n")])
            ledger.add("c", 3)
        assert [json.loads(line)[0] for line in path.read_text().splitlines()][-1] == "c"


NO_EFFECT = "no effect with --apply, which only reads clips.tsv; run python -m studio.prepare FOLDER without --apply"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--apply -sr 16000 --no-verify", f"--sampling-rate, --no-verify: {NO_EFFECT}"),
        ("--apply --name ../x", "project '../x'"),
        (". --max-duration 1", "--max-duration 1: expected more than --min-duration 1"),
        (". --transcriber localhost:8000", "expected a URL"),
    ],
)
def test_flags_that_do_not_fit_are_refused_by_name(words: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_args(["--name", "mine", *words.split()])
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("settings", "language", "recogniser", "phrases"),
    [
        (
            '{"texts": {"language": "es", "recogniser": "whisper:small"}}',
            "es",
            "whisper:small",
            "voice/samples/phrases.txt",
        ),
        ('{"texts": {"language": "de"}}', "de", None, "voice/samples/phrases.txt"),  # of 0.12
        ('{"texts": {"language": "en", "recogniser": null}}', "en", None, "phrases/phrase.txt"),
        ('{"texts": 7}', "en", None, "phrases/phrase.txt"),
        ("{}", "en", None, "phrases/phrase.txt"),
    ],
)
def test_the_next_command_speaks_the_language_of_the_project(tmp_path, settings, language, recogniser, phrases) -> None:
    project = Project(name="mine", projects=tmp_path)
    project.root.mkdir()
    project.settings.write_text(settings)
    hearing = recogniser_of(project)
    assert (hearing.language, hearing.recogniser) == (language, recogniser)
    assert speaking_command(project).endswith(phrases)
