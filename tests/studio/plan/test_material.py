"""The material of a plan: lengths of clips, and the settings that its texts need."""

import json
from pathlib import Path

import pytest

from common.errors import DataError
from studio.plan.material import read_material
from studio.project import Project
from tests.studio.projects import make_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(Project(name="mine", projects=tmp_path))


def write_settings(project: Project, **settings: object) -> None:
    project.settings.write_text(json.dumps(settings))


def test_texts_bring_their_cleaner_and_their_alphabet_unless_they_are_english(project: Project) -> None:
    assert read_material(project).text_options == {}
    write_settings(project, text_cleaners=["english_cleaners"], symbols_file=None)
    assert read_material(project).text_options == {}
    write_settings(project, text_cleaners="transliteration_cleaners", symbols_file=None)
    assert read_material(project).text_options == {"text_cleaners": ["transliteration_cleaners"]}
    write_settings(project, text_cleaners=["numbers_de", "basic_cleaners"], symbols_file="symbols.txt")
    command = r"run python -m studio\.prepare FOLDER --name mine --projects \S+ first"
    with pytest.raises(DataError, match=rf"symbols\.txt: no such file; {command}"):
        read_material(project)
    project.symbols.write_text("_\n \nä\n")
    options = read_material(project).text_options
    assert options == {"text_cleaners": ["numbers_de", "basic_cleaners"], "symbols_file": str(project.symbols)}


@pytest.mark.parametrize("content", ["[]", "{", '{"text_cleaners": 3}', "[" * 100_000])
def test_damaged_settings_are_named(project: Project, content: str) -> None:
    project.settings.write_text(content)
    with pytest.raises(DataError, match=r"project\.json"):
        read_material(project)
