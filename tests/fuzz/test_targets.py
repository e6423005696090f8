"""Readers of foreign input: kept inputs, random changes of them, and a short run of the fuzzer."""

from __future__ import annotations

import mmap
import random
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz import targets
from tests.fuzz.__main__ import CORPUS, fuzz
from tests.fuzz.targets import LONGEST, TARGETS, check, warm_up

KEPT = {target: [path.read_bytes() for path in sorted((CORPUS / target).iterdir())] for target in TARGETS}
CHANGES = 40  # of each target
FUZZED = "checkpoint"  # `python -m tests.fuzz` fuzzes the others
SECONDS = 2


@pytest.mark.parametrize("target", TARGETS)
def test_kept_and_changed_inputs(target: str) -> None:
    """Bits flip, and parts are cut out, repeated or taken from another input of the target."""
    warm_up()
    draw, kept = random.Random(target), KEPT[target]
    changed = [change(bytearray(draw.choice(kept)), draw.choice(kept), draw) for _ in range(CHANGES)]
    for content in kept + changed:
        check(target, content)


def change(content: bytearray, other: bytes, draw: random.Random) -> bytes:
    """Change an input in one to three places."""
    for _ in range(draw.randint(1, 3)):
        start, end = sorted(draw.randint(0, len(content)) for _ in range(2))
        kind = draw.choice(["flip", "cut", "repeat", "splice"])
        if kind == "flip" and start < len(content):
            content[start] ^= 1 << draw.randrange(8)
        elif kind == "cut":
            del content[start:end]
        elif kind == "repeat":
            content[end:end] = content[start:end]
        elif kind == "splice":
            content[start:end] = other[start : start + draw.randint(0, 60)]
    return bytes(content[:LONGEST])


@pytest.mark.slow
def test_fuzzing(tmp_path: Path) -> None:
    if find_spec("atheris") is None:
        pytest.skip("atheris, of tests/requirements-fuzz.txt, is not installed")
    outcome = fuzz(FUZZED, SECONDS, tmp_path)
    assert outcome.finding is None, outcome.output[-6000:]
    assert outcome.executions > len(KEPT[FUZZED])


def take_memory(megabytes: int) -> None:
    """Use new pages: a list or bytes may come from memory that earlier tests have freed and malloc has kept."""
    with mmap.mmap(-1, megabytes * 2**20) as area:
        area[:: mmap.PAGESIZE] = bytes(len(area) // mmap.PAGESIZE)


def fail(content: bytes, folder: Path) -> None:
    raise KeyError(content)


@pytest.mark.parametrize(
    ("reader", "error", "message"),
    [
        (fail, KeyError, "b'x'"),
        (lambda content, folder: take_memory(400), AssertionError, "MB of memory"),
        (lambda content, folder: sum(range(10**7)), AssertionError, "s of the processor"),
    ],
    ids=["exception", "memory", "time"],
)
def test_a_finding_is_reported(monkeypatch, reader, error: type[Exception], message: str) -> None:
    monkeypatch.setitem(targets.TARGETS, "plan", reader)
    monkeypatch.setattr(targets, "SECONDS", 0.01 if "processor" in message else 2.0)
    with pytest.raises(error, match=message):
        check("plan", b"x")
