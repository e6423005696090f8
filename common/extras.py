"""Optional packages: an install hint when one is missing."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

from common.errors import DataError, exit_on_user_error, require_posix


def require(installer: str, *packages: str, help_from: str, posix: str = "") -> None:
    """Exit with code 1 and a message that names the installer, unless all packages are installed.

    -h needs none of them: parse_args of the module `help_from` answers it. `posix` names a command that needs Linux or
    macOS; elsewhere the exit code is 2, before anything is asked for.
    """
    with exit_on_user_error():
        if {"-h", "--help"} & {*sys.argv[1:]}:
            import_module(help_from).parse_args(["-h"])
        if posix:
            require_posix(posix)
        if missing := [name for name in packages if find_spec(name) is None]:
            raise DataError(f"not installed: {', '.join(missing)}; `{installer}` installs what this command needs")
