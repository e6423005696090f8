"""Settings in JSON of unknown origin: the kept inputs of their readers, and a short run of the fuzzer."""

from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from tests.fuzz import targets, test_tensors, test_texts
from tests.fuzz.replay import fuzz_for_a_while, kept_inputs, replay

TARGETS = ("config", "json", "plan", "project")


@pytest.mark.parametrize(("target", "name"), kept_inputs(*TARGETS))
def test_kept_inputs(target: str, name: str) -> None:
    replay(target, name)


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_fuzzing(target: str, tmp_path: Path) -> None:
    fuzz_for_a_while(target, tmp_path)


def test_every_target_is_tested() -> None:
    tested = [target for module in (test_texts, test_tensors) for target in module.TARGETS]
    assert sorted([*tested, *TARGETS]) == sorted(targets.TARGETS)


def take_memory(megabytes: int) -> None:
    """Use new pages: a list or bytes may come from memory that earlier tests have freed and malloc has kept."""
    with mmap.mmap(-1, megabytes * 2**20) as area:
        area[:: mmap.PAGESIZE] = bytes(len(area) // mmap.PAGESIZE)


def test_a_finding_is_reported(monkeypatch) -> None:
    def fail(content: bytes, folder: Path) -> None:
        raise KeyError(content)

    monkeypatch.setitem(targets.TARGETS, "plan", fail)
    with pytest.raises(KeyError):
        targets.check("plan", b"x")
    monkeypatch.setitem(targets.TARGETS, "plan", lambda content, folder: take_memory(400))
    with pytest.raises(AssertionError, match="MB of memory"):
        targets.check("plan", b"x")
    monkeypatch.setattr(targets, "SECONDS", 0.01)
    monkeypatch.setitem(targets.TARGETS, "plan", lambda content, folder: sum(range(10**7)))
    with pytest.raises(AssertionError, match="s of the processor"):
        targets.check("plan", b"x")
