"""Voices for other runtimes: python -m exports writes export directories and speaks with them."""
