"""The packages of the server: without them, the other tests of this folder are not collected."""

from importlib.util import find_spec

import pytest

from tests.serving.conftest import PACKAGES


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_is_there(name: str) -> None:
    if find_spec(name) is None:
        pytest.skip(f"{name}, of requirements/serving.txt, is not installed: bash scripts/serve.sh --install-only")
