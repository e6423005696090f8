"""A file server on loopback for the scripts that download: ranges, a redirection as on NGC, and transfers that break off."""

import contextlib
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.scripts.shell import bash


class Server(ThreadingHTTPServer):
    """Serves `contents` by name below /files, which redirects; aborts the first transfer after `cut` bytes, if set."""

    ranges: bool = True
    cut: int | None = None

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.contents = dict(contents)
        self.asked: list[tuple[str, str | None]] = []  # names and ranges

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/files/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        place, _, name = self.path.strip("/").partition("/")
        if place == "files":
            self.answer(302, {"Location": f"/storage/{name}", "Content-Length": "0"})
            return
        content, byte_range = self.server.contents[name], self.headers["Range"]
        self.server.asked.append((name, byte_range))
        size = len(content)
        start = int(byte_range.removeprefix("bytes=").removesuffix("-")) if byte_range and self.server.ranges else 0
        if start >= size:
            self.answer(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        ranges = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        self.answer(206 if start else 200, {"Content-Length": str(size - start), **ranges})
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(content[start:cut])

    def answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def serve(contents: Mapping[str, bytes]) -> Iterator[Server]:
    with Server(contents) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def run_script(folder: Path, script: str, *words: object, path: Path | None = None, **environment: str):
    variables = {"VENV": sys.prefix, "no_proxy": "127.0.0.1"} | environment
    return bash(f"scripts/{script}", *words, cwd=folder, path=path, **variables)
