"""A page at /: type or ask, and hear speech while it is being computed. Gradio, in the API's app, with nothing from other hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI
from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from common.web.page import make_error, mount_page
from serving.config import ServingConfig
from serving.engine import Engine
from serving.responses import handle_http_error

FOLDER = Path(__file__).parent
LARGEST_UPLOAD = "20mb"
MISFIT = "The values do not fit the page; reload it."
PATHS = ("/upload", "/queue/join", "/call/")  # on which Gradio fails for a body without a file or an unknown event


def mount(app: FastAPI, engine: Engine, config: ServingConfig) -> FastAPI:
    """Add the page to the end of an app, which keeps its own routes, and return the app."""
    from serving.page import layout
    from serving.page.relay import Relay, add_route

    relay = Relay()
    add_route(app, relay)
    page = layout.make_page(engine, relay, config.conversation)
    player = (FOLDER / "player.js").read_text(encoding="utf-8")
    add_refusals(mount_page(app, page, FOLDER / "style.css", LARGEST_UPLOAD, player))
    return app


class Page(gr.Blocks):
    """Gradio's page, which treats values of a wrong type as the visitor's mistake."""

    async def preprocess_data(self, block_fn: Any, *arguments: Any, **options: Any) -> Any:
        """Read the values of an event. Raises gr.Error if they do not fit."""
        try:
            values = await super().preprocess_data(block_fn, *arguments, **options)
            if any(isinstance(block, gr.Dataset) and value is None for block, value in zip(block_fn.inputs, values)):
                raise ValueError("no sample, which Gradio's own function does not check")
            return values
        except gr.Error as error:
            raise make_error(error.message) from None
        except Exception:
            raise make_error(MISFIT) from None


def add_refusals(app: FastAPI) -> None:
    """Make Gradio's app answer a body without a file and an unknown event with 400, and unknown paths as the API does."""
    app.add_exception_handler(404, handle_http_error)
    for kind in (TypeError, KeyError, FnIndexInferError):
        app.add_exception_handler(kind, refuse)


def refuse(request: Request, error: Exception) -> Response:
    """Answer 400 on paths that take bodies. On others the error is a fault of the server, and is raised."""
    if not any(path in request.url.path for path in PATHS):
        raise error
    request.scope.setdefault("log", {})["error"] = f"{type(error).__name__}: values that do not fit the page"
    return PlainTextResponse(MISFIT, 400)
