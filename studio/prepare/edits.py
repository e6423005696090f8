"""The edited table of clips becomes filelists again: on the page, and by `studio.prepare --apply`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from common.errors import DataError, join_problems
from studio.prepare import report, review
from studio.prepare.lists import select_usable, training_problems, write_corpus
from studio.project import Project, last_settings


class Edit(NamedTuple):
    """New cells of a clip."""

    use: str
    text: str


def apply_edits(
    project: Project, edits: Mapping[str, Edit] | None = None, validation: float | None = None
) -> list[str]:
    """Read the edited clips.tsv, and write the filelists and the alphabet again. Returns the lines of a summary.

    `edits` of the page, by clip, go into the table too. `validation` is a number of clips or a share; None means as in the last
    run. Raises one DataError for all unusable rows, by line or, with `edits`, by clip; then no file has changed.
    """
    path = project.require(project.review, "studio.prepare FOLDER --name")
    settings = last_settings(project)
    proposals = review.read_proposals(project.proposals)
    table, faults = review.parse_review(path)
    for line, row in table.items():
        if edit := (edits or {}).get(row.clip):
            table[line] = row._replace(use=edit.use, text=" ".join(edit.text.split()))
    faults |= review.check_rows(table, proposals)
    accepted = review.accept_rows(table, proposals)
    rows = list(accepted.values())
    n_edited = review.carry_edits(proposals, rows, proposals).n_edited
    if not faults:
        refused = training_problems(project, select_usable(rows), settings)
        faults = {line: [f"text: {refused[row.clip]}"] for line, row in accepted.items() if row.clip in refused}
    if faults:
        names = {} if edits is None else {line: row.clip for line, row in table.items()}
        place = path if edits is None else path.name
        lines = [(names.get(line, f"{place}:{line}"), faults[line]) for line in sorted(faults)]
        raise DataError(join_problems([f"{name}: {text}" for name, texts in lines for text in texts]))
    if edits is not None:
        review.write_review(path, rows)
    settings["validation"] = validation or settings["validation"]
    corpus = write_corpus(project, rows, settings)
    return report.summary(project, review.CarriedEdits(rows, n_edited, []), corpus)
