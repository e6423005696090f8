"""One server and one browser for all tests of the page."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from studio.project import Project
from tests.browser import start_browser, value_of, wait
from tests.studio.page_server import PageServer, open_project, serve
from tests.studio.projects import add_review_table, add_spoken_voice, add_voice, make_project


@pytest.fixture(scope="session")
def projects(tmp_path_factory) -> Path:
    """Projects: `other` with prepared clips, `spoken` with a voice that speaks, and `tiny` with one of tiny models."""
    folder = tmp_path_factory.mktemp("page") / "projects"
    folder.mkdir()
    add_review_table(make_project(Project(name="other", projects=folder)))
    add_spoken_voice(make_project(Project(name="spoken", projects=folder)))
    add_voice(Project(name="tiny", projects=folder))
    return folder


@pytest.fixture(scope="session")
def server(projects, tmp_path_factory) -> Iterator[PageServer]:
    with serve(projects, tmp_path_factory.mktemp("server"), environment={"OMP_NUM_THREADS": "1"}) as server:
        yield server


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    microphone = "use-fake-device-for-media-stream", "use-fake-ui-for-media-stream"  # it beeps
    browser = start_browser(tmp_path_factory.mktemp("profile"), *microphone)
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, server):
    """The page of the project `other`, freshly loaded at a phone's width."""
    open_project(browser, server, "other")
    wait(lambda: value_of(browser, "clip"))
    return browser
