"""The page in headless Chromium, at a phone's width: speech, words, pause, errors, files, history, a prefix."""

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from common.web.server import Server
from serving.app import make_app
from serving.page import FOLDER
from tests import browser as web
from tests.serving.conftest import LONG, pcm, running_engine

pytestmark = pytest.mark.slow
TEXT = "There are seven days in a week."
LARGEST = 60_000  # bytes of all files


@contextmanager
def served(**settings: Any) -> Iterator[str]:
    with running_engine(max_characters=1000, **settings) as engine:
        server = Server(
            make_app(engine, engine.config), 1, host="127.0.0.1", port=0, log_level="warning", lifespan="off"
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        web.wait(lambda: server.started)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}{engine.config.root_path}/"
        server.should_exit = True
        thread.join(timeout=30)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as found:
        yield found


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    browser = web.start_browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, address):
    """The page without anything of the test before, at a phone's width."""
    browser.get(address)
    browser.execute_async_script("localStorage.clear(); forget().then(arguments[0])")
    return opened(browser, address)


def opened(browser, address: str):
    web.open_page(browser, address)
    web.wait(lambda: browser.execute_script("return voices.length"))
    return browser


def requested(page) -> list[str]:
    """The addresses that a page has asked for since it was opened."""
    entries = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    found = [entry["params"]["request"]["url"] for entry in entries if entry["method"] == "Network.requestWillBeSent"]
    return [url for url in found if not url.startswith(("data:", "blob:", "chrome:"))]


def text_of(page, name: str) -> str:
    return page.execute_script("return document.getElementById(arguments[0]).textContent", name)


def is_shown(page, name: str) -> bool:
    return page.find_element("id", name).is_displayed()


def write(page, text: str, name: str = "text") -> None:
    page.execute_script(
        "const field = document.getElementById(arguments[0]); field.value = arguments[1];"
        "field.dispatchEvent(new Event('input', { bubbles: true }))",
        name,
        text,
    )


def speak(page, text: str = TEXT, seed: int = 5) -> None:
    page.execute_script("document.getElementById('details').open = true")
    write(page, str(seed), "seed")
    write(page, text)
    web.click(page, "speak")


def wait_for_end(page) -> None:
    web.wait(lambda: page.execute_script("return record?.done"))


def file_of(page) -> bytes:
    samples, rate = soundfile.read(
        io.BytesIO(web.bytes_of(page, page.find_element("id", "wav").get_property("href"))), dtype="int16"
    )
    assert rate == 22050
    return samples.tobytes()


def test_a_text_is_spoken_shown_and_drawn(page):
    assert text_of(page, "speak") == "Speak" and not is_shown(page, "player")
    speak(page)
    wait_for_end(page)
    starts = [word["start_time"] for word in page.execute_script("return record.words")]
    for number, word in ((1, "are"), (6, "week.")):
        page.execute_script("pause(); seek(arguments[0])", starts[number] + 0.01)
        assert page.find_element("css selector", "#spoken .lit").text == word
    web.click(page, "speak")  # go on
    assert text_of(page, "speak") == "Pause"
    assert file_of(page) == pcm(TEXT, 5) and "seed 5" in text_of(page, "facts")
    mp3 = web.bytes_of(page, page.find_element("id", "mp3").get_property("href"))
    samples, rate = soundfile.read(io.BytesIO(mp3))
    assert len(samples) / rate == pytest.approx(len(pcm(TEXT, 5)) / 2 / 22050, abs=0.1)
    for name in ("mel", "alignment"):
        script = """const pen = document.getElementById(arguments[0]).getContext("2d");
            return [...pen.getImageData(60, 5, 200, 120).data]"""
        pixels = np.array(page.execute_script(script, name)).reshape(-1, 4)
        assert is_shown(page, name) and len(np.unique(pixels[:, 0])) > 20


def test_pause_seek_and_go_on(page):
    speak(page, LONG)
    web.wait(lambda: page.execute_script("return sound.playing && position() > 0.3"))
    web.click(page, "speak")
    at = page.execute_script("return position()")
    assert text_of(page, "speak") == "Go on" and not page.execute_script("return sound.playing")
    wait_for_end(page)
    assert page.execute_script("return position()") == at
    write(page, "5", "seek")
    assert page.execute_script("return position()") == 5 and text_of(page, "time").startswith("0:05 / 0:")
    web.click(page, "play")
    web.wait(lambda: page.execute_script("return position() > 5.2"))


def test_the_newest_text_counts(page):
    """While another is spoken, and by the keyboard."""
    from selenium.webdriver.common.keys import Keys

    speak(page, LONG)
    web.wait(lambda: page.execute_script("return sound.playing"))
    write(page, "Two.")
    assert text_of(page, "speak") == "Speak"
    web.click(page, "speak")
    wait_for_end(page)
    assert file_of(page) == pcm("Two.", 5) and text_of(page, "error") == ""
    write(page, "Yes!")
    page.find_element("id", "text").send_keys(Keys.CONTROL, Keys.ENTER)
    web.wait(lambda: page.execute_script("return record?.done && record.text === 'Yes!'"))
    assert file_of(page) == pcm("Yes!", 5)


def test_an_error_clears_the_speech_before(page):
    for text, seed, words in (
        ("a" * 1001, "5", "1,000 are allowed"),
        ("{HH AH0 XX9}", "5", "XX9"),
        ("Two.", "x", "Seed: x"),
    ):
        speak(page, "Two.")
        wait_for_end(page)
        assert is_shown(page, "about") and text_of(page, "error") == ""
        write(page, text)
        write(page, seed, "seed")
        web.click(page, "speak")
        web.wait(lambda words=words: words in text_of(page, "error"))
        assert not is_shown(page, "about") and not is_shown(page, "player") and text_of(page, "speak") == "Speak"
        write(page, "Yes!")
        assert text_of(page, "error") == ""


def test_speeches_and_the_text_survive_a_reload(page, address):
    for text in ("Two.", "Yes!"):
        speak(page, text)
        wait_for_end(page)
        web.wait(lambda text=text: text in page.find_element("css selector", "#history li").text)
    opened(page, address)
    web.wait(lambda: len(page.find_elements("css selector", "#history li")) == 2)
    assert page.find_element("id", "text").get_property("value") == "Yes!"
    page.find_elements("css selector", "#history button:not(#forget)")[1].click()
    wait_for_end(page)
    assert file_of(page) == pcm("Two.", 5) and is_shown(page, "player")
    page.execute_script("memory.push(...Array(40).fill().map((_, i) => ({ ...record, when: i })))")
    page.execute_async_script("trim().then(arguments[0])")
    assert page.execute_script("return memory.length") == 30
    web.click(page, "forget")
    opened(page, address)
    assert not page.find_elements("css selector", "#history li")


def test_the_page_is_small_and_narrow_and_asks_no_other_host(page, address):
    own = sorted(url.removeprefix(address) for url in requested(page))
    assert own == ["", "page.css", "page.js", "v1/voices"]
    assert sum(path.stat().st_size for path in Path(FOLDER).glob("*.[hcj]*")) < LARGEST
    speak(page, "Pneumonoultramicroscopicsilicovolcanoconiosis" * 2)  # wider than a phone
    wait_for_end(page)
    assert web.width_of(page) <= web.PHONE["width"]
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_behind_a_prefix(browser):
    """All that the page asks for is below it, which is all that a proxy passes on."""
    with served(root_path="/speech") as address:
        page = opened(browser, address)
        speak(page, "Two.")
        wait_for_end(page)
        assert file_of(page) == pcm("Two.", 5)
        assert web.bytes_of(page, page.find_element("id", "mp3").get_property("href"))[:1] != b"{"
        docs = browser.execute_async_script("fetch('docs').then((answer) => answer.text()).then(arguments[0])")
        assert docs.count("/speech/") >= 2
        assert len(urls := requested(page)) > 5 and all(url.startswith(address) for url in urls)
        script = "fetch('/v1/voices').then((answer) => answer.status).then(arguments[0])"
        assert browser.execute_async_script(script) == 200  # as from a proxy that takes the prefix away
