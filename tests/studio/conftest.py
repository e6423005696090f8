"""Projects for tests: a new one, and one with clips and filelists."""

from pathlib import Path

import pytest

from studio.project import Project, create_project
from tests.studio.projects import make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return create_project(tmp_path, "mine")


@pytest.fixture
def prepared(tmp_path: Path) -> Project:
    return make_project(create_project(tmp_path, "mine"))
