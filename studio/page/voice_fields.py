"""Fields that choose a voice and a vocoder of the project, for the tabs Speak and Compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import gradio as gr

from studio.page.choices import OWN, Option, list_vocoders, list_voices
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
    known = gr.State(())  # the keys of the voices that the fields offer

    def refresh(name: str | None, before: Sequence[str], *chosen: str | None) -> list[Any]:
        if not name:
            return [*(gr.Dropdown([], value=None) for _ in flat), ()]
        with errors_in_words(context):
            found = choose(context, name)
            voices, vocoders = list_voices(found), list_vocoders(found)
        updates: list[Any] = []
        for voice, vocoder, keys in zip(chosen[::2], chosen[1::2], defaults, strict=True):
            updates += [_choices(voices, before, voice, keys), _choices(vocoders, [OWN], vocoder, [OWN])]
        return [*updates, tuple(option.key for option in voices)]

    def fill_fields(name: str | None) -> list[Any]:
        return refresh(name, (), *[None] * len(flat))

    gr.on(None, fill_fields, [project], [*flat, known], **HIDDEN)  # at load, and when another project is chosen
    gr.on([button.click, tab.select], refresh, [project, known, *flat], [*flat, known], **HIDDEN)


def _choices(
    options: Sequence[Option], before: Sequence[str], chosen: str | None, defaults: Sequence[str]
) -> gr.Dropdown:
    value = choose_key([option.key for option in options], before, chosen, defaults)
    return gr.Dropdown([(option.label, option.key) for option in options], value=value)


def choose_key(keys: Sequence[str], before: Sequence[str], chosen: str | None, defaults: Sequence[str]) -> str | None:
    """Choose one of the keys: the first default where it was not there before, as after a training; else the key that was chosen,
    or a default.
    """
    is_new = bool(before) and defaults[0] not in before
    preferred = [*defaults[: int(is_new)], chosen, *defaults]
    return next((key for key in preferred if key in keys), keys[0] if keys else None)
