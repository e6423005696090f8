"""The page at /: static files over the interface that programs use. It loads nothing from other hosts and needs no build."""

from __future__ import annotations

import html
from functools import partial
from pathlib import Path

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from serving.config import FASTEST, SLOWEST, ServingConfig

FOLDER = Path(__file__).parent
FILES = {
    "": "text/html",
    "page.css": "text/css",
    **dict.fromkeys(("sound.js", "pictures.js", "shelf.js", "page.js"), "text/javascript"),
}  # by path; index.html is at /
POLICY = "; ".join(
    ["default-src 'self'", "connect-src 'self' blob:", "img-src 'self' data:", "object-src 'none'", "base-uri 'self'"]
)
HEADERS = {"Cache-Control": "no-cache", "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff"}


def add_page(app: FastAPI, config: ServingConfig) -> None:
    """Add the page's files to an app, with the settings that the page shows."""
    for name, kind in FILES.items():
        text = (FOLDER / (name or "index.html")).read_text(encoding="utf-8")
        if not name:  # only index.html has placeholders, written {{field}}
            for field, value in settings_of(config).items():
                text = text.replace(f"{{{{{field}}}}}", html.escape(str(value)))
        answer = Response(text, media_type=kind, headers=HEADERS)
        app.add_route(f"/{name}", partial(_send, answer))


def _send(answer: Response, request: Request) -> Response:
    return answer


def settings_of(config: ServingConfig) -> dict[str, object]:
    """Return the values of the placeholders in index.html. `base` lets the page work without a slash at its address's end."""
    return {
        "key": "needed" if config.api_key else "",
        "base": f"{config.root_path}/" if config.root_path else "",
        **{"most": config.max_characters, "speed": config.speed, "slowest": SLOWEST, "fastest": FASTEST},
    }
