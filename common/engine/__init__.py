"""Engine: the training loop and what it stands on, and the stages of inference."""
