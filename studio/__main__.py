"""The studio's page in a browser: python -m studio. docs/own-voice.md describes it.

It listens on this machine alone. On any other --host each visitor needs a token, which is in the address that the command prints.
Ctrl-C ends the server; trainings that it has started go on.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.threads import limit_spinning

    limit_spinning()  # takes effect before PyTorch is imported

import argparse
import os
import secrets
import socket
import sys
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import uvicorn

from common.arguments import HelpFormatter
from common.errors import UsageError, exit_on_user_error
from common.files import make_folder
from common.parser import Parser
from common.sockets import listen
from studio.access import PARAMETER, Access, is_loopback
from studio.jobs import Jobs, machine_devices
from studio.page import make_app
from studio.page.context import Context
from studio.project import PROJECTS

TOKEN_VARIABLE = "STUDIO_TOKEN"  # of the environment, where --token is not given
UPLOADS = "GRADIO_TEMP_DIR"  # Gradio's variable
LARGEST_PORT = 2**16 - 1
ALL_ADDRESSES = ("0.0.0.0", "::")
LAST_BYTES = 2  # seconds for answers after Ctrl-C


@dataclass(frozen=True, kw_only=True)
class StudioConfig:
    """Settings of the page's server. Raises UsageError for a value out of range."""

    host: str = "127.0.0.1"
    port: int = 8010  # 0: a free one
    projects: Path = PROJECTS
    cpu: bool = False
    open: bool = True  # a browser
    token: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LARGEST_PORT:
            raise UsageError(f"--port: {self.port}, expected 0 to {LARGEST_PORT}")
        if self.token is not None and not self.token.isascii():
            raise UsageError("--token: expected ASCII letters, digits and marks")


def main(argv: list[str] | None = None) -> None:
    """Make the page, print its address, and answer until Ctrl-C."""
    config = parse_args(sys.argv[1:] if argv is None else argv)
    projects = config.projects.resolve()
    make_folder(projects)
    with listen(config.host, config.port) as listener:
        access = Access(token=choose_token(config), port=listener.getsockname()[1])
        os.environ.setdefault(
            UPLOADS, str(projects / ".uploads")
        )  # beside the projects, so that files are moved, not copied
        context = Context(projects, config.cpu, Jobs(projects, machine_devices(config.cpu)))
        app = make_app(context, access)
        settings = uvicorn.Config(app, log_level="warning", access_log=False, server_header=False)
        settings.timeout_graceful_shutdown = LAST_BYTES
        if config.host in ALL_ADDRESSES:
            print(f"from other machines: {address_of(config.host, access, socket.gethostname())}", flush=True)
        Server(settings, address_of(config.host, access), config.open).run(sockets=[listener])


class Server(uvicorn.Server):
    """Uvicorn's server, which prints the page's address once it answers, and ends open pages at its end."""

    def __init__(self, config: uvicorn.Config, address: str, opens: bool) -> None:
        super().__init__(config)
        self.address, self.opens = address, opens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then print the address."""
        await super().startup(sockets)
        print(f"the page: {self.address}", flush=True)
        if self.opens and has_display():
            webbrowser.open(self.address)

    def handle_exit(self, sig: int, frame: object) -> None:
        """End the connections of open pages, then stop."""
        self.config.app.state.end_pages()  # type: ignore[union-attr]
        self.should_exit = True


def choose_token(config: StudioConfig) -> str | None:
    """Return the token of --token or the environment; beyond loopback one is generated where neither has one."""
    token = config.token or os.environ.get(TOKEN_VARIABLE, "").strip() or None
    return token if token or is_loopback(config.host) else secrets.token_urlsafe(24)


def address_of(host: str, access: Access, anywhere: str = "127.0.0.1") -> str:
    """Return the page's address with the token; `anywhere` stands for a host that means all addresses."""
    name = anywhere if host in ALL_ADDRESSES else f"[{host}]" if ":" in host else host
    query = f"?{PARAMETER}={quote(access.token, safe='')}" if access.token else ""
    return f"http://{name}:{access.port}/{query}"


def has_display() -> bool:
    """True where a browser has a screen to open on."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


def parse_args(argv: list[str]) -> StudioConfig:
    """Parse the command's flags."""
    default = StudioConfig
    parser = Parser(prog="python -m studio", description=__doc__, allow_abbrev=False, formatter_class=HelpFormatter)
    add = parser.add_argument
    host = "address to listen on; 0.0.0.0: every one of this machine, with a token"
    add("--host", default=default.host, help=host)
    add("--port", type=int, default=default.port, help="port to listen on; 0: a free one")
    hint = f"other users of this machine can read flags, so rather set {TOKEN_VARIABLE}"
    token = f"token of visitors (default: generated where one is needed); {hint}"
    add("--token", default=default.token, help=token)
    opens = "open the page in a browser where there is a screen"
    add("--open", action=argparse.BooleanOptionalAction, default=default.open, help=opens)
    add("--projects", type=Path, default=default.projects, metavar="DIR", help="the folder of all projects")
    add("--cpu", action="store_true", help="train on the CPU even where there is a GPU")
    return StudioConfig(**vars(parser.parse_args(argv)))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
