"""Tests of targets, for the files that each have some of them: the kept inputs, and a short run of the fuzzer."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.__main__ import CORPUS, fuzz
from tests.fuzz.targets import TARGETS, check, warm_up

SECONDS = 120  # of all targets together


def kept_inputs(*targets: str) -> list[tuple[str, str]]:
    """List the kept inputs of targets as (target, name)."""
    return [(target, path.name) for target in targets for path in sorted((CORPUS / target).iterdir())]


def replay(target: str, name: str) -> None:
    """Feed a kept input to its reader."""
    warm_up()
    check(target, (CORPUS / target / name).read_bytes())


def fuzz_for_a_while(target: str, folder: Path) -> None:
    """Fuzz a target for its share of SECONDS; skip the test where atheris is missing."""
    if find_spec("atheris") is None:
        pytest.skip("atheris, of tests/requirements-fuzz.txt, is not installed")
    outcome = fuzz(target, SECONDS // len(TARGETS), folder)
    assert outcome.finding is None, outcome.output[-6000:]
    assert outcome.executions > len(list((CORPUS / target).iterdir()))
