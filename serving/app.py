"""The HTTP interface of an engine, as a FastAPI app."""

from __future__ import annotations

from fastapi import FastAPI

from serving.config import ServingConfig
from serving.engine import Engine


def make_app(engine: Engine, config: ServingConfig) -> FastAPI:
    """Make the app of an engine. Its caller starts and stops the engine."""
    app = FastAPI(title="Tacotron 2 and WaveGlow")
    app.state.engine, app.state.config = engine, config
    return app
