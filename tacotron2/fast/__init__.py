"""Fast ways of Tacotron 2. They import the plain model, never the other way round; table.py lists them."""
