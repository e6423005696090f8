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


# A program that lists all tests with a finder of installed packages that omits those in its arguments.
WITHOUT = """
import importlib.machinery, sys
class Finder(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in sys.argv else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Finder
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", "tests"]))
"""
# Those that neither PyTorch nor another package of the recipe or its tests needs.
EXTRAS = (
    *("fastapi", "fastapi_offline", "starlette", "uvicorn", "websockets", "prometheus_client"),
    *("gradio", "av", "wyoming"),
    *("onnx", "onnxscript", "onnxruntime", "tritonclient"),
    *("moonshine_voice", "moonshine_onnx", "jiwer", "rapidfuzz", "distillmos", "pyworld", "resemblyzer"),
)


@pytest.mark.slow
def test_all_tests_are_collected_without_the_packages_of_extras() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT, *EXTRAS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "test_the_package_is_there" in done.stdout
