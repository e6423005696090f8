"""Uvicorn's server, as serving and the studio run it."""

from __future__ import annotations

from typing import Any

import uvicorn


class Server(uvicorn.Server):
    """A server without access log or Server header. After `end`, clients have `last_seconds` to read the rest of their answers.

    `options` are further settings of uvicorn.Config.
    """

    def __init__(self, app: Any, last_seconds: int, **options: Any) -> None:
        options |= {"access_log": False, "server_header": False, "timeout_graceful_shutdown": last_seconds}
        super().__init__(uvicorn.Config(app, **options))
        self.app = app

    def end(self) -> None:
        """Close the connections that open pages keep, which would delay the end, then stop."""
        end_pages(self.app)
        self.should_exit = True


def end_pages(app: Any) -> None:
    """Close the connections that the open pages of an app keep. studio.page.parts.mount_page and its callers list how."""
    for end in getattr(app.state, "end_pages", ()):
        end()
