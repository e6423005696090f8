"""Fields that choose a voice and a vocoder of the project, for the tabs Speak and Compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr

from studio.choices import OWN, Option, list_vocoders, list_voices
from studio.page.context import Context
from studio.page.events import HIDDEN, choose, errors_in_words


class VoiceFields(NamedTuple):
    """The fields of one voice."""

    voice: gr.Dropdown
    vocoder: gr.Dropdown


def make_voice_fields(name: str, label: str = "Voice") -> VoiceFields:
    """Make the fields; connect_choices fills them."""
    with gr.Row():
        voice = gr.Dropdown([], label=label, min_width=280, elem_id=f"{name}-voice")
        vocoder = gr.Dropdown([], label="Vocoder", min_width=280, elem_id=f"{name}-vocoder")
    return VoiceFields(voice, vocoder)


def connect_choices(
    context: Context, project: gr.Dropdown, fields: Sequence[VoiceFields], defaults: Sequence[Sequence[str]]
) -> None:
    """Fill the fields when the page is loaded, when a project or the tab is chosen, and by a button; call it within the tab.

    Args:
        context: the page's.
        project: the page's choice of a project.
        fields: those of one or more voices.
        defaults: for each voice the keys that it may have at first; the first that is there is taken.
    """
    button = gr.Button("Look for new checkpoints", size="sm")
    tab: Any = button.parent
    flat = [field for pair in fields for field in pair]

    def refresh(name: str | None, *chosen: str | None) -> list[gr.Dropdown]:
        if not name:
            return [gr.Dropdown([], value=None) for _ in flat]
        with errors_in_words(context):
            found = choose(context, name)
            voices, vocoders = list_voices(found), list_vocoders(found)
        updates = []
        for voice, vocoder, keys in zip(chosen[::2], chosen[1::2], defaults, strict=True):
            updates += [_choices(voices, [voice, *keys]), _choices(vocoders, [vocoder, OWN])]
        return updates

    def fill_fields(name: str | None) -> list[gr.Dropdown]:
        return refresh(name, *[None] * len(flat))

    gr.on(None, fill_fields, [project], flat, **HIDDEN)  # at load, and when another project is chosen
    gr.on([button.click, tab.select], refresh, [project, *flat], flat, **HIDDEN)


def _choices(options: Sequence[Option], preferred: Sequence[str | None]) -> gr.Dropdown:
    """Return the choices, with the first of the preferred keys that is there."""
    keys = [option.key for option in options]
    value = next((key for key in preferred if key in keys), keys[0] if keys else None)
    return gr.Dropdown([(option.label, option.key) for option in options], value=value)
