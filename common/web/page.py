"""Components that the pages of serving and of the studio share. Gradio, which neither needs without its page."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.themes.utils import sizes

from common.errors import UsageError


def mount_page(app: Any, page: gr.Blocks, css: Path, largest_upload: str, head: str = "") -> Any:
    """Mount a page at the end of a FastAPI app, which keeps its own routes, and return the app; without any outside network.

    Its last route then has the page's own app, whose stop_event ends the connection that each open page keeps.
    """
    page.has_launched = True  # else Gradio takes any file of this machine as input, not uploaded ones alone
    return gr.mount_gradio_app(
        app,
        page,
        path="/",
        theme=make_theme(),
        head=head,
        css_paths=css,
        footer_links=[],
        show_error=False,  # of faults; the messages of gr.Error are shown all the same
        max_file_size=largest_upload,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
    )


def make_theme() -> gr.themes.Base:
    """Return a theme with the fonts of the system, so that no font is loaded, and with contrasts of 4.5 and more (WCAG 2 AA)."""
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


def make_field(name: str, label: str, placeholder: str) -> gr.Textbox:
    """Make the field of a number that may stay empty. (gr.Number shows 0 where it is empty.)"""
    return gr.Textbox(label=label, placeholder=placeholder, max_lines=1, min_width=180, elem_id=name)


def parse_number(text: str | None, name: str, kind: Callable[[str], Any], expected: str) -> Any:
    """Return the number in a field, None where it is empty. Raises UsageError for another text."""
    if not (text := (text or "").strip()):
        return None
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if value != value:
        raise UsageError(f"{name}: {text!r}, expected {expected}, or nothing")
    return value


def make_audio(label: str, name: str) -> gr.Audio:
    """Make a player of finished audio, with a download of its wav file."""
    return gr.Audio(label=label, interactive=False, format="wav", buttons=["download"], elem_id=name)


def make_pictures(name: str) -> list[gr.Image]:
    """Make the pictures of common.inference.pictures: the mel, and the alignment."""
    pictures = (("mel", "Mel spectrogram with the words below"), ("alignment", "Alignment of the text's symbols"))
    return [make_picture(f"{name}-{kind}", text) for kind, text in pictures]


def make_picture(name: str, text: str) -> gr.Image:
    """Make a picture; `text` describes it to screen readers, since its title is drawn."""
    return gr.Image(
        show_label=False,
        alt_text=text,
        interactive=False,
        format="png",
        buttons=["fullscreen", "download"],
        elem_id=name,
        visible=False,
    )


def make_error(message: str) -> gr.Error:
    """Make the page's form of an error of a user: a message that stays until it is closed, without a traceback."""
    return gr.Error(message, duration=None, print_exception=False)
