"""The page in headless Chromium, at a phone's width: speech, words, pause, errors, files, history, a prefix."""

import io
import json
import subprocess
import sys
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
    page.execute_script("seek(0)")  # the last word alone might end before a busy machine looks
    web.click(page, "speak")  # go on
    web.wait(lambda: text_of(page, "speak") == "Pause")
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
    page.find_elements("css selector", "#history li button:first-child")[1].click()
    wait_for_end(page)
    assert file_of(page) == pcm("Two.", 5) and is_shown(page, "player")
    page.execute_script("memory.push(...Array(40).fill().map((_, i) => ({ ...record, when: i })))")
    page.execute_async_script("trim().then(arguments[0])")
    assert page.execute_script("return memory.length") == 30
    page.execute_async_script("forget().then(arguments[0])")
    opened(page, address)
    assert not page.find_elements("css selector", "#history li")


def test_the_page_is_small_and_narrow_and_asks_no_other_host(page, address):
    own = sorted(url.removeprefix(address) for url in requested(page))
    assert own == ["", "page.css", "page.js", "pictures.js", "shelf.js", "sound.js", "v1/voices"]
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


def deliver(page, slowness: float = 0.0, lines: int = 1000) -> None:
    """Let the lines of the next answers arrive in `slowness` times the time of their sound, and the connection break after some."""
    page.execute_script(
        """const [slowness, most] = arguments, whole = window.fetch; window.fetch = async (url, options) => {
        window.body = options?.body && JSON.parse(options.body);
        const answer = await whole(url, options); if (!url.includes("timestamps")) return answer;
        const lines = (await answer.text()).trim().split("\\n").map((line) => JSON.parse(line)); let sent = 0;
        const all = lines.at(-1).details.seconds, sizes = lines.map((line) => line.audio?.length ?? 0);
        const wait = (size) => (1000 * slowness * all * size) / sizes.reduce((sum, one) => sum + one);
        const body = new ReadableStream({ async pull(out) { if (sent === lines.length) return out.close();
          if (sent === most) return out.error(new TypeError("network error"));
          await new Promise((done) => setTimeout(done, wait(sizes[sent])));
          out.enqueue(new TextEncoder().encode(JSON.stringify(lines[sent++]) + "\\n")); } }, { highWaterMark: 0 });
        return new Response(body, answer); }""",
        slowness,
        lines,
    )


def history(page) -> str:
    return page.find_element("id", "history").text


def test_stop_works_from_the_first_moment_and_on_the_server(page, address):
    page.execute_script(
        "window.real = fetch; window.fetch = (url, { signal }) => new Promise((_, no) => { window.asking = signal; "
        "signal.onabort = () => no(signal.reason) })"
    )
    speak(page)
    web.wait(lambda: page.execute_script("return Boolean(window.asking)"))
    assert is_shown(page, "stop") and not is_shown(page, "speak") and "first sound" in text_of(page, "status")
    web.click(page, "stop")
    web.wait(lambda: page.execute_script("return asking.aborted"))
    assert text_of(page, "status") == "Stopped." and is_shown(page, "speak") and not is_shown(page, "stop")
    page.execute_script("window.fetch = real")
    speak(page, LONG * 4)
    web.wait(lambda: page.execute_script("return sound.playing && position() > 0.2"))
    web.click(page, "stop")
    web.wait(lambda: "Stopped after" in text_of(page, "status"))
    assert not page.execute_script("return sound.playing || record.done === false") and "part of" in history(page)
    counted = "fetch('metrics').then((answer) => answer.text()).then(arguments[0])"
    web.wait(lambda: 'result="cancelled"' in page.execute_async_script(counted))


def test_what_was_heard_is_kept_when_the_connection_breaks(page, address):
    deliver(page, lines=3)
    speak(page, LONG)
    web.wait(lambda: "connection to the server broke" in text_of(page, "error"))
    whole, part = pcm(LONG, 5), file_of(page)
    assert 0 < len(part) < len(whole) and whole.startswith(part)
    assert is_shown(page, "player") and "What has arrived" in text_of(page, "error")
    mp3 = web.bytes_of(page, page.find_element("id", "mp3").get_property("href"))
    samples, rate = soundfile.read(io.BytesIO(mp3))
    assert len(samples) / rate == pytest.approx(len(part) / 2 / 22050, abs=0.2)
    opened(page, address)
    web.wait(lambda: "part of the text" in history(page))
    page.find_element("css selector", "#history li button").click()
    web.wait(lambda: page.execute_script("return sound.playing"))
    assert file_of(page) == part


REFUSES = "{ get() { throw new DOMException('no', 'SecurityError') } }"
BLOCKED = "".join(f"Object.defineProperty(window, '{name}', {REFUSES});" for name in ("localStorage", "indexedDB"))
FULL = "IDBObjectStore.prototype.put = function () { this.transaction.abort() }"
OLD = "window.BroadcastChannel = undefined; Storage.prototype.setItem = () => { throw 1 }"


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (BLOCKED, "keeps nothing"),
        ("IDBFactory.prototype.open = () => ({})", "not opened its store"),
        (FULL, "store is full"),
        (OLD, "latest 30"),
    ],
)
def test_stores_are_optional(page, browser, address, fault, words):
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": fault})
    try:
        opened(browser, address)
        speak(page, "Two.")
        wait_for_end(page)
        web.wait(lambda: words in text_of(page, "limit"))
        assert file_of(page) == pcm("Two.", 5) and "Two." in history(page)
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", added)


@pytest.mark.parametrize("packed", [False, True])
def test_a_slow_server_is_played_without_a_gap_after_a_reserve(page, packed):
    """At two thirds of real time, as samples and as the mp3 of a slow line."""
    deliver(page, slowness=1.5)
    page.execute_script(
        """slowLine = arguments[0]; window.starts = []; const start = AudioBufferSourceNode.prototype.start;
        AudioBufferSourceNode.prototype.start = function (when) {
          starts.push([when, this.buffer.duration]); start.call(this, when); }""",
        packed,
    )
    speak(page, LONG)
    web.wait(lambda: "stutter" in text_of(page, "status"))
    assert not page.execute_script("return starts.length") and is_shown(page, "stop")
    web.wait(lambda: page.execute_script("return record?.done && !sound.playing"))
    starts = np.array(page.execute_script("return starts"))
    assert np.allclose(starts[1:, 0], starts[:-1].sum(axis=1), atol=1e-3), "a gap"
    assert page.execute_script("return body.response_format") == ("mp3" if packed else "pcm")
    whole = len(pcm(LONG, 5))
    assert len(file_of(page)) == pytest.approx(whole, abs=0.1 * 2 * 22050) if packed else file_of(page) == pcm(LONG, 5)


def test_what_is_left_out_is_said(page):
    speak(page, "Guten Tag, wie geht es Ihnen? ☃ 你好.")
    wait_for_end(page)
    for words in ("'☃': left out", "German", "Chinese letters", "你好"):
        assert words in text_of(page, "note")
    speak(page, "Two.")
    wait_for_end(page)
    assert text_of(page, "note") == ""


def test_earlier_speeches_bring_their_text_back_and_go_singly(page, browser, address):
    from selenium.webdriver.common.alert import Alert

    for text in ("Two.", "Yes!"):
        speak(page, text)
        wait_for_end(page)
    write(page, "An unspoken text")
    page.find_elements("css selector", "#history li button:first-child")[1].click()
    web.wait(lambda: page.execute_script("return record?.text === 'Two.'"))
    assert page.find_element("id", "text").get_property("value") == "Two."
    web.click(page, "back")
    assert page.find_element("id", "text").get_property("value") == "An unspoken text"
    first, other = browser.current_window_handle, None
    browser.switch_to.new_window("tab")
    try:
        opened(browser, address)
        other = browser.current_window_handle
        page.find_elements("css selector", "#history .remove")[0].click()
        web.wait(lambda: "Yes!" not in history(page))
        browser.switch_to.window(first)
        web.wait(lambda: "Yes!" not in history(page) and "Two." in history(page))
        web.click(page, "forget")
        Alert(browser).dismiss()
        assert "Two." in history(page)
        web.click(page, "forget")
        Alert(browser).accept()
        web.wait(lambda: not page.find_elements("css selector", "#history li"))
    finally:
        if other:
            browser.switch_to.window(other)
            browser.close()
        browser.switch_to.window(first)


def test_files_and_programs(page, tmp_path):
    """A dropped file becomes the text, and the commands that the page shows give the speech of its settings."""
    page.execute_script(
        """window.drop = (name, bytes) => { const dataTransfer = new DataTransfer();
        dataTransfer.items.add(new File([new Uint8Array(bytes)], name));
        document.body.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true })); };
        drop("tune.mp3", [255, 251, 0])"""
    )
    web.wait(lambda: "tune.mp3: no text in UTF-8" in text_of(page, "error"))
    page.execute_script("drop('a.txt', arguments[0])", list(b"It's \"two\" o'clock."))
    web.wait(lambda: page.find_element("id", "text").get_property("value") == "It's \"two\" o'clock.")
    write(page, "7", "seed")
    for name, argv in (("curl", ["sh", "-c"]), ("python", [sys.executable, "-c"])):
        subprocess.run([*argv, text_of(page, name)], cwd=tmp_path, check=True, capture_output=True)
        samples, _ = soundfile.read(tmp_path / "speech.wav", dtype="int16")
        assert samples.tobytes() == pcm("It's \"two\" o'clock.", 7)


def test_a_voice_says_who_it_is_and_is_heard(page):
    assert "English, the voice of a man" in text_of(page, "who") and "6 words in 100" in text_of(page, "who")
    page.execute_script(
        "window.Audio = class { constructor(url) { window.heard = this; this.url = url } async play() {} pause() {} }"
    )
    web.click(page, "sample")
    web.wait(lambda: page.execute_script("return Boolean(window.heard)"))
    found = web.bytes_of(page, page.execute_script("return new URL(heard.url, document.baseURI).href"))
    samples, rate = soundfile.read(io.BytesIO(found))
    assert len(samples) > 2 * rate and text_of(page, "sample") == "Stop the sample"
    page.execute_script("chosenVoice().language = 'es-MX'")
    web.click(page, "sample")  # stops it
    web.click(page, "sample")
    web.wait(lambda: "text=Buenos" in page.execute_script("return heard.url"))


def test_the_keyboard_alone_and_contrasts(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(page).send_keys(*keys).perform()

    write(page, LONG)
    page.execute_script("document.getElementById('speak').focus()")
    press(Keys.ENTER)
    web.wait(lambda: page.execute_script("return sound.playing && position() > 0.2"))
    page.execute_script("document.getElementById('play').focus()")
    press(" ")
    assert not page.execute_script("return sound.playing") and text_of(page, "speak") == "Go on"
    press(" ")
    web.wait(lambda: page.execute_script("return sound.playing"))
    press(Keys.ESCAPE)
    web.wait(lambda: not page.execute_script("return sound.playing || reading"))
    page.execute_script("document.getElementById('details').open = true")
    reached = web.tab_through(page)
    names = [name for name, _ in reached]
    wanted = ["text", "voice", "speak", "play", "forget"]  # in this order
    assert sorted(wanted, key=names.index) == wanted
    others = ["file", "speed", "sample", "seek", "volume", "wav", "vocoder", "curl"]
    assert [name for name in others if name not in names] == []
    assert all(is_visible for _, is_visible in reached), reached
    for scheme in ("dark", "light"):
        assert web.low_contrasts(page, scheme) == []
