"""Shell scripts, and programs of a line or two that stand in for others."""

import subprocess
import sys
from pathlib import Path

TOOLS = "/usr/bin:/bin"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def bash(*words: object, cwd: Path, path: object = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run bash, whose output must be valid text. `path` is the PATH, that of this Python and the system unless given."""
    variables = {"PATH": str(path or f"{Path(sys.executable).parent}:{TOOLS}"), "OMP_NUM_THREADS": "1"} | environment
    command = ["/bin/bash", *map(str, words)]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=300)
