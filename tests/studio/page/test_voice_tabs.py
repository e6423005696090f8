"""The tabs Speak and Export, and the recorder, in headless Chromium at a phone's width, whose microphone beeps."""

import io
import zipfile
from contextlib import suppress
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import to_pcm
from studio.page.reading import read_script
from studio.project import Project
from synthesizer import SynthesisConfig, Synthesizer
from tests import browser as web
from tests.studio.page_server import PageServer

pytestmark = pytest.mark.slow

TEXT = "There are seven days in a week."


@pytest.fixture
def project(projects) -> Project:
    return Project(name="spoken", projects=projects)


@pytest.fixture
def page(browser, server):
    """The page of the project `spoken`, freshly loaded at a phone's width."""
    web.open_page(browser, f"{server.address}?project=spoken")
    web.wait(lambda: browser.find_elements("id", "project") and web.value_of(browser, "project") == "spoken")
    return browser


def choose(page, name: str, label: str) -> None:
    """Choose from the list of a field by the keyboard, once the page has filled it; again where a busy page lost the keys."""
    from selenium.webdriver.common.keys import Keys

    def choose_once() -> bool:
        if web.value_of(page, name) != label:
            web.fill(page, name, label)
            page.find_element("css selector", f"#{name} input").send_keys(Keys.ENTER)
            with suppress(AssertionError):
                web.wait(lambda: web.value_of(page, name) == label, web.PATIENCE / 6)
        return web.value_of(page, name) == label

    web.wait(lambda: web.value_of(page, name))
    web.wait(choose_once)


def test_the_embedded_voice_speaks(page, server: PageServer) -> None:
    web.open_tab(page, "Speak")
    choose(page, "speak-voice", "the embedded voice")
    web.click_on(page, "button.label-wrap", "Settings")
    web.wait(lambda: any(field.is_displayed() for field in page.find_elements("id", "speak-seed")))
    web.fill(page, "speak-seed", "5")  # before the text: the page needs a moment to take a number
    web.fill(page, "speak-text", TEXT)
    web.click(page, "speak")
    message = web.wait(lambda: "s of speech" in (text := web.value_of(page, "speak-message")) and text)
    samples, rate = web.finished_audio(page, "speak-audio")
    (expected,) = Synthesizer.embedded(config=SynthesisConfig(seed=5), device="cpu").speak(TEXT)
    np.testing.assert_array_equal(samples, to_pcm(expected.audio))
    assert message.startswith("the embedded voice (epoch ")
    assert ") with PulseNoise of the embedded voice" in message
    assert f": {len(samples) / rate:.2f} s of speech" in message
    web.click_on(page, "button.label-wrap", "Details")
    for name in ("speak-mel", "speak-alignment"):
        web.wait_for_picture(page, name)
    assert web.width_of(page) <= web.PHONE["width"]
    assert web.hosts_of(page) == {server.address.split("/")[2]}
    # a player that is drawn again gives up what it was loading
    severe = [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert [entry for entry in severe if "AbortError" not in entry["message"]] == []


def test_errors_are_words_and_the_keyboard_suffices(page, project: Project) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    web.open_tab(page, "Speak")
    web.wait(lambda: web.value_of(page, "speak-voice") == "the finished voice")
    web.fill(page, "speak-text", "{XX}")
    ActionChains(page).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    (error,) = web.wait(lambda: web.errors_on(page))
    assert "text: " in error and "no ARPAbet symbol 'XX'" in error
    assert not any(word in error for word in ("Traceback", "/", "item 1"))
    web.fill(page, "speak-text", "A star.")
    ActionChains(page).send_keys(Keys.TAB).perform()
    assert page.execute_script("return document.activeElement.id") == "speak"
    ActionChains(page).send_keys(Keys.ENTER).perform()
    web.wait(lambda: web.value_of(page, "speak-message").startswith("the finished voice (epoch 3)"))


def test_an_export_is_packed_and_downloaded(page, projects, server: PageServer) -> None:
    project = Project(name="tiny", projects=projects)
    web.choose_option(page, "project", "tiny")
    web.wait_for_tab(page, "Export", "export")
    web.click(page, "export")
    assert "choose a runtime first" in web.wait(lambda: web.errors_on(page))[0]
    web.click_on(page, "#targets label", "triton")
    web.click(page, "export")
    web.wait(lambda: web.value_of(page, "export-state") == "python -m studio.export has finished.")
    web.click_on(page, "button.label-wrap", "Output")
    web.wait(lambda: "tiny_triton.zip: " in web.value_of(page, "export-output"))
    script = "return document.querySelector('#downloads a')?.href"
    content = web.bytes_of(page, web.wait(lambda: page.execute_script(script)))
    assert content == (project.root / "exports" / "tiny_triton.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {"tiny_triton/export.json", "tiny_triton/tts/config.pbtxt"} <= set(archive.namelist())
    web.click(page, "share")
    web.wait(lambda: web.value_of(page, "export-state") == "python -m studio.share has finished.")
    web.wait(lambda: len(page.find_elements("css selector", "#downloads a")) == 2)
    assert "python -m studio.share tiny" in page.find_element("id", "export-commands").text
    assert web.width_of(page) <= web.PHONE["width"]
    for path in ("tiny/plan.json", "tiny/..%2f..%2fetc%2fpasswd", "none/tiny.zip", "tiny/voice"):
        with pytest.raises(HTTPError) as caught:
            urlopen(f"{server.address}download/{path}")
        assert caught.value.code == 404


def test_a_sentence_is_recorded_checked_and_kept(browser, server: PageServer, projects):
    page, name = browser, "other"
    web.open_page(page, f"{server.address}?project={name}")
    web.wait(lambda: page.find_elements("id", "clip") and web.value_of(page, "clip"))  # events work

    def shows(words: str) -> bool:
        return words in page.find_element("id", "sentence").text

    level = "return document.getElementById('record-meter').value"
    web.click_on(page, "button", "Record the reading script")
    web.wait(lambda: shows("Sentence 1 of 100; 0 kept") and shows(read_script()[0]))
    web.click(page, "take-next")
    web.wait(lambda: shows("Sentence 2 of 100; 0 kept"))
    web.click_on(page, "#take button", "Record")
    web.wait(lambda: page.execute_script(level) > -40)
    web.click_on(page, "#take button", "Stop")
    web.wait(lambda: web.value_of(page, "take-check"))
    web.click(page, "take-keep")
    web.wait(lambda: shows("Sentence 3 of 100; 1 kept") and "script_002.wav" in web.value_of(page, "stored"))
    assert web.value_of(page, "take-check") == ""
    folder = Project(name=name, projects=projects).recordings
    assert soundfile.info(folder / "script_002.wav").duration > 0.1
    assert (folder / "script_002.txt").read_text() == read_script()[1] + "\n"
