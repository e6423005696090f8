"""The options of the page's server, python -m studio, and what the commands of a project share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from common.errors import UsageError
from common.options import add_fields, option, parse_options
from common.parser import Parser
from common.web.sockets import LARGEST_PORT
from studio.project import PROJECTS, Project

TOKEN_VARIABLE = "STUDIO_TOKEN"  # in the environment; --token overrides it
DESCRIPTION = """The studio's page in a browser: python -m studio. docs/own-voice.md describes it.

The server listens on this machine only. With any other --host each visitor needs a token, which is part of the address that
the command prints. Ctrl-C stops the server; trainings that it has started keep running.
"""


@dataclass(frozen=True, kw_only=True)
class StudioConfig:
    """Settings of the page's server. Raises UsageError for a value out of range."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0: all addresses of this machine, with a token")
    port: int = option(8010, "port to listen on; 0: any free port")
    token: str | None = option(
        None,
        "token that visitors need (default: generated if needed); other users of this machine can read flags,"
        f" so prefer {TOKEN_VARIABLE}",
    )
    open: bool = option(True, "open the page in a browser if there is a screen")
    projects: Path = option(PROJECTS, "folder of all projects", metavar="DIR")
    cpu: bool = option(False, "train on the CPU even if there is a GPU")

    def __post_init__(self) -> None:
        if not 0 <= self.port <= LARGEST_PORT:
            raise UsageError(f"--port: {self.port}, expected 0 to {LARGEST_PORT}")
        if self.token is not None and not self.token.isascii():
            raise UsageError("--token: expected ASCII letters, digits and marks")


def parse_args(argv: list[str]) -> StudioConfig:
    return parse_options(StudioConfig, "python -m studio", DESCRIPTION, argv)


def project_parser(module: str, description: str | None, name: str) -> Parser:
    """Return the parser of a command on a project, NAME; `name` is the help of that argument."""
    parser = Parser(prog=f"python -m {module}", description=description)
    parser.add_argument("name", metavar="NAME", help=name)
    add_fields(parser, Project, "projects")
    return parser
