"""A long run: its processes, its stop, its memory, its folder and its log."""
