"""A page in headless Chromium, by its driver: start it, fill fields, click, wait, read values and sounds."""

import base64
import io
import json
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
import soundfile

try:
    from selenium.common import exceptions as faults
except ModuleNotFoundError:  # wait() also serves tests without a browser
    REDRAWS: tuple[type[Exception], ...] = ()
else:
    REDRAWS = (
        faults.StaleElementReferenceException,
        faults.NoSuchElementException,
        faults.ElementNotInteractableException,
        faults.ElementClickInterceptedException,
    )

T = TypeVar("T")
PATIENCE = 400  # seconds; another program may have the machine
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}


def start_browser(profile: Path, *flags: str):
    """Start Chromium with an empty profile; skips the test where the browser or its driver is missing."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium, of tests/requirements.txt, is not installed")
    chromium, driver = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("chromium and chromedriver (Debian: chromium chromium-driver) are not installed")
    options = selenium.ChromeOptions()
    options.binary_location = chromium
    words = "headless=new no-sandbox disable-gpu disable-quic no-first-run disable-background-networking disable-dev-shm-usage"
    words += " disable-component-update disable-sync"
    for word in [*words.split(), f"user-data-dir={profile}", *flags]:
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = selenium.Chrome(options, selenium.ChromeService(driver))
    browser.set_script_timeout(PATIENCE)
    return browser


def open_page(browser, address: str) -> None:
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
    browser.execute_script("window.stop()")  # the page before logs each request that it gives up
    browser.get_log("performance")
    browser.get_log("browser")
    browser.get(address)


def wait(condition: Callable[[], T], seconds: float = PATIENCE) -> T:
    """Return the first true value of a condition; an element that a redraw takes away meanwhile counts as not there yet."""
    deadline, pause, reason = time.monotonic() + seconds, 0.05, ""
    while True:
        try:
            if value := condition():
                return value
        except REDRAWS as error:
            reason = f": {error}"
        assert time.monotonic() < deadline, f"the page did not get there in time{reason}"
        time.sleep(pause)
        pause = min(1.1 * pause, 0.5)  # each look costs time in four processes


def value_of(page, name: str) -> str:
    script = "const field = document.querySelector(arguments[0]); return field && [field.value]"
    return wait(lambda: page.execute_script(script, f"#{name} textarea, #{name} input"))[0]


def fill(page, name: str, text: str) -> None:
    """Type over the contents of a field; a long text is pasted, since each character typed takes 3 ms."""
    from selenium.webdriver.common.keys import Keys

    def type_over() -> bool:
        field = page.find_element("css selector", f"#{name} textarea, #{name} input")
        field.send_keys(Keys.CONTROL, "a")
        if len(text) > 100:
            page.execute_cdp_cmd("Input.insertText", {"text": text})
        else:
            field.send_keys(text)
        return True

    wait(type_over)


def submit(page, name: str, text: str, button: str, is_done: Callable[[], bool]) -> None:
    """Type over a field and click a button, and do so again where nothing came of it: a page that still loads loses both."""

    def submit_once() -> bool:
        if not is_done():
            fill(page, name, text)
            click(page, button)
            with suppress(AssertionError):
                wait(is_done, PATIENCE / 6)
        return is_done()

    wait(submit_once)


def choose_option(page, name: str, label: str) -> None:
    """Choose an option of a list by its label: type it, and press Enter once it is the only one."""
    from selenium.webdriver.common.keys import Keys

    script = "return [...document.querySelectorAll('[role=option]')].map((option) => option.ariaLabel)"
    fill(page, name, label)
    wait(lambda: page.execute_script(script) == [label])
    page.switch_to.active_element.send_keys(Keys.ENTER)
    wait(lambda: value_of(page, name) == label and page.execute_script(script) == [])


def click(page, name: str) -> None:
    click_on(page, f"#{name}")


def click_on(page, selector: str, words: str = "") -> None:
    """Scroll to the first visible element of a CSS selector whose text begins with some words, and click it."""
    wait(lambda: _click_first(page, selector, lambda text: text.startswith(words)))


def _click_first(page, selector: str, fits: Callable[[str], bool]) -> bool:
    for element in page.find_elements("css selector", selector):
        if element.is_displayed() and fits(element.text):
            page.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()
            return True
    return False


def open_tab(page, title: str) -> None:
    """Choose a tab; on a narrow screen it may be in the menu of the others."""
    places = "[role=tab]", ".overflow-dropdown button"

    def choose() -> bool:
        if any(_click_first(page, place, lambda text: text == title) for place in places):
            return True
        _click_first(page, ".overflow-menu > button", lambda text: True)
        return False

    page.execute_script("window.scrollTo(0, 0)")
    wait(choose)


def wait_for_tab(page, title: str, name: str) -> None:
    """Choose a tab, and wait until an element of it is visible."""
    open_tab(page, title)
    wait(lambda: page.find_element("id", name).is_displayed())


def bytes_of(page, address: str) -> bytes:
    script = """
        const done = arguments[1];
        fetch(arguments[0]).then((response) => response.blob()).then((blob) => {
          const reader = new FileReader();
          reader.onload = () => done(reader.result.split(",")[1]);
          reader.readAsDataURL(blob);
        });
    """
    return base64.b64decode(page.execute_async_script(script, address))


def finished_audio(page, name: str) -> tuple[np.ndarray, int]:
    """Return the samples (N,) and the rate of the wav file that a player of the page offers for download."""
    script = "return document.querySelector(arguments[0])?.href"
    address = wait(lambda: page.execute_script(script, f"#{name} a[download]"))
    return soundfile.read(io.BytesIO(bytes_of(page, address)), dtype="int16")


def errors_on(page) -> list[str]:
    """Return the messages on a page; in one step, since messages that are closed vanish."""
    script = "return [...document.querySelectorAll('.toast-body')].map((toast) => toast.innerText).filter(Boolean)"
    return page.execute_script(script)


def close_errors(page) -> None:
    page.execute_script("document.querySelectorAll('.toast-close').forEach((button) => button.click())")
    wait(lambda: errors_on(page) == [])


def width_of(page) -> int:
    return page.execute_script("return document.documentElement.scrollWidth")


def hosts_of(page) -> set[str]:
    """Return the hosts of all requests since the page was loaded, the browser's own pages aside."""
    messages = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requests = [item["params"]["request"]["url"] for item in messages if item["method"] == "Network.requestWillBeSent"]
    assert len(requests) > 10
    return {url.split("/")[2] for url in requests if not url.startswith(("data:", "blob:", "chrome:"))}


LOW_CONTRAST = """
const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const rgba = (color) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = color; pen.fillRect(0, 0, 1, 1);
  const [red, green, blue, alpha] = pen.getImageData(0, 0, 1, 1).data; return [red, green, blue, alpha / 255]; };
const over = (top, under) => [...top.slice(0, 3).map((value, i) => value * top[3] + under[i] * (1 - top[3])), 1];
const ground = (element) => element
  ? over(rgba(getComputedStyle(element).backgroundColor), ground(element.parentElement))
  : rgba(matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "white");
const luminance = (color) => [0.2126, 0.7152, 0.0722].reduce((sum, share, i) => {
  const value = color[i] / 255; return sum + share * (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4); }, 0);
const found = [];
for (const element of document.querySelectorAll("body *")) {
  const text = [...element.childNodes].filter((node) => node.nodeType === 3).map((node) => node.data.trim()).join("");
  const isShown = element.checkVisibility({ checkOpacity: true, checkVisibilityCSS: true });
  if (!text || !isShown || element.closest("[disabled]") || element.getBoundingClientRect().width < 2) continue;
  const style = getComputedStyle(element), under = ground(element), ink = over(rgba(style.color), under);
  const [high, low] = [luminance(ink), luminance(under)].sort((a, b) => b - a), ratio = (high + 0.05) / (low + 0.05);
  const size = parseFloat(style.fontSize), isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
  if (ratio < (isLarge ? 3 : 4.5)) found.push([text.slice(0, 40), Math.round(100 * ratio) / 100]);
}
return found;
"""


def low_contrasts(page, scheme: str) -> list[tuple[str, float]]:
    """The visible texts whose contrast with their ground is below WCAG 2 AA (1.4.3), "light" or "dark", with the ratio."""
    features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", features)
    time.sleep(0.5)  # colours change with a transition
    return page.execute_script(LOW_CONTRAST)


def tab_through(page, most: int = 60) -> list[tuple[str, bool]]:
    """What the key Tab reaches from the page's beginning: ids, or tags with their words, and whether the focus is to be seen."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    script = """const found = document.activeElement, style = getComputedStyle(found);
    const shown = found.closest(".texts label") ?? found;
    const outline = getComputedStyle(shown).outlineStyle !== "none" || style.boxShadow !== "none";
    const name = found.id || found.closest("[id]:not(body)")?.id || found.tagName;
    return found === document.body ? null : [name, outline];"""
    page.execute_script(
        "const first = document.createElement('span'); first.tabIndex = -1; document.body.prepend(first);"
        "first.focus(); first.remove()"
    )
    reached: list[tuple[str, bool]] = []
    for _ in range(most):
        ActionChains(page).send_keys(Keys.TAB).perform()
        if (found := page.execute_script(script)) is None:
            break
        reached.append(tuple(found))
    return reached
