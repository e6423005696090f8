"""The recorder of the page, with a browser whose microphone beeps."""

import pytest
import soundfile

from studio.page.reading import read_script
from studio.project import Project
from tests.browser import click, click_on, value_of, wait

pytestmark = pytest.mark.slow


def test_a_sentence_is_recorded_checked_and_kept(page, projects):
    def shows(words: str) -> bool:
        return words in page.find_element("id", "sentence").text

    level = "return document.getElementById('record-meter').value"
    click_on(page, "button", "Record the reading script")
    wait(lambda: shows("Sentence 1 of 100; 0 kept") and shows(read_script()[0]))
    click(page, "take-next")
    wait(lambda: shows("Sentence 2 of 100; 0 kept"))
    click_on(page, "#take button", "Record")
    wait(lambda: page.execute_script(level) > -40)
    click_on(page, "#take button", "Stop")
    wait(lambda: value_of(page, "take-check"))
    click(page, "take-keep")
    wait(lambda: shows("Sentence 3 of 100; 1 kept") and "script_002.wav" in value_of(page, "stored"))
    assert value_of(page, "take-check") == ""
    folder = Project(name="other", projects=projects).recordings
    assert soundfile.info(folder / "script_002.wav").duration > 0.1
    assert (folder / "script_002.txt").read_text() == read_script()[1] + "\n"
