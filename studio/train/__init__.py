"""Train: train.py as a process, with a budget of time."""
