"""Downloads: /download/PROJECT/FILE. Both names are looked up, and neither is used as a path."""

from __future__ import annotations

from fastapi import FastAPI, HTTPException
from fastapi.responses import FileResponse

from studio.export import find_download
from studio.page.context import Context
from studio.project import Project, list_projects


def add_route(app: FastAPI, context: Context) -> None:
    """Add the route to an app."""

    @app.get("/download/{name}/{file}", include_in_schema=False)
    def download(name: str, file: str) -> FileResponse:
        known = name in list_projects(context.projects)
        found = find_download(Project(name=name, projects=context.projects), file) if known else None
        if found is None:
            raise HTTPException(404, "no such file")
        headers = {"Cache-Control": "no-store"}
        return FileResponse(found.path, media_type="application/zip", filename=found.name, headers=headers)
