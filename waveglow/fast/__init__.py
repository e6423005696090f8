"""Fast ways of WaveGlow: each converts the plain model; table.py lists them."""
