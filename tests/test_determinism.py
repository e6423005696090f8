"""Equal seeds give equal bits, in training and in synthesis; --deterministic sets PyTorch's switches for it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch

from common import precision
from common.checkpoint.files import load_checkpoint
from common.errors import UsageError
from tests.recipe import flags, run, start_ranks, succeed
from tests.test_train import differences, losses

slow = pytest.mark.slow
OF_THE_LAUNCH = ("launch", "saved", "data_files")


def final(folder: Path, model: str) -> dict:
    """The last checkpoint, without the names of its launch."""
    checkpoint = load_checkpoint(folder / f"checkpoint_{model}_last.pt")
    return {key: value for key, value in checkpoint.items() if key not in OF_THE_LAUNCH}


@slow
@pytest.mark.parametrize(("model", "processes"), [("Tacotron2", 2), ("WaveGlow", 1)])
def test_equal_runs_end_with_equal_bits(tmp_path: Path, model: str, processes: int) -> None:
    """Two runs in processes of their own, one of them with loader processes and --deterministic."""
    ways = {"a": [], "b": ["--num-workers", 2, "--deterministic"]}
    for name, words in ways.items():
        own = [*flags(model, tmp_path / name), "-bs", 2 // processes, "--ema-decay", 0.9, "--epochs", 2, *words]
        for process in start_ranks("train.py", *own, ranks=processes):
            _, err = process.communicate(timeout=300)
            assert process.returncode == 0, err
    assert differences(final(tmp_path / "a", model), final(tmp_path / "b", model)) == []
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


def test_the_switches_are_set_inside_the_context_alone(monkeypatch) -> None:
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    with precision.deterministic(False):
        assert not torch.are_deterministic_algorithms_enabled()
    with precision.deterministic(True):
        assert torch.are_deterministic_algorithms_enabled()
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        assert precision.balance_threads(torch.device("cpu"), fixed=True) is None
    assert not torch.are_deterministic_algorithms_enabled()
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    with precision.deterministic(True):
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"  # the user's


def test_an_operator_without_a_deterministic_algorithm_is_named() -> None:
    message = r"^--deterministic: \S+ has no deterministic algorithm here; leave the flag out$"
    with pytest.raises(UsageError, match=message), precision.deterministic(True):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    with pytest.raises(RuntimeError, match="shape"), precision.deterministic(True):
        torch.zeros(2, 3) @ torch.zeros(2, 3)
    assert not torch.are_deterministic_algorithms_enabled()


@slow
def test_a_search_for_fast_algorithms_contradicts_the_flag(tmp_path: Path) -> None:
    result = run("train.py", *flags("WaveGlow", tmp_path), "--deterministic", "--cudnn-benchmark")
    assert result.code == 2
    assert "--deterministic: --cudnn-benchmark chooses algorithms by their time; leave one of them out" in result.err


@slow
def test_threads_stay_as_they_are(tmp_path: Path, monkeypatch) -> None:
    """Without a fixed number, the run adapts its threads to the load, and sums are added in another order."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    chosen = []
    monkeypatch.setattr(precision, "ThreadBalance", lambda *words: chosen.append(words))
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1, "--deterministic")
    assert chosen == []
    assert re.search(r"PARAMETER.*deterministic", (tmp_path / "nvlog.json").read_text())
