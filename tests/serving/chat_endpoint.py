"""A chat endpoint on loopback that speaks OpenAI's protocol, for tests."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def chunk(text: str | None) -> str:
    """Write an event as the API does: the first has a role, the last no content."""
    delta = {"role": "assistant", "content": text} if text is not None else {}
    event = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    return f"data: {json.dumps(event)}\n\n"


class Endpoint(ThreadingHTTPServer):
    """A chat endpoint with one answer: a status and the events of its body; collects the requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.status, self.events, self.pause = 200, [chunk("Yes."), "data: [DONE]\n\n"], threading.Event()
        self.requests: list[tuple[str, str | None, dict]] = []
        self.pause.set()  # a test clears it to keep the endpoint silent

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class Handler(BaseHTTPRequestHandler):
    """Answers each POST as the server's fields state."""

    server: Endpoint

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append((self.path, self.headers["Authorization"], body))
        self.send_response(self.server.status)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for event in self.server.events:
            self.wfile.write(event.encode())
            self.wfile.flush()
            self.server.pause.wait()

    def log_message(self, *words: object) -> None:
        """Print nothing."""
