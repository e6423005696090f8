"""Training: the loop, the optimizer, processes, checkpoints and the log."""
