"""The edited table of clips becomes filelists again: on the page, and by `studio.prepare --apply`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from common.errors import DataError, join_problems
from studio.prepare import report, review
from studio.prepare.arguments import VALIDATION, PrepareOptions
from studio.prepare.lists import (
    AlphabetChoice,
    choose_alphabet,
    select_usable,
    training_options,
    training_problems,
    write_alphabet,
    write_lists,
)
from studio.project import Project, read_settings


def settings_of(project: Project) -> dict[str, Any]:
    """Return the settings of the last run. Raises DataError if they are missing, damaged, or lack the entries that edits need."""
    path, settings = project.settings, read_settings(project)
    again = project.command("studio.prepare", "FOLDER", "--name")
    try:
        language, rate = settings["texts"]["language"], settings["cutting"]["sampling_rate"]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path}: cannot be used (no entry {error}); run {again} again") from None
    if not isinstance(language, str) or type(rate) is not int or rate < 1:
        found = f"texts.language {language!r} and cutting.sampling_rate {rate!r}"
        raise DataError(f"{path}: {found}, expected a string and a rate in Hz; run {again} again")
    validation = settings.setdefault("validation", VALIDATION)
    if not isinstance(validation, (int, float)) or not validation > 0:
        raise DataError(f"{path}: validation {validation!r}, expected a number of clips or a share; run {again} again")
    return settings


class Revision(NamedTuple):
    """The rows of an edited table, the settings of the run that made them, and the alphabet of those in use."""

    project: Project
    rows: list[review.ClipRow]
    settings: dict[str, Any]
    alphabet: AlphabetChoice

    @classmethod
    def of(cls, project: Project, rows: Sequence[review.ClipRow]) -> Revision:
        """Return the revision of a project to these rows. Raises DataError as settings_of does."""
        settings = settings_of(project)
        texts = [row.text for row in select_usable(rows)]
        return cls(project, list(rows), settings, choose_alphabet(texts, settings["texts"]["language"]))


def apply_edits(options: PrepareOptions) -> None:
    """Read the edited clips.tsv, and write the filelists again."""
    project = options.project
    project.require(project.review, "studio.prepare FOLDER --name")
    by_line = review.read_review(project.review, review.read_proposals(project.proposals))
    lines = {row.clip: line for line, row in by_line.items()}
    revision = Revision.of(project, list(by_line.values()))
    if problems := edit_problems(revision):
        raise DataError(join_problems([f"{project.review}:{lines[clip]}: {text}" for clip, text in problems.items()]))
    print("\n".join(apply(revision, options.validation)))


def edit_problems(revision: Revision) -> dict[str, str]:
    """Return why training would refuse rows in use, by clip."""
    project, rows, settings, alphabet = revision
    options = training_options(alphabet, settings["cutting"]["sampling_rate"])
    return {clip: f"text: {text}" for clip, text in training_problems(project, select_usable(rows), options).items()}


def apply(revision: Revision, validation: float | None = None) -> list[str]:
    """Write the filelists and the alphabet of rows without problems. Returns the lines of a summary.

    `validation` is a number of clips or a share; None means as in the last run.
    """
    project, rows, settings, alphabet = revision
    settings["validation"] = validation or settings["validation"]
    write_alphabet(project, settings, alphabet)
    parts = write_lists(project, rows, settings["validation"])
    proposals = review.read_proposals(project.proposals)
    edits = review.carry_edits(proposals, rows, proposals)
    return report.summary(project, review.CarriedEdits(rows, edits.n_edited, []), *parts, alphabet)
