"""The page in headless Firefox, by the keyboard alone: the player's samples, the pictures, an error, a phone's width."""

from __future__ import annotations

import pytest

from tests.browser import wait
from tests.firefox import CONTROL, ENTER, SHIFT, TAB, firefox
from tests.serving.conftest import reference
from tests.serving.test_server import serve

pytestmark = pytest.mark.slow
WIDTH = 375
TEXT = "There are seven days in a week."
FOCUS = "document.activeElement.closest('[id]')?.id"
RESULT = "document.querySelector('#speech-message textarea').value"
PICTURES = "[...document.querySelectorAll('#speech-mel img, #speech-alignment img')].map((image) => image.naturalWidth)"
ERRORS = "[...document.querySelectorAll('.toast-body')].map((toast) => toast.innerText)"


def test_a_text_is_typed_spoken_and_drawn(tmp_path):
    pytest.importorskip("gradio", reason="gradio, of requirements-serving.txt, is not installed")
    with firefox(tmp_path / "profile") as page, serve("--page", "--seed", 5) as server:
        page.open(f"{server.url}/", WIDTH)
        wait(lambda: page.run("document.getElementById('speak') !== null"))
        for _ in range(10):
            page.press(TAB)
            if page.run(FOCUS) == "text":
                break
        type_over(page, TEXT)
        page.press(TAB)
        assert page.run(FOCUS) == "speak"
        page.press(ENTER)
        wait(lambda: "seed 5" in page.run(RESULT))
        whole = {"samples": len(reference(TEXT, 5)), "rate": 22050, "finished": True}
        wait(lambda: whole.items() <= page.run("ttsPlayer.status").items())
        wait(lambda: len(widths := page.run(PICTURES)) == 2 and min(widths) > 500)
        assert page.run("document.documentElement.scrollWidth") <= WIDTH
        page.press(SHIFT, TAB)
        type_over(page, " ")
        page.press(SHIFT, ENTER)
        wait(lambda: any("text: empty, expected a text" in text for text in page.run(ERRORS)))
        assert page.errors() == []
        assert page.hosts() == {server.url.split("/")[2]}


def type_over(page, text: str) -> None:
    page.press(CONTROL, "a")
    for letter in text:
        page.press(letter)
