"""WaveGlow: mel spectrograms to audio."""
