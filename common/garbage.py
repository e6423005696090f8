"""Python's garbage collector in a command: its collections go through all that is imported, for a third of inference.py's time."""

from __future__ import annotations

import gc


def pause() -> None:
    """Collect nothing until `resume`, while a command imports what it needs."""
    gc.disable()


def resume() -> None:
    """Collect garbage again after `pause`; what there is by now is left out, at the end of the process, too."""
    if gc.isenabled():
        return
    gc.enable()
    if (
        not gc.get_freeze_count()
    ):  # a process that runs several commands, one after another, would keep the garbage of each
        gc.freeze()
