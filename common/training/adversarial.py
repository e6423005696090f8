"""Training against a discriminator: what scripts/sharpen_mels.py and scripts/sharpen_vocoder.py share.

Both train a network that has learned its task already, the generator, so that a second network cannot tell its outputs from
recordings. Their losses are the least squares of Mao et al. 2017 (arXiv:1611.04076) and the agreement of features (Larsen et al.
2016, arXiv:1512.09300), which is steadier than the verdict alone.

`train` takes the steps, with a log, and saves every few minutes and at a stop: a step's random numbers depend on the seed and its
number alone, so a run that was stopped goes on bit for bit as if it had not been.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from common.arguments import checked, positive, seed
from common.checkpoint.files import load_checkpoint, save_copy
from common.errors import DataError, UsageError, changes
from common.files import make_folder, writing
from common.options import ABOVE_ZERO
from common.run.interrupt import SaveTimer, StopRequest
from common.run.nvlog import Log, NvLog
from common.training.optimization import moving_average

# B batch, C channels, H height, W width

SLOPE = 0.2  # of the discriminators' LeakyReLU
LOGGED, SOON = (
    50,
    10,
)  # steps whose mean losses are logged together, and the first ones of a run, which says how long it takes
MOST_SKIPPED = 3  # steps in a row
SAVED = 5.0  # minutes between two saves
TRAINING = "sharpening"  # the entry of an unfinished checkpoint that a resumed run needs


class Layer(NamedTuple):
    """A convolution of a discriminator: kernel and stride over height and width."""

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]


class PictureDiscriminator(nn.Module):
    """Convolutions over pictures, with the height of each pixel beside it, since the bands of a spectrum look different.

    Spectral normalisation (Miyato et al. 2018, arXiv:1802.05957) keeps its slope small, so that the generator always has something
    to learn from it.
    """

    def __init__(self, channels: int, layers: Sequence[Layer]) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        wide = channels + 1
        for layer in (*layers, Layer(1, (3, 3), (1, 1))):  # the last one is the verdict
            padding = layer.kernel[0] // 2, layer.kernel[1] // 2
            self.layers.append(spectral_norm(nn.Conv2d(wide, layer.channels, layer.kernel, layer.stride, padding)))
            wide = layer.channels

    def forward(self, pictures: Tensor) -> list[Tensor]:
        """Pictures (B, C, H, W) -> the features of each layer, and the verdict on each patch as the last."""
        height = torch.linspace(-1, 1, pictures.shape[2], device=pictures.device, dtype=pictures.dtype)
        x, features = torch.cat([pictures, height[:, None].expand_as(pictures[:, :1])], dim=1), []
        for layer in self.layers:
            features.append(layer(x))
            x = F.leaky_relu(features[-1], SLOPE)
        return features


def unmask(real: Tensor, made: Tensor) -> Tensor:
    """The discriminator's loss from its verdicts: 1 is wanted for what was recorded, 0 for what was made."""
    return (real.float() - 1).square().mean() + made.float().square().mean()


def deceive(made: Tensor) -> Tensor:
    """The generator's loss from the verdict on its outputs."""
    return (made.float() - 1).square().mean()


class Networks:
    """The generator, its moving average and the discriminator, with Adam for both networks."""

    def __init__(
        self,
        generator: nn.Module,
        discriminator: nn.Module,
        rates: tuple[float, float],
        betas: tuple[float, float],
        average: float,
        largest_norm: float = math.inf,
    ) -> None:
        """Prepare the training of both; `largest_norm` is that of the generator's gradient, above which it is scaled down."""
        self.generator, self.discriminator, self.largest_norm = generator, discriminator, largest_norm
        self.rates, self.skipped = rates, 0
        self.optimizers = [
            torch.optim.Adam(network.parameters(), rate, betas)
            for network, rate in zip((generator, discriminator), rates, strict=True)
        ]
        averaged = moving_average(generator, average)
        assert averaged is not None
        self.average = averaged

    def train_discriminator(self, loss: Tensor) -> None:
        self.optimizers[1].zero_grad()
        loss.backward()
        self.optimizers[1].step()

    def train_generator(self, loss: Tensor) -> Tensor:
        """Returns the norm of the gradient; a step whose norm is not finite is left out.

        Raises:
            DataError: the norm of several in a row is not.
        """
        self.optimizers[0].zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.generator.parameters(), self.largest_norm)
        if norm.isfinite():  # host sync, once a step
            self.optimizers[0].step()
            self.average.update_parameters(self.generator)
            self.skipped = 0
            return norm
        self.skipped += 1
        if self.skipped == MOST_SKIPPED:
            raise DataError(
                f"the gradients of {MOST_SKIPPED} steps in a row are NaN or infinite: nothing is written; try another --seed, "
                "or less training"
            )
        return norm

    def scale_rates(self, factors: tuple[float, float]) -> None:
        """Set the learning rates of generator and discriminator to a share of their first ones."""
        for optimizer, rate, factor in zip(self.optimizers, self.rates, factors, strict=True):
            optimizer.param_groups[0]["lr"] = rate * factor

    def state(self) -> dict[str, Any]:
        """All that a resumed training continues from."""
        return {
            "generator": self.generator.state_dict(),
            "discriminator": self.discriminator.state_dict(),
            "average": self.average.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a state. Raises KeyError, ValueError or RuntimeError where it is of other networks."""
        self.generator.load_state_dict(state["generator"])
        self.discriminator.load_state_dict(state["discriminator"])
        self.average.load_state_dict(state["average"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


class Limit(NamedTuple):
    """The end of a training: after so many steps, or after so many minutes; one of both is None."""

    steps: int | None
    minutes: float | None

    def share(self, step: int, seconds: float) -> float:
        """How much of the training is done, from 0 to 1, before a step that is taken after so many seconds."""
        return min(1.0, step / self.steps if self.steps else seconds / (60 * (self.minutes or math.inf)))


class Task(Protocol):
    """What is trained: networks, a step of theirs, and the checkpoint of what they have learned so far."""

    networks: Networks

    def step(self, number: int, share: float) -> Mapping[str, float]:
        """Train both networks on the crops of step `number`, with `share` of the training done; returns the losses."""

    def checkpoint(self) -> dict[str, Any]:
        """The checkpoint of the averaged weights, for inference."""

    def show(self, log: Log, step: int) -> None:
        """Log what can be looked at or listened to."""


def add_training_arguments(parser: argparse.ArgumentParser, model: str, steps: int, speed: str, batch: int) -> None:
    """Add what both trainings have: checkpoint, lists, --output, the limit, batches, seed; `speed` says how many steps a second."""
    parser.add_argument("checkpoint", type=Path, help=f"of {model}")
    parser.add_argument("filelists", type=Path, nargs="+", help="rows audio|text, or mel|text for Tacotron 2")
    parser.add_argument("-d", "--dataset-path", type=Path, default=Path(), help="the folder the rows' paths start at")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the new checkpoint")
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--steps", type=positive, default=steps, help=f"steps of both networks; {speed}")
    minutes = checked(float, ABOVE_ZERO, "minutes")
    limits.add_argument("--minutes", type=minutes, help="minutes to train, in place of --steps")
    parser.add_argument("-bs", "--batch-size", type=positive, default=batch, help="crops a step")
    parser.add_argument(
        "--seed", type=seed, default=1, help="of clips, crops, noise and the second network's first weights"
    )
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")


def kept_entries(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of a checkpoint, beside its weights, that the new one has, too."""
    return {key: checkpoint[key] for key in ("epoch", "iteration", "config", "data", "seed") if key in checkpoint}


def unfinished_path(output: Path) -> Path:
    """The file that a training saves before its end, beside its output: a checkpoint for inference too."""
    return output.with_name(f"{output.stem}.unfinished.pt")


def prepare_output(output: Path) -> None:
    """Find out before the training whether the output can be written. Raises UsageError where it is there already."""
    if output.exists():
        raise UsageError(f"--output {output}: exists; delete it, or choose another file")
    with writing(output, "choose another --output"):
        make_folder(output.parent)
        TemporaryFile(dir=output.parent).close()


def train(task: Task, args: argparse.Namespace, names: Sequence[str], stop: StopRequest) -> bool:
    """Train to the limit, from what an earlier run with the same settings has saved. Returns False after a request to stop.

    `args` has the arguments of add_training_arguments, and `names` are those that a run that goes on has to repeat. The log is
    OUTPUT's name with .json, TensorBoard's folder is tensorboard/ beside it. Raises DataError where the settings of an unfinished
    file differ.
    """
    output, limit = args.output, Limit(None if args.minutes else args.steps, args.minutes)
    settings = {name.replace("_", " "): str(getattr(args, name)) for name in names}
    unfinished, step, spent = unfinished_path(output), 0, 0.0
    if unfinished.exists():
        step, spent = resume(task.networks, unfinished, settings)
    tensorboard = output.parent / "tensorboard" / output.stem
    with NvLog(output.with_suffix(".json"), tensorboard, purge_step=step or None) as log:
        log.say(f"{unfinished}: goes on after {step:,} steps" if step else f"{output}: starts")
        began, timer, losses = time.monotonic(), SaveTimer(SAVED), list[Mapping[str, float]]()
        first = step + SOON
        while (share := limit.share(step, seconds := spent + time.monotonic() - began)) < 1:
            if timer.due or stop.is_requested:
                save(task, unfinished, settings, step, seconds)
                task.show(log, step)
                timer.restart()
            if stop.is_requested:
                log.say(f"stopped: saved {unfinished}; the same command goes on")
                return False
            losses.append(task.step(step, share))
            step += 1
            if step % LOGGED == 0 or step == first:
                shared = [name for name in losses[-1] if all(name in loss for loss in losses)]
                means = {name: statistics.fmean(loss[name] for loss in losses) for name in shared}
                log.log((0, step), means | ({"time_left": seconds * (1 - share) / share} if share else {}))
                log.scalars("sharpen", means, step)
                losses.clear()
        task.show(log, step)
    save_copy(output, task.checkpoint())
    unfinished.unlink(missing_ok=True)
    return True


def save(task: Task, path: Path, settings: Mapping[str, Any], step: int, seconds: float) -> None:
    """Save what the training continues from, and what it has learned so far."""
    training = {"settings": dict(settings), "step": step, "seconds": seconds, "networks": task.networks.state()}
    save_copy(path, {**task.checkpoint(), TRAINING: training})


def resume(networks: Networks, path: Path, settings: Mapping[str, Any]) -> tuple[int, float]:
    """Continue from a saved file. Returns its steps and seconds. Raises DataError where it is of another training."""
    saved = load_checkpoint(path).get(TRAINING)
    way_out = f"repeat its command, or delete {path} to start anew"
    if not isinstance(saved, dict) or not isinstance(saved.get("settings"), dict):
        raise DataError(f"{path}: nothing to go on from; delete it to start anew")
    if differing := changes(saved["settings"], settings):
        raise DataError(f"{path}: began with {', '.join(differing)}; {way_out}")
    try:
        networks.restore(saved["networks"])
        return int(saved["step"]), float(saved["seconds"])
    except (KeyError, ValueError, RuntimeError, TypeError, AttributeError):
        raise DataError(f"{path}: is of other networks; {way_out}") from None
