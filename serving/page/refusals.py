"""Requests that no browser with the page sends: an answer 400, or the event's error, in place of a traceback in the log."""

from __future__ import annotations

from typing import Any

import gradio as gr
from fastapi import FastAPI
from gradio.route_utils import FnIndexInferError
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from common.web.page import make_error

MISFIT = "The values do not fit the page; load it again."
PATHS = ("/upload", "/queue/join", "/call/")  # of Gradio, in which a body without a file or an unknown event is a fault


class Page(gr.Blocks):
    """Gradio's page, for which values of a wrong type are an error of the visitor."""

    async def preprocess_data(self, block_fn: Any, *arguments: Any, **options: Any) -> Any:
        """Read the values of an event. Raises gr.Error."""
        try:
            values = await super().preprocess_data(block_fn, *arguments, **options)
            if any(isinstance(block, gr.Dataset) and value is None for block, value in zip(block_fn.inputs, values)):
                raise ValueError("no sample, for which Gradio's own function has a fault")
            return values
        except gr.Error as error:
            raise make_error(error.message) from None
        except Exception:
            raise make_error(MISFIT) from None


def add_refusals(app: FastAPI) -> None:
    """Let Gradio's app answer a body without a file and an unknown event with 400."""
    for kind in (TypeError, KeyError, FnIndexInferError):
        app.add_exception_handler(kind, refuse)


def refuse(request: Request, error: Exception) -> Response:
    """Answer 400 on the paths that take bodies; raises the error on others, where it is a fault of the server."""
    if not any(path in request.url.path for path in PATHS):
        raise error
    request.scope.setdefault("log", {})["error"] = f"{type(error).__name__}: values that do not fit the page"
    return PlainTextResponse(MISFIT, 400)
