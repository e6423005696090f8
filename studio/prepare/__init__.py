"""Prepare: from recordings to clips with texts, and filelists."""
