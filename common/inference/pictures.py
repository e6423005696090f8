"""Pictures of synthesised speech: the mel with its words below, and the alignment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from common.data.pictures import WordSpan, figure_pixels, plot_alignment, plot_spectrogram, save_figure, word_spans
from common.errors import shorten
from common.inference.stages import Speech

Pixels = npt.NDArray[np.uint8]


class Pictures(NamedTuple):
    """RGB pixels (height, width, 3)."""

    mel: Pixels
    alignment: Pixels


def write_picture(path: Path, text: str, speech: Speech, symbols: list[str]) -> None:
    """Draw the alignment of a text's frames with its symbols, which are named unless the text was cut."""
    names = symbols if speech.pieces == 1 else None  # the pieces have different symbols
    save_figure(path, plot_alignment(speech.alignment, names, title=shorten(text)))


def draw_speech(speech: Speech, pieces: Sequence[Speech], symbols: Sequence[Sequence[str]]) -> Pictures:
    """Draw the mel of a speech with its words below, and its alignment with its symbols.

    Args:
        speech: the speech of the whole text.
        pieces: the speech of each of its pieces.
        symbols: the symbols of each piece, one per column of its alignment.
    """
    hop_length = len(pieces[0].audio) // pieces[0].mel.shape[1]  # samples per frame
    title = "mel spectrogram" + (", without pauses" if len(symbols) > 1 else "") + ", with the words of its text"
    rate, words = speech.sampling_rate, words_of_pieces(pieces, symbols)
    mel = plot_spectrogram(speech.mel, title, hop_length=hop_length, sampling_rate=rate, words=words)
    own = symbols[0] if len(symbols) == 1 else None  # the pieces have different symbols
    alignment = plot_alignment(speech.alignment, own, "alignment of decoder steps and symbols")
    return Pictures(figure_pixels(mel), figure_pixels(alignment))


def words_of_pieces(pieces: Sequence[Speech], symbols: Sequence[Sequence[str]]) -> list[WordSpan]:
    """List the words of all pieces, with their spans in frames of the whole text."""
    words, start = [], 0
    for speech, own in zip(pieces, symbols, strict=True):
        frames = speech.mel.shape[1]
        scale = frames / speech.alignment.shape[0]  # frames per decoder step
        spans = word_spans(speech.alignment, own)
        words += [
            WordSpan(word, start + round(first * scale), start + round(end * scale)) for word, first, end in spans
        ]
        start += frames
    return words
