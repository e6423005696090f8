"""The page in headless Chromium: speech, pictures, a phone's width, the keyboard, errors, a conversation, no outside host."""

import io
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import soundfile

from synthesizer import EMBEDDED
from tests import browser as web
from tests.outside_hosts import watch
from tests.recipe import assert_spoken, skip_without_evaluators
from tests.serving.conftest import pcm, reference

pytestmark = pytest.mark.slow
TEXT = "There are seven days in a week."


@pytest.fixture(scope="module")
def outside_hosts() -> list[str]:
    """Hosts beyond loopback that this process, the server among its threads, looks up or connects to."""
    hosts: list[str] = []
    watch(hosts.append)
    return hosts


@pytest.fixture(scope="module")
def address(outside_hosts, tmp_path_factory) -> Iterator[str]:
    """The page of the embedded voice, and of one with the same models and its own vocoder, served on loopback."""
    for package in ("fastapi", "av", "prometheus_client", "gradio"):
        pytest.importorskip(package, reason=f"{package}, of requirements/serving.txt, is not installed")
    from common.web.server import Server
    from serving.app import make_app
    from serving.config import ServingConfig
    from serving.engine import Engine
    from serving.voices import Voices

    voices = tmp_path_factory.mktemp("voices")
    (voices / "other").symlink_to(EMBEDDED)
    config = ServingConfig(cpu=True, max_characters=1000, voices=voices)
    engine = Engine(Voices(config), config)
    engine.start()
    app = make_app(engine, config)
    server = Server(app, 1, host="127.0.0.1", port=0, log_level="warning")
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    web.wait(lambda: engine.ready and server.started)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    server.end()
    thread.join(timeout=30)
    engine.begin_stop()


@pytest.fixture(scope="module")
def question(tmp_path_factory) -> Path:
    """A question that the embedded voice speaks."""
    path = tmp_path_factory.mktemp("question") / "question.wav"
    soundfile.write(path, reference("How many days are in a week?", 2).numpy(), 22050)
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Headless Chromium, with a microphone."""
    words = "use-fake-ui-for-media-stream use-fake-device-for-media-stream"
    browser = web.start_browser(tmp_path_factory.mktemp("profile"), *words.split())
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, address):
    """The page, freshly loaded at a phone's width, with its own sample as text."""
    browser.execute_script("try { sessionStorage.clear() } catch {}")  # the text of the test before
    web.open_page(browser, address)
    web.wait(lambda: message_of(browser, "text-counter"))
    return browser


def message_of(page, name: str = "speech-message") -> str:
    """The text of an element, "" if there is none yet."""
    return page.execute_script("return document.getElementById(arguments[0])?.textContent ?? ''", name)


def player(page) -> dict:
    return json.loads(page.execute_script("return JSON.stringify(window.ttsPlayer.status)"))


def wait_for_speech(page, name: str = "speech") -> str:
    return web.wait(lambda: "s of speech" in (text := message_of(page, f"{name}-message")) and text)


LINK = "return [...document.querySelectorAll(arguments[0])].find((link) => link.download.endsWith(arguments[1]))?.href"


def finished(page, name: str = "speech", kind: str = "wav") -> tuple[np.ndarray, int]:
    """The samples and the rate of a finished speech, from the file that is offered as a download."""
    address = web.wait(lambda: page.execute_script(LINK, f"#{name}-player .files a", kind))
    return soundfile.read(io.BytesIO(web.bytes_of(page, address)), dtype="int16")


def can_stop(page, name: str = "stop") -> bool:
    return page.find_element("id", name).is_enabled()


def test_a_text_is_spoken_and_drawn(page, address, outside_hosts):
    web.fill(page, "text", TEXT)
    assert message_of(page, "text-counter") == "31 of 1,000 characters"
    click_settings(page)
    web.fill(page, "speech-seed", "5")
    page.execute_script(WATCH)
    assert not can_stop(page)
    web.click(page, "speak")
    web.wait(lambda: can_stop(page))
    message = wait_for_speech(page)
    samples, rate = finished(page)
    assert message.startswith(f"{len(samples) / rate:.2f} s of speech, first") and message.endswith("seed 5.")
    assert samples.tobytes() == pcm(TEXT, 5)
    encoded, rate_of_mp3 = finished(page, kind="mp3")
    assert rate_of_mp3 == rate and len(encoded) == pytest.approx(len(samples), abs=4000)
    played = player(page)
    assert (played["samples"], played["rate"], played["finished"]) == (len(samples), rate, True)
    web.wait(lambda: not can_stop(page))  # the sound has ended
    spoken = page.execute_script("return window.spoken")  # a busy machine may miss some
    assert len(spoken) > 3 and spoken == [word for word in TEXT.split() if word in spoken]
    web.wait(lambda: page.find_element("id", "speech-details").is_displayed())
    assert not page.execute_script("return document.querySelector('#speech-mel img')?.checkVisibility()")
    web.click_on(page, "#speech-details button.label-wrap")
    for name in ("speech-mel", "speech-alignment"):
        web.wait_for_picture(page, name)
    assert web.width_of(page) <= web.PHONE["width"]
    assert web.hosts_of(page) == {address.split("/")[2]}
    assert outside_hosts == []
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []
    page.refresh()
    web.wait(lambda: message_of(page, "text-counter") == "31 of 1,000 characters")
    assert web.value_of(page, "text") == TEXT  # a reload keeps it


# The words in the order in which they are highlighted.
WATCH = """window.spoken = [];
  new MutationObserver(() => {
    const word = document.querySelector(".spoken")?.textContent;
    if (word && word !== window.spoken.at(-1)) window.spoken.push(word);
  }).observe(document.body, { subtree: true, attributes: true, childList: true });"""


def click_settings(page) -> None:
    """Open the settings of the first tab."""
    web.click_on(page, "button.label-wrap", "Settings")
    web.wait(lambda: any(field.is_displayed() for field in page.find_elements("id", "speech-seed")))


def test_the_keyboard_alone(page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(page).send_keys(*keys).perform()

    def focus() -> str:
        return page.execute_script("return document.activeElement.closest('[id]').id")

    for _ in range(10):
        press(Keys.TAB)
        if focus() == "text":
            break
    ActionChains(page).key_down(Keys.CONTROL).send_keys("a").key_up(Keys.CONTROL).send_keys("A star.").perform()
    press(Keys.TAB)
    press(Keys.TAB)
    assert focus() == "speak"  # after the voice
    press(Keys.ENTER)
    wait_for_speech(page)
    assert player(page)["samples"] > 0
    ActionChains(page).key_down(Keys.SHIFT).send_keys(Keys.TAB, Keys.TAB).key_up(Keys.SHIFT).perform()
    first = message_of(page)
    ActionChains(page).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()
    web.wait(lambda: message_of(page) != first and wait_for_speech(page))
    history = page.find_elements("css selector", "#speech-history li")
    assert len(history) == 2 and all(entry.text.startswith("Play\nA star.") for entry in history)
    page.execute_script("""document.querySelector("#speech-player .sound").addEventListener("playing", () => {
        window.replayed = document.querySelector("#stop").disabled ? "without Stop" : "yes";
    })""")  # a star is over before a busy machine looks
    web.click_on(page, "#speech-history button")
    assert web.wait(lambda: page.execute_script("return window.replayed")) == "yes"


def test_errors_are_words_and_the_page_works_on(page):
    click_settings(page)
    mistakes = [
        ("text", " ", "Please type a text first."),
        ("text", "word " * 202, "This text has 1,010 characters, and 1,000 are allowed. Please shorten it."),
        ("text", "{XX}", "no ARPAbet symbol 'XX'"),
        ("speech-seed", "many", "Seed: 'many' does not fit. Please enter a whole number, or nothing."),
        ("speech-seed", "-1", "Seed: -1 does not fit. Please enter 0 to 4294967295."),
        ("speech-strength", "loud", "Denoiser strength: 'loud' does not fit. Please enter a number, or nothing."),
    ]
    web.choose_option(page, "speech-vocoder", "waveglow")  # which has noise
    for field, value, message in mistakes:
        web.wait(lambda field=field: page.find_elements("css selector", f"#{field} textarea, #{field} input"))
        before = web.value_of(page, field)
        web.fill(page, field, value)
        web.click(page, "speak")
        found = web.wait(lambda message=message: message in (text := message_of(page)) and text)
        assert "Traceback" not in found and "/" not in found and "--" not in found
        web.fill(page, field, before or "\b")
        assert message_of(page) == "" and web.errors_on(page) == []  # it goes when somebody types
    web.choose_option(page, "speech-vocoder", "pulse-noise")
    web.wait(lambda: not page.find_elements("css selector", "#speech-strength input, #speech-sigma input"))
    web.click_on(page, ".gallery button, .gallery-item", "The quick brown fox")
    web.wait(lambda: web.value_of(page, "text").startswith("The quick brown fox"))
    web.fill(page, "speech-seed", "5")
    web.fill(page, "speech-speed", "2\t")
    web.click(page, "speak")
    wait_for_speech(page)
    samples, _ = finished(page)
    assert len(samples) == pytest.approx(len(reference(web.value_of(page, "text"), 5)) / 2, rel=0.05)


@pytest.mark.parametrize("leave", ["stop", "close"])
def test_a_listener_who_leaves_ends_the_work(page, address, leave):
    web.fill(page, "text", "This sentence is one of very many. " * 28)
    web.click(page, "speak")
    web.wait(lambda: player(page)["samples"])
    before = cancelled_requests(address)
    if leave == "stop":
        web.click(page, "stop")
        web.wait(lambda: message_of(page) == "Stopped." and not can_stop(page))
    else:
        page.get("about:blank")
    web.wait(lambda: cancelled_requests(address) == before + 1)


def test_a_browser_that_starts_no_sound_is_named(page):
    """Firefox on a machine without a sound device, for one, leaves an AudioContext suspended."""
    page.execute_script("""
        window.AudioContext = class extends AudioContext {
          constructor() { super(); this.suspend(); }
          resume() { return new Promise(() => {}); }
        };
    """)
    web.fill(page, "text", "A star.")
    web.click(page, "speak")
    web.wait(lambda: message_of(page) == "This browser does not start its sound. The finished audio is below.")
    samples, _ = finished(page)
    assert player(page)["samples"] == len(samples) > 0


def cancelled_requests(address: str) -> int:
    with urlopen(f"{address}metrics") as answer:
        found = re.search(r'^tts_requests_total{.*result="cancelled".*} (.*)$', answer.read().decode(), re.MULTILINE)
    return int(float(found[1])) if found else 0


def test_two_voices_side_by_side(page):
    from selenium.webdriver.common.keys import Keys

    web.wait_for_tab(page, "Compare", "compare")
    web.fill(page, "compared-text", TEXT)
    web.fill(page, "second-voice", f"other{Keys.ENTER}")
    web.wait(lambda: web.value_of(page, "second-vocoder") == "pulse-noise")  # this voice's default
    web.choose_option(page, "second-vocoder", "griffin-lim")
    for name, seed, vocoder in (("first", 5, "pulse-noise"), ("second", 6, "griffin-lim")):
        assert web.value_of(page, f"{name}-vocoder") == vocoder
        web.fill(page, f"{name}-seed", str(seed))
    web.click(page, "compare")
    for name, seed, vocoder in (("first", 5, "pulse-noise"), ("second", 6, "griffin-lim")):
        assert f"seed {seed}" in wait_for_speech(page, name)
        samples, _ = finished(page, name)
        assert samples.tobytes() == pcm(TEXT, seed, vocoder=vocoder)
        if name == "first":
            assert player(page)["samples"] == len(samples)  # the second is not played
    assert web.width_of(page) <= web.PHONE["width"]


def choose_answers_seed(page) -> None:
    """Fix the seed of answers: the recogniser misunderstands a word of some seeds."""
    web.click_on(page, "button", "Voice")
    web.wait(lambda: any(field.is_displayed() for field in page.find_elements("id", "answer-seed")))
    web.fill(page, "answer-seed", "1")


def wait_for_answer(page, text: str) -> None:
    """Wait for a spoken answer, which must speak a text."""
    wait_for_speech(page, "answer")
    samples, rate = finished(page, "answer")
    assert player(page)["samples"] == len(samples)
    assert_spoken(text, samples / 32768, rate)


BUTTONS = """
    const buttons = document.querySelectorAll("#recording .icon-button-wrapper button");
    return [...buttons].map((button) => button.ariaLabel)
"""


def test_a_conversation_from_a_file(page, question):
    skip_without_evaluators()
    web.wait_for_tab(page, "Conversation", "answer")
    web.click(page, "answer")
    web.wait(lambda: message_of(page, "answer-message").startswith("There is no question yet. Please record one"))
    assert page.find_elements("css selector", "#recording .record-button, #recording button.record")
    choose_answers_seed(page)
    upload(page, question)
    assert web.wait(lambda: page.execute_script(BUTTONS)) == ["Download", "Clear"]  # none sends it elsewhere
    web.click(page, "answer")
    web.wait(lambda: web.value_of(page, "transcript") == "How many days are in a week?")
    wait_for_answer(page, "There are seven days in a week.")
    assert web.width_of(page) <= web.PHONE["width"]


def upload(page, path: Path) -> None:
    """Choose a sound file as the question."""
    page.execute_script("document.querySelector('#recording button[aria-label*=pload]')?.click()")
    web.wait(lambda: page.find_elements("css selector", "#recording input[type=file]"))[0].send_keys(str(path))
    web.wait(lambda: page.find_elements("css selector", "#recording a[download], #recording [data-testid*=waveform]"))


def test_the_page_answers_no_other_origin():
    """Gradio's own middleware allows every origin where the server has another name than localhost."""
    pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
    from starlette.testclient import TestClient

    from serving.app import make_app
    from serving.config import ServingConfig
    from serving.engine import Engine
    from serving.voices import Voices

    config = ServingConfig(cpu=True)
    client = TestClient(make_app(Engine(Voices(config), config), config), "http://server:8000")
    headers = {"origin": "https://example.com", "access-control-request-method": "POST"}
    for answer in (client.get("/config", headers=headers), client.options("/gradio_api/queue/join", headers=headers)):
        assert not {"access-control-allow-origin", "access-control-allow-credentials"} & set(answer.headers)


def test_large_uploads_are_refused(address):
    boundary = "x" * 20
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="files"; filename="../../a.wav"\r\n\r\n'
    body = head.encode() + bytes(30 * 2**20) + f"\r\n--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    with pytest.raises(URLError) as caught:  # 413, or a connection that is closed while the body is sent
        urlopen(Request(f"{address}gradio_api/upload", body, headers))
    assert getattr(caught.value, "code", 413) == 413
