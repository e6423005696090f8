"""The text front end: text to the symbol ids that Tacotron 2 embeds."""

from tacotron2.text.alphabet import symbols
from tacotron2.text.cleaners import CLEANERS
from tacotron2.text.sequence import dropped_symbols, sequence_to_text, text_to_sequence

__all__ = ["CLEANERS", "dropped_symbols", "sequence_to_text", "symbols", "text_to_sequence"]
