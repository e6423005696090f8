"""The Speak tab: the page of the server of serving/, in this process, with the finished voice of the chosen project."""

from __future__ import annotations

import asyncio
from typing import Any

import gradio as gr
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from common.errors import DataError, UsageError
from common.inference.voice_folder import CONFIG, voice_name
from serving.app import make_app
from serving.config import ServingConfig
from serving.engine import Engine
from serving.errors import RequestError
from serving.responses import error_response
from serving.voices import Voices
from studio.page.events import Context, ProjectPage
from studio.project import Project, check_inside, find_project
from studio.voice.verdict import read_verdict

ROUTE = "/speak"  # and the name of a project


class ProjectSpeech:
    """The server's app at /speak/PROJECT. It has one engine, whose voice is that of the project that was asked for last.

    A voice that a training has written anew is loaded anew; while a command uses a GPU, the engine computes on the CPU.
    """

    def __init__(self, context: Context) -> None:
        self.context, self._lock = context, asyncio.Lock()
        self._key: tuple[ServingConfig, int] | None = None
        self._engine: Engine | None = None
        self._app: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on to the app of its project, or answer with an error: in place of the page as plain text."""
        path = scope["path"].removeprefix(scope["root_path"])
        app: ASGIApp
        try:
            async with self._lock:
                app = await self._find(find_project(self.context.projects, scope["path_params"]["name"]))
        except (DataError, UsageError) as error:
            message = self.context.shorten(str(error))
            app = error_response(RequestError(404, message, code="voice_not_loaded"))
            if path in ("", "/"):
                app = PlainTextResponse(message, 404)
        await app({**scope, "path": path}, receive, send)

    async def _find(self, project: Project) -> ASGIApp:
        """Return the app of a project; begins to load its voice unless it is there. Raises DataError if that fails."""
        key = self._config(project), written_at(project)
        if self._app is None or key != self._key:
            self._app = None
            await asyncio.to_thread(self.close)
            self._engine, self._key = Engine(Voices(key[0]), key[0]), key
            self._engine.start()
            self._app = make_app(self._engine, key[0])
        if self._engine and self._engine.failure:
            self._app = None  # the next request tries again
            raise self._engine.failure
        return self._app

    def _config(self, project: Project) -> ServingConfig:
        voice = project.voice if written_at(project) else None
        return ServingConfig(
            voices=voice,
            default_voice=voice_name(voice) if voice and not read_verdict(voice).prefers_embedded else None,
            cpu=self.context.cpu or any(job.run.device for job in self.context.jobs.active()),
            allowed_host=("*",),  # the page's own gate has checked it
        )

    def close(self) -> None:
        """Cut off what is being spoken, and wait for the engine's thread."""
        if self._engine:
            self._engine.abort()


def written_at(project: Project) -> int:
    """Return when a project's voice was finished, in ns since 1970: studio.train writes config.json last. 0 without a voice."""
    path = check_inside(project, project.voice / CONFIG)
    return path.stat().st_mtime_ns if path.is_file() else 0


def add_speak_tab(page: ProjectPage) -> None:
    frame = gr.HTML(elem_id="speech")
    tab: Any = frame.parent
    page.on([tab.select, page.field.change], show, [], [frame], clears=True)


def show(project: Project) -> str:
    """Return the frame with the server's page, another one once there is another voice."""
    source = f"{ROUTE[1:]}/{project.name}/?{written_at(project)}"
    return f'<iframe src="{source}" title="Speak" loading="lazy"></iframe>'
