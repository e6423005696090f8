"""The page of the studio at /: recordings, plan, training and the voice. Gradio, in its own app, without any outside network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from studio.page.access import Access, Gate

if TYPE_CHECKING:
    from fastapi import FastAPI

    from studio.page.context import Context

FOLDER = Path(__file__).parent
LARGEST_UPLOAD = "4gb"  # a file; hours of recordings


def make_app(context: Context, access: Access) -> FastAPI:
    """Make the app of the page, behind its gate. Its folder of uploads is GRADIO_TEMP_DIR of the environment."""
    from fastapi import FastAPI

    from common.web.page import mount_page
    from studio.page import layout
    from studio.page.downloads import add_route
    from studio.page.uploads import WholeUploads

    app, ending = FastAPI(openapi_url=None), asyncio.Event()
    app.add_middleware(WholeUploads)
    app.add_middleware(Gate, access=access)
    add_route(app, context)
    mount_page(app, layout.make_page(context, ending), FOLDER / "style.css", LARGEST_UPLOAD)
    app.state.end_pages.append(ending.set)  # of keep_stream
    return app
