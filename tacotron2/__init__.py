"""Tacotron 2: text to mel spectrograms."""
