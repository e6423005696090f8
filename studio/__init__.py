"""The studio: from a folder of recordings to a voice of one's own. Each step is a command: prepare, plan, train."""
