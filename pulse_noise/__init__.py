"""Pulse-noise: a vocoder that trains in minutes on a CPU. It is no part of the published recipe."""
