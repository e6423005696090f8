"""Edits of clips by a page: the checks of studio.prepare --apply, all problems at once, and files that stay as they are."""

from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.filelist import read_filelist
from common.errors import DataError
from studio.page.editing import Edit, neighbour, note_edit, read_clip, read_rows, save_edits, summarize
from studio.prepare import __main__ as prepare
from studio.prepare.report import store_lines
from studio.project import Project
from tests.studio.projects import add_review_table


@pytest.fixture
def project(prepared: Project) -> Project:
    add_review_table(prepared)
    return prepared


def contents(project: Project) -> dict[str, bytes]:
    paths = [path for path in project.root.rglob("*") if path.is_file() and path.name != "lock"]
    return {str(path): path.read_bytes() for path in paths}


def test_sounds_and_summary(project):
    rows = read_rows(project)
    rate, samples = read_clip(project, rows[0].clip)
    expected, expected_rate = soundfile.read(project.clips / f"{rows[0].clip}.wav", dtype="int16")
    assert rate == expected_rate
    np.testing.assert_array_equal(samples, expected)
    store_lines(project.left_out, ["/place/a.wav: no speech found in it", "/place/b.wav: not an\naudio file"])
    lines = summarize(project, rows).splitlines()
    assert lines[0] == "mine: 7 clips of 1 recording, 0.2 minutes"
    assert {"  in use: 6 clips", "  not used: 1 clip", "  faults: words 1"} <= set(lines)
    assert lines[-2:] == ["/place/a.wav: no speech found in it", "/place/b.wav: not an audio file"]


def test_a_saved_edit_is_in_table_and_filelists_as_after_apply(project):
    rows = read_rows(project)
    edits = {rows[0].clip: Edit("yes", " A  new\ntext. "), rows[1].clip: Edit("no", rows[1].text)}
    summary = save_edits(project, edits)
    assert "edited by hand: 2 clips" in summary
    saved = read_rows(project)
    assert (saved[0].use, saved[0].text, saved[1].use) == ("yes", "A new text.", "no")
    lists = [*read_filelist(project.training_list), *read_filelist(project.validation_list)]
    texts = {Path(row.path).stem: row.text for row in lists}
    assert texts[rows[0].clip] == "A new text." and rows[1].clip not in texts and len(texts) == 6
    before, flags = contents(project), ["--name", "mine", "--projects", str(project.projects), "--apply"]
    prepare.main(flags)
    assert contents(project) == before
    prepare.main([*flags, "--validation", "3"])  # as many stay
    before = read_filelist(project.validation_list)
    save_edits(project, {})
    assert read_filelist(project.validation_list) == before and len(before) == 3


def test_all_bad_rows_are_named_at_once_and_no_file_changes(project):
    rows, before = read_rows(project), contents(project)
    edits = {rows[1].clip: Edit("yes", ""), rows[2].clip: Edit("yes", "a|b"), rows[3].clip: Edit("maybe", "Fine.")}
    with pytest.raises(DataError) as caught:
        save_edits(project, edits)
    lines = str(caught.value).splitlines()
    assert [line.split(":")[0] for line in lines] == [rows[number].clip for number in (1, 2, 3)]
    assert "text: empty" in lines[0] and "'|' in it" in lines[1] and "use: 'maybe'" in lines[2]
    with pytest.raises(DataError) as caught:  # training would refuse it
        save_edits(project, {rows[1].clip: Edit("yes", "{XX}"), rows[2].clip: Edit("yes", "{YY}")})
    assert f"{rows[1].clip}: text:" in str(caught.value) and f"{rows[2].clip}: text:" in str(caught.value)
    assert contents(project) == before


def test_no_other_file_is_read_as_a_clip_and_a_damaged_table_is_named(project):
    outside = project.projects / "secret.wav"
    outside.write_bytes((project.clips / f"{read_rows(project)[0].clip}.wav").read_bytes())
    (project.clips / "linked.wav").symlink_to(outside)
    (project.clips / "damaged.wav").write_bytes(b"no sound")
    for clip in ("../../secret", "..", "/etc/passwd", "missing", "a\0b", "", "linked", "damaged"):
        with pytest.raises(DataError, match=r"leads out of the project|no such clip|cannot be read as audio"):
            read_clip(project, clip)
    project.review.write_text(project.review.read_text() + "one\tcell\n")
    with pytest.raises(DataError, match=r"clips.tsv:9: 2 cells, expected 10"):
        read_rows(project)


def test_edits_until_they_are_saved_and_neighbours(project):
    rows = read_rows(project)
    first, second = rows[0], rows[1]
    edits = note_edit(rows, {}, first.clip, "yes", first.text)
    assert edits == {first.clip: Edit("yes", first.text)}
    assert note_edit(rows, edits, second.clip, second.use, second.text) == edits
    assert note_edit(rows, edits, first.clip, first.use, first.text) == {}
    assert note_edit(rows, {}, "another", "yes", "x") == {}
    assert neighbour(rows, rows[0].clip, 1) == rows[1] and neighbour(rows, rows[0].clip, -1) == rows[0]
    assert neighbour(rows, rows[-1].clip, 1) == rows[-1] and neighbour(rows, "another", 1) == rows[0]
