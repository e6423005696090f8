"""Sharpen the mels of a trained Tacotron 2: its postnet learns from a discriminator what recorded mels look like.

    python -m scripts.sharpen_mels output/checkpoint_Tacotron2_best.pt filelists/ljs_mel_text_train_filelist.txt -o output/sharp.pt
    python inference.py --tacotron2 output/sharp.pt -i phrases/phrase.txt

The mean squared error makes a model predict the mean of all mels that a text may have: smooth ones, of which vocoders make a
muffled voice. Here the postnet alone goes on training, on teacher-forced clips, so that a second network cannot tell its mels from
recorded ones; words, lengths and attention stay as they are. Kaneko et al. 2017 (ICASSP, "Generative adversarial network-based
postfilter for statistical parametric speech synthesis") did so with a filter of its own. Worth it once attention is right; the
checkpoint is for inference and for warm starts. Ctrl-C ends early and saves.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import spectral_norm

from common.arguments import positive, seed
from common.checkpoint.files import load_checkpoint, save_copy
from common.errors import DataError, UsageError, exit_on_user_error
from common.files import make_folder, writing
from common.parser import Parser
from common.precision import pick_device
from common.progress import show_progress
from common.run.interrupt import StopRequest
from common.spec import Key, Options
from common.training.optimization import moving_average
from scripts.predict_mels import read_clips, read_model, teacher_forced

# B batch, C channels, M mels, T frames

CROP = 80  # frames of a clip in a batch
ADVERSARIAL, FEATURES, DISTANCE = 1.0, 2.0, 4.0  # weights of the postnet's losses
LEARNING_RATE = 2e-4  # of both networks
SLOPE = 0.2  # of the discriminator's LeakyReLU
BETAS = (0.5, 0.9)  # of Adam, for two networks that learn from each other
AVERAGE = 0.99  # decay of the postnet's moving average, which is saved
MEASURED = 50  # clips, of all lengths
KEPT = ("epoch", "iteration", "config", "data", "seed")  # entries of the checkpoint


class MelPair(NamedTuple):
    """Log-mels (M, T) of a clip: the decoder's, and the recording's."""

    decoded: Tensor
    recorded: Tensor


class Discriminator(nn.Module):
    """Convolutions over log-mels as pictures, with the place of each band beside it, since bands look different.

    Spectral normalisation (Miyato et al. 2018) keeps its slope small, so that the postnet always has something to learn from it.
    """

    LAYERS = (  # channels before and after, kernel, stride over bands and frames
        (2, 32, 5, (2, 1)),
        (32, 64, 5, (2, 2)),
        (64, 64, 3, (2, 2)),
        (64, 64, 3, (1, 1)),
        (64, 1, 3, (1, 1)),
    )

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            spectral_norm(nn.Conv2d(wide, out, kernel, stride, kernel // 2))
            for wide, out, kernel, stride in self.LAYERS
        )

    def forward(self, mels: Tensor) -> list[Tensor]:
        """Mels (B, M, T), standardised -> the features of each layer (B, C, M', T'), and the verdict on each patch as the last."""
        places = torch.linspace(-1, 1, mels.shape[1], device=mels.device)[:, None].expand_as(mels)
        x, features = torch.stack([mels, places], dim=1), []
        for layer in self.layers:
            features.append(layer(x))
            x = F.leaky_relu(features[-1], SLOPE)
        return features


class Sharpening:
    """The two networks, and their training in turn with the least-squares losses of Mao et al. 2017."""

    def __init__(self, postnet: Any, pairs: Sequence[MelPair], seed: int, device: torch.device) -> None:
        """Prepare both. Raises DataError if no clip is long enough for a crop."""
        # A crop's edges are cut off: what the convolutions see there is not the clip.
        self.margin = sum(layer[0].conv.kernel_size[0] // 2 for layer in postnet.convolutions)
        length = CROP + 2 * self.margin
        self.pairs = [pair for pair in pairs if pair.recorded.shape[1] >= length]
        if not self.pairs:
            longest = max(pair.recorded.shape[1] for pair in pairs)
            raise DataError(f"no clip has {length} frames, which a crop of {CROP} needs; the longest has {longest}")
        self.postnet, self.device = postnet.requires_grad_(True), device
        self.draws = torch.Generator().manual_seed(seed)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.discriminator = Discriminator().to(device)
        recorded = torch.cat([pair.recorded.flatten() for pair in self.pairs])
        self.mean, self.deviation = float(recorded.mean()), float(recorded.std())
        average = moving_average(postnet, AVERAGE)
        assert average is not None
        self.average = average
        self.optimizers = [
            torch.optim.Adam(network.parameters(), LEARNING_RATE, BETAS) for network in (self.discriminator, postnet)
        ]

    def crops(self, count: int) -> tuple[Tensor, Tensor]:
        """Draw crops: the decoder's mels (B, M, T + both margins), and the recordings' (B, M, T)."""
        found = []
        for number in torch.randint(len(self.pairs), (count,), generator=self.draws).tolist():
            pair, length = self.pairs[number], CROP + 2 * self.margin
            start = int(torch.randint(pair.recorded.shape[1] - length + 1, (), generator=self.draws))
            found.append([mels[:, start : start + length] for mels in pair])
        decoded, recorded = (torch.stack(mels).to(self.device) for mels in zip(*found, strict=True))
        return decoded, recorded[..., self.margin : -self.margin]

    def step(self, count: int) -> None:
        """Train the discriminator, then the postnet, on the same crops."""
        decoded, recorded = self.crops(count)
        true = self.standardise(recorded)
        made = self.standardise(self.postnet(decoded, None)[..., self.margin : -self.margin])
        verdicts = self.discriminator(true)[-1], self.discriminator(made.detach())[-1]
        self.descend(0, (verdicts[0] - 1).square().mean() + verdicts[1].square().mean())
        with torch.no_grad():
            wanted = self.discriminator(true)
        seen = self.discriminator(made)
        loss = ADVERSARIAL * (seen[-1] - 1).square().mean() + DISTANCE * F.l1_loss(made, true)
        # The features of real and predicted crops shall agree (Larsen et al. 2016), which is steadier than the verdict alone.
        loss = loss + FEATURES * sum(F.l1_loss(*both) for both in zip(seen[:-1], wanted[:-1], strict=True))
        self.descend(1, loss)
        self.average.update_parameters(self.postnet)

    def descend(self, number: int, loss: Tensor) -> None:
        self.optimizers[number].zero_grad()
        loss.backward()
        self.optimizers[number].step()

    def standardise(self, mels: Tensor) -> Tensor:
        return (mels - self.mean) / self.deviation


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
    parser.add_argument("checkpoint", type=Path, help="of Tacotron 2")
    parser.add_argument("filelists", type=Path, nargs="+", help="rows mel|text, or audio|text, of the training")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the new checkpoint")
    parser.add_argument("-d", "--dataset-path", type=Path, default=Path(), help="the folder the rows' paths start at")
    parser.add_argument(
        "--steps", type=positive, default=3000, help="steps of both networks; a core takes one or two a second"
    )
    parser.add_argument(
        "--clips", type=positive, default=1500, help="most clips of each list, drawn at random; they are kept in memory"
    )
    parser.add_argument(
        "-bs", "--batch-size", type=positive, default=8, help="crops a step, and clips predicted at once"
    )
    parser.add_argument("--seed", type=seed, default=1, help="of clips, crops and the second network's first weights")
    parser.add_argument("--cpu", action="store_true", help="use the CPU even if there is a GPU")
    return parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    """Predict the clips, train, and write the checkpoint. Returns the exit code."""
    args = parse_args(argv)
    if args.output.exists():
        raise UsageError(f"--output {args.output}: exists; delete it, or choose another file")
    with writing(args.output, "choose another --output"):
        make_folder(args.output.parent)
        TemporaryFile(dir=args.output.parent).close()  # now, and not only after the training
    device = pick_device(cpu=args.cpu)
    checkpoint = load_checkpoint(args.checkpoint)
    model, options = read_model(checkpoint, args.checkpoint, args.dataset_path, device)
    pairs = read_pairs(args, model, options, device)
    sharpening = Sharpening(model.postnet, pairs, args.seed, device)
    before = movement(model.postnet, pairs, device)
    with StopRequest() as stop:
        for _ in show_progress(range(args.steps), args.steps, "sharpen", "step"):
            if stop.is_requested:
                break
            sharpening.step(args.batch_size)
    model.postnet.load_state_dict(sharpening.average.module.state_dict())
    after = movement(model.postnet, pairs, device)
    if not math.isfinite(after):
        raise DataError("the weights became NaN or infinite: nothing is written; try another --seed, or fewer --steps")
    save_copy(
        args.output, {key: checkpoint[key] for key in KEPT if key in checkpoint} | {"state_dict": model.state_dict()}
    )
    print(f"{args.output}: movement from frame to frame {before:.0%} of the recordings' before, {after:.0%} now")
    return stop.exit_code


if __name__ == "__main__":
    with exit_on_user_error():
        raise SystemExit(main())
