"""The process of the page's server, from its flags to its exit: python -m studio."""

from __future__ import annotations

if __name__ == "__main__":
    from common.extras import require
    from common.start import before_imports

    install = "bash scripts/studio.sh --install-only"
    packages = "av", "fastapi", "fastapi_offline", "gradio", "prometheus_client", "uvicorn"
    require(install, *packages, help_from="studio.arguments", posix="python -m studio")
    before_imports()

import logging
import os
import secrets
import socket
import sys
import threading
import webbrowser
from urllib.parse import quote

from fastapi import FastAPI

from common.errors import exit_on_user_error
from common.files import make_folder
from common.web.gate import is_loopback
from common.web.server import LOADER, Server, end_at_once
from common.web.sockets import listen
from studio.arguments import TOKEN_VARIABLE, StudioConfig, parse_args
from studio.jobs.jobs import Jobs, machine_devices
from studio.page.access import PARAMETER, Access, remove_old

UPLOADS = "GRADIO_TEMP_DIR"  # Gradio's variable
FOLDER = ".uploads"  # beside the projects, so that files are moved, not copied
ALL_ADDRESSES = ("0.0.0.0", "::")
LAST_BYTES = 2  # seconds for answers after Ctrl-C


def main(argv: list[str] | None = None) -> None:
    """Make the page, print its address, and answer until Ctrl-C."""
    config = parse_args(sys.argv[1:] if argv is None else argv)
    projects = config.projects.resolve()
    make_folder(projects)
    with listen(config.host, config.port) as listener:
        access = Access(token=choose_token(config), port=listener.getsockname()[1])
        remove_old(projects / FOLDER)
        os.environ.setdefault(UPLOADS, str(projects / FOLDER))
        from studio.page.app import make_app  # Gradio takes seconds to load, and reads UPLOADS
        from studio.page.events import Context

        context = Context(projects, config.cpu, Jobs(projects, machine_devices(config.cpu)))
        app = make_app(context, access)
        if config.host in ALL_ADDRESSES:
            print(f"from other machines: {address_of(config.host, access, socket.gethostname())}", flush=True)
        PageServer(app, address_of(config.host, access), config.open).run(sockets=[listener])
        if any(thread.name == LOADER for thread in threading.enumerate()):  # of the tab Speak
            end_at_once()


class PageServer(Server):
    """A server that prints the page's address once it answers."""

    def __init__(self, app: FastAPI, address: str, opens: bool) -> None:
        super().__init__(app, LAST_BYTES, log_level="warning")
        self.app, self.address, self.opens = app, address, opens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then print the address."""
        await super().startup(sockets)
        print(f"the page: {self.address}", flush=True)
        if self.opens and has_display():
            webbrowser.open(self.address)

    def handle_exit(self, sig: int, frame: object) -> None:
        """Stop; what the page still waits for is cut off without errors in the terminal."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        for end in self.app.state.end_pages:
            end()
        self.should_exit = True


def choose_token(config: StudioConfig) -> str | None:
    """Return the token of --token or the environment; beyond loopback one is generated where neither has one."""
    token = config.token or os.environ.get(TOKEN_VARIABLE, "").strip() or None
    return token if token or is_loopback(config.host) else secrets.token_urlsafe(24)


def address_of(host: str, access: Access, anywhere: str = "127.0.0.1") -> str:
    """Return the page's address with the token; `anywhere` stands for a host that means all addresses."""
    name = f"[{host}]" if ":" in host else host  # brackets around an IPv6 address
    if host in ALL_ADDRESSES:
        name = anywhere
    query = f"?{PARAMETER}={quote(access.token, safe='')}" if access.token else ""
    return f"http://{name}:{access.port}/{query}"


def has_display() -> bool:
    """True where a browser has a screen to open on."""
    return sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))


if __name__ == "__main__":
    with exit_on_user_error():
        main()
