"""The studio's page in headless Chromium: from dropped files to a voice that speaks, by keyboard, at a phone's width."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.filelist import read_filelist
from studio.page.editing import read_rows
from studio.plan.file import Plan, read_plan, write_plan
from studio.project import Project
from tests.browser import (
    PHONE,
    choose_option,
    click,
    click_on,
    close_errors,
    errors_on,
    fill,
    finished_audio,
    hosts_of,
    open_page,
    open_tab,
    submit,
    value_of,
    wait,
    wait_for_tab,
    width_of,
)
from tests.recipe import ROOT, skip_without_evaluators
from tests.studio.page.test_plan_review import SETTINGS
from tests.studio.page_server import PageServer, serve

pytestmark = pytest.mark.slow
NUMBERS = range(1, 7)  # sentences of the recording
TABS = ("Data", "Plan", "Train", "Speak", "Export")
PATIENCE = 400  # seconds for a run; another program may have the machine


@pytest.fixture(scope="module")
def recording(tmp_path_factory) -> list[Path]:
    """A recording of some sentences, and their text."""
    folder = tmp_path_factory.mktemp("recording")
    texts = (ROOT / "corpus" / "text" / "sentences_train.txt").read_text().splitlines()
    pause = 1e-4 * np.random.default_rng(0).standard_normal(17640)
    sounds = [soundfile.read(ROOT / "corpus" / "sentences" / f"sentence_{n:04}.ogg")[0] for n in NUMBERS]
    soundfile.write(folder / "talk.wav", np.concatenate([part for sound in sounds for part in (sound, pause)]), 22050)
    (folder / "talk.txt").write_text(" ".join(texts[n - 1] for n in NUMBERS))
    return [folder / "talk.wav", folder / "talk.txt"]


def drop(page, *paths: Path) -> None:
    field = wait(lambda: page.find_elements("css selector", "#files input[type=file]"))[0]
    field.send_keys("\n".join(map(str, paths)))


def wait_for_end(page, name: str) -> None:
    """Wait until a run has finished."""
    end = wait(
        lambda: re.search(".*(finished|failed|without an exit code).*", value_of(page, f"{name}-state")), PATIENCE
    )
    assert end[1] == "finished", end[0]


def wait_for_message(page, words: str) -> None:
    """Wait for the message of an error that has these words."""
    found = wait(lambda: [text for text in errors_on(page) if words in text])[0]
    assert "Traceback" not in found
    close_errors(page)


def replace_code(page, text: str) -> None:
    """Replace the text of plan.json's editor at once, as pasting does: typing would add brackets."""
    from selenium.webdriver.common.keys import Keys

    click_on(page, "#plan-text .cm-content")
    page.switch_to.active_element.send_keys(Keys.CONTROL, "a")
    page.execute_cdp_cmd("Input.insertText", {"text": text})


def test_from_dropped_files_to_a_voice_that_speaks(page, server, projects, recording):
    skip_without_evaluators("resemblyzer")
    project = Project(name="mine", projects=projects)
    submit(page, "new-project", "mine", "create", lambda: value_of(page, "project") == "mine")
    prepare(page, project, recording)
    correct_a_transcript(page, project)
    plan(page, project)
    train(page, server, project)
    speak(page)
    assert width_of(page) <= PHONE["width"]
    assert hosts_of(page) == {server.address.split("/")[2]} and not server.hosts.exists()
    severe = [entry["message"] for entry in page.get_log("browser") if entry["level"] == "SEVERE"]
    assert [
        text for text in severe if "AbortError" not in text
    ] == []  # a player's sound was replaced while it was loaded


def prepare(page, project: Project, recording: list[Path]) -> None:
    drop(page, *recording)
    wait(lambda: value_of(page, "stored") == "talk.txt\ntalk.wav")
    assert (project.recordings / "talk.wav").read_bytes() == recording[0].read_bytes()
    click(page, "prepare")
    wait_for_end(page, "prepare")
    wait(lambda: value_of(page, "clip"))
    assert value_of(page, "summary").startswith(f"mine: {len(NUMBERS)} clips of 1 recording")


def correct_a_transcript(page, project: Project) -> None:
    """Listen to the second clip, edit it, and save: the table and the filelists have the new text."""
    from selenium.webdriver.common.keys import Keys

    rows = read_rows(project)
    click(page, "next")
    wait(lambda: value_of(page, "clip") == rows[1].clip)
    samples, rate = finished_audio(page, "clip-audio")
    expected, _ = soundfile.read(project.clips / f"{rows[1].clip}.wav", dtype="int16")
    assert rate == 22050
    np.testing.assert_array_equal(samples, expected)
    fill(page, "transcript", Keys.BACKSPACE)
    choose_use(page, "yes")
    click(page, "save")
    wait_for_message(page, f"{rows[1].clip}: text: empty; write the words of the clip, or set the column use to no")
    fill(page, "transcript", "A corrected transcript.")
    click(page, "previous")
    wait(lambda: value_of(page, "edits") == f"not saved yet: 1 clip, {rows[1].clip}")
    choose_use(page, "yes")
    click(page, "save")
    wait(lambda: re.match(r"saved: \d clips", value_of(page, "edits")))
    assert {row.clip: row.text for row in read_rows(project)}[rows[1].clip] == "A corrected transcript."
    lists = [*read_filelist(project.training_list), *read_filelist(project.validation_list)]
    assert {"A corrected transcript.", rows[0].text} <= {row.text for row in lists}


def choose_use(page, answer: str) -> None:
    page.execute_script(f"document.querySelector('#use input[value={answer}]').click()")


def plan(page, project: Project) -> None:
    """Make a plan from the tiny voice, then shorten it in the editor."""
    wait_for_tab(page, "Plan", "plan")
    choose_option(page, "start", "voice of project tiny")
    click(page, "plan")
    wait_for_end(page, "plan")
    wait(lambda: value_of(page, "plan-waveglow-time").startswith("expected: "))
    assert "--warm-start" in value_of(page, "plan-tacotron2-command")
    assert "usual for this much data" in page.find_element("id", "plan-tacotron2-settings").text
    content = json.loads(project.plan.read_text())
    for settings in content["models"].values():
        settings |= {"epochs": 12, "report_every": 6, "report_lines": 2, "best_by": "loss"}
    click_on(page, "button.label-wrap", "plan.json")
    wait(lambda: page.find_elements("css selector", "#plan-text .cm-content"))
    replace_code(page, json.dumps(content | {"seed": -1}))
    click(page, "plan-save")
    wait_for_message(page, "plan.json: seed: -1, expected a whole number")
    replace_code(page, json.dumps(content))
    click(page, "plan-save")
    wait(lambda: value_of(page, "plan-result") == "saved")
    assert read_plan(project.plan).models["Tacotron2"].epochs == 12


def train(page, server: PageServer, project: Project) -> None:
    """Start, leave the page, come back, pause and resume."""
    wait_for_tab(page, "Train", "train")
    click(page, "train")
    wait(lambda: "is running" in value_of(page, "train-state"))
    page.get("about:blank")
    wait(lambda: (project.run("Tacotron2") / "nvlog.json").exists())
    page.get(f"{server.address}?project=mine")
    wait(lambda: page.find_elements("id", "project") and value_of(page, "project") == "mine")
    open_tab(page, "Train")
    wait(lambda: "is running" in value_of(page, "train-state"))
    click(page, "pause")
    wait(lambda: "was paused" in value_of(page, "train-state"))
    assert not project.voice.exists()
    click(page, "train")
    wait_for_end(page, "train")
    wait(lambda: "Finished: " in value_of(page, "progress"))
    assert value_of(page, "progress").startswith("WaveGlow: step ")
    for name in ("losses", "mel"):
        wait(lambda name=name: page.find_elements("css selector", f"#{name} img"))
    samples, _ = finished_audio(page, "sound-0")
    assert len(samples) > 0 and (project.voice / "config.json").exists()


def speak(page) -> None:
    """Speak with the new voice; the embedded one is chosen already, since the verdict on this one is bad."""
    assert "The voice is worse than the embedded one" in value_of(page, "verdict")
    wait_for_tab(page, "Speak", "speak")
    fill(page, "speak-text", "There are seven days in a week.")
    wait(lambda: value_of(page, "speak-voice") == "the embedded voice")
    choose_option(page, "speak-voice", "the finished voice")
    click(page, "speak")
    wait(lambda: value_of(page, "speak-message").startswith("the finished voice (epoch"))
    assert len(finished_audio(page, "speak-audio")[0]) > 0


def test_errors_are_words(page, projects, tmp_path):
    fill(page, "new-project", "../outside")
    click(page, "create")
    wait_for_message(page, "project '../outside': expected at most 64 Latin letters")
    fill(page, "new-project", "tiny")
    click(page, "create")
    wait_for_message(page, "project tiny: it exists already, and is chosen now")
    wait(lambda: value_of(page, "project") == "tiny")
    click(page, "prepare")
    wait_for_message(page, "tiny: no recordings yet; drop some files first")
    (tmp_path / "tool.exe").write_text("no recording")
    drop(page, tmp_path / "tool.exe")
    wait(lambda: "not stored: tool.exe: .exe, expected a recording" in value_of(page, "stored"))
    wait_for_tab(page, "Train", "train")
    click(page, "train")
    wait_for_message(page, "plan.json: no such file; run python -m studio.plan tiny first")
    click(page, "pause")
    wait_for_message(page, "tiny: no train is running")
    assert not (projects.parent / "outside").exists()


CLIPPED = """return [...document.querySelectorAll("input, textarea")].filter((field) => {
  if (!field.offsetParent || !field.placeholder || field.value) return false;
  const style = getComputedStyle(field), context = document.createElement("canvas").getContext("2d");
  context.font = style.font;
  const space = field.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  return context.measureText(field.placeholder).width > space;
}).map((field) => field.placeholder)"""
OPEN_ALL = "document.querySelectorAll('button.label-wrap:not(.open)').forEach((button) => button.click())"
REASON = """const cell = document.querySelector("#plan-waveglow-settings td:last-child");
  return cell?.checkVisibility() && [cell.innerText, cell.getBoundingClientRect().right]"""
TABLES = """return [...document.querySelectorAll("table")].filter((table) => table.offsetParent)
  .map((table) => table.getBoundingClientRect().width / table.parentElement.clientWidth)"""


def test_tabs_placeholders_and_tables_fit(page, projects):
    """A phone cut placeholders off; a desktop gave tables 70 % of the width; a phone showed no reason of a setting."""
    project = Project(name="other", projects=projects)
    settings = replace(SETTINGS, reasons={"epochs": "usual <b>"})
    write_plan(project.plan, Plan(seed=1, threads=1, cpu=True, models={"WaveGlow": settings}))
    page.refresh()
    wait(lambda: page.find_elements("id", "clip") and value_of(page, "clip"))
    for width in (375, 1280):
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE | {"width": width, "mobile": width < 400})
        n_tables = 0
        for title in TABS:
            open_tab(page, title)
            if title == "Plan":
                wait(lambda: page.find_elements("css selector", "#plan-waveglow-settings td"))
            time.sleep(0.3)  # for the layout of the tab
            page.execute_script(OPEN_ALL)
            assert width_of(page) <= width, title
            assert page.execute_script(CLIPPED) == [], (width, title)
            shares = page.execute_script(TABLES)
            n_tables += len(shares)
            assert min(shares, default=1) > 0.95, (width, title)
        assert n_tables == 2  # the clips and the settings of WaveGlow
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE | {"width": 375})
    open_tab(page, "Plan")
    text, right = wait(lambda: page.execute_script(REASON))
    assert text == "usual <b>" and right <= 375
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
    wait(lambda: value_of(page, "project") == "typed")
    assert list((projects / "typed").iterdir()) == [projects / "typed" / "recordings"]
    wait(lambda: value_of(page, "clip") == "")  # the review of the project before has been cleared
    choose_option(page, "project", "other")
    wait(lambda: value_of(page, "clip"))
    rows = read_rows(Project(name="other", projects=projects))
    tab_to("next")
    press(Keys.ENTER)
    wait(lambda: value_of(page, "clip") == rows[1].clip)


def test_a_reload_shows_the_same_project(page, server):
    choose_option(page, "project", "tiny")
    wait(lambda: page.current_url.endswith("?project=tiny"))
    page.refresh()
    wait(lambda: page.find_elements("id", "project") and value_of(page, "project") == "tiny")
    page.get(f"{server.address}?project=gone")
    wait(lambda: page.find_elements("id", "project") and value_of(page, "project") not in ("", "gone"))


def test_a_server_with_an_open_page_ends_at_once_and_in_silence(browser, projects, tmp_path):
    with serve(projects, tmp_path) as server:
        open_page(browser, f"{server.address}?project=other")
        wait(lambda: browser.find_elements("id", "clip") and value_of(browser, "clip"))
        start = server.output.read_text()
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE) == 0
        browser.get("about:blank")
    assert server.output.read_text() == start


SIZE = 30_000_000  # bytes


def test_a_project_made_after_the_start_survives_a_reload(browser, server, projects, tmp_path):
    """A reload showed an error in place of it. test_page_access.py breaks uploads off."""
    recording = tmp_path / "talk.wav"
    recording.write_bytes(os.urandom(SIZE))
    open_page(browser, server.address)
    submit(browser, "new-project", "upload", "create", lambda: value_of(browser, "project") == "upload")
    open_page(browser, f"{server.address}?project=upload")
    wait(lambda: browser.find_elements("id", "project") and value_of(browser, "project") == "upload")
    drop(browser, recording)
    wait(lambda: value_of(browser, "stored") == "talk.wav")
    assert (projects / "upload" / "recordings" / "talk.wav").read_bytes() == recording.read_bytes()
    browser.get("about:blank")
