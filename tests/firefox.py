"""A page in headless Firefox by WebDriver BiDi, which Firefox itself speaks: no driver program and no package but websockets."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.browser import PATIENCE, wait

CONTROL, ENTER, SHIFT, TAB = "\ue009", "\ue006", "\ue008", "\ue004"  # keys of WebDriver


class Page:
    """A tab that has the focus, which Firefox's first one lacks."""

    def __init__(self, connection: Any) -> None:
        self._connection, self._numbers = connection, itertools.count(1)
        self.events: list[dict[str, Any]] = []
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._tab = {"context": self.call("browsingContext.create", type="tab")["context"]}

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result; events that come before it are kept."""
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        while (message := json.loads(self._connection.recv(timeout=PATIENCE))).get("id") != number:
            self.events.append(message)
        assert message["type"] == "success", message
        return message["result"]

    def open(self, address: str, width: int) -> None:
        """Load a page at a width."""
        self.call("browsingContext.setViewport", **self._tab, viewport={"width": width, "height": 812})
        self.call("browsingContext.navigate", **self._tab, url=address, wait="complete")

    def run(self, expression: str) -> Any:
        """Return the value of an expression, or of its promise."""
        script = f"(async () => JSON.stringify((await ({expression})) ?? null))()"
        answer = self.call("script.evaluate", expression=script, target=self._tab, awaitPromise=True)
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def press(self, *keys: str) -> None:
        """Press keys, and release them in the opposite order."""
        actions = [{"type": "keyDown", "value": key} for key in keys]
        actions += [{"type": "keyUp", "value": key} for key in reversed(keys)]
        self.call("input.performActions", **self._tab, actions=[{"type": "key", "id": "keyboard", "actions": actions}])

    def errors(self) -> list[dict[str, Any]]:
        """Return the errors on the console."""
        entries = [event["params"] for event in self.events if event["method"] == "log.entryAdded"]
        return [entry for entry in entries if entry["level"] == "error"]

    def hosts(self) -> set[str]:
        """Return the hosts of all requests."""
        sent = [event["params"] for event in self.events if event["method"] == "network.beforeRequestSent"]
        urls = [item["request"]["url"] for item in sent]
        return {url.split("/")[2] for url in urls if url.startswith(("http", "ws"))}


@contextmanager
def firefox(profile: Path) -> Iterator[Page]:
    """Start Firefox with an empty profile; skips the test where it is missing."""
    connect = pytest.importorskip("websockets.sync.client", reason="websockets is not installed").connect
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if not program:
        pytest.skip("firefox (Debian: firefox-esr) is not installed")
    profile.mkdir()
    log = profile / "output"
    words = [program, "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", str(profile)]
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=subprocess.STDOUT)
    try:
        pattern = re.compile(r"^WebDriver BiDi listening on (ws://\S+)$", re.MULTILINE)
        found: Any = wait(lambda: pattern.search(log.read_text(errors="replace")))
        with connect(f"{found[1]}/session", max_size=None) as connection:
            page = Page(connection)
            yield page
            page.call("browser.close")
        process.wait(PATIENCE)
    finally:
        process.kill()
        process.wait()
