"""Mistakes of visitors as messages of the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import REFUSALS, DataError, UsageError
from common.web_page import make_error
from studio.page.context import Context
from studio.project import Project, list_projects
from studio.wording import without_folders


@contextmanager
def messages(context: Context) -> Iterator[None]:
    """Turn DataError, UsageError and refusals of the system into gr.Error with their message, without folders."""
    try:
        yield
    except (DataError, UsageError) as error:
        raise make_error(without_folders(str(error), context.projects)) from None
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        name = Path(error.filename).name if isinstance(error.filename, str) else "a file"
        raise make_error(f"{name}: {error.strerror}") from None


def find_project(context: Context, name: str | None) -> Project:
    """Return a project of the folder. Raises DataError for another name."""
    if not name:
        raise DataError("choose a project first, or make one from recordings")
    if name not in list_projects(context.projects):
        raise DataError(f"project {name!r}: there is no such project any more; choose another one")
    return Project(name=name, projects=context.projects)
