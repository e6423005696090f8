"""The reading of numbers where the published recipe has it."""

from tacotron2.text.cleaners import spell_numbers as normalize_numbers

__all__ = ["normalize_numbers"]
