"""Data: filelists, recordings, cached mels, and pictures and reports of them."""
