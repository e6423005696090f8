"""The studio's page in headless Chromium: from dropped files to a voice, by keyboard, at a phone's width."""

import json
import re
import signal
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.checkpoint.files import load_checkpoint
from common.data.filelist import read_filelist
from studio.page.editing import read_rows
from studio.plan.file import Plan, read_plan, write_plan
from studio.project import Project, list_projects
from tests import browser as web
from tests.recipe import skip_without_evaluators
from tests.sounds import SENTENCES, sentence
from tests.studio.page.test_page_access import ask
from tests.studio.page_server import PageServer, open_project, serve
from tests.studio.projects import SETTINGS

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


def wait_for_message(page, words: str) -> None:
    """Wait for the message of an error that has these words."""
    found = web.wait(lambda: [text for text in web.errors_on(page) if words in text])[0]
    assert "Traceback" not in found
    web.close_errors(page)


def replace_code(page, text: str) -> None:
    """Replace the text of plan.json's editor at once, as pasting does: typing would add brackets."""
    from selenium.webdriver.common.keys import Keys

    web.click_on(page, "#plan-text .cm-content")
    page.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.execute_cdp_cmd("Input.insertText", {"text": text})


def test_from_dropped_files_to_a_voice(page, server, projects, recording):
    skip_without_evaluators("resemblyzer")
    project = Project(name="mine", projects=projects)
    web.submit(page, "new-project", "mine", "create", lambda: web.value_of(page, "project") == "mine")
    prepare(page, project, recording)
    correct_a_transcript(page, project)
    plan(page, project)
    train(page, server, project)
    assert web.width_of(page) <= web.PHONE["width"]
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
    assert web.value_of(page, "summary").startswith(f"mine: {len(NUMBERS)} clips of 1 recording")


def correct_a_transcript(page, project: Project) -> None:
    """Listen to the second clip, edit it, and save: the table and the filelists have the new text."""
    from selenium.webdriver.common.keys import Keys

    rows = read_rows(project)
    web.click(page, "next")
    web.wait(lambda: web.value_of(page, "clip") == rows[1].clip)
    samples, rate = web.finished_audio(page, "clip-audio")
    expected, _ = soundfile.read(project.clips / f"{rows[1].clip}.wav", dtype="int16")
    assert rate == 22050
    np.testing.assert_array_equal(samples, expected)
    web.fill(page, "transcript", Keys.BACKSPACE)
    choose_use(page, "yes")
    web.click(page, "save")
    wait_for_message(page, f"{rows[1].clip}: text: empty; write the words of the clip, or set the column use to no")
    web.fill(page, "transcript", "A corrected transcript.")
    web.click(page, "previous")
    web.wait(lambda: web.value_of(page, "edits") == f"not saved yet: 1 clip, {rows[1].clip}")
    choose_use(page, "yes")
    web.click(page, "save")
    web.wait(lambda: re.match(r"saved: \d clips?", web.value_of(page, "edits")))
    assert {row.clip: row.text for row in read_rows(project)}[rows[1].clip] == "A corrected transcript."
    lists = [*read_filelist(project.training_list), *read_filelist(project.validation_list)]
    assert {"A corrected transcript.", rows[0].text} <= {row.text for row in lists}


def choose_use(page, answer: str) -> None:
    page.execute_script(f"document.querySelector('#use input[value={answer}]').click()")


def plan(page, project: Project) -> None:
    """Begin to make a plan, and stop; then edit one that trains for longer than anyone needs to click."""
    start = project.projects / "tiny" / "voice"
    settings = replace(SETTINGS, warm_start=str(start / "tacotron2.pt"), options={}, best_by="loss", batch_size=3)
    settings = replace(settings, epochs=EPOCHS, report_every=EPOCHS, report_lines=1)
    write_plan(project.plan, Plan(seed=1, threads=1, cpu=True, models={"Tacotron2": settings}))
    web.wait_for_tab(page, "Plan", "plan")
    web.choose_option(page, "start", "voice of project tiny")
    web.fill(page, "limit", "soon")
    web.click(page, "plan")
    wait_for_message(page, "time limit: 'soon', expected a number of hours above 0, or nothing")
    web.fill(page, "limit", "0.5")
    web.click(page, "plan")
    web.wait(lambda: "is running" in web.value_of(page, "plan-state"))
    command = json.loads((project.root / "jobs" / "plan.json").read_text())["words"]
    assert command[-5:] == ["--from", str(start), "--hours", "0.5", "--cpu"]
    web.click(page, "plan-stop")
    web.wait(lambda: "was paused" in web.value_of(page, "plan-state"))
    words = web.wait(lambda: "Tacotron2" in (text := page.find_element("id", "plan-models").text) and text)
    assert "--warm-start" in words and "usual for this much data" in words
    content = json.loads(project.plan.read_text())
    web.click_on(page, "button.label-wrap", "plan.json")
    web.wait(lambda: page.find_elements("css selector", "#plan-text .cm-content"))
    replace_code(page, json.dumps(content | {"seed": -1}))
    web.click(page, "plan-save")
    wait_for_message(page, "plan.json: seed: -1, expected a whole number")
    replace_code(page, json.dumps(content | {"seed": 7}))
    web.click(page, "plan-save")
    web.wait(lambda: web.value_of(page, "plan-result") == "saved")
    assert read_plan(project.plan).seed == 7


def train(page, server: PageServer, project: Project) -> None:
    """Start, leave the page, come back, pause, and resume for one more epoch."""
    web.wait_for_tab(page, "Train", "train")
    web.click(page, "train")
    web.wait(lambda: "is running" in web.value_of(page, "train-state"))
    page.get("about:blank")
    web.wait(lambda: (project.run("Tacotron2") / "nvlog.json").exists())
    open_project(page, server, "mine")
    web.open_tab(page, "Train")
    web.wait(lambda: "is running" in web.value_of(page, "train-state"))
    web.click(page, "pause")
    web.wait(lambda: "was paused" in web.value_of(page, "train-state"))
    assert not project.voice.exists()
    plan = read_plan(project.plan)
    done = load_checkpoint(project.run("Tacotron2") / "checkpoint_Tacotron2_last.pt")["iteration"]  # one step an epoch
    write_plan(project.plan, replace(plan, models={"Tacotron2": replace(plan.models["Tacotron2"], epochs=done + 1)}))
    web.click(page, "train")
    wait_for_end(page, "train")
    web.wait(lambda: "Finished: " in web.value_of(page, "progress"))
    assert web.value_of(page, "progress").startswith(f"Tacotron2: step {done + 1:,} of {done + 1:,}, ")
    for name in ("losses", "alignment", "mel"):
        web.wait(lambda name=name: page.find_elements("css selector", f"#{name} img"))
    samples, _ = web.finished_audio(page, "sound-0")
    assert len(samples) > 0 and (project.voice / "config.json").exists()
    assert "The voice is worse than the embedded one" in web.value_of(page, "verdict")


CLIPPED = """return [...document.querySelectorAll("input, textarea")].filter((field) => {
  if (!field.offsetParent || !field.placeholder || field.value) return false;
  const style = getComputedStyle(field), context = document.createElement("canvas").getContext("2d");
  context.font = style.font;
  const space = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return context.measureText(field.placeholder).width > space;
}).map((field) => field.placeholder)"""
OPEN_ALL = "document.querySelectorAll('button.label-wrap:not(.open)').forEach((button) => button.click())"
REASON = """const cell = document.querySelector("#plan-models td:last-child");
  return cell?.checkVisibility() && [cell.innerText, cell.getBoundingClientRect().right]"""
NEXT_FRAME = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
TABLES = """return [...document.querySelectorAll("table")].filter((table) => table.offsetParent)
  .map((table) => table.getBoundingClientRect().width / table.closest("div").clientWidth)"""


def test_tabs_placeholders_and_tables_fit(browser, server, projects):
    """A phone cut placeholders off; a desktop gave tables 70 % of the width; a phone showed no reason of a setting."""
    project = Project(name="other", projects=projects)
    settings = replace(SETTINGS, reasons={"epochs": "usual <b>"})
    write_plan(project.plan, Plan(seed=1, threads=1, cpu=True, models={"WaveGlow": settings}))
    open_project(browser, server, "other")
    web.wait(lambda: web.value_of(browser, "clip"))
    n_tables = Counter[int]()
    for title in TABS:
        for width in (375, 1280):
            browser.execute_cdp_cmd(
                "Emulation.setDeviceMetricsOverride", web.PHONE | {"width": width, "mobile": width < 400}
            )
            if width == 375:
                web.open_tab(browser, title)
                if title == "Plan":
                    text, right = web.wait(lambda: browser.execute_script(REASON))
                    assert text == "usual <b>" and right <= width
                time.sleep(0.3)  # for the tab to be drawn
            browser.execute_script(OPEN_ALL)
            browser.execute_async_script(NEXT_FRAME)
            assert web.width_of(browser) <= width, title
            assert browser.execute_script(CLIPPED) == [], (width, title)
            shares = browser.execute_script(TABLES)
            n_tables[width] += len(shares)
            assert min(shares, default=1) > 0.95, (width, title)
    assert n_tables == {375: 2, 1280: 2}  # the clips and the settings of WaveGlow
    project.plan.unlink()


def test_the_keyboard_alone(page, projects):
    """Make a project, and walk through clips, without a pointer."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(page).send_keys(*keys).perform()

    def focus() -> str:
        return page.execute_script("return document.activeElement.closest('[id]')?.id ?? ''")

    def tab_to(name: str) -> None:
        for _ in range(60):
            if focus() == name:
                return
            press(Keys.TAB)
        raise AssertionError(f"no focus on {name}")

    tab_to("new-project")
    press("typed")
    press(Keys.TAB)
    assert focus() == "create"
    press(Keys.ENTER)
    web.wait(lambda: web.value_of(page, "project") == "typed")
    assert list((projects / "typed").iterdir()) == [projects / "typed" / "recordings"]
    web.wait(lambda: web.value_of(page, "clip") == "")  # the review of the project before has been cleared
    web.choose_option(page, "project", "other")
    web.wait(lambda: web.value_of(page, "clip"))
    rows = read_rows(Project(name="other", projects=projects))
    tab_to("next")
    press(Keys.ENTER)
    web.wait(lambda: web.value_of(page, "clip") == rows[1].clip)


def test_a_server_with_an_open_page_ends_at_once_and_in_silence(browser, projects, tmp_path):
    """It has a token, which it prints and asks for."""
    with serve(projects, tmp_path, environment={"STUDIO_TOKEN": "tea-and-milk", "OMP_NUM_THREADS": "1"}) as server:
        assert server.token == "tea-and-milk"
        assert ask(server, "/").status == ask(server, "/gradio_api/upload", "POST", b"").status == 401
        assert ask(server, "/", Authorization="Bearer tea-and-milk", Host="proxy.example").status == 200
        web.open_page(browser, f"{server.address}?token=tea-and-milk")
        open_project(browser, server, "other")
        web.open_tab(browser, "Speak")  # whose models are still being loaded when the server stops
        web.wait(lambda: browser.find_elements("css selector", "#speech iframe"))
        start = server.output.read_text()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 0
        browser.get("about:blank")
    assert server.output.read_text() == start


def test_reloads_show_the_same_project(browser, server, projects):
    """One made after the start was an error in place of the page."""
    Project(name="late", projects=projects).root.mkdir()
    open_project(browser, server, "late")
    web.choose_option(browser, "project", "tiny")
    web.wait(lambda: browser.current_url.endswith("?project=tiny"))
    browser.refresh()
    web.wait(lambda: browser.find_elements("id", "project") and web.value_of(browser, "project") == "tiny")
    browser.get(f"{server.address}?project=gone")
    names = list_projects(projects)
    web.wait(lambda: browser.find_elements("id", "project") and web.value_of(browser, "project") in names)
    browser.get("about:blank")
