"""The studio's page in a browser: python -m studio. docs/own-voice.md describes it.

It listens on this machine alone. On any other --host each visitor needs a token, which is in the address that the command prints.
Ctrl-C ends the server; trainings that it has started go on.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from common.arguments import HelpFormatter
from common.errors import UsageError
from common.parser import Parser
from common.web.sockets import LARGEST_PORT
from studio.project import PROJECTS

TOKEN_VARIABLE = "STUDIO_TOKEN"  # of the environment, where --token is not given


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
