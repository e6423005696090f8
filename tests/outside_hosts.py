"""Hosts beyond this machine that a process looks up or connects to, by an audit hook. Imports nothing of this project: it also
serves as the beginning of a sitecustomize.py.
"""

import os
import sys
from collections.abc import Callable

OWN_NAMES = ("localhost", "::1", "::", "0.0.0.0", os.uname().nodename)


def watch(report: Callable[[str], object]) -> None:
    """Report each host beyond this machine, until the process ends."""

    def collect(event: str, arguments: tuple) -> None:
        host = ""
        if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
            host = arguments[0] or ""
        elif event in ("socket.connect", "socket.sendto") and isinstance(arguments[1], tuple):
            host = arguments[1][0]
        host = host.decode() if isinstance(host, bytes) else str(host)
        if host and host not in OWN_NAMES and not host.startswith("127."):
            report(host)

    sys.addaudithook(collect)


def write_to(path: str) -> Callable[[str], None]:
    """Return a function that appends hosts and the command line to a file."""

    def write(host: str) -> None:
        with open(path, "a") as file:
            file.write(f"{host} {sys.argv}\n")

    return write
