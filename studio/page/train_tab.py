"""The tab Train."""

from __future__ import annotations

import gradio as gr

from studio.page.context import Context


def add_train_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
