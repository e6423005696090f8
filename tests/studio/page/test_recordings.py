"""Files that a page stores: names, repeats, other content, links, and what became of them; and takes of the reading script."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import resample
from common.errors import DataError
from studio.page.reading import Take, check_take, first_open, keep_take, kept_takes, make_take, read_script
from studio.page.recordings import describe_storage, list_fates, list_recordings, prepare_argv, store_files
from studio.prepare.report import store_lines
from studio.prepare.review import ClipRow
from studio.project import create_project
from tests.sounds import sentence


def upload(tmp_path: Path, name: str, content: str) -> Path:
    path = tmp_path / "uploads" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    return path


def test_files_are_moved_and_none_is_replaced(project, tmp_path):
    first = store_files(project, [upload(tmp_path, name, name) for name in ("a.wav", "a.txt", "B.M4A")])
    assert first == (["a.wav", "a.txt", "B.M4A"], [], []) and not (tmp_path / "uploads" / "a.wav").exists()
    again = [upload(tmp_path, "a.wav", "a.wav"), upload(tmp_path, "a.txt", "other"), upload(tmp_path, "c.srt", "c")]
    second = store_files(project, again)
    assert (second.new, second.repeated) == (["c.srt"], ["a.wav"])
    assert second.problems == ["a.txt: another file with this name exists; rename yours, or remove the other"]
    assert (project.recordings / "a.txt").read_text() == "a.txt"
    assert describe_storage(project, second).startswith(f"not stored: {second.problems[0]}\nalready there: a.wav\n")


def test_one_file_that_is_no_recording_twice_there_or_gone_does_not_break_off_the_others(project, tmp_path):
    """Files that waited for a project, and some of them dropped again, have one place among the uploads."""
    first, second = upload(tmp_path, "a.wav", "a"), upload(tmp_path, "b.wav", "b")
    others = [upload(tmp_path, name, "x") for name in (".hidden.wav", "tool.exe", "wav", "a.wav.sh")]
    storage = store_files(project, [first, first, tmp_path / "gone.wav", *others, second])
    assert (storage.new, storage.repeated) == (["a.wav", "b.wav"], []) == (list_recordings(project), [])
    assert storage.problems[0] == "gone.wav: No such file or directory; drop it again"
    assert [problem.split(": ")[0] for problem in storage.problems[1:]] == [path.name for path in others]


def test_files_dropped_before_there_is_a_project_wait_for_it(tmp_path):
    """They were an error, stayed in the drop zone, and went lost with the next ones."""
    gradio = pytest.importorskip("gradio", reason="of requirements/studio.txt")
    from studio.jobs.jobs import Jobs
    from studio.page.data_tab import store_dropped
    from studio.page.events import Context

    context = Context(tmp_path, True, Jobs(tmp_path))
    dropped = [str(upload(tmp_path, name, name)) for name in ("a.wav", "a.txt", "b.wav")]
    zone, words = store_dropped(context, dropped[:2], None)
    assert zone == gradio.skip() and words.endswith(": 2")
    create_project(tmp_path, "mine")
    assert store_dropped(context, [*dropped, dropped[0]], "mine") == (None, "a.txt\na.wav\nb.wav")
    assert store_dropped(context, None, "mine") == (gradio.skip(), gradio.skip())


def test_it_is_told_what_became_of_each_file(project):
    for name in ("talk.wav", "talk.txt", "broken.mp3", "new.flac"):
        (project.recordings / name).write_text("")
    assert list_fates(project, []) == []
    store_lines(project.left_out, ["/some/where/broken.mp3: no sound in it"])
    store_lines(project.transcripts, ["talk.txt: the words of talk.wav"])
    faults = [("yes", ""), ("yes", "pace (3.0 times the median)"), ("no", "noise (SNR 9 dB)")]
    rows = [
        ClipRow(use, f"talk_{n}", "talk.wav", f"{6 * n}.0", f"{6 * n + 6}.0", "x", "talk.txt", "", "", fault)
        for n, (use, fault) in enumerate(faults)
    ]
    assert list_fates(project, rows) == [
        ("broken.mp3", "", "", "no sound in it"),
        ("new.flac", "", "", "not used yet: prepare again"),
        ("talk.txt", "", "", "the words of talk.wav"),
        ("talk.wav", "0.2", "0.1", "2 of 3 clips used; faults: noise; text: talk.txt"),
    ]


def test_links_are_not_followed(project, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.wav").write_text("old")
    (project.recordings / "a.wav").symlink_to(outside / "a.wav")
    storage = store_files(project, [upload(tmp_path, "a.wav", "new")])
    assert storage.problems == ["a.wav: a link with this name exists; remove it first"]
    (project.recordings / "a.wav").unlink()
    project.recordings.rmdir()
    project.recordings.symlink_to(outside)
    with pytest.raises(DataError, match="recordings: leads out of the project mine"):
        store_files(project, [upload(tmp_path, "b.wav", "new")])
    assert [path.name for path in outside.iterdir()] == ["a.wav"] and (outside / "a.wav").read_text() == "old"


def test_the_words_of_prepare(project, tmp_path):
    with pytest.raises(DataError, match="mine: no recordings yet; drop some files first"):
        prepare_argv(project, "en", False)
    (project.recordings / "a.wav").write_text("")
    words = prepare_argv(project, " de ", True)
    place = ["studio.prepare", str(project.recordings), "--name", "mine", "--projects", str(project.projects)]
    assert words == [*place, "--language", "de", "--allow-several-speakers"]
    project.settings.write_text(json.dumps({"recordings": str(project.recordings.resolve())}))
    for language in ("", None):  # None: of a field that was never filled
        assert prepare_argv(project, language, False) == place
    project.settings.write_text(json.dumps({"recordings": "/home/someone/recordings"}))
    with pytest.raises(DataError, match="its clips come from another folder"):  # a run would remove them
        prepare_argv(project, "en", False)


RATE = 48000


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """A sentence at -20 dBFS with half a second of a quiet room around it, (N,) at RATE."""
    sound = resample(sentence(1), 22050, RATE)
    sound *= 0.1 / np.sqrt(np.mean(np.square(sound)))
    return np.pad(sound, RATE // 2) + 1e-4 * np.random.default_rng(0).standard_normal(len(sound) + RATE)


def noise(size: int) -> np.ndarray:
    return 0.02 * np.random.default_rng(1).standard_normal(size)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda x: x, ""),
        (lambda x: np.clip(20 * x, -1, 1), "clipping"),
        (lambda x: 0.03 * x, "too quiet"),
        (lambda x: x + noise(len(x)), "noise"),
        (lambda x: x[RATE:], "begins in speech"),
        (lambda x: x[:-RATE], "ends in speech"),
        (lambda x: np.concatenate([x] * 5), "too long"),
        (lambda x: np.zeros_like(x), "no speech"),
        (lambda x: np.concatenate([x[: RATE // 2], x[RATE : RATE + RATE // 4], x[-RATE // 2 :]]), "too short"),
    ],
)
def test_a_take_has_its_fault_at_once(speech: np.ndarray, change, fault: str) -> None:
    found = check_take(Take(RATE, np.round(32767 * change(speech)).astype(np.int16)))
    assert (fault in "; ".join(found.faults)) if fault else found.faults == []
    assert found.message.startswith("good: ") == (not fault)


def test_kept_takes_are_recordings_with_their_sentence(project, tmp_path, speech: np.ndarray) -> None:
    with pytest.raises(DataError, match="no take yet"):
        make_take(None)
    stereo = np.stack([speech, speech], axis=1)
    for recorded in (speech.astype(np.float32), np.round(32767 * stereo).astype(np.int16)):
        keep_take(project, 2, make_take((RATE, recorded)))  # the second in place of the first
    assert kept_takes(project) == {2} and [first_open(project, place) for place in (0, 2, 3)] == [0, 3, 3]
    sound, rate = soundfile.read(project.recordings / "script_003.wav")
    assert rate == RATE and np.abs(sound - speech).max() < 2 / 32768
    assert (project.recordings / "script_003.txt").read_text() == read_script()[2] + "\n"
    assert str(project.recordings) in prepare_argv(project, "en", False)
    project.recordings.rename(tmp_path / "outside")
    project.recordings.symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="leads out of the project"):
        keep_take(project, 0, make_take((RATE, speech)))
