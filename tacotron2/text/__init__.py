"""The text front end: convert text to the symbol ids that Tacotron 2 embeds."""

from tacotron2.text.alphabet import BUILT_IN, Alphabet, alphabet_of, read_symbols
from tacotron2.text.cleaners import CLEANERS
from tacotron2.text.sequence import dropped_symbols, sequence_to_text, text_to_sequence
from tacotron2.text.symbols import symbols  # after its module, whose name it has

__all__ = [
    "BUILT_IN",
    "CLEANERS",
    "Alphabet",
    "alphabet_of",
    "dropped_symbols",
    "read_symbols",
    "sequence_to_text",
    "symbols",
    "text_to_sequence",
]
