"""Voice: the folder that training writes, and its card."""
