"""Inference: the stages from text to sound, streaming and evaluation."""
