"""Ask the server of a container whether it is ready: exit code 0 if it is. Finds the port without importing the server."""

from __future__ import annotations

import os
import re
import urllib.request
from pathlib import Path

COMMAND = Path("/proc/1/cmdline")  # of the container's first process: the server, or an init with the same words


def address(words: list[str], environment: dict[str, str]) -> str:
    """Return the address of /readyz for a command line and an environment."""
    found = {name: environment.get(f"TTS_{name.upper()}", "") for name in ("host", "port")}
    for flag, value in re.findall(r"--(host|port)[=\0]([^\0]*)", "\0".join(words)):
        found[flag] = value
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(found["host"], found["host"])
    return f"http://{f'[{host}]' if ':' in host else host}:{found['port'] or 8000}/readyz"


if __name__ == "__main__":
    urllib.request.urlopen(address(COMMAND.read_text().split("\0"), dict(os.environ)), timeout=5)
