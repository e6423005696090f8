"""The tabs Speak and Export, and the recorder, in headless Chromium at a phone's width, whose microphone beeps."""

import io
import time
import zipfile
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
import soundfile

from studio.page.reading import read_script
from studio.project import Project
from tests import browser as web
from tests.studio.page_server import PageServer, open_project

pytestmark = pytest.mark.slow

TEXT = "There are seven days in a week."


def test_the_server_s_page_speaks_in_the_tab(browser, server: PageServer) -> None:
    from selenium.webdriver.common.keys import Keys

    page = browser
    open_project(page, server, "spoken")
    web.open_tab(page, "Speak")
    page.switch_to.frame(web.wait(lambda: page.find_elements("css selector", "#speech iframe"))[0])
    web.wait(lambda: page.execute_script("return voices.length"))
    assert page.execute_script("return document.getElementById('voice').value") == "spoken"
    field = page.find_element("id", "text")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(TEXT)
    field.send_keys(Keys.CONTROL, Keys.ENTER)
    address = web.wait(lambda: page.execute_script("return record?.done && document.getElementById('wav').href"))
    samples, rate = soundfile.read(io.BytesIO(web.bytes_of(page, address)), dtype="int16")
    assert rate == 22050 and len(samples) > rate
    page.switch_to.default_content()
    assert web.width_of(page) <= web.PHONE["width"]
    assert web.hosts_of(page) == {server.address.split("/")[2]}
    severe = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert all("status of 503" in text for text in severe)  # until the voice is loaded


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


def test_a_sentence_is_recorded_checked_and_kept(page, projects):
    def shows(words: str) -> bool:
        return words in page.find_element("id", "sentence").text

    web.click_on(page, "button", "Record the reading script")
    web.wait(lambda: shows("Sentence 1 of 100; 0 kept") and shows(read_script()[0]))
    web.click(page, "take-next")
    web.wait(lambda: shows("Sentence 2 of 100; 0 kept"))
    web.click_on(page, "#take button", "Record")
    time.sleep(1.0)  # of sound
    web.click_on(page, "#take button", "Stop")
    web.wait(lambda: web.value_of(page, "take-check"))
    web.click(page, "take-keep")
    web.wait(lambda: shows("Sentence 3 of 100; 1 kept") and "script_002.wav" in web.value_of(page, "stored"))
    assert web.value_of(page, "take-check") == ""
    folder = Project(name="other", projects=projects).recordings
    assert soundfile.info(folder / "script_002.wav").duration > 0.1
    assert (folder / "script_002.txt").read_text() == read_script()[1] + "\n"
