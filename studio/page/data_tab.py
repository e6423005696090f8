"""The tab Data."""

from __future__ import annotations

import gradio as gr

from studio.page.context import Context


def add_data_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
