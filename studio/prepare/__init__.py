"""Prepare: recordings become clips with texts, and filelists."""
