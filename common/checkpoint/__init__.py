"""Checkpoints: files of weights, read and written whole, without running code from them."""
