"""Code shared by all models: audio, checkpoints, data, kernels, quality, runs, inference, training and web."""

__version__ = "0.13.0"
