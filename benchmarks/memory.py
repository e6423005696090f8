"""Measure the memory that `--recompute` saves in a training step of WaveGlow, and the time it costs, by number of flows.

    python -m benchmarks.memory                          # full size, one clip of 8000 samples, 4, 8 and 12 flows
    python -m benchmarks.memory --channels 256 --flows 12 --batch-size 4

A row has the peak bytes of tensors in a step (forward, loss, backward) above the weights, without and with --recompute; the bytes
of the gradients among them; and the times, medians of --repeats alternating steps.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

import torch
from tqdm import tqdm

from common import precision
from common.arguments import positive
from common.errors import exit_on_user_error
from common.fast import Request, accelerate
from common.parser import Parser
from common.run.memory import measure_peak, state_bytes
from common.tables import text_table
from loss_functions import get_loss_function
from models import get_model, get_spec

HOP = 256
TITLES = ("flows", "peak MB", "recomputed", "less", "gradients", "s a step", "recomputed", "longer")


def main() -> None:
    """Measure and print the table."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flows", type=positive, nargs="+", default=[4, 8, 12])
    parser.add_argument("--channels", type=positive, default=512)
    parser.add_argument("--layers", type=positive, default=8)
    parser.add_argument("--batch-size", type=positive, default=1)
    parser.add_argument("--segment-length", type=positive, default=8000)
    parser.add_argument("--repeats", type=positive, default=3)
    parser.add_argument("--threads", type=positive, default=torch.get_num_threads())
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    device = precision.pick_device(cpu=args.cpu)
    print(f"{device.type}, {args.threads} threads, PyTorch {torch.__version__}; {vars(args)}")
    rows = []
    for n_flows in tqdm(args.flows, unit="row", disable=not sys.stderr.isatty()):
        step = TrainingStep(args, n_flows, device)
        plain, again = (step.peak(recompute) for recompute in (False, True))
        gradients = state_bytes(step.model).gradients
        seconds = [(step.seconds(False), step.seconds(True)) for _ in range(args.repeats)]
        slow, slower = (statistics.median(column) for column in zip(*seconds, strict=True))
        cells = [f"{n_flows}", *(f"{bytes_ / 1e6:.1f}" for bytes_ in (plain, again)), f"{plain / again:.2f} x"]
        rows.append([*cells, f"{gradients / 1e6:.1f}", f"{slow:.3f}", f"{slower:.3f}", f"{slower / slow:.2f} x"])
    print(text_table(">" * len(TITLES), TITLES, rows))


class TrainingStep:
    """One training step on random clips, to measure its peak memory or its time."""

    def __init__(self, args: argparse.Namespace, n_flows: int, device: torch.device) -> None:
        self.device = device
        network = {"n_channels": args.channels, "n_layers": args.layers}
        model = get_model("WaveGlow", {"n_flows": n_flows, "WN_config": network}).to(device).train()
        ways = get_spec("WaveGlow").fast_ways
        self.models = {value: accelerate(model, ways, "training", Request(recompute=value)) for value in (True, False)}
        self.criterion = get_loss_function("WaveGlow")
        n_frames = -(-args.segment_length // HOP)
        self.audio = 0.1 * torch.randn(args.batch_size, args.segment_length, device=device)
        self.mels = torch.randn(args.batch_size, 80, n_frames, device=device)
        self.model = self.models[False]
        self()  # warms up

    def __call__(self) -> None:
        self.criterion(self.model(self.mels, self.audio), self.audio).backward()

    def prepare(self, recompute: bool) -> None:
        """Select the model and free the gradients, as after an optimizer step."""
        self.model = self.models[recompute]
        self.model.zero_grad(set_to_none=True)
        precision.synchronize(self.device)

    def peak(self, recompute: bool) -> int:
        """Measure the peak bytes above those before the step."""
        self.prepare(recompute)
        return measure_peak(self.device, self)

    def seconds(self, recompute: bool) -> float:
        """Time the step in seconds."""
        self.prepare(recompute)
        start = time.perf_counter()
        self()
        precision.synchronize(self.device)
        return time.perf_counter() - start


if __name__ == "__main__":
    with exit_on_user_error():
        main()
