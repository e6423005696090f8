"""The files of a line's speech, and the message about them: as inference.py and the runner of exports write them."""

from __future__ import annotations

from pathlib import Path

from common.audio.audio_processing import SAMPLE_FORMATS, save_audio
from common.data.reports import plot_alignment, save_figure
from common.errors import shorten
from common.inference.stages import Speech

# The problem of a line without sound.
SILENT = "no sound, since the voice stopped before its first frame: add words or a full stop"
OTHERS_WRITTEN = "the other lines are written"


def write_sound(path: Path, text: str, speech: Speech, sample_format: str = SAMPLE_FORMATS[0]) -> str:
    """Save the sound of a text, and return a message about it. Raises DataError as save_audio does."""
    save_audio(path, speech.audio, speech.sampling_rate, sample_format)
    warning = "" if speech.finished else "  (never stopped by itself: cut at the decoder's limit)"
    pieces = f"  ({speech.pieces} pieces)" if speech.pieces > 1 else ""
    return f"{path}  {len(speech.audio) / speech.sampling_rate:.2f} s  {shorten(text)}{pieces}{warning}"


def write_picture(path: Path, text: str, speech: Speech, symbols: list[str]) -> None:
    """Draw the alignment of a text's frames with its symbols; without their names where the text was cut."""
    names = symbols if speech.pieces == 1 else None  # each piece has its own
    save_figure(path, plot_alignment(speech.alignment, names, title=shorten(text)))
