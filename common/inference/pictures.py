"""Pictures of synthesised speech: the mel with its words below, and the alignment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.data.pictures import WIDTH, darken, figure_pixels, plot_alignment, plot_spectrogram, save_figure
from common.errors import shorten
from common.inference.stages import Speech
from common.inference.words import word_spans
from common.spec import WordSpan

Pixels = npt.NDArray[np.uint8]


class Pictures(NamedTuple):
    """RGB pixels (height, width, 3)."""

    mel: Pixels
    alignment: Pixels


class Look(NamedTuple):
    """How the pictures of a page look: dark or light, and their width in inches."""

    dark: bool = False
    width: float = WIDTH

    @classmethod
    def of(cls, page: str) -> Look:
        """Return the look that fits a page, which studio/page/page.js describes: "dark 390", its width in CSS pixels."""
        kind, _, width = page.partition(" ")
        return cls(kind == "dark", max(3.5, min(WIDTH, int(width) / 96)) if width.isdecimal() else WIDTH)


LIGHT = Look()


def write_picture(path: Path, text: str, speech: Speech, symbols: list[str]) -> None:
    """Draw the alignment of a text's frames with its symbols, which are named unless the text was cut."""
    names = symbols if speech.pieces == 1 else None  # the pieces have different symbols
    save_figure(path, plot_alignment(speech.alignment, names, title=shorten(text)))


def draw_speech(speech: Speech, symbols: Sequence[Sequence[str]], look: Look = LIGHT) -> Pictures:
    """Draw the mel of a speech with its words below, and its alignment with the symbols of each piece."""
    hop_length = round(speech.parts[0].seconds * speech.sampling_rate / speech.parts[0].frames)  # samples per frame
    title = "mel spectrogram" + (", without pauses" if len(symbols) > 1 else "")
    rate, words = speech.sampling_rate, words_in_frames(speech, symbols)
    mel = plot_spectrogram(speech.mel, title, hop_length=hop_length, sampling_rate=rate, words=words, width=look.width)
    own = symbols[0] if len(symbols) == 1 else None  # the pieces have different symbols
    alignment = plot_alignment(speech.alignment, own, "alignment", look.width)
    if look.dark:
        darken(mel)
        darken(alignment)
    return Pictures(figure_pixels(mel), figure_pixels(alignment))


def words_in_frames(speech: Speech, symbols: Sequence[Sequence[str]]) -> list[WordSpan]:
    """List the words of a speech as read, with their spans in frames of its mel."""
    words: list[WordSpan] = []
    start = 0
    for (part, alignment), own in zip(speech.in_parts(), symbols, strict=True):
        scale = part.frames / part.steps  # frames per decoder step
        for word, first, end in word_spans(alignment, own, part.finished):
            words.append(WordSpan(word, start + round(first * scale), start + round(end * scale)))
        start += part.frames
    return words
