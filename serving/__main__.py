"""Serve voices over HTTP: python -m serving [--voices DIR]. docs/serving.md describes the interface.

Without --voices, the server has the embedded voice. It answers on --host and --port until SIGTERM or Ctrl-C; then it finishes the
accepted requests.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.threads import limit_spinning

    limit_spinning()  # takes effect before PyTorch is imported

import argparse
import asyncio
import logging
import os
import socket
import sys
from dataclasses import fields
from functools import partial
from pathlib import Path

import uvicorn

from common import precision
from common.arguments import HelpFormatter, add_plain_argument, add_preparation_arguments, positive, seed
from common.errors import DataError, exit_on_user_error
from common.inference.arguments import vocoder_flags
from common.inference.config import GRIFFIN_LIM
from models import REGISTRY
from serving.app import make_app
from serving.config import API_KEY_VARIABLE, ServingConfig
from serving.config import ServingConfig as D
from serving.conversation_settings import add_conversation_arguments, conversation_config
from serving.engine import Engine
from serving.gate import JsonFormatter
from serving.voices import Voices

LAST_BYTES = 5  # seconds for sending audio that was computed within --grace

log = logging.getLogger("serving")


def main(argv: list[str] | None = None) -> None:
    """Find the voices, start the server, and load the voices while it runs."""
    config = parse_args(sys.argv[1:] if argv is None else argv)
    set_up_logging()
    device = precision.pick_device(cpu=config.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    engine = Engine(Voices(config), config)
    server = Server(engine, config)
    server.run(sockets=[listen(config)])
    if engine.failure is not None:
        raise engine.failure


class Server(uvicorn.Server):
    """Uvicorn's server, which on a signal first finishes the accepted requests while /readyz answers 503."""

    def __init__(self, engine: Engine, config: ServingConfig) -> None:
        app = make_app(engine, config)
        quiet = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
        quiet.timeout_graceful_shutdown = LAST_BYTES
        super().__init__(quiet)
        self.engine, self.settings = engine, config
        self.tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then start the engine."""
        await super().startup(sockets)
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.engine.start(on_failure=partial(loop.call_soon_threadsafe, setattr, self, "should_exit", True))
        if self.settings.wyoming_port is not None:
            await self._start_wyoming(self.settings.wyoming_port)
        if sockets:
            host, port = sockets[0].getsockname()[:2]
            log.info(f"listening on http://{host}:{port}", extra={"fields": {"host": host, "port": port}})

    async def _start_wyoming(self, port: int) -> None:
        from serving.wyoming import serve_wyoming  # here, since only this flag needs its package

        try:
            self.wyoming = await serve_wyoming(self.engine, self.settings.host, port)
        except OSError as error:
            message = f"--wyoming-port {port}: cannot listen there ({error.strerror})"
            self.engine.failure, self.should_exit = DataError(message), True

    def handle_exit(self, sig: int, frame: object) -> None:
        """Begin to stop; at the second signal stop at once."""
        if self.engine.is_stopping or not self.started:
            self.should_exit = self.force_exit = True
            return
        self.engine.begin_stop()
        self.loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        self.tasks.add(asyncio.ensure_future(self._drain()))

    async def _drain(self) -> None:
        log.info(f"stopping: accepted requests have {self.settings.grace:g} seconds")
        if not await self.engine.stop():
            log.warning("stopping: requests are left, their answers end early")
        self.should_exit = True


def listen(config: ServingConfig) -> socket.socket:
    """Open the socket of --host and --port. Raises DataError where the system refuses."""
    try:
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        listener = socket.create_server((config.host, config.port), family=family, backlog=2048)
    except OSError as error:
        raise DataError(f"--host {config.host} --port {config.port}: cannot listen there ({error.strerror})") from None
    return listener


def set_up_logging() -> None:
    """Write all records to stdout, each as one line of JSON."""
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all flags."""
    parser = argparse.ArgumentParser(
        prog="python -m serving", description=__doc__, formatter_class=HelpFormatter, allow_abbrev=False
    )
    add_address_arguments(parser.add_argument_group("address"))
    add_voice_arguments(parser.add_argument_group("voices"))
    add_limit_arguments(parser.add_argument_group("load and limits"))
    add_access_arguments(parser.add_argument_group("access and log"))
    add_conversation_arguments(parser)
    return parser


def add_address_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the places where the server listens."""
    add = group.add_argument
    add("--host", default=D.host, help="address to listen on; 0.0.0.0: every one of this machine")
    add("--port", type=int, default=D.port, help="port to listen on; 0: a free one, which the log names")
    add("--wyoming-port", type=int, default=D.wyoming_port, help="also speak Home Assistant's protocol on this port")
    add("--page", action=argparse.BooleanOptionalAction, default=D.page, help="show a page at /, if it is installed")


def add_voice_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags that choose voices and set how they compute."""
    add = group.add_argument
    add(
        "--voices",
        type=Path,
        metavar="DIR",
        default=D.voices,
        help="folder with a subfolder of checkpoints for each voice",
    )
    embedded = "serve the voice that comes with the code"
    add("--embedded", action=argparse.BooleanOptionalAction, default=D.embedded, help=embedded)
    default_voice = "voice of requests that name none (default: embedded, or else the first one by name)"
    add("--default-voice", metavar="NAME", default=D.default_voice, help=default_voice)
    vocoders = [*vocoder_flags(REGISTRY.values()), GRIFFIN_LIM]
    vocoder = "vocoder of requests that name none, for voices that have it (default: the voice's own)"
    add("--vocoder", choices=vocoders, default=D.vocoder, help=vocoder)
    numbers = "seed of requests that name none (default: drawn for each, and returned in the header X-Seed)"
    add("--seed", type=seed, default=D.seed, help=numbers)
    add("--cpu", action="store_true", help="stay on the CPU even where there is a GPU")
    add(
        "--fp16",
        dest="half",
        action="store_true",
        help="half precision: float16 on a GPU, bfloat16 on a CPU that has it",
    )
    add_preparation_arguments(group)
    add_plain_argument(group)


def add_limit_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of batches, queues and limits."""
    add = group.add_argument
    batching = "compute waiting requests together; a request's audio does not change"
    add("--batching", action=argparse.BooleanOptionalAction, default=D.batching, help=batching)
    add("--max-batch", type=positive, default=D.max_batch, help="requests that are computed at once")
    queue = "requests that wait or are computed; the next one is answered with 503 and Retry-After"
    add("--max-queue", type=positive, default=D.max_queue, help=queue)
    timeout = "seconds from a request to the end of its audio; then 504, or the end of an answer that has begun"
    add("--timeout", type=float, default=D.timeout, help=timeout)
    add(
        "--max-characters", type=positive, default=D.max_characters, help="of a text; longer ones are answered with 400"
    )
    add("--max-body", type=positive, default=D.max_body, help="bytes of a request; larger ones are answered with 413")
    add("--max-inputs", type=positive, default=D.max_inputs, help="texts of a batch request")
    grace = "seconds for accepted requests after SIGTERM or Ctrl-C"
    add("--grace", type=float, default=D.grace, help=grace)


def add_access_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the key, of other origins, and of the log."""
    add = group.add_argument
    key = f"key that requests must have; other users of this machine can read flags, so rather set {API_KEY_VARIABLE}"
    add("--api-key", metavar="KEY", default=D.api_key, help=key)
    origin = (
        "origin whose pages may call this server, such as https://example.org; repeat it for several (default: none)"
    )
    add("--cors-origin", dest="cors_origins", action="append", default=[], metavar="ORIGIN", help=origin)
    add("--log-texts", action=argparse.BooleanOptionalAction, default=D.log_texts, help="write texts to the log")


def parse_args(argv: list[str]) -> ServingConfig:
    """Parse all flags. Raises UsageError for values out of range."""
    args = vars(make_parser().parse_args(argv))
    if args["api_key"] is None:
        args["api_key"] = os.environ.get(API_KEY_VARIABLE)
    args["cors_origins"] = tuple(args["cors_origins"])
    args["conversation"] = conversation_config(args)
    return ServingConfig(**{field.name: args[field.name] for field in fields(ServingConfig)})


if __name__ == "__main__":
    with exit_on_user_error():
        main()
