"""The class of every parser. It imports no PyTorch, for commands that need none."""

from __future__ import annotations

import argparse
from typing import NoReturn

from common.errors import printable


class Parser(argparse.ArgumentParser):
    """The parser of every command: its errors spell the control characters of the words that it refuses."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the message, and exit with code 2."""
        super().error(printable(message))
