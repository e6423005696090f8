"""Fast ways of WaveGlow. They import the plain model, never the other way round; table.py lists them."""
