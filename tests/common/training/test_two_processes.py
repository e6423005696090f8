"""Two processes, joined by Gloo: collectives, and steps, faults, validation and saves against those of one with all clips."""

from __future__ import annotations

import itertools
import math
import multiprocessing
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.multiprocessing
from torch import Tensor, nn
from torch.distributed import fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils.data import DataLoader

import train
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from common.fast import Request
from common.run import distributed
from common.run.distributed import Dist
from common.run.interrupt import StopRequest
from common.run.memory import state_bytes
from common.training import sharding, snapshot
from common.training.arguments import parse_training_arguments
from common.training.loop import train_epoch, train_step
from common.training.optimization import Pace
from common.training.sampler import EpochBatches
from common.training.validation import validate
from models import REGISTRY
from tests.common.training.points import Notes, PointsDataset, change, make_state
from tests.recipe import flags, free_port
from tests.test_train import differences
from waveglow.fast.training import convert_for_training
from waveglow.loss_function import WaveGlowLoss

pytestmark = pytest.mark.slow

CLIPS = ([1, 3], [7, 8])  # of each process
WAVEGLOW = {"n_mel_channels": 3, "n_flows": 4, "n_early_every": 2, "hop_length": 16, "upsample_kernel_size": 64}
WAVEGLOW |= {"WN_config": {"n_layers": 2, "n_channels": 6}}


def loader_of(dist: Dist, unreadable: tuple[int, int], training: bool = True) -> DataLoader:
    """Eight clips in batches of one a process; the process and the batch of `unreadable` cannot be read."""
    dataset, loaded = PointsDataset(8), []
    sampler = EpochBatches(dataset.lengths, 1, rank=dist.rank, world_size=2, training=training)

    def collate(items: list[int]) -> Any:
        loaded.append(items)
        if (dist.rank, len(loaded) - 1) == unreadable:
            raise DataError("a clip is gone")
        return dataset.collate(items)

    return DataLoader(dataset, batch_sampler=sampler, collate_fn=collate)  # type: ignore[arg-type]


def endings(dist: Dist) -> dict[str, Any]:
    """Endings of epochs and validations where the second process cannot read a clip."""
    found = {}
    for name, batch in {"first": 0, "third": 2}.items():
        state = make_state(dist=dist)
        ending = train_epoch(state, loader_of(dist, (1, batch)), Notes(), StopRequest())
        found[name] = (ending.name, state.progress.iteration, str(state.fault))
    state = make_state(dist=dist)
    result = validate(state, loader_of(dist, (1, 1), training=False), None, Notes())
    found["validation"] = (result, str(state.fault))
    state = make_state(dist=dist)
    found["mean"] = validate(state, loader_of(dist, (9, 9), training=False), None, Notes())["val_loss"]
    return found


def shard_and_train(dist: Dist) -> dict[str, Any]:
    """Train a sharded model with a BatchNorm and an average for an epoch of two steps, each process on clips of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 128), nn.Linear(128, 128), nn.BatchNorm1d(128), nn.Linear(128, 1))
    state = make_state(model, dist=dist, pace=Pace(2, 4, 4), learning_rate=0.001, shard=True, ema_decay=0.9)
    dataset = PointsDataset(8)
    sampler = EpochBatches(dataset.lengths, 2, rank=dist.rank, world_size=2)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=dataset.collate)  # type: ignore[arg-type]
    train_epoch(state, loader, Notes(), StopRequest())
    assert state.average is not None
    models = {"model": state.model, "average": state.average.module}
    statistics = {name: {key: value.clone() for key, value in net.named_buffers()} for name, net in models.items()}
    full = [sharding.gather_full(kind([next(iter(state.model.parameters())), 3]))[0] for kind in (list, tuple)]
    return {
        "statistics": statistics,
        "sharded blocks": [isinstance(block, fsdp.FSDPModule) for block in state.model],  # type: ignore[attr-defined]
        "full": [(type(value) is Tensor, tuple(value.shape)) for value in full],
    }


def uneven_step(dist: Dist) -> tuple[Any, ...]:
    """A step of thirteen clips, seven and six of them in four batches of one or two."""
    state, data = make_state(dist=dist, pace=Pace(1, 13, 13)), PointsDataset(13)
    world = dist.world_size
    sampler = EpochBatches(data.lengths, 4 // world, seed=1, rank=dist.rank, world_size=world, accumulation=4)
    step = train_step(state, [data.collate([key.item for key in keys]) for keys in sampler])
    return torch.tensor([step.loss, *step.terms.values()]), *(weight.detach() for weight in state.model.parameters())


def gradients(dist: Dist, recompute: bool, shard: bool) -> list[Tensor]:
    """Whole gradients of the fast WaveGlow, with or without --recompute; each process has clips of its own."""
    torch.manual_seed(0)
    model = REGISTRY["WaveGlow"].build(**WAVEGLOW)
    for wn in model.WN:  # type: ignore[union-attr]
        nn.init.normal_(wn.end.weight)  # type: ignore[union-attr, arg-type]
    trained: Any = convert_for_training(model.train(), Request(recompute=recompute))
    trained = sharding.shard(trained, dist, cpu_offload=False) if shard else distributed.wrap(trained, dist)
    torch.manual_seed(dist.rank)
    audio = torch.randn(2, 80)
    WaveGlowLoss(1.0)(trained(torch.randn(2, 3, 5), audio), audio).backward()
    assert all(isinstance(weight, DTensor) == shard for weight in model.parameters())
    return [weight.grad.full_tensor() if shard else weight.grad for weight in model.parameters()]  # type: ignore


def save(dist: Dist, folder: Path) -> torch.Tensor:
    """Save a state together; return this process's random state."""
    options, spec = parse_training_arguments(flags("WaveGlow", folder / f"{dist.rank}"), REGISTRY, "")
    state, _ = train.make_state(spec, options, dist, Pace(2, 2, 4))
    change(state, output=folder)
    torch.manual_seed(dist.rank)
    snapshot.save(state)
    return torch.get_rng_state()


def averaged_gradient(compression: str, dist: Dist) -> torch.Tensor:
    """The average gradient of a weight whose gradient in each process is (2 rank + 1) / 7 times 0, 1, 2 …"""
    model = nn.Linear(64, 64, bias=False)
    wrapped = distributed.wrap(model, dist, bucket_cap_mb=1, compression=compression)
    x = torch.arange(64.0)[None] * (2 * dist.rank + 1) / 7
    wrapped(x).sum().backward()
    assert model.weight.grad is not None
    return model.weight.grad


def held_back_gradient(x: torch.Tensor, dist: Dist) -> torch.Tensor:
    """The gradient of the sum over two batches, of which the first is not averaged by itself."""
    model = nn.Linear(2, 1, bias=False)
    wrapped = distributed.wrap(model, dist)
    with sharding.accumulate_only(wrapped):
        wrapped(x).sum().backward()
    assert torch.equal(model.weight.grad, x)  # this process's own
    wrapped(2 * x).sum().backward()
    return model.weight.grad


def own_part_of_a_weight() -> tuple[int, ...]:
    """The bytes of a process's part of a weight of five rows, which is cut by rows."""
    model = nn.Linear(4, 5, bias=False)
    weight = distribute_tensor(model.weight.detach(), init_device_mesh("cpu", (2,)), [Shard(0)])
    model.weight = nn.Parameter(weight)
    return tuple(state_bytes(model))


def collectives(dist: Dist) -> dict[str, Any]:
    torch.manual_seed(dist.rank)
    model = distributed.wrap(nn.Linear(2, 1, bias=False), dist)
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0]])[dist.rank : dist.rank + 1]
    with pytest.raises(UsageError) as refusal:
        averaged_gradient("bf16", dist)
    return {
        "dist": (dist.rank, dist.local_rank, dist.world_size, dist.is_main),
        "sum": distributed.all_sum(torch.tensor([1.0 + dist.rank, 10.0]), dist),
        "gathered": distributed.gather({"rank": dist.rank, "x": x}, dist),
        "broadcast": distributed.broadcast(f"from {dist.rank}", dist),
        "weight": model.module.weight.detach(),  # type: ignore[operator]
        "compressed": {kind: averaged_gradient(kind, dist) for kind in ("none", "fp16", "powersgd")},
        "refused": str(refusal.value),
        "held back": held_back_gradient(x, dist),
        "own part": own_part_of_a_weight(),
    }


def one_of_two(rank: int, port: int, folder: str) -> None:
    """Work as one of two processes; LOCAL_RANK places them on two machines."""
    address = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", **address}
    data = PointsDataset(9)
    with distributed.session(cpu=True, timeout=timedelta(seconds=60)) as dist:
        state = make_state(dist=dist, pace=Pace(4, 4, 4))
        step = train_step(state, [data.collate(CLIPS[rank])], fault=rank == 1, save=rank == 0)
        weights = torch.cat([weight.detach().flatten() for weight in state.model.parameters()])
        change(state, max_skipped=1)
        batch = data.collate(CLIPS[rank])
        if rank == 1:
            batch.y[0] = math.nan
        dropped = train_step(state, [batch]).dropped
        after = train_step(state, [data.collate(CLIPS[rank])])
        outputs = {
            **collectives(dist),
            "step": step._asdict(),
            "weights": weights,
            "dropped": dropped,
            "after": (after.loss, after.dropped, *(weight.detach() for weight in state.model.parameters())),
            "random": save(dist, Path(folder)),
            "uneven": uneven_step(dist),
            "sharded": shard_and_train(dist),
            "gradients": [gradients(dist, *way) for way in itertools.product((False, True), repeat=2)],
            **endings(dist),
        }
        torch.save(outputs, Path(folder, f"{rank}.out"))
        del state
    assert not torch.distributed.is_initialized()


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("two")
    multiprocessing.set_forkserver_preload(["train"])  # both are forks of a process that has imported PyTorch
    torch.multiprocessing.start_processes(one_of_two, (free_port(), str(place)), 2, start_method="forkserver")
    return place


@pytest.fixture(scope="module")
def both(folder: Path) -> list[dict[str, Any]]:
    return [torch.load(folder / f"{rank}.out") for rank in range(2)]


def test_the_rank_is_the_global_one_and_collectives_reach_every_process(both: list[dict]) -> None:
    assert [seen["dist"] for seen in both] == [(0, 0, 2, True), (1, 0, 2, False)]
    rows = [(48, 48, 96), (32, 32, 64)]  # of 16 bytes, of a sharded weight: three, and the other two
    assert [seen["own part"] for seen in both] == rows
    for seen in both:
        assert seen["sum"].tolist() == [3.0, 20.0]
        assert [item["rank"] for item in seen["gathered"]] == [0, 1]
        assert [item["x"].tolist() for item in seen["gathered"]] == [[[1.0, 2.0]], [[3.0, -1.0]]]
        assert seen["broadcast"] == "from 0"


def test_weights_are_the_main_ones_and_gradients_the_mean_to_the_precision_of_their_compression(
    both: list[dict],
) -> None:
    torch.manual_seed(0)
    weight, mean = nn.Linear(2, 1, bias=False).weight, torch.tensor([[2.0, 0.5]])
    for seen in both:
        assert torch.equal(seen["weight"], weight)
        torch.testing.assert_close(seen["held back"], 3 * mean)  # averaged with the last
    wanted = (torch.arange(64.0) * 2 / 7).expand(64, 64)
    for kind, precision in (("none", 2**-22), ("fp16", 2**-10), ("powersgd", 2**-22)):
        for seen in both:
            torch.testing.assert_close(seen["compressed"][kind], wanted, rtol=precision, atol=0)
    # a seventh has more digits than half precision, so the compressed one differs
    assert not torch.equal(both[0]["compressed"]["fp16"], both[0]["compressed"]["none"])
    assert both[0]["refused"].startswith("--grad-compression bf16: BF16 all reduce")


def test_a_step_is_that_of_one_process_with_all_clips(both: list[dict[str, Any]]) -> None:
    state = make_state(pace=Pace(4, 4, 4))
    whole = train_step(state, [PointsDataset(9).collate([*CLIPS[0], *CLIPS[1]])])
    weights = torch.cat([weight.detach().flatten() for weight in state.model.parameters()])
    for outputs in both:
        step = outputs["step"]
        assert step["terms"] == pytest.approx(whole.terms)
        assert (step["loss"], step["grad_norm"], step["items"]) == pytest.approx((whole.loss, whole.grad_norm, 40.0))
        assert (step["stop"], step["save"], step["fault"]) == (False, True, True)  # of any process
        torch.testing.assert_close(outputs["weights"], weights)
    uneven, alone = make_state(pace=Pace(1, 13, 13)), uneven_step(Dist(0, 0, 1, torch.device("cpu")))
    at_once = train_step(uneven, [PointsDataset(13).collate(list(range(13)))])
    figures = torch.tensor([at_once.loss, *at_once.terms.values()])
    expected = (figures, *(weight.detach() for weight in uneven.model.parameters()))
    for found in (alone, *(outputs["uneven"] for outputs in both)):
        torch.testing.assert_close(found, expected)
    # a dropped step names the clips of the process at fault
    assert both[0]["dropped"] == both[1]["dropped"]
    assert both[0]["dropped"].endswith("the batch's files: clip 7, clip 8")
    assert math.isfinite(both[0]["after"][0]) and both[0]["after"][1] == ""  # both train on, together
    assert differences(both[0]["after"], both[1]["after"]) == []


def test_all_processes_end_where_one_cannot_read_a_clip_and_validate_the_clips_of_all(both: list[dict]) -> None:
    elsewhere = "another process of this run cannot read a clip, for the reason it gave"
    for outputs, fault in zip(both, (elsewhere, "a clip is gone"), strict=True):
        assert outputs["first"] == ("FAULT", 0, fault)
        assert outputs["third"] == ("FAULT", 2, fault)
        assert outputs["validation"] == ({}, fault)
    errors = [abs(0.5 * item - 0.25 + 0.125 - 2 * item) for item in range(8)]
    mean = sum(error**2 + error for error in errors) / 8
    assert [outputs["mean"] for outputs in both] == pytest.approx([mean, mean])


def test_a_checkpoint_has_the_random_state_of_each_process(both: list[dict], folder: Path) -> None:
    states = load_checkpoint(folder / "checkpoint_WaveGlow_0.pt")["random_rng_states_all"]
    assert torch.equal(states, torch.stack([outputs["random"] for outputs in both]))


def test_sharded_processes_have_the_statistics_of_the_main_one_and_gather_its_tensors(both: list[dict]) -> None:
    main, other = (outputs["sharded"]["statistics"] for outputs in both)
    for name in ("model", "average"):
        assert main[name]["2.num_batches_tracked"] == 2 and main[name]["2.running_mean"].any()
        for key, buffer in main[name].items():
            assert torch.equal(buffer, other[name][key]), (name, key)
    for outputs in both:
        assert outputs["sharded"]["full"] == [(True, (128, 2))] * 2
        # the last block is sharded with the rest: it has 129 of 17,281 weights, less than a hundredth
        assert outputs["sharded"]["sharded blocks"] == [True, True, True, False]


def test_recomputed_steps_share_gradients_and_weights_as_stored_ones_do(both: list[dict[str, Any]]) -> None:
    for outputs in both:
        stored, stored_in_parts, again, again_in_parts = outputs["gradients"]
        assert len(stored) == 98
        assert differences(stored, again) == differences(stored_in_parts, again_in_parts) == []
        for tensors in (stored, stored_in_parts):
            for got, want in zip(tensors, both[0]["gradients"][0], strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def move_to_a_block(lstm: nn.LSTM) -> None:
    """flatten_parameters as it acts on a GPU: the weights become views of another memory."""
    if not any(isinstance(weight, DTensor) for weight in lstm._flat_weights):
        with torch.no_grad():
            for weight in lstm._flat_weights:
                weight.set_(weight.detach().clone())  # type: ignore[union-attr, call-overload]


def outputs_of_steps(lstm: nn.LSTM, x: Tensor) -> list[Tensor]:
    optimizer = torch.optim.SGD(lstm.parameters(), lr=0.5)
    outputs = []
    for _ in range(3):
        out, _ = lstm(x)
        outputs.append(out.detach().clone())
        out.square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return outputs


def test_an_lstm_computes_with_the_weights_of_the_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(2, 5, 3)
    torch.manual_seed(1)
    wanted = outputs_of_steps(nn.LSTM(3, 4, batch_first=True), x)
    torch.manual_seed(1)
    lstm = nn.LSTM(3, 4, batch_first=True)
    monkeypatch.setattr(nn.LSTM, "flatten_parameters", move_to_a_block)
    with distributed.session(cpu=True, always=True) as dist:
        got = outputs_of_steps(sharding.shard(lstm, dist, cpu_offload=False), x)  # type: ignore[arg-type]
        del lstm
    assert not torch.allclose(wanted[0], wanted[2], atol=0.01)
    for mine, want in zip(got, wanted, strict=True):
        torch.testing.assert_close(mine, want)
