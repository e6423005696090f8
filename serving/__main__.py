"""The process of the server, from its flags to its exit: python -m serving."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from common.extras import require
    from common.start import before_imports
    from serving.logs import announce

    require(
        "bash scripts/serve.sh --install-only",
        "av",
        "fastapi",
        "prometheus_client",
        "uvicorn",
        help_from="serving.config",
    )
    announce(sys.argv[1:])
    before_imports()

import asyncio
import logging
import socket
from functools import partial
from typing import Any

import torch

from common import precision
from common.errors import DataError, exit_on_user_error
from common.web.server import Server, end_at_once
from common.web.sockets import WAITING, listen, reason
from serving.app import make_app
from serving.config import ServingConfig, parse_args
from serving.engine import Engine
from serving.limits import ACCEPTED_AT_ONCE, Connection, most_connections
from serving.logs import set_up_logging
from serving.voices import Voices

LONGEST_HEADERS = 2**16  # bytes
LAST_BYTES = 5  # seconds for sending audio computed within --grace

log = logging.getLogger("serving")


def main(argv: list[str] | None = None) -> None:
    """Find the voices, start the server, and load the voices while it is running."""
    config = parse_args(sys.argv[1:] if argv is None else argv)
    set_up_logging(config.log_format)
    device = precision.pick_device(cpu=config.cpu)
    precision.configure(cudnn_enabled=True, cudnn_benchmark=False)
    precision.keep_freed_memory(device)
    # The engine's two threads share the cores, whether both work or not: the last bits of audio depend on the number.
    torch.set_num_threads(max(1, torch.get_num_threads() // 2))
    engine = Engine(Voices(config), config)
    server = SpeechServer(engine, config)
    try:
        server.run(sockets=[listen(config.host, config.port)])
    finally:
        engine.abort()
        if engine.is_left:
            log.warning("stopped while voices were being loaded")
            end_at_once()
    if engine.failure is not None:
        raise engine.failure


class SpeechServer(Server):
    """A server that, on a signal, first finishes the requests it has accepted; meanwhile /readyz answers 503."""

    def __init__(self, engine: Engine, config: ServingConfig) -> None:
        options: dict[str, Any] = {
            # The other parser, httptools, does not limit headers.
            "http": partial(Connection, patience=config.idle_timeout, most=most_connections()),
            "h11_max_incomplete_event_size": LONGEST_HEADERS,
            # In a turn of its loop, asyncio accepts up to `backlog` connections; only then can they be closed for lack of room.
            "backlog": ACCEPTED_AT_ONCE,
        }
        super().__init__(make_app(engine, config), LAST_BYTES, log_config=None, **options)
        self.engine, self.settings = engine, config
        self.tasks: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections, then start the engine."""
        await super().startup(sockets)
        for listener in sockets or []:
            listener.listen(WAITING)  # startup has set it to ACCEPTED_AT_ONCE
        loop = asyncio.get_running_loop()
        self.loop = loop
        self.engine.start(on_failure=partial(loop.call_soon_threadsafe, setattr, self, "should_exit", True))
        if self.settings.wyoming_port is not None:
            await self._start_wyoming(self.settings.wyoming_port)
        if sockets:
            host, port = sockets[0].getsockname()[:2]
            place = f"[{host}]" if ":" in host else host
            log.info(f"listening on http://{place}:{port}", extra={"fields": {"host": host, "port": port}})

    async def _start_wyoming(self, port: int) -> None:
        from serving.wyoming import serve_wyoming  # here, because only this flag needs the package

        try:
            self.wyoming = await serve_wyoming(self.engine, self.settings.host, port)
        except OSError as error:
            message = f"--wyoming-port {port}: cannot listen there ({reason(error)})"
            self.engine.failure, self.should_exit = DataError(message), True

    def handle_exit(self, sig: int, frame: object) -> None:
        """Begin to stop; at a second signal, stop at once."""
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
            log.warning("stopping: some requests are unfinished, and their answers end early")
        self.should_exit = True


if __name__ == "__main__":
    with exit_on_user_error():
        main()
