"""A page at /: type or ask, and play speech while it is computed. Gradio, in the app of the API, without any outside network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI

from serving.config import ServingConfig
from serving.engine import Engine

FOLDER = Path(__file__).parent
LARGEST_UPLOAD = "20mb"


def mount(app: FastAPI, engine: Engine, config: ServingConfig) -> FastAPI:
    """Add the page to the end of an app, which keeps its own routes, and return the app. Raises ImportError without gradio."""
    import gradio

    from common.web_page import make_theme
    from serving.page import layout
    from serving.page.relay import Relay, add_route

    relay = Relay()
    add_route(app, relay)
    page = layout.make_page(engine, relay, config.conversation)
    page.has_launched = True  # else Gradio takes any file of this machine as input, not uploaded ones alone
    app = gradio.mount_gradio_app(
        app,
        page,
        path="/",
        theme=make_theme(),
        head=f"<script>{(FOLDER / 'player.js').read_text(encoding='utf-8')}</script>",
        css_paths=FOLDER / "style.css",
        footer_links=[],
        show_error=False,  # of faults; the messages of gr.Error are shown all the same
        max_file_size=LARGEST_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
    )
    mounted: Any = app.routes[-1]
    app.state.before_exit.append(mounted.app.stop_event.set)  # ends the connection that each open page keeps
    return app
