"""The tab Compare: two voices on one text, blind, in random order. Names leave the server after the vote alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from html import escape
from typing import Any, NamedTuple

import gradio as gr

from common.web.page import make_audio, make_field
from models import REGISTRY
from studio.comparison import (
    Pair,
    Vote,
    add_vote,
    next_text,
    read_votes,
    results,
    shuffle,
    table_path,
    validation_texts,
)
from studio.page.choices import BEST, EMBEDDED_KEY, FINISHED
from studio.page.context import Context
from studio.page.events import HIDDEN, choose, errors_in_words
from studio.page.speak_tab import audio_of, make_request, make_text
from studio.page.voice_fields import connect_choices, make_voice_fields
from studio.project import Project

BEST_KEYS = [f"{spec.name} {BEST}" for spec in REGISTRY.values() if spec.role == "acoustic"]
HOLD = 3600  # seconds for which a comparison waits for its vote
VOTES = ((Vote.LEFT, "A is better"), (Vote.TIE, "No difference"), (Vote.RIGHT, "B is better"))
RULE = (
    "Decide before you begin how many votes you will give: a look after each vote makes accidental results likelier. "
    "Ties do not count."
)


class Round(NamedTuple):
    """Values for the outputs of a comparison: the pair, which stays on the server, a message, the audio of A and B, and buttons."""

    pair: Any
    message: Any
    left: Any
    right: Any
    buttons: list[Any]

    def values(self) -> list[Any]:
        """Return the values in the order of the components."""
        return [self.pair, self.message, self.left, self.right, *self.buttons]


class Comparer:
    """The events of the tab. `order` draws the sides."""

    def __init__(self, context: Context, order: random.Random | None = None) -> None:
        self.context, self.order = context, order or random.SystemRandom()

    def compare(
        self,
        project: str | None,
        text: str,
        seed: str | None,
        voice: str | None,
        vocoder: str | None,
        other_voice: str | None,
        other_vocoder: str | None,
    ) -> Iterator[list[Any]]:
        """Speak a text with two voices. Yields values of Round. Raises gr.Error."""
        yield Round(None, "Computing …", None, None, vote_buttons(False)).values()
        try:
            with errors_in_words(self.context):
                sides = ((voice, vocoder), (other_voice, other_vocoder))
                requests = [make_request(self.context, project, text, *side, seed) for side in sides]
                first, second = (self.context.speaker.speak(request) for request in requests)
                left, right = shuffle(first, second, self.order)
        except gr.Error:
            yield Round(None, "", None, None, vote_buttons(False)).values()
            raise
        pair = Pair(project=requests[0].project, text=text, left=left.name, right=right.name)
        message = "Listen to A and B, then vote. Their names follow."
        yield Round(pair, message, audio_of(left), audio_of(right), vote_buttons(True)).values()

    def vote(self, pair: Pair | None, vote: Vote) -> list[Any]:
        """Write a vote. Returns the pair, None from now on, a message with the names, the table of results and the buttons."""
        with errors_in_words(self.context):
            if pair is None:
                return [None, "There is nothing to vote on yet.", gr.skip(), *vote_buttons(False)]
            add_vote(pair, vote)
            table = results_table(pair.project)
        return [None, f"A was {pair.left}. B was {pair.right}.", table, *vote_buttons(False)]

    def results(self, project: str | None) -> str:
        """Return the table of results of a project."""
        if not project:
            return ""
        with errors_in_words(self.context):
            return results_table(choose(self.context, project))

    def next_text(self, project: str | None, text: str) -> str:
        """Return the validation text after this one."""
        with errors_in_words(self.context):
            return next_text(validation_texts(choose(self.context, project)), text)


def add_compare_tab(context: Context, project: gr.Dropdown, order: random.Random | None = None) -> None:
    """Add the tab."""
    comparer, pair = Comparer(context, order), gr.State(None, time_to_live=HOLD)
    text = make_text("compare-text")
    with gr.Row():
        following = gr.Button("Next text", elem_id="next-text")
        button = gr.Button("Speak both", variant="primary", elem_id="compare")
    fields = [make_voice_fields("first", "First voice"), make_voice_fields("second", "Second voice")]
    seed = make_field("compare-seed", "Seed of both", "0")
    connect_choices(context, project, fields, [[FINISHED, *BEST_KEYS], [EMBEDDED_KEY]])
    message = gr.Textbox(label="Comparison", interactive=False, lines=2, elem_id="compare-message")
    with gr.Row():
        players = [make_audio(side, f"compare-{side.lower()}") for side in ("A", "B")]
    with gr.Row():
        buttons = [gr.Button(words, interactive=False, elem_id=f"vote-{vote.value}") for vote, words in VOTES]
    table = gr.HTML(elem_id="comparisons")
    gr.Markdown(RULE)
    gr.on(
        [button.click, text.submit],
        comparer.compare,
        [project, text, seed, *fields[0], *fields[1]],
        [pair, message, *players, *buttons],
        api_visibility="private",
        show_progress_on=[message],
    )
    for (vote, _), component in zip(VOTES, buttons, strict=True):
        component.click(
            lambda current, vote=vote: comparer.vote(current, vote), pair, [pair, message, table, *buttons], **HIDDEN
        )
    following.click(comparer.next_text, [project, text], text, **HIDDEN)
    gr.on(None, comparer.results, [project], table, **HIDDEN)  # at load, and when another project is chosen


def vote_buttons(is_open: bool) -> list[Any]:
    """Return the updates that let people vote, or not."""
    return [gr.update(interactive=is_open) for _ in VOTES]


def results_table(project: Project) -> str:
    """Return the results as a table of HTML. Raises DataError for a damaged table of votes."""
    rows = [
        f"<tr><td>{escape(result.first)}<br>{escape(result.second)}<td>{result.first_wins}<br>{result.second_wins}"
        f'<td>{result.ties}<td>{result.probability:.3f}</tr><tr><td colspan="4">{escape(result.sentence)}</tr>'
        for result in results(read_votes(table_path(project)))
    ]
    if not rows:
        return "<p>No votes yet.</p>"
    head = "".join(f'<th scope="col">{name}</th>' for name in ("voices", "votes", "ties", "p"))
    meaning = (
        "p: probability of votes as unequal as these, or more, if both voices were equally good (binomial, two-sided)"
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table><p>{meaning}</p>"
