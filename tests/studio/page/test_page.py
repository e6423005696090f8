"""The studio's page in headless Chromium at a phone's width, whose microphone beeps: from dropped files to a training; each tab."""

import io
import json
import re
import signal
import time
import zipfile
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
import soundfile

from common.checkpoint.files import load_checkpoint
from common.data.filelist import read_filelist
from studio.page.editing import read_rows
from studio.page.reading import read_script
from studio.plan.file import read_plan
from studio.project import Project
from tests import browser as web
from tests.recipe import skip_without_evaluators
from tests.sounds import SENTENCES, sentence
from tests.studio.page_server import PageServer, ask, open_project, serve
from tests.studio.projects import FLAGS, store_plan

pytestmark = pytest.mark.slow
NUMBERS = range(1, 5)  # sentences of the recording
TABS = ("Data", "Plan", "Train", "Speak", "Export")
EPOCHS = 10_000  # of the plan, until the training is paused
PATIENCE = 400  # seconds for a run; another program may have the machine


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("recording")
    pause = 1e-4 * np.random.default_rng(0).standard_normal(17640)
    sounds = [sentence(number) for number in NUMBERS]
    soundfile.write(folder / "talk.wav", np.concatenate([part for sound in sounds for part in (sound, pause)]), 22050)
    (folder / "talk.txt").write_text(" ".join(SENTENCES[n - 1] for n in NUMBERS))
    return [folder / "talk.wav", folder / "talk.txt"]


def drop(page, *paths: Path) -> None:
    field = web.wait(lambda: page.find_elements("css selector", "#files input[type=file]"))[0]
    field.send_keys("\n".join(map(str, paths)))


def wait_for_end(page, name: str) -> None:
    words = ".*(finished|failed|without an exit code).*"
    end = web.wait(lambda: re.search(words, web.value_of(page, f"{name}-state")), PATIENCE)
    assert end[1] == "finished", end[0]


def test_from_dropped_files_to_a_training(page, server, projects, recording):
    skip_without_evaluators("resemblyzer")
    project = Project(name="mine", projects=projects)
    web.submit(page, "new-project", "mine", "create", lambda: web.value_of(page, "project") == "mine")
    web.wait(lambda: not page.find_elements("id", "clip"))  # the review of the project before is gone
    web.wait(lambda: page.current_url.endswith("?project=mine"))
    prepare(page, project, recording)
    correct_a_transcript(page, project)
    plan(page, project)
    train(page, server, project)
    assert web.hosts_of(page) == {server.address.split("/")[2]} and not server.hosts.exists()
    severe = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert all("AbortError" in text for text in severe)  # a player's sound was replaced while it was loaded


def prepare(page, project: Project, recording: list[Path]) -> None:
    drop(page, *recording)
    web.wait(lambda: web.value_of(page, "stored") == "talk.txt\ntalk.wav")
    assert (project.recordings / "talk.wav").read_bytes() == recording[0].read_bytes()
    web.click(page, "prepare")
    wait_for_end(page, "prepare")
    web.wait(lambda: web.value_of(page, "clip"))
    web.click_on(page, "button.label-wrap", "Clips in figures")
    assert web.value_of(page, "summary").startswith(f"mine: {len(NUMBERS)} clips of 1 recording")


def correct_a_transcript(page, project: Project) -> None:
    """Listen to the second clip, edit it, and save: the table and the filelists have the new text."""
    rows = read_rows(project)
    web.click(page, "next")
    web.wait(lambda: web.value_of(page, "clip") == rows[1].clip)
    samples, rate = web.finished_audio(page, "clip-audio")
    expected, _ = soundfile.read(project.clips / f"{rows[1].clip}.wav", dtype="int16")
    assert rate == 22050
    np.testing.assert_array_equal(samples, expected)
    web.fill(page, "transcript", "A corrected transcript.")
    web.click(page, "previous")
    web.wait(lambda: web.value_of(page, "edits") == f"not saved yet: 1 clip, {rows[1].clip}")
    page.execute_script("document.querySelector('#use input[value=yes]').click()")
    web.click(page, "save")
    web.wait(lambda: re.match(r"saved: \d clips?", web.value_of(page, "edits")))
    assert {row.clip: row.text for row in read_rows(project)}[rows[1].clip] == "A corrected transcript."
    lists = [*read_filelist(project.training_list), *read_filelist(project.validation_list)]
    assert {"A corrected transcript.", rows[0].text} <= {row.text for row in lists}


def plan(page, project: Project) -> None:
    """Begin to make a plan, and stop; then edit one that trains for longer than anyone needs to click."""
    from selenium.webdriver.common.keys import Keys

    start = project.projects / "tiny" / "voice"
    flags = FLAGS | {"warm_start": str(start / "tacotron2.pt"), "best_by": "loss", "batch_size": 3}
    flags |= {"epochs": EPOCHS, "evaluate_lines": 1}
    reasons = {"reasons": {"Tacotron2": {"epochs": "usual for this much data"}}}
    store_plan(project, {"Tacotron2": flags}, reasons, every=EPOCHS)
    web.wait_for_tab(page, "Plan", "plan")
    web.choose_option(page, "start", "voice of project tiny")
    web.fill(page, "limit", "soon")
    web.click(page, "plan")
    words = "time limit: 'soon', expected a number of hours above 0, or nothing"
    found = web.wait(lambda: [text for text in web.errors_on(page) if words in text])[0]
    assert "Traceback" not in found
    web.close_errors(page)
    web.fill(page, "limit", "0.5")
    web.click(page, "plan")
    web.wait(lambda: "is running" in web.value_of(page, "plan-state"))
    command = json.loads((project.root / "jobs" / "plan.json").read_text())["words"]
    assert command[-5:] == ["--from", str(start), "--hours", "0.5", "--cpu"]
    web.click(page, "plan-stop")
    web.wait(lambda: "was paused" in web.value_of(page, "plan-state"))
    web.wait(lambda: "usual for this much data" in page.find_element("id", "plan-models").get_property("textContent"))
    content = json.loads(project.plan.read_text())
    web.click_on(page, "button.label-wrap", "plan.json")
    web.wait(lambda: page.find_elements("css selector", "#plan-text .cm-content"))
    web.click_on(page, "#plan-text .cm-content")
    page.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.execute_cdp_cmd(
        "Input.insertText", {"text": json.dumps(content | {"all models": content["all models"] | {"seed": 7}})}
    )  # typing would add brackets
    web.click(page, "plan-save")
    web.wait(lambda: web.value_of(page, "plan-result") == "saved")
    assert read_plan(project.plan).models["Tacotron2"].run.seed == 7


def train(page, server: PageServer, project: Project) -> None:
    """Start, leave the page, come back, see and hear the first report, and pause. A voice was finished earlier."""
    project.voice.mkdir()
    (project.voice / "config.json").write_text('{"verdict": {"lines": ["good"], "prefers_embedded": false}}')
    web.wait_for_tab(page, "Train", "train")
    web.click(page, "train")
    web.wait(lambda: "is running" in web.value_of(page, "train-state"))
    page.get("about:blank")
    web.wait(lambda: (project.run("Tacotron2") / "nvlog.json").exists())
    open_project(page, server, "mine")  # one made after the start of the server
    web.open_tab(page, "Train")
    web.wait(lambda: "is running" in web.value_of(page, "train-state"))
    for name in ("losses", "alignment", "mel"):
        web.wait(lambda name=name: page.find_elements("css selector", f"#{name} img"))
    samples, _ = web.finished_audio(page, "sound-0")
    web.click_on(page, "button.label-wrap", "Verdict on the voice")
    assert len(samples) > 0 and web.value_of(page, "verdict") == "good"
    assert web.value_of(page, "progress").startswith("Tacotron2: step ")
    web.click(page, "pause")
    web.wait(lambda: "was paused" in web.value_of(page, "train-state"))
    assert load_checkpoint(project.run("Tacotron2") / "checkpoint_Tacotron2_last.pt")["iteration"] > 0


REASON = """const cell = document.querySelector("#plan-models td:last-child");
  return cell?.checkVisibility() && [cell.innerText, cell.getBoundingClientRect().right]"""


def test_no_tab_is_wider_than_a_phone(page, projects):
    """It showed no reason of a setting."""
    project = Project(name="other", projects=projects)
    flags = FLAGS | {"warm_start": None, "best_by": "loss"}
    store_plan(project, {"WaveGlow": flags}, {"reasons": {"WaveGlow": {"epochs": "usual <b>"}}})
    for title in TABS:
        web.open_tab(page, title)
        if title == "Plan":
            web.click_on(page, "#plan-models summary")
            text, right = web.wait(lambda: page.execute_script(REASON))
            assert text == "usual <b>" and right <= web.PHONE["width"]
        page.execute_script("document.querySelectorAll('button.label-wrap:not(.open)').forEach((one) => one.click())")
        assert web.width_of(page) <= web.PHONE["width"], title
    project.plan.unlink()


def test_a_server_with_an_open_page_ends_at_once_and_in_silence(browser, projects, tmp_path):
    """It has a token, which it prints and asks for."""
    with serve(projects, tmp_path, environment={"STUDIO_TOKEN": "tea-and-milk", "OMP_NUM_THREADS": "1"}) as server:
        assert server.token == "tea-and-milk"
        assert ask(server, "/").status == ask(server, "/gradio_api/upload", "POST", b"").status == 401
        assert ask(server, "/", Authorization="Bearer tea-and-milk", Host="proxy.example").status == 200
        web.open_page(browser, f"{server.address}?token=tea-and-milk")
        web.wait(lambda: web.value_of(browser, "project"))
        web.open_tab(browser, "Speak")  # whose models are still being loaded when the server stops
        web.wait(lambda: browser.find_elements("css selector", "#speech iframe"))
        start = server.output.read_text()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 0
        browser.get("about:blank")
    assert server.output.read_text() == start


TEXT = "There are seven days in a week."


def test_the_server_s_page_speaks_in_the_tab(browser, server: PageServer) -> None:
    from selenium.webdriver.common.keys import Keys

    page = browser
    open_project(page, server, "spoken")
    web.open_tab(page, "Speak")
    page.switch_to.frame(web.wait(lambda: page.find_elements("css selector", "#speech iframe"))[0])
    web.wait(lambda: page.execute_script("return voices.length && document.getElementById('voice').value") == "spoken")
    field = page.find_element("id", "text")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(TEXT)
    field.send_keys(Keys.CONTROL, Keys.ENTER)
    address = web.wait(lambda: page.execute_script("return record?.done && document.getElementById('wav').href"))
    samples, rate = soundfile.read(io.BytesIO(web.bytes_of(page, address)), dtype="int16")
    assert rate == 22050 and len(samples) > rate
    page.switch_to.default_content()
    assert web.hosts_of(page) == {server.address.split("/")[2]}
    severe = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert all("status of 503" in text for text in severe)  # until the voice is loaded


def test_an_export_is_packed_and_downloaded(browser, projects, server: PageServer) -> None:
    page, project = browser, Project(name="tiny", projects=projects)
    open_project(page, server, "tiny")
    web.wait_for_tab(page, "Export", "export")
    web.click_on(page, "#targets label", "triton")
    web.click(page, "export")
    web.wait(lambda: web.value_of(page, "export-state") == "python -m studio.export has finished.")
    script = "return document.querySelector('#downloads a')?.href"
    content = web.bytes_of(page, web.wait(lambda: page.execute_script(script)))
    assert content == (project.root / "exports" / "tiny_triton.zip").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {"tiny_triton/export.json", "tiny_triton/tts/config.pbtxt"} <= set(archive.namelist())
    web.click(page, "share")
    web.wait(lambda: web.value_of(page, "export-state") == "python -m studio.share has finished.")
    web.wait(lambda: len(page.find_elements("css selector", "#downloads a")) == 2)
    assert "python -m studio.share tiny" in page.find_element("id", "export-commands").text
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


def test_the_keyboard_alone_and_contrasts_of_the_tabs(page):
    """Of Gradio's own, the name of a button that differs from its words is mended, and the times of a player are."""
    from selenium.webdriver.common.keys import Keys

    tabs = {"Data": ["new-project", "create", "prepare", "next", "save"], "Plan": ["start", "limit", "plan"]}
    for title, names in tabs.items():
        web.wait_for_tab(page, title, names[-1])
        reached = web.tab_through(page, 100)
        assert set(names) <= {name for name, _ in reached}, reached
        for scheme in ("dark", "light"):
            assert web.low_contrasts(page, scheme) == []
    page.execute_script("document.querySelector('[role=tab][aria-selected=true]').focus()")
    page.switch_to.active_element.send_keys(Keys.TAB)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    web.wait(lambda: page.find_element("css selector", "[role=tab][aria-selected=true]").text == "Train")
    names = """return [...document.querySelectorAll("button[aria-label]")].filter((one) => /\\p{L}/u.test(one.innerText)
      && !one.ariaLabel.includes(one.innerText.trim())).map((one) => one.ariaLabel)"""
    web.open_tab(page, "Data")
    assert page.execute_script(names) == []
