"""Train: train.py as a process, within a time limit."""
