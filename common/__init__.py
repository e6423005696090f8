"""What no model owns: sound, data and the training engine."""
