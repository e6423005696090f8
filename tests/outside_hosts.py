"""Hosts beyond this machine that a process looks up or connects to, by an audit hook. Imports nothing of this project: it also
serves as the beginning of a sitecustomize.py.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

# Raise the loopback interface of a new namespace (SIOCSIFFLAGS, netdevice(7)), then run the command.
LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x41))
os.execv(sys.argv[1], sys.argv[1:])
"""
IN_NAMESPACE = ["unshare", "--map-root-user", "--net", sys.executable, "-c", LOOPBACK]
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


def no_namespace() -> str:
    """Say why no command can run IN_NAMESPACE here, "" if one can."""
    if shutil.which("unshare") is None:
        return "no unshare (util-linux)"
    attempt = subprocess.run([*IN_NAMESPACE, sys.executable, "-c", ""], capture_output=True, text=True)
    return f"the kernel allows no network namespace: {attempt.stderr.strip()[-200:]}" if attempt.returncode else ""
