"""Voices for other runtimes: python -m exports writes directories of files for them, and speaks with such directories."""
