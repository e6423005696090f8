"""Voice: the folder that training writes, with its card."""
