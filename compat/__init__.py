"""Functions of the published recipe's inference.py and train.py, for scripts that import them; docs/compatibility.md lists all."""
