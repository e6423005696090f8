"""Checkpoints of training: their content, the file that a run resumes from, and a state through a checkpoint and back."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from common.checkpoint.__main__ import convert
from common.checkpoint.files import load_checkpoint
from common.data.filelist import Utterance
from common.errors import DataError, UsageError
from common.options import from_options
from common.run.distributed import Dist
from common.training import differences, snapshot
from common.training.arguments import parse_training_arguments
from common.training.options import TrainOptions
from common.training.state import Best, EpochTotals, TrainState
from models import REGISTRY, load_model
from tests.common.checkpoint.test_command import PUBLISHED, WAVEGLOW_CONFIG
from tests.common.training.points import change
from tests.recipe import flags, fresh_state, run, train_tiny_model

safetensors = pytest.importorskip("safetensors.torch")

CPU = Dist(0, 0, 1, torch.device("cpu"))
PATH = Path("old.pt")


@pytest.fixture
def checkpoint() -> dict:
    return load_checkpoint(train_tiny_model("WaveGlow"))


@pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
def test_what_is_in_a_checkpoint(model: str) -> None:
    path = train_tiny_model(model)
    checkpoint = load_checkpoint(path)
    assert set(checkpoint) >= PUBLISHED
    assert checkpoint["random_rng_states_all"].shape == (1, len(torch.get_rng_state()))
    assert checkpoint["cuda_rng_state_all"] == []  # a list with a GPU, too
    assert model != "WaveGlow" or set(checkpoint["config"]) == WAVEGLOW_CONFIG
    assert ("text_cleaners" in checkpoint["data"]) == (model == "Tacotron2")
    assert path.is_symlink() and path.resolve().name == f"checkpoint_{model}_1.pt"
    final = path.resolve().with_suffix(".safetensors")  # of the end of the run, for inference
    weights, entries = safetensors.load_file(final), load_checkpoint(final)
    assert weights.keys() == checkpoint["state_dict"].keys()
    assert all(torch.equal(value, checkpoint["state_dict"][name]) for name, value in weights.items())
    assert all(entries[key] == checkpoint[key] for key in ("epoch", "iteration", "seed", "config", "data"))


def test_a_model_of_other_sizes_is_told_which(tmp_path: Path, checkpoint: dict) -> None:
    message = r"old\.pt: not this model's weights.*settings that differ: --flows: 4 in the file, 5 now"
    with pytest.raises(DataError, match=message):
        snapshot.restore(fresh_state("WaveGlow", tmp_path, "--flows", "5"), checkpoint, PATH)


def ask(folder: Path, start: Path | None = None, resume: bool = True, warm: Path | None = None) -> Path | None:
    named = {"output": folder, "checkpoint_path": start, "resume_from_last": resume, "warm_start": warm}
    return snapshot.find(
        from_options(TrainOptions, {"model_name": "WaveGlow", **named}), REGISTRY["WaveGlow"], CPU
    ).path


def test_which_checkpoint_the_flags_ask_for(tmp_path: Path, capsys) -> None:
    start = train_tiny_model("WaveGlow")
    assert ask(tmp_path, resume=False) is None
    assert ask(tmp_path, start, resume=False) == start
    for words, path, said in (
        ({}, None, "no checkpoint of WaveGlow in"),
        ({"start": start}, start, f"starting at {start}"),
        ({"warm": start}, None, f"starting at {start}"),
    ):
        assert ask(tmp_path, **words) == path and said in capsys.readouterr().out
    for epoch in (7, 10):
        shutil.copy(start, tmp_path / f"checkpoint_WaveGlow_{epoch}.pt")
    assert ask(tmp_path) == ask(tmp_path, start) == tmp_path / "checkpoint_WaveGlow_10.pt"


@pytest.mark.parametrize("linked", [False, True])
def test_a_newest_checkpoint_that_cannot_be_read_gives_way_to_the_one_before(
    tmp_path: Path, checkpoint: dict, capsys, linked: bool
) -> None:
    """Cut short or, where there is a link, with a bit that has flipped."""
    content = train_tiny_model("WaveGlow").read_bytes()
    place = content.index(checkpoint["state_dict"]["upsample.bias"].numpy().tobytes())
    broken = content[:place] + (bytes([content[place] ^ 1]) + content[place + 1 :]) * linked
    files = [tmp_path / f"checkpoint_WaveGlow_{epoch}.pt" for epoch in (3, 4, 5)]
    for path, data in zip(files, (content, broken, broken), strict=True):
        path.write_bytes(data)
    if linked:
        (tmp_path / "checkpoint_WaveGlow_last.pt").symlink_to(files[-1].name)
    assert ask(tmp_path) == files[0]
    said = capsys.readouterr().out.splitlines()
    newest = tmp_path / "checkpoint_WaveGlow_last.pt" if linked else files[2]
    assert [line.split(": ")[1] for line in said] == [str(newest), str(files[1])]
    assert all(line.endswith(f"going on from the one before it, {files[0]}") for line in said)
    files[0].write_bytes(broken)
    with pytest.raises(DataError) as error:
        ask(tmp_path)
    assert str(error.value).count("damaged: Bad CRC-32" if linked else "no checkpoint, or one cut short") == 3
    assert str(error.value).endswith("choose another -o to begin anew")


def test_a_launch_that_starts_again_goes_on_from_what_it_has_saved(
    tmp_path: Path, checkpoint: dict, monkeypatch
) -> None:
    path = tmp_path / "checkpoint_WaveGlow_1.pt"
    launches = (("job 7", "job 7", path), ("job 7", "job 8", None), ("job 7", "none", None), (None, "job 8", None))
    for launch, name, wanted in launches:
        torch.save(checkpoint | {"launch": launch}, path)
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", name)
        assert ask(tmp_path, resume=False) == wanted


def test_other_data_is_another_run(tmp_path: Path, checkpoint: dict) -> None:
    options, spec = parse_training_arguments(flags("WaveGlow", tmp_path), REGISTRY, "")
    settings = dict(options.model)
    snapshot.check_data_options(checkpoint, PATH, settings, spec)
    settings |= {"mel_fmax": 7000.0, "sampling_rate": 16000}
    wanted = r"old\.pt: made with other settings of --sampling-rate, --mel-fmax than .*--warm-start old\.pt"
    with pytest.raises(UsageError, match=wanted):
        snapshot.check_data_options(checkpoint, PATH, settings, spec)
    snapshot.check_data_options(checkpoint | {"optimizer": None}, PATH, settings, spec)  # weights alone begin anew
    snapshot.check_data_options({key: checkpoint[key] for key in PUBLISHED}, PATH, settings, spec)


def test_the_seed_is_the_flags_then_the_files_then_any() -> None:
    for seed, stored, wanted in ((5, 6, 5), (0, 6, 0), (None, 6, 6), (None, 0, 0)):
        assert snapshot.choose_seed(seed, {"seed": stored}, CPU) == wanted
    assert len({snapshot.choose_seed(None, {}, CPU) for _ in range(8)}) > 4


def test_a_published_optimizer_state_takes_this_runs_settings(tmp_path: Path, checkpoint: dict) -> None:
    """Older PyTorch knew no `fused`, counted steps in plain ints, and kept the weight decay of its own run."""
    published = checkpoint["optimizer"]
    known = {"lr", "betas", "eps", "weight_decay", "amsgrad", "params"}
    groups = [{name: group[name] for name in known} | {"weight_decay": 0.5} for group in published["param_groups"]]
    states = {number: state | {"step": 4} for number, state in published["state"].items()}
    state = fresh_state("WaveGlow", tmp_path, "--weight-decay", "0.25", "-lr", "0.5")
    snapshot.restore(state, checkpoint | {"optimizer": {"param_groups": groups, "state": states}}, PATH)
    assert [(group["weight_decay"], group["lr"]) for group in state.optimizer.param_groups] == [(0.25, 0.5)]
    assert all(group["fused"] for group in state.optimizer.param_groups)
    for weight, averages in state.optimizer.state.items():
        assert averages["step"] == 4 and averages["step"].device == weight.device
        weight.grad = torch.ones_like(weight)
    before = [weight.detach().clone() for weight in state.model.parameters()]
    state.optimizer.step()
    assert all(not torch.equal(old, new) for old, new in zip(before, state.model.parameters()))


def test_weights_that_broke_replace_no_checkpoint(tmp_path: Path) -> None:
    """The last step before a save may overflow though its loss and its gradient are finite."""
    path = tmp_path / "checkpoint_WaveGlow_1.pt"
    shutil.copy(train_tiny_model("WaveGlow"), path)
    before = path.read_bytes()
    words = [*flags("WaveGlow", tmp_path, 2), "--epochs", 3, "--keep-checkpoints", 1, "-lr", "1e38"]
    result = run("train.py", *words, "--resume-from-last")
    assert result.code == 1 and "the validation loss is nan after epoch 2, the last one" in result.err
    assert list(tmp_path.glob("checkpoint_*")) == [path] and path.read_bytes() == before
    state = make(tmp_path / "broken")
    torch.nn.init.constant_(next(state.model.parameters()), torch.nan)  # where no validation precedes a save
    with pytest.raises(DataError, match=r"not written, since the weights are NaN or infinite after step 0"):
        snapshot.save(state)


def make(folder: Path, *words: str) -> TrainState:
    state = fresh_state("WaveGlow", folder, "--ema-decay", 0.9, *words)
    state.scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    return state


def take_steps(state: TrainState, count: int) -> None:
    assert state.average is not None
    for _ in range(count):
        for weight in state.model.parameters():
            weight.grad = torch.randn_like(weight)
        state.optimizer.step()
        state.optimizer.zero_grad()
        state.average.update_parameters(state.model)
        state.progress.iteration += 1
    state.scaler = torch.amp.GradScaler("cpu", init_scale=64.0)


def parts_of(state: TrainState) -> dict[str, object]:
    assert state.average is not None
    averages = state.optimizer.state_dict()["state"]
    return {
        "weights": {name: value.tolist() for name, value in state.model.state_dict().items()},
        "average": {name: value.tolist() for name, value in state.average.module.state_dict().items()},
        "updates": int(state.average.n_averaged),
        "adam": {number: {key: value.tolist() for key, value in entry.items()} for number, entry in averages.items()},
        "scale": state.scaler.state_dict()["scale"],
        "iteration": state.progress.iteration,
        "best": state.progress.best,
        "saved": state.progress.saved,
    }


@pytest.mark.parametrize("complete", [False, True])
def test_every_part_of_a_state_comes_back(tmp_path: Path, complete: bool) -> None:
    state = make(tmp_path)
    take_steps(state, 3)
    state.progress.epoch, state.progress.best, state.progress.saved = 5, Best(0.25, 4, 1, "wer", 0.5, 0.4), [2, 4]
    state.progress.totals = EpochTotals(1, 2, 1.5, 90.0, 2.0, 0.5, 1, 1)
    path = snapshot.save(state, epoch_complete=complete)
    random_numbers = torch.rand(4)
    fresh = make(tmp_path)
    assert parts_of(fresh) != parts_of(state)
    torch.manual_seed(123)
    note = snapshot.restore(fresh, load_checkpoint(path), path)
    assert torch.equal(torch.rand(4), random_numbers)
    assert parts_of(fresh) == parts_of(state)
    assert state.progress.saved == [2, 4, 5]
    assert note == f"{path}: resuming {'at epoch 6' if complete else 'in epoch 5 after 1 iterations'}"
    totals = EpochTotals() if complete else state.progress.totals
    assert (fresh.progress.epoch, fresh.progress.totals) == (6 if complete else 5, totals)


def test_an_epoch_that_is_saved_twice_counts_once_and_older_ones_stay_until_the_new_one_is_complete(
    tmp_path: Path,
) -> None:
    state = make(tmp_path, "--keep-checkpoints", "1")
    for epoch in (3, 3, 4, 4):
        state.progress.epoch = epoch
        path = snapshot.save(state)
        assert state.progress.saved == load_checkpoint(path)["saved"] == [epoch]
        assert [file.name for file in tmp_path.glob("checkpoint_*_?.pt")] == [path.name]
    state.progress.epoch = 5
    (tmp_path / "checkpoint_WaveGlow_5.pt" / "in_the_way").mkdir(parents=True)
    with pytest.raises(DataError, match=r"checkpoint_WaveGlow_5\.pt: cannot write the checkpoint"):
        snapshot.save(state)
    assert load_checkpoint(path)["epoch"] == 4
    assert (tmp_path / "checkpoint_WaveGlow_last.pt").resolve() == path.resolve()


def test_best_final_and_loaded_weights_are_those_of_the_average(tmp_path: Path) -> None:
    state = make(tmp_path)
    take_steps(state, 2)
    assert state.average is not None
    average, path = state.average.module.state_dict(), snapshot.save(state)
    assert not torch.equal(average["upsample.bias"], load_checkpoint(path)["state_dict"]["upsample.bias"])
    convert(path, tmp_path / "weights.pt", weights_only=True)
    spoken = load_model("WaveGlow", path).state_dict()
    assert all(torch.equal(spoken[key], value) for key, value in average.items())
    said = snapshot.restore(fresh_state("WaveGlow", tmp_path), load_checkpoint(path), path)
    assert "its moving average ends here: there is no --ema-decay" in said
    snapshot.save_best(state)
    snapshot.save_final_weights(state)
    for name in ("checkpoint_WaveGlow_best.pt", "checkpoint_WaveGlow_0.safetensors", "weights.pt"):
        stored = load_checkpoint(tmp_path / name)["state_dict"]
        assert all(torch.equal(stored[key], value) for key, value in average.items())


@pytest.mark.slow
def test_the_main_process_alone_writes_and_each_goes_on_with_its_own_random_numbers(tmp_path: Path) -> None:
    state = make(tmp_path)
    checkpoint, before = load_checkpoint(snapshot.save(state)), sorted(tmp_path.iterdir())
    states = [torch.Generator().manual_seed(seed).get_state() for seed in (1, 2)]
    for rank in (0, 1):
        change(state, dist=CPU._replace(rank=rank, world_size=2))
        assert "random numbers" not in snapshot.restore(state, checkpoint | {"random_rng_states_all": states}, tmp_path)
        assert torch.equal(torch.get_rng_state(), states[rank])
    change(state, dist=CPU._replace(rank=1))
    state.progress.epoch = 9
    for write in (snapshot.save, snapshot.save_best, snapshot.save_final_weights):
        write(state)
    assert sorted(tmp_path.iterdir()) == before
    change(state, dist=CPU)
    others = {"the checkpoint has none for this number": states, "": torch.zeros(1, 10, dtype=torch.uint8)}
    for reason, random in others.items():
        note = snapshot.restore(state, checkpoint | {"random_rng_states_all": random}, tmp_path)
        assert "resuming at epoch 1" in note and f" (random numbers start anew: {reason}" in note


def test_a_resumed_run_names_what_differs_a_rate_that_leaps_and_clips_of_both_lists(tmp_path: Path) -> None:
    """A stretched cosine leaps: at half of four epochs it has half of the rate, and at the end of two almost nothing."""
    words = ("--lr-schedule", "cosine", "-lr", 1e-3)
    checkpoint = {
        "run": differences.settings_of(fresh_state("WaveGlow", tmp_path, "--epochs", 2, *words)),
        "optimizer": {"param_groups": [{"lr": 3e-5, "lr_scale": 0.5}]},
    }
    again = fresh_state("WaveGlow", tmp_path, "--epochs", 2, *words)
    assert differences.resumed_otherwise(again, checkpoint) == differences.shared_clips(again) == []
    state = fresh_state("WaveGlow", tmp_path, "--epochs", 4, *words, "--seed", 2, "--ema-decay", 0.9)
    state.progress.epoch = 2
    lists = {"training": "abc", "validation": "cd"}
    state.loaders = SimpleNamespace(  # type: ignore[assignment]
        **{
            part: SimpleNamespace(
                dataset=SimpleNamespace(dataset=SimpleNamespace(utterances=[Utterance(x, "") for x in names]))
            )
            for part, names in lists.items()
        }
    )
    last = state.setup.options.run.output / "checkpoint_WaveGlow_last.pt"
    assert differences.resumed_otherwise(state, checkpoint) == [
        "--epochs 4, where the checkpoint had 2",
        "--ema-decay 0.9, where the checkpoint had None",
        "--seed 2, where the checkpoint had 1",
        "--training-files: 3 clips, not the same as the checkpoint's 0",
        "the learning rate leaps from 6e-05 to 0.0005 with these flags, and ends at 3.8e-05; to go on without the leap: "
        "--lr-schedule constant --learning-rate 6e-05 --warmup-steps 0 --lr-scaling none, or a schedule of its own "
        f"from these weights, which rises gently: --warm-start {last} --warmup-steps 200 and another -o",
    ]
    assert differences.shared_clips(state) == [
        "1 clip of validation is in training, too, which makes the validation loss too low: c"
    ]


def test_a_converted_average_goes_on_where_it_was(tmp_path: Path) -> None:
    """Without its count, the average would begin anew with the weights of the next step."""
    first, second = (fresh_state("WaveGlow", tmp_path / part, "--ema-decay", 0.9) for part in "ab")
    assert first.average and second.average
    first.average.n_averaged.fill_(7)
    convert(snapshot.save(first), tmp_path / "c.pt")
    snapshot.restore(second, load_checkpoint(tmp_path / "c.pt", resuming=True), tmp_path / "c.pt")
    assert second.average.n_averaged == 7
