"""The tab Plan."""

from __future__ import annotations

import gradio as gr

from studio.page.context import Context


def add_plan_tab(context: Context, project: gr.Dropdown) -> None:
    """Add the tab."""
