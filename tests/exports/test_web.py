"""The browser page: its front end against tacotron2.text, its files, and its speech in headless Chromium against ONNX Runtime."""

import functools
import io
import json
import re
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import wavfile

from common.errors import UsageError
from exports import targets
from exports.manifest import read_manifest
from models import default_options
from tacotron2.data_function import encode, spell
from tacotron2.text import symbols
from tests.browser import PHONE, bytes_of, hosts_of, open_page, start_browser, wait, width_of
from tests.exports.conftest import skip_without_packages

TOLERANCE = 1e-3  # of audio; a step of 16 bits is 3e-5
PATIENCE = 1200  # seconds; another program may have the machine
SENTENCES = [
    "Good morning.",
    "Dr. Smith and Mrs. Jones met Mr. Brown at Ft. Worth.",
    "Lt. Col. Hall, Capt. Kirk, Sgt. Pepper, Gen. Lee, Maj. Tom and Rev. Green.",
    "It's “quoted” — and – so… café, naïve, Müller.",
    "In 1999 and 2005, in 1905, 1100, 1500 or 2019, 2000 and 2099.",
    "1,234 boats, 12,345,678 fish, 3000 men, 2100 cats and 123456 birds.",
    "The 21st, the 3rd, the 112th, the 1,000th and the 12th.",
    "$5, $3.50, $1.01, $0.50, $0 and $1,500.25; he paid $1.",
    "3.5, 3.14 and 0.5 of it, 50% of A & B; 3.5% more.",
    "007 is not 7, 10 or 1234567890.",
    "Turn left on {HH AW1 S T AH0 N} Street.",
    "SHE SAID NO?!",
    "  Hello;  there: (see above)\nand\tmore!!",
    "It cost $1.5 million, $2bn, $3k or €4m; $3.5 each.",
    "€5, €5.20 and €1; £3.20, £1, £1.01 and £2 billion; 5€ or 10 £.",
    "at 5:00pm, at 5:30 p.m. today, at 7:45 am, 5pm, 11 a.m. sharp, 5:30, 12:05 and 18:30",
    "half-hour, mid-1999 and a 5-year plan",
    "I",
    "“B!”",
]
SPOKEN = "Good morning. It is half past 9, and Mr. Brown has 21 cups."


def sentences_of(texts: list[str]) -> list[list[list[int]]]:
    return in_node("sentences(text, symbols)", texts)


def in_node(call: str, texts: list[str]) -> list[Any]:
    if not (node := shutil.which("node")):
        pytest.skip("node, which runs the page's front end, is not installed")
    script = f"""
        import {{ readFileSync }} from "node:fs";
        import {{ sentences, unread }} from "{(targets.PAGE / "text.js").as_uri()}";
        const {{ texts, symbols }} = JSON.parse(readFileSync(0));
        console.log(JSON.stringify(texts.map((text) => {call})));
    """
    words, given = [node, "--input-type=module", "-e", script], json.dumps({"texts": texts, "symbols": symbols})
    return json.loads(subprocess.run(words, input=given, capture_output=True, encoding="utf-8", check=True).stdout)


def skip_without_runtime() -> None:
    skip_without_packages()
    if missing := targets.missing_runtime():
        pytest.skip(missing)


def test_the_front_end_agrees_with_pythons_and_cuts_sentences() -> None:
    for text, (ids,) in zip(SENTENCES, sentences_of(SENTENCES), strict=True):
        assert "".join(symbols[i] for i in ids) == "".join(spell(text.strip(), default_options()))
    text = "He came at 5 p.m. by train... late. “Why?” I asked Dr. No! It was {N OW1}. 3 ... 12. ...!"
    (found,) = sentences_of([text])
    assert ["".join(symbols[i] for i in ids).replace("@", "") for ids in found] == [
        *("he came at five p m by train... late.", "why?", "i asked doctor no!"),
        *("it was NOW1.", "three ... twelve."),
    ]


UNREAD = {
    "an address": ["https://example.org/a", "me@example.org"],
    "markup": ["<b>"],
    "a date": ["3/4/2026", "2026-05-03"],
    "a fraction": ["2/3", "½"],
    "a range": ["3-5"],
    "a sign before a number": ["-5"],
    "a unit": ["5 km", "20 °C", "3.5kg"],
    "a currency": ["¥500", "₹20"],
    "an initialism": ["TV", "U.S."],
    "a Roman numeral": ["VIII"],
    "letters of another script": ["Привет", "你好"],
    "a sign without a sound": ["☃", "🙂"],
}


def test_what_the_front_end_cannot_read_is_named() -> None:
    """And nothing of what it can: the sentences that both front ends read alike."""
    texts = [f"King Henry {part} was it." for parts in UNREAD.values() for part in parts]
    found, kinds = (
        in_node("unread(text)", [*texts, *SENTENCES]),
        [kind for kind, parts in UNREAD.items() for _ in parts],
    )
    for text, kind, [(named, part), *others] in zip(texts, kinds, found, strict=False):
        assert (named, part.strip(), others) == (kind, text.removeprefix("King Henry ").removesuffix(" was it."), [])
    assert [pair for pairs in found[len(texts) :] for pair in pairs] == []


def test_the_files_of_a_page(export_of) -> None:
    """The page has all that it loads, and its model is that of `onnx`, with the inputs that a browser gives."""
    skip_without_runtime()
    import onnxruntime

    directory = export_of("web")
    records = read_manifest(directory).files
    assert {"index.html", "page.js", "text.js", "style.css", "alphabet.json", *targets.RUNTIME_FILES} < set(records)
    assert json.loads((directory / "alphabet.json").read_text()) == symbols
    ours, theirs = (onnxruntime.InferenceSession(str(export_of(name) / "tts.onnx")) for name in ("web", "onnx"))
    names = {value.name for value in ours.get_inputs()}
    assert names == set(records["tts.onnx"].inputs) == {"ids", "lengths", *targets.REQUIRED}
    inputs = {"ids": np.array([[5, 40, 41, 7]]), "lengths": np.array([4])}
    inputs |= {"seeds": np.array([3]), "max_steps": np.array(9)}
    np.testing.assert_allclose(ours.run(None, inputs)[0], theirs.run(None, inputs)[0], rtol=0, atol=1e-6)


def test_a_missing_runtime_and_another_language_are_refused(tmp_path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(targets, "RUNTIME", tmp_path)
        assert re.search(r"ort\.wasm\.min\.mjs.*bash scripts/web\.sh", targets.missing_runtime())
    targets.check_page(default_options())
    with pytest.raises(UsageError, match="text cleaners are basic_cleaners; expected english_cleaners"):
        targets.check_page(default_options() | {"text_cleaners": ["basic_cleaners"]})


@pytest.fixture(params=["web", "web-pulse-noise"])
def directory(export_of, request) -> Path:
    return export_of("web").parent / request.param


@pytest.fixture
def address(directory):
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(directory))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def page(tmp_path, address):
    browser = start_browser(tmp_path / "profile")
    open_page(browser, address)
    yield browser
    browser.quit()


def expected_samples(directory: Path, seed: int) -> np.ndarray:
    """Speech of SPOKEN from ONNX Runtime in Python, sentence by sentence."""
    import onnxruntime

    session, parts = onnxruntime.InferenceSession(str(directory / "tts.onnx")), []
    manifest = read_manifest(directory)
    limit = np.array(manifest.models["Tacotron2"]["max_decoder_steps"])
    for text in SPOKEN.split(". ", 1):
        ids, lengths = encode([text if text.endswith(".") else f"{text}."], manifest.options)
        inputs = {"ids": ids.numpy(), "lengths": lengths.numpy(), "seeds": np.array([seed]), "max_steps": limit}
        parts += [session.run(None, inputs)[0][0], np.zeros(round(0.35 * 22050))]
    return np.concatenate(parts[:-1])


@pytest.mark.slow
def test_the_page_speaks(directory, address, page) -> None:
    from selenium.webdriver.common.keys import Keys

    def element(name: str):
        return page.find_element("id", name)

    def type_text(text: str) -> None:
        element("text").clear()
        element("text").send_keys(text)

    def wait_for_button() -> None:
        wait(lambda: element("speak").is_enabled() or element("error").is_displayed(), PATIENCE)

    wait_for_button()
    type_text(SPOKEN)
    element("seed").clear()
    spoken = [expected_samples(directory, seed) for seed in range(8)]
    expected = max(spoken, key=len)
    element("seed").send_keys(str([len(samples) for samples in spoken].index(len(expected))))
    element("speak").click()
    wait_for_button()
    assert not element("error").is_displayed(), element("error").text
    rate, samples = wavfile.read(io.BytesIO(bytes_of(page, element("audio").get_attribute("src"))))
    assert rate == 22050 and len(samples) == len(expected) > 0.35 * rate + 1000  # the pause, and speech
    np.testing.assert_allclose(samples / 32767, expected.clip(-1, 1), rtol=0, atol=TOLERANCE)
    assert np.abs(expected).max() > 0.1
    assert "s of speech in" in element("status").text and element("audio").is_displayed()
    assert width_of(page) <= PHONE["width"]

    type_text("…")
    element("text").send_keys(Keys.CONTROL, Keys.ENTER)
    wait_for_button()
    assert "There is nothing to speak" in element("error").text
    assert hosts_of(page) == {address.split("/")[2]}
