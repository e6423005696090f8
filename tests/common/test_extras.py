"""A command without the packages of an extra names them and the script that installs them."""

import subprocess
import sys

import pytest

from common.extras import require
from tests.recipe import ROOT


def test_missing_packages_are_named_and_others_are_not(capsys: pytest.CaptureFixture[str]) -> None:
    require("bash install.sh", "torch", "numpy")
    with pytest.raises(SystemExit) as stop:
        require("bash install.sh", "torch", "no_such_package", "nor_this")
    assert stop.value.code == 1
    assert capsys.readouterr().err == (
        "error: not installed: no_such_package, nor_this; `bash install.sh` installs what this command needs\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize(("module", "script"), [("serving", "serve.sh"), ("studio", "studio.sh")])
def test_the_servers_say_how_to_install_their_packages(module: str, script: str) -> None:
    """uvicorn cannot be found in a process where its entry in sys.modules is None."""
    program = f"import runpy, sys; sys.modules['uvicorn'] = None; runpy.run_module('{module}', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", program, "--port", "0"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert f"uvicorn; `bash scripts/{script} --install-only` installs" in done.stderr
