"""The page's server as a process of its own, for tests: its address, and the hosts beyond loopback that it contacts."""

import http.client
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.browser import PATIENCE, open_page, value_of, wait
from tests.recipe import ROOT

PACKAGES = ("fastapi", "gradio", "uvicorn")
# Writes the hosts beyond loopback that the process looks up or connects to into the file that the first word names.
PROGRAM = """
import runpy, sys
from tests.outside_hosts import watch, write_to
watch(write_to(sys.argv.pop(1)))
runpy.run_module("studio", run_name="__main__", alter_sys=True)
"""


class PageServer(NamedTuple):
    """A server that runs: its address with a slash at the end, its token or "", its process, the file of the hosts it
    contacted, and the file of its output.
    """

    address: str
    token: str
    process: subprocess.Popen[bytes]
    hosts: Path
    output: Path

    @property
    def port(self) -> int:
        return int(self.address.rsplit(":", 1)[1].strip("/"))


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


def ask(server: PageServer, path: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Answer:
    """Send a request with these headers; `_` in a name stands for `-`."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    with closing(connection):
        connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        is_stream = "event-stream" in answer.headers.get("content-type", "")
        return Answer(answer.status, answer.headers, "" if is_stream else answer.read().decode("utf-8", "replace"))


def open_project(browser, server: PageServer, name: str) -> None:
    """Load the page of a project freshly at a phone's width, and wait until it is chosen: events work."""
    open_page(browser, f"{server.address}?project={name}")
    wait(lambda: browser.find_elements("id", "project") and value_of(browser, "project") == name)


@contextmanager
def serve(projects: Path, folder: Path, *flags: str, environment: dict[str, str] | None = None) -> Iterator[PageServer]:
    """Start the server on a free port, and stop it at the end as Ctrl-C does."""
    for package in PACKAGES:
        if find_spec(package) is None:
            pytest.skip(f"{package}, of requirements/studio.txt, is not installed")
    words = ["--projects", str(projects), "--port", "0", "--no-open", "--cpu", *flags]
    output = folder / "output"  # a full pipe would stop the server once it is full
    with output.open("wb") as file:
        command = [sys.executable, "-c", PROGRAM, str(folder / "hosts"), *words]
        options = {"cwd": ROOT, "env": os.environ | (environment or {}), "start_new_session": True}
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, **options)
    try:
        while not (found := re.search(r"^the page: (http://.*:\d+/)(?:\?token=(\S+))?\n", output.read_text(), re.M)):
            assert process.poll() is None, output.read_text()
            time.sleep(0.05)
        yield PageServer(found[1], found[2] or "", process, folder / "hosts", output)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE)
