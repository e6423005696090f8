"""Data: filelists, cached mels, and pictures of what is in them."""
