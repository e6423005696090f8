"""A page that is closed during an upload, in headless Chromium: nothing of it stays, and the next visit works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.browser import PHONE, open_page, start_browser, submit, value_of, wait
from tests.studio.page_server import serve

pytestmark = pytest.mark.slow
SIZE = 30_000_000  # bytes
SLOW = {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": 1_000_000}  # bytes a second


def files_in(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def visit(page, address: str) -> None:
    """Load the page, and wait until its project is chosen."""
    open_page(page, address)
    wait(lambda: page.find_elements("css selector", "#files input[type=file]") and value_of(page, "project") == "mine")
    wait(lambda: page.execute_script("return location.search") == "?project=mine")  # its first events have ended


def test_a_page_that_is_closed_during_an_upload_leaves_nothing(tmp_path):
    """The project is made after the server has started: a reload then showed no project, but an error."""
    projects, recording = tmp_path / "projects", tmp_path / "talk.wav"
    recording.write_bytes(os.urandom(SIZE))
    projects.mkdir()
    page = start_browser(tmp_path / "profile")
    try:
        with serve(projects, tmp_path) as server:
            open_page(page, server.address)
            submit(page, "new-project", "mine", "create", lambda: value_of(page, "project") == "mine")
            start = server.output.read_text()
            closed = page.current_window_handle
            page.execute_cdp_cmd("Network.enable", {})
            page.execute_cdp_cmd("Network.emulateNetworkConditions", SLOW)
            page.find_element("css selector", "#files input[type=file]").send_keys(str(recording))
            wait(lambda: files_in(projects))
            assert 0 <= files_in(projects)[0].stat().st_size < SIZE
            page.switch_to.new_window("tab")
            following = page.current_window_handle
            page.switch_to.window(closed)
            page.close()
            page.switch_to.window(following)
            wait(lambda: not files_in(projects))
            page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", PHONE)
            visit(page, server.address)
            page.find_element("css selector", "#files input[type=file]").send_keys(str(recording))
            wait(lambda: value_of(page, "stored") == "talk.wav")
            assert (projects / "mine" / "recordings" / "talk.wav").read_bytes() == recording.read_bytes()
            page.get("about:blank")
            assert server.output.read_text() == start
    finally:
        page.quit()
