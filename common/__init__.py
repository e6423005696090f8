"""Code that no model owns: audio, data, kernels, quality, inference and training."""
