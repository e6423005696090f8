"""A page at /: type or ask, and play speech while it is computed. Gradio, in the app of the API, without any outside network."""

from __future__ import annotations

from pathlib import Path

from fastapi import FastAPI

from serving.config import ServingConfig
from serving.engine import Engine

FOLDER = Path(__file__).parent
LARGEST_UPLOAD = "20mb"


def mount(app: FastAPI, engine: Engine, config: ServingConfig) -> FastAPI:
    """Add the page to the end of an app, which keeps its own routes, and return the app. Raises ImportError without gradio."""
    from common.web.page import mount_page
    from serving.page import layout
    from serving.page.refusals import add_refusals
    from serving.page.relay import Relay, add_route

    relay = Relay()
    add_route(app, relay)
    page = layout.make_page(engine, relay, config.conversation)
    player = f"<script>{(FOLDER / 'player.js').read_text(encoding='utf-8')}</script>"
    add_refusals(mount_page(app, page, FOLDER / "style.css", LARGEST_UPLOAD, player))
    return app
