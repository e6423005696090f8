"""The page of the studio at /: its app, the choice of a project, the tabs, and downloads. Gradio, without any outside network."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse
from gradio.themes.utils import sizes

from studio.export import find_download
from studio.page.access import Access, TokenGate, WholeUploads
from studio.page.data_tab import add_data_tab
from studio.page.events import HIDDEN, IN_TURN, Context, ProjectPage
from studio.page.export_tab import add_export_tab
from studio.page.plan_tab import add_plan_tab
from studio.page.speak_tab import ROUTE, ProjectSpeech, add_speak_tab
from studio.page.train_tab import add_train_tab
from studio.project import Project, list_projects

LARGEST_UPLOAD = "4gb"  # a file; hours of recordings
HEADING = "# Voice studio\nFrom recordings to a voice that speaks, on this machine."
HOLD_TIME = (600, 3600)  # seconds between clean-ups of pictures and sounds, and their age
HOLD_STREAM = 20.0  # seconds between events that show that the page is still open
TABS = {
    "Data": add_data_tab,
    "Plan": add_plan_tab,
    "Train": add_train_tab,
    "Speak": add_speak_tab,
    "Export": add_export_tab,
}


def make_app(context: Context, access: Access) -> FastAPI:
    """Make the app of the page, behind its gate. Its folder of uploads is GRADIO_TEMP_DIR of the environment."""
    app, ending = FastAPI(openapi_url=None), asyncio.Event()
    app.add_middleware(WholeUploads)
    app.add_middleware(TokenGate, access=access)
    add_downloads(app, context)
    speech = ProjectSpeech(context)
    app.mount(f"{ROUTE}/{{name}}", speech)
    mount_page(app, make_page(context, ending))
    mounted: Any = app.routes[-1]
    # These close the connections of open pages, and end the thread of the models.
    app.state.end_pages = [mounted.app.stop_event.set, ending.set, speech.close]
    return app


def mount_page(app: FastAPI, page: gr.Blocks) -> None:
    """Mount the page at the end of the app, which keeps its own routes. It loads nothing from other hosts."""
    page.has_launched = True  # else Gradio accepts any file of this machine as input, not just uploads
    page.queue(default_concurrency_limit=None)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=make_theme(),
        css_paths=[Path(__file__).with_name("style.css")],
        footer_links=[],
        show_error=False,  # of faults; the messages of gr.Error are shown all the same
        max_file_size=LARGEST_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
    )


def make_theme() -> gr.themes.Base:
    """Return a theme in system fonts, so that none is loaded, with contrasts of at least 4.5 (WCAG 2 AA)."""
    fonts, fixed_width = ["system-ui", "sans-serif"], ["ui-monospace", "monospace"]
    theme: Any = gr.themes.Default(primary_hue="blue", text_size=sizes.text_md, font=fonts, font_mono=fixed_width)
    theme.color_accent_dark = "*primary_400"  # `set` has no such argument, though the style sheet has the variable
    return theme.set(
        body_text_color_subdued="*neutral_500",
        input_placeholder_color="*neutral_500",
        input_placeholder_color_dark="*neutral_400",
        color_accent="*primary_600",
        button_primary_background_fill="*primary_600",
        button_primary_background_fill_hover="*primary_700",
    )


def add_downloads(app: FastAPI, context: Context) -> None:
    """Add the route /download/PROJECT/FILE. Both names are looked up, and neither is used as a path."""

    @app.get("/download/{name}/{file}", include_in_schema=False)
    def download(name: str, file: str) -> FileResponse:
        known = name in list_projects(context.projects)
        found = find_download(Project(name=name, projects=context.projects), file) if known else None
        if found is None:
            raise HTTPException(404, "no such file")
        headers = {"Cache-Control": "no-store"}
        return FileResponse(found.path, media_type="application/zip", filename=found.name, headers=headers)


def make_page(context: Context, ending: asyncio.Event) -> gr.Blocks:
    """Make the page of a folder of projects. `ending` is set when the server stops."""
    with gr.Blocks(title="Voice studio", delete_cache=HOLD_TIME, analytics_enabled=False, fill_width=True) as page:
        gr.Markdown(HEADING)
        names = list_projects(context.projects)
        project = gr.Dropdown(names, value=names[0] if names else None, label="Project", elem_id="project")
        for title, add_tab in TABS.items():
            with gr.Tab(title):
                add_tab(ProjectPage(context, project))

        def find_chosen(request: gr.Request) -> gr.Dropdown:
            """Return the projects to choose from, with the one of the address chosen, or else the first."""
            names, name = list_projects(context.projects), request.query_params.get("project")
            return gr.Dropdown(names, value=name if name in names else next(iter(names), None))

        page.load(find_chosen, None, project, **IN_TURN, **HIDDEN)
        project.change(None, project, None, js=read_script("write_address"), **HIDDEN)
        page.load(None, None, None, js=read_script("mend_names"), **HIDDEN)
        page.load(functools.partial(keep_stream, ending), **HIDDEN)
    return page


def read_script(name: str) -> str:
    """Return a function in JavaScript, without the comment before it."""
    return Path(__file__).with_name(f"{name}.js").read_text(encoding="utf-8").partition("\n")[2]


async def keep_stream(ending: asyncio.Event) -> AsyncIterator[None]:
    """Stay unfinished until the server stops, since the stream of answers closes with a page's last event.

    An event that arrives just then would lose its answer (Gradio 6.31), which timers on a busy machine make happen.
    """
    while not ending.is_set():
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(ending.wait(), HOLD_STREAM)
        yield None
