"""The review of clips on the page: rows, sounds, and edits, which are checked and saved as `studio.prepare --apply` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import soundfile

from common.errors import DataError, join_problems
from common.progress import counted
from studio.prepare import review
from studio.prepare.edits import Edit, apply_edits
from studio.prepare.report import describe_problems, figures, read_stored
from studio.project import Project, check_inside, lock_project

COLUMNS = ("use", "clip", "text", "faults", "wrong words")
SHOWN = 8  # names in a message


def read_rows(project: Project) -> list[review.ClipRow]:
    """Return the rows of clips.tsv; none before recordings are prepared. Raises DataError for a damaged table."""
    if not project.review.exists():
        return []
    rows, faults = review.parse_review(check_inside(project, project.review))
    if faults:
        raise DataError(join_problems([f"clips.tsv:{line}: {'; '.join(words)}" for line, words in faults.items()]))
    return list(review.accept_rows(rows, review.read_proposals(project.proposals)).values())


def table_of(rows: Sequence[review.ClipRow]) -> list[list[str]]:
    """Return the cells of the page's table, in the order of COLUMNS."""
    return [[row.use, row.clip, row.text, row.faults, row.words_wrong] for row in rows]


def note_edit(
    rows: Sequence[review.ClipRow], edits: Mapping[str, Edit] | None, clip: str, use: str | None, text: str | None
) -> dict[str, Edit]:
    """Return the edits with those of one more clip, or without it if they change nothing."""
    edits, edit = edits or {}, Edit(use or review.NO, " ".join((text or "").split()))
    row = next((row for row in rows if row.clip == clip), None)
    rest = {name: other for name, other in edits.items() if name != clip}
    is_new = row is not None and edit != Edit(row.use, row.text)
    return rest | {clip: edit} if is_new else rest


def neighbour(rows: Sequence[review.ClipRow], clip: str, distance: int) -> review.ClipRow | None:
    """Return the row `distance` rows after a clip, limited to the first and the last; None without rows."""
    names = [row.clip for row in rows]
    if not rows:
        return None
    place = names.index(clip) + distance if clip in names else 0
    return rows[min(max(place, 0), len(rows) - 1)]


def describe_edits(edits: Mapping[str, Edit]) -> str:
    """Describe the unsaved edits; "" without any."""
    names = ", ".join(list(edits)[:SHOWN]) + (" …" if len(edits) > SHOWN else "")
    return f"not saved yet: {len(edits)} clip{'s' * (len(edits) > 1)}, {names}" if edits else ""


def read_clip(project: Project, clip: str) -> tuple[int, npt.NDArray[np.int16]]:
    """Return the rate in Hz and the samples (N,) of a clip. Raises DataError if the project has no such clip."""
    path = check_inside(project, project.clips / f"{clip}.wav")
    if path.parent != project.clips or not path.is_file():
        raise DataError(f"clip {clip}: no such clip in the project {project.name}")
    try:
        samples, rate = soundfile.read(path, dtype="int16")
    except soundfile.SoundFileError as error:
        raise DataError(f"clip {clip}: cannot be read as audio ({error})") from None
    return rate, samples


def summarize(project: Project, rows: list[review.ClipRow]) -> str:
    """Summarise the clips and the files left out; "" without clips."""
    if not rows:
        return ""
    proposals = review.read_proposals(project.proposals)
    in_use = sum(row.use == review.YES for row in rows)
    edits = review.CarriedEdits(rows, review.carry_edits(proposals, rows, proposals).n_edited, [])
    first, _, _, *others = figures(project.name, edits, [row for row in rows if row.use == review.YES], [])
    lines = [first, f"  in use: {counted(in_use, 'clip')}", *others]
    return "\n".join([*lines, *describe_problems(read_stored(project.left_out))])


def save_edits(project: Project, edits: Mapping[str, Edit]) -> str:
    """Check edits, and write clips.tsv and the filelists. Returns a summary.

    Raises DataError for all unusable rows, each by its clip; then no file has changed.
    """
    check_inside(project, project.review)
    with lock_project(project):
        return "\n".join(apply_edits(project, edits))
