"""train.py as a whole, on tiny models: the files of a run, and that stopping and going on changes no bit of them."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import common.training.loop
from common.checkpoint.files import load_checkpoint
from tests.recipe import (
    flags,
    fresh_state,
    losses,
    read_log,
    read_parameters,
    read_steps,
    run,
    succeed,
    train_tiny_model,
)

SEEING = ["--epochs-per-validation", "1"]


@pytest.fixture
def steps(monkeypatch) -> list[tuple[str, ...]]:
    """The names of the clips of every training step, as they are taken."""
    seen: list[tuple[str, ...]] = []
    step = common.training.loop.train_step

    def record_names(state: Any, batches: Any, *requests: Any) -> Any:
        seen.extend(batch.names for batch in batches)
        return step(state, batches, *requests)

    monkeypatch.setattr(common.training.loop, "train_step", record_names)
    return seen


def stop_at(monkeypatch, number: int) -> None:
    """Send this process a Ctrl-C during its training step of that number."""
    step, count = common.training.loop.train_step, 0

    def interrupt_step(state: Any, batches: Any, stop: bool, *requests: bool) -> Any:
        nonlocal count
        count += 1
        if count == number:
            signal.raise_signal(signal.SIGINT)
        return step(state, batches, stop or count == number, *requests)

    monkeypatch.setattr(common.training.loop, "train_step", interrupt_step)


def differences(a: Any, b: Any, place: str = "") -> list[str]:
    """Places where two nests of dicts, lists and tensors are not equal bit for bit."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return [] if a.dtype == b.dtype and torch.equal(a, b) else [place]
    if isinstance(a, dict) and isinstance(b, dict) and list(a) == list(b):
        compared = [key for key in a if place or key != "saved"]  # stopping leaves a file more
        return [found for key in compared for found in differences(a[key], b[key], f"{place}.{key}")]
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        return [found for i in range(len(a)) for found in differences(a[i], b[i], f"{place}.{i}")]
    return [] if a == b else [place]


DROPPING = {"Tacotron2": ["--drop-frame-rate", 0.2]}


def checkpoints(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.pt"))


@pytest.mark.slow
@pytest.mark.parametrize(("model", "bucket_batches"), [("Tacotron2", "2"), ("WaveGlow", "0")])
def test_three_epochs_at_once_or_with_stops_between_are_the_same_bit_for_bit(
    tmp_path: Path, monkeypatch, steps: list, model: str, bucket_batches: str
) -> None:
    """Stops: at the end of epoch 0, and by Ctrl-C in the middle of epoch 1."""
    taken, finals = {}, {}
    for way in ("at once", "stopped"):
        folder = tmp_path / way
        words = [*flags(model, folder), *SEEING, "--bucket-batches", bucket_batches, *DROPPING.get(model, [])]
        if way == "at once":
            succeed("train.py", *words, "--epochs", 3)
        else:
            succeed("train.py", *words, "--epochs", 1)
            with monkeypatch.context() as patch:
                stop_at(patch, 1)
                stopped = run("train.py", *words, "--epochs", 3, "--resume-from-last")
            assert stopped.code == 130
            assert "stopped in mid-epoch: saved" in stopped.out
            torch.manual_seed(12345)  # another state of the random numbers than the run left
            out = succeed("train.py", *words, "--epochs", 3, "--resume-from-last")
            assert "resuming in epoch 1 after 1 iterations" in out
        taken[way], finals[way] = list(steps), load_checkpoint(folder / f"checkpoint_{model}_last.pt")
        steps.clear()
    assert len(taken["at once"]) == 6
    assert taken["at once"] == taken["stopped"]
    assert differences(finals["at once"], finals["stopped"]) == []
    assert finals["at once"]["epoch"] == 2
    assert losses(tmp_path / "at once") == losses(tmp_path / "stopped")
    curves = events(tmp_path / "stopped", model)  # each step once
    assert sorted(event.step for event in curves.Scalars("train/loss")) == list(range(1, 7))
    assert sorted(event.step for event in curves.Scalars("validation/loss")) == [2, 4, 6]


@pytest.mark.slow
def test_a_signal_between_epochs_saves_a_whole_epoch(tmp_path: Path, monkeypatch) -> None:
    with monkeypatch.context() as patch:
        stop_at(patch, 4)  # the last step of epoch 1
        stopped = run("train.py", *flags("WaveGlow", tmp_path), "--epochs", 4)
    assert stopped.code == 130
    assert load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")["epoch_complete"]
    out = succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 3, "--resume-from-last")
    assert "resuming at epoch 2" in out


@pytest.mark.slow
def test_an_epoch_whose_clips_are_done_in_batches_of_another_size_is_followed_by_the_next(
    tmp_path: Path, monkeypatch, steps: list
) -> None:
    """Six clips of eight: in batches of three they are the whole epoch."""
    words = flags("WaveGlow", tmp_path, training=8)
    with monkeypatch.context() as patch:
        stop_at(patch, 3)
        assert run("train.py", *words, "--epochs", 1).code == 130
    steps.clear()
    succeed("train.py", *words, "--epochs", 2, "--resume-from-last", "-bs", 3)
    places = [step for step, _ in read_steps(tmp_path / "nvlog.json") if len(step) == 2]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    assert [len(names) for names in steps] == [3, 3]


@pytest.mark.slow
def test_checkpoints_and_validations_when_due_and_at_the_end_where_nothing_is_left_to_train(tmp_path: Path) -> None:
    words = ["--epochs", 6, "--epochs-per-checkpoint", 3, "--epochs-per-validation", 2]
    succeed("train.py", *flags("WaveGlow", tmp_path), *words)
    before = load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")
    out = succeed("train.py", *flags("WaveGlow", tmp_path), *words, "--resume-from-last")
    assert "nothing left to train: epochs done: 6; raise --epochs, now 6, to go on" in out
    assert differences(before, load_checkpoint(tmp_path / "checkpoint_WaveGlow_last.pt")) == []
    wanted = [f"checkpoint_WaveGlow_{epoch}.pt" for epoch in ("0", "3", "5", "best", "last")]
    assert checkpoints(tmp_path) == wanted
    link = tmp_path / wanted[-1]
    assert (link.is_symlink(), link.readlink()) == (True, Path("checkpoint_WaveGlow_5.pt"))
    epochs = [step for step, data in read_steps(tmp_path / "nvlog.json") if len(step) == 1 and "val_loss" in data]
    assert epochs == [(0,), (2,), (4,), (5,)]


@pytest.mark.slow
def test_a_run_that_measures_speed_saves_nothing_at_its_end_and_at_a_stop(tmp_path: Path, monkeypatch) -> None:
    words = [*flags("WaveGlow", tmp_path), "--bench-class", "perf-train"]
    succeed("train.py", *words, "--epochs", 1)
    stop_at(monkeypatch, 1)
    stopped = run("train.py", *words, "--epochs", 9)
    assert stopped.code == 130 and "--bench-class perf-train saves nothing" in stopped.out
    assert not list(tmp_path.glob("checkpoint_*"))


@pytest.mark.slow
def test_going_on_in_another_folder_from_a_given_checkpoint(tmp_path: Path) -> None:
    """The log begins anew, and a second start goes on from the folder's own checkpoint."""
    succeed("train.py", *flags("WaveGlow", tmp_path), "--epochs", 1, "--bench-class", "perf-train")
    words = [*flags("WaveGlow", tmp_path), "--resume-from-last", "--epochs", 4]
    words += ["--checkpoint-path", train_tiny_model("WaveGlow")]
    first = succeed("train.py", *words)
    assert "older logs: " in first and f"{train_tiny_model('WaveGlow')}: resuming at epoch 2" in first
    steps = read_steps(tmp_path / "nvlog.json")
    assert [step for step, data in steps if "train_epoch_time" in data] == [(2,), (3,)]
    assert checkpoints(tmp_path) == [f"checkpoint_WaveGlow_{name}.pt" for name in ("3", "best", "last")]
    assert "checkpoint_WaveGlow_last.pt: resuming at epoch 4" in succeed("train.py", *words)


def test_batchnorm_weights_start_uniform_unless_told_otherwise(tmp_path: Path) -> None:
    for words, spread in (([], True), (["--disable-uniform-initialize-bn-weight"], False)):
        model = fresh_state("Tacotron2", tmp_path, *words).model
        weight = model.get_parameter("postnet.convolutions.0.1.weight")
        if spread:
            assert 0 < weight.min() < 0.4 and 0.6 < weight.max() < 1
        else:
            assert torch.equal(weight, torch.ones(16))


LOG_KEYS = {
    2: {"glob_iter/iters_per_epoch", "train_loss", "train_items_per_sec", "train_iter_items/sec", "train_iter_time"},
    3: {"val_loss", "val_items_per_sec"},
    0: {"run_time", "train_loss", "train_items_per_sec", "train_steady_items_per_sec", "val_loss", "val_items_per_sec"},
}
TIMES_OF_AN_EPOCH = {"train_epoch_time", "train_data_wait_share", "time_left", "planned_epochs"}
EPOCH_KEYS = [{"train_loss", "train_items_per_sec", "train_epoch_items/sec", *TIMES_OF_AN_EPOCH}, LOG_KEYS[3]]


@pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
def test_the_log_has_the_published_records(model: str) -> None:
    path = train_tiny_model(model).parent / "nvlog.json"
    for step, data in read_steps(path):
        assert set(data) in (EPOCH_KEYS if len(step) == 1 else [LOG_KEYS[len(step)]])
        assert all(isinstance(value, float) for key, value in data.items() if key != "glob_iter/iters_per_epoch")
    steps = [step for step, _ in read_steps(path)]
    # two epochs of two iterations, validated (--epochs-per-validation 100) after the first and the last
    assert steps == [(0, 0), (0, 1), (0,), (0, 2, 0), (0,), (1, 0), (1, 1), (1,), (1, 2, 0), (1,), ()]
    parameters = read_parameters(path)
    assert (parameters["model_name"], parameters["epochs"], parameters["batch_size"]) == (model, 2, 2)
    by_epoch = [data["train_loss"] for step, data in read_steps(path) if len(step) == 1 and "train_loss" in data]
    by_step = [data["train_loss"] for step, data in read_steps(path) if len(step) == 2]
    assert by_epoch == pytest.approx([sum(by_step[:2]) / 2, sum(by_step[2:]) / 2])


def events(folder: Path, model: str) -> EventAccumulator:
    """The curves of a folder's runs. Names of files begun in one second end with a count, which puts the tenth before the ninth."""
    directory = folder / "tensorboard" / model
    by_count = sorted(
        directory.iterdir(), key=lambda path: [int(word) for word in path.name.split(".") if word.isdigit()]
    )
    for number, path in enumerate(by_count):
        path.rename(directory / f"events.out.tfevents.{number:04}")
    accumulator = EventAccumulator(str(directory), size_guidance={"scalars": 0})
    accumulator.Reload()
    return accumulator


def free(*names: str) -> list[str]:
    return [f"free_running_{name}" for name in names]


@pytest.mark.parametrize(
    ("model", "terms", "pictures", "sounds", "numbers"),
    [
        ("Tacotron2", ["mel", "mel_postnet", "gate"],
         ["alignment", "gate", "mel", *free("alignment_0", "alignment_1", "mel_0", "mel_1")],
         ["griffin_lim", *free("0", "1")], ["attention_focus", *free("attention_focus", "length_ratio", "stopped")]),
        ("WaveGlow", ["likelihood", "log_s", "log_det_W"], ["mel"], ["target", "vocoded"], ["latent_std"]),
    ],
)  # fmt: skip
def test_tensorboard(model: str, terms: list, pictures: list, sounds: list, numbers: list) -> None:
    tags = events(train_tiny_model(model).parent, model).Tags()
    training = ["loss", "items_per_sec", "grad_norm", "learning_rate", "data_wait_share"]
    training += [f"loss_{term}" for term in terms]
    validation = ["loss", "items_per_sec", *numbers]
    wanted = {f"train/{name}" for name in training} | {f"validation/{name}" for name in validation}
    assert set(tags["scalars"]) == wanted
    assert set(tags["images"]) == {f"validation/{name}" for name in pictures}
    assert set(tags["audio"]) == {f"validation/{name}" for name in sounds}


@pytest.mark.slow
def test_a_learning_rate_that_blows_up_ends_with_the_place_and_the_files(tmp_path: Path) -> None:
    result = run("train.py", *flags("WaveGlow", tmp_path), "--epochs", 50, "-lr", 1e30, "--max-skipped", 1)
    assert result.code == 1
    assert "step skipped, 1 of at most 1 in an epoch: the " in result.out
    pattern = (
        r"error: training stopped, after 1 skipped steps of this epoch \(--max-skipped 1\): "
        r"the (loss|gradient norm) is (nan|inf) at epoch \d+, iteration \d \(step \d+ in all\); "
        r"the batch's files: (\S+\.ogg), (\S+\.ogg); look at these clips, or lower --learning-rate .*"
    )
    found = re.fullmatch(pattern, result.err.strip())
    assert found, result.err
    assert all(Path(found[number]).is_file() for number in (3, 4))
    assert read_log(tmp_path / "nvlog.json")[-1]["type"] == "LOG"  # the log is whole
