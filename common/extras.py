"""Optional packages: an install hint when one is missing."""

from __future__ import annotations

from importlib.util import find_spec

from common.errors import DataError, exit_on_user_error


def require(installer: str, *packages: str) -> None:
    """Exit with code 1 and a message that names the installer, unless all packages are installed."""
    with exit_on_user_error():
        if missing := [name for name in packages if find_spec(name) is None]:
            raise DataError(f"not installed: {', '.join(missing)}; `{installer}` installs what this command needs")
