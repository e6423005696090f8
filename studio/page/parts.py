"""Parts of the page: theme, mounting and components."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.themes.utils import sizes

from common.errors import UsageError

FOLDER = Path(__file__).parent
# Of gr.Blocks.
OPTIONS: dict[str, Any] = {"analytics_enabled": False, "fill_width": True}


def mount_page(app: Any, page: gr.Blocks, largest_upload: str) -> Any:
    """Mount a page at the end of a FastAPI app, which keeps its own routes, and return Gradio's app.

    The page loads nothing from other hosts.
    `app.state.end_pages` lists functions that close the connections of open pages.
    """
    scripts = (FOLDER / "page.js").read_text(encoding="utf-8")
    page.has_launched = True  # else Gradio accepts any file of this machine as input, not just uploads
    page.queue(default_concurrency_limit=None)
    gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=make_theme(),
        head=f"<script>{scripts}</script>",
        css_paths=[FOLDER / "style.css"],
        footer_links=[],
        show_error=False,  # of faults; the messages of gr.Error are shown all the same
        max_file_size=largest_upload,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
    )
    mounted = app.routes[-1].app
    app.state.end_pages = [mounted.stop_event.set]
    return mounted


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


def make_field(name: str, label: str, placeholder: str, visible: bool = True) -> gr.Textbox:
    """Make a field for a number that may stay empty. (An empty gr.Number shows 0.)"""
    options: dict[str, Any] = {"max_lines": 1, "min_width": 180, "visible": visible, "elem_id": name}
    return gr.Textbox(label=label, placeholder=placeholder, **options)


def parse_number(text: str | None, name: str, kind: Callable[[str], Any], expected: str) -> Any:
    """Return the number in a field, or None if it is empty. Raises UsageError for other text."""
    if not (text := (text or "").strip()):
        return None
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if value != value:
        raise UsageError(f"{name}: {text!r}, expected {expected}, or nothing")
    return value


def make_text(name: str, text: str, label: str, most: int) -> gr.Textbox:
    """Make the field for a text to speak, with its length below; a reload of the page keeps the text."""
    field = gr.Textbox(text, label=label, lines=3, max_lines=12, elem_id=name, elem_classes="spoken-text")
    hint = f'<div class="hint"><span>Ctrl+Enter speaks</span><span id="{name}-counter"></span></div>'
    gr.HTML(hint, elem_classes="plain")
    quiet: dict[str, Any] = {"api_visibility": "private"}
    field.change(None, field, None, js=f"(text) => pageText.changed('{name}', text, {most})", **quiet)
    page: Any = gr.context.Context.root_block
    page.load(None, field, field, js=f"(text) => pageText.restore('{name}', text, {most})", **quiet)
    return field


def make_look() -> gr.Textbox:
    """Make the input that tells how pictures should look; SEND_LOOK fills it, as the last of an event's inputs."""
    return gr.Textbox(visible="hidden")


SEND_LOOK = "(...values) => [...values.slice(0, -1), pageLook()]"


def make_audio(label: str, name: str) -> gr.Audio:
    """Make a player for finished audio that offers the wav file as a download."""
    return gr.Audio(label=label, interactive=False, format="wav", buttons=["download"], elem_id=name)


def make_pictures(name: str) -> list[gr.Image]:
    """Make the pictures of common.inference.pictures: the mel, and the alignment."""
    pictures = (("mel", "Mel spectrogram with the words below"), ("alignment", "Alignment of the text's symbols"))
    return [make_picture(f"{name}-{kind}", text) for kind, text in pictures]


def make_picture(name: str, text: str) -> gr.Image:
    """Make a picture. `text` describes it to screen readers; the visible title is part of the picture."""
    return gr.Image(
        show_label=False,
        alt_text=text,
        interactive=False,
        format="png",
        buttons=["fullscreen", "download"],
        elem_id=name,
        visible=False,
    )
