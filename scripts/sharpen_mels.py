"""Sharpen the mels of a trained Tacotron 2: its postnet learns from a discriminator what recorded mels look like.

    python -m scripts.sharpen_mels output/checkpoint_Tacotron2_best.pt filelists/ljs_mel_text_train_filelist.txt -o output/sharp.pt
    python inference.py --tacotron2 output/sharp.pt -i phrases/phrase.txt

The mean squared error makes a model predict the mean of all mels that a text may have: smooth ones, of which vocoders make a
muffled voice. Here the postnet alone goes on training, on teacher-forced clips, so that a second network cannot tell its mels from
recorded ones; words, lengths and attention stay as they are. Kaneko et al. 2017 (ICASSP, "Generative adversarial network-based
postfilter for statistical parametric speech synthesis") did so with a filter of its own. Worth it once attention is right; the
checkpoint is for inference and for warm starts. Safe to stop: the same command goes on.
"""

from __future__ import annotations

if __name__ == "__main__":
    from common.start import before_imports

    before_imports()

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from common.arguments import positive
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, exit_on_user_error
from common.parser import Parser
from common.precision import pick_device
from common.run.interrupt import Stopped, StopRequest
from common.run.nvlog import Log
from common.spec import Key, Options
from common.training.adversarial import (
    Layer,
    Networks,
    PictureDiscriminator,
    add_training_arguments,
    deceive,
    kept_entries,
    prepare_output,
    train,
    unmask,
)
from scripts.predict_mels import read_clips, read_model, teacher_forced

# B batch, C channels, M mels, T frames

CROP = 80  # frames of a clip in a batch
ADVERSARIAL, FEATURES, DISTANCE = 1.0, 2.0, 4.0  # weights of the postnet's losses
LEARNING_RATE = 2e-4  # of both networks
LAYERS = (  # of the discriminator, over bands and frames
    Layer(32, (5, 5), (2, 1)),
    Layer(64, (5, 5), (2, 2)),
    Layer(64, (3, 3), (2, 2)),
    Layer(64, (3, 3), (1, 1)),
)
BETAS = (0.5, 0.9)  # of Adam, for two networks that learn from each other
AVERAGE = 0.99  # decay of the postnet's moving average, which is saved
MEASURED = 50  # clips, of all lengths
SETTINGS = ("checkpoint", "filelists", "seed", "batch_size")


class MelPair(NamedTuple):
    """Log-mels (M, T) of a clip: the decoder's, and the recording's."""

    decoded: Tensor
    recorded: Tensor


class Sharpening:
    """The postnet of a Tacotron 2 and its discriminator in training."""

    def __init__(
        self,
        model: Any,
        kept: dict[str, Any],
        pairs: Sequence[MelPair],
        seed: int,
        device: torch.device,
        batch_size: int = 8,
    ) -> None:
        """Prepare both; `kept` are the checkpoint's entries beside its weights.

        Raises:
            DataError: no clip is long enough for a crop.
        """
        postnet = model.postnet
        self.model, self.kept = model, kept
        # A crop's edges are cut off: what the convolutions see there is not the clip.
        self.margin = sum(layer[0].conv.kernel_size[0] // 2 for layer in postnet.convolutions)
        length = CROP + 2 * self.margin
        self.pairs = [pair for pair in pairs if pair.recorded.shape[1] >= length]
        if not self.pairs:
            longest = max(pair.recorded.shape[1] for pair in pairs)
            raise DataError(f"no clip has {length} frames, which a crop of {CROP} needs; the longest has {longest}")
        self.seed, self.device, self.batch_size = seed, device, batch_size
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            discriminator = PictureDiscriminator(1, LAYERS).to(device)
        recorded = torch.cat([pair.recorded.flatten() for pair in self.pairs])
        self.mean, self.deviation = float(recorded.mean()), float(recorded.std())
        self.networks = Networks(
            postnet.requires_grad_(True), discriminator, (LEARNING_RATE, LEARNING_RATE), BETAS, AVERAGE
        )

    def crops(self, step: int) -> tuple[Tensor, Tensor]:
        """Draw a step's crops: the decoder's mels (B, M, T + both margins), and the recordings' (B, M, T)."""
        draws, found = torch.Generator().manual_seed(hash((self.seed, step)) % 2**63), []
        for number in torch.randint(len(self.pairs), (self.batch_size,), generator=draws).tolist():
            pair, length = self.pairs[number], CROP + 2 * self.margin
            start = int(torch.randint(pair.recorded.shape[1] - length + 1, (), generator=draws))
            found.append([mels[:, start : start + length] for mels in pair])
        decoded, recorded = (torch.stack(mels).to(self.device) for mels in zip(*found, strict=True))
        return decoded, recorded[..., self.margin : -self.margin]

    def step(self, number: int, share: float) -> dict[str, float]:
        """Train the discriminator, then the postnet, on the same crops."""
        networks, discriminator = self.networks, self.networks.discriminator
        decoded, recorded = self.crops(number)
        true = self.standardise(recorded)
        made = self.standardise(networks.generator(decoded, None)[..., self.margin : -self.margin])
        unmasking = unmask(discriminator(true)[-1], discriminator(made.detach())[-1])
        networks.train_discriminator(unmasking)
        with torch.no_grad():
            wanted = discriminator(true)
        seen = discriminator(made)
        deceiving, distance = deceive(seen[-1]), F.l1_loss(made, true)
        loss = ADVERSARIAL * deceiving + DISTANCE * distance
        loss = loss + FEATURES * sum(F.l1_loss(*both) for both in zip(seen[:-1], wanted[:-1], strict=True))
        networks.train_generator(loss)
        return {
            "mel_loss": distance.item(),
            "discriminator_loss": unmasking.item(),
            "adversarial_loss": deceiving.item(),
        }

    def checkpoint(self) -> dict[str, Any]:
        """The whole model with the average of the postnet's weights."""
        averaged = {f"postnet.{name}": value for name, value in self.networks.average.module.state_dict().items()}
        return {**self.kept, "state_dict": self.model.state_dict() | averaged}

    def show(self, log: Log, step: int) -> None:
        """Nothing: mels are looked at in reports."""

    def standardise(self, mels: Tensor) -> Tensor:
        """Mels (B, M, T) -> pictures (B, 1, M, T)."""
        return (mels[:, None] - self.mean) / self.deviation


def movement(postnet: Any, pairs: Sequence[MelPair], device: torch.device) -> float:
    """How much mels change from frame to frame, as a share of the change in the recordings; 1 is right, smooth mels have less."""
    totals = torch.zeros(2)
    with torch.inference_mode():
        for pair in pairs[:: math.ceil(len(pairs) / MEASURED)]:
            refined = postnet(pair.decoded[None].to(device), None)[0].cpu()
            totals += torch.stack([mels.diff(dim=1).abs().sum() for mels in (refined, pair.recorded)])
    return float(totals[0] / totals[1])


def read_pairs(args: argparse.Namespace, model: Any, options: Options, device: torch.device) -> list[MelPair]:
    """Predict the clips of the filelists, of longer lists --clips at random."""
    pairs, draws = [], torch.Generator().manual_seed(args.seed)
    for dataset in read_clips(args.filelists, options):
        items = torch.randperm(len(dataset), generator=draws)[: args.clips].sort().values.tolist()
        for item, decoded, _ in teacher_forced(model, dataset, items, args.batch_size, device):
            pairs.append(MelPair(decoded, dataset[Key(0, item)].mel))
    return pairs


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = Parser(prog="python -m scripts.sharpen_mels", description=__doc__)
    add_training_arguments(parser, "Tacotron 2", steps=3000, speed="a core takes one or two a second", batch=8)
    parser.add_argument(
        "--clips", type=positive, default=1500, help="most clips of each list, drawn at random; they are kept in memory"
    )
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Predict the clips, train, and write the checkpoint. Returns the exit code."""
    args = parse_args(argv)
    prepare_output(args.output)
    device = pick_device(cpu=args.cpu)
    checkpoint = load_checkpoint(args.checkpoint)
    model, options = read_model(checkpoint, args.checkpoint, args.dataset_path, device)
    with StopRequest() as stop:
        try:
            with stop.at_once():
                pairs = read_pairs(args, model, options, device)
                before = movement(model.postnet, pairs, device)
        except Stopped:
            return stop.exit_code
        task = Sharpening(model, kept_entries(checkpoint), pairs, args.seed, device, args.batch_size)
        if train(task, args, SETTINGS, stop):
            after = movement(task.networks.average.module, pairs, device)
            print(
                f"{args.output}: movement from frame to frame {before:.0%} of the recordings' before, {after:.0%} now"
            )
    return stop.exit_code


if __name__ == "__main__":
    with exit_on_user_error():
        raise SystemExit(main())
