"""Serve voices over HTTP: python -m serving [--voices DIR]. docs/serving.md describes the interface.

Without --voices, the server has the embedded voice. It answers on --host and --port until SIGTERM or Ctrl-C, then finishes the
requests it has accepted. Each flag may also be a variable of the environment, such as TTS_PORT=8000 for --port, TTS_FP16=true or
TTS_PAGE=false; the command line comes first.
"""

from __future__ import annotations

import argparse
import os
from contextlib import suppress
from dataclasses import dataclass, fields
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, get_args

from common import arguments
from common.arguments import environment_argv, given_options
from common.errors import UsageError
from common.inference.arguments import vocoder_names
from common.inference.config import FASTEST, SLOWEST, SPEED, SynthesisConfig
from common.options import ABOVE_ZERO, AT_LEAST_ONE, NOT_NEGATIVE, Check, add_fields, from_options, option, problems_of
from common.parser import Parser
from common.spec import SENTENCE_PAUSE
from common.web.sockets import PORT
from models import REGISTRY
from serving.logs import LOG_FORMATS, PREFIX

# By first option.
GROUPS = {"host": "address", "voices": "voices", "batching": "load and limits", "api_key": "access and log"}
LISTS = ("cors_origin", "allowed_host", "wyoming_client")
API_KEY_VARIABLE = "TTS_API_KEY"  # of the environment, read if --api-key is not given
LOUDEST = 10.0
Rate = Literal[8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000]  # Hz, of files
PCM_RATE = 24_000  # Hz, of OpenAI's pcm; clients do not ask, since pcm has no header
VOLUME = Check(lambda volume: 0 <= volume <= LOUDEST, f"0 to {LOUDEST:g}")
NETWORKS = Check(
    lambda names: all(map(is_network, names)), "addresses such as 192.168.1.5 or networks such as 192.168.1.0/24"
)
NOT_EMPTY = Check(lambda key: bool(key.strip()), "a key, or no such flag")
PREFIX_PATH = Check(lambda path: not path or (path[0] == "/" and path[-1] != "/"), "/PREFIX without a slash at its end")


def is_network(name: str) -> bool:
    """True for an IP address or network."""
    with suppress(ValueError):
        return bool(ip_network(name, strict=False))
    return False


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Settings of a server. Raises UsageError that names the flag of every value out of range."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0: all addresses of this machine")
    port: int = option(8000, "port to listen on; 0: a free one, named in the log", check=PORT)
    wyoming_port: int | None = option(None, "second port, for Home Assistant's Wyoming protocol", check=PORT)
    page: bool = option(True, "web page at /")
    root_path: str = option(
        "", "path prefix at which a proxy serves this server, such as /speech", check=PREFIX_PATH, metavar="PATH"
    )

    voices: Path | None = option(
        None, "folder with one subfolder of checkpoints per voice, or the folder of a single voice", metavar="DIR"
    )
    embedded: bool = option(True, "also serve the embedded voices")
    default_voice: str | None = option(
        None, "voice of requests that name none (default: embedded, otherwise the first by name)", metavar="NAME"
    )
    vocoder: str | None = option(
        None,
        "vocoder of requests that name none, for voices that have it (default: the voice's own)",
        choices=vocoder_names(REGISTRY.values()),
    )
    seed: int | None = option(
        None,
        "seed of requests that name none (default: drawn for each and returned in the header X-Seed)",
        type=arguments.seed,
    )
    speed: float = option(
        1.0, f"speed of requests that name none, {SLOWEST:g} to {FASTEST:g}; the pitch stays the same", check=SPEED
    )
    volume: float = option(
        1.0, "volume of requests that name none, a factor; samples beyond full scale are clipped", check=VOLUME
    )
    sentence_pause: float | None = option(
        None,
        f"seconds of silence between sentences, each then spoken by itself (default: {SENTENCE_PAUSE:g}, in texts that are cut)",
        check=NOT_NEGATIVE,
        metavar="SECONDS",
    )
    pcm_rate: int = option(
        PCM_RATE,
        "sampling rate of pcm over HTTP, in Hz, for requests that name none; clients of OpenAI's API expect 24,000",
        choices=get_args(Rate),
    )
    cpu: bool = option(False, "run on the CPU even if there is a GPU")
    fp16: bool = option(False, "half precision: float16 on a GPU, bfloat16 on a CPU that supports it")
    int8: bool = False
    plain: bool = False
    lexicon: Path | None = None

    batching: bool = option(True, "compute waiting requests as one batch; the audio of each stays the same")
    max_batch: int = option(16, "requests computed at once", check=AT_LEAST_ONE)
    max_queue: int = option(
        64, "requests waiting or being computed; any more are answered with 503 and Retry-After", check=AT_LEAST_ONE
    )
    timeout: float = option(
        60.0,
        "seconds that a request may wait for its first audio (then 504) and for each further part (then its answer ends); one "
        "whose turn would come later is refused at once (503)",
        check=ABOVE_ZERO,
    )
    max_characters: int = option(
        4096, "maximum characters of a text; longer ones are answered with 400", check=AT_LEAST_ONE
    )
    max_body: int = option(2**20, "maximum bytes of a request; larger ones are answered with 413", check=AT_LEAST_ONE)
    max_inputs: int = option(32, "maximum texts of a batch request", check=AT_LEAST_ONE)
    max_sockets: int = option(64, "Wyoming connections open at once; any more are refused", check=AT_LEAST_ONE)
    idle_timeout: float = option(
        60.0,
        "seconds after which a client that reads nothing, or a connection on which nothing happens, is cut off",
        check=ABOVE_ZERO,
    )
    grace: float = option(30.0, "seconds for accepted requests after SIGTERM or Ctrl-C", check=NOT_NEGATIVE)

    api_key: str | None = option(
        None,
        f"key required of clients; other users of this machine can read flags, so {API_KEY_VARIABLE} is the safer place",
        check=NOT_EMPTY,
        metavar="KEY",
    )
    cors_origin: tuple[str, ...] = option(
        (),
        "origin whose pages may call this server, such as https://example.org; repeat the flag for several (default: none)",
        action="append",
        metavar="ORIGIN",
    )
    allowed_host: tuple[str, ...] = option(
        (),
        "name in the header Host that a proxy passes on to a server on a loopback address; repeat the flag for several, * for any",
        action="append",
        metavar="NAME",
    )
    wyoming_client: tuple[str, ...] = option(
        (),
        "address or network, such as 192.168.1.0/24, that may use the Wyoming port in spite of --api-key, as this machine may; "
        "repeat the flag for several",
        check=NETWORKS,
        action="append",
        metavar="NETWORK",
    )
    log_format: str | None = option(
        None, "plain or JSON lines on stdout (default: plain on a terminal, otherwise JSON)", choices=LOG_FORMATS
    )
    log_texts: bool = option(False, "include texts in the log", action=argparse.BooleanOptionalAction)

    @property
    def silence(self) -> float:
        """Seconds between sentences that are requests of their own."""
        return SENTENCE_PAUSE if self.sentence_pause is None else self.sentence_pause

    def __post_init__(self) -> None:
        problems = problems_of(self)
        if self.voices is None and not self.embedded:
            problems.append("--no-embedded: no voice is left, expected --voices DIR with it")
        if problems:
            raise UsageError("\n".join(problems))


def parse_args(argv: list[str]) -> ServingConfig:
    """Parse all flags, and the variables of the environment. Raises UsageError for values out of range."""
    group: argparse._ActionsContainer
    group = parser = Parser(
        prog="python -m serving", usage="%(prog)s [flags]  (-h lists all flags)", description=__doc__
    )
    empty: dict[str, Any] = {name: [] for name in LISTS}
    for field in fields(ServingConfig):
        if field.name in GROUPS:
            group = parser.add_argument_group(GROUPS[field.name])
        owner = ServingConfig if field.metadata else SynthesisConfig
        add_fields(group, owner, field.name, **empty)
    given = given_options(parser, argv)  # first, for --help and mistakes
    options = vars(parser.parse_args([*environment_argv(parser, PREFIX, os.environ, given), *argv]))
    key = os.environ.get(API_KEY_VARIABLE) if options["api_key"] is None else options["api_key"]
    # A file's last line break is not part of the key; no header has spaces around its value.
    options |= {"api_key": key.strip() if key is not None else None, **{name: tuple(options[name]) for name in LISTS}}
    return from_options(ServingConfig, options)
