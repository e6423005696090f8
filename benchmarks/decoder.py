"""Time Tacotron 2's training step with the decoder's fast recurrences against the same step with the plain ones, in one run.

    python -m benchmarks.decoder                     # full size, batch 8, 100 symbols, 400 frames
    python -m benchmarks.decoder --amp --threads 2

A row is the median of --repeats steps (forward, loss, backward, clipping, Adam), the two taking turns, with the machine's matrix
product rate, measured in the same run, beside them.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from torch import Tensor

import tacotron2.decoder
from common.engine import precision
from loss_functions import get_loss_function
from models import get_model
from tacotron2.teacher_forcing import run_all_steps, run_step_by_step

GEMM_SIZE = 2048


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--symbols", type=int, default=100)
    parser.add_argument("--frames", type=int, default=400)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--amp", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    device = precision.pick_device()
    step = TrainingStep(args, device)
    times: dict[str, list[float]] = {"plain": [], "fast": []}
    for _ in range(args.repeats + 1):  # the first of each warms up
        for name, run in (("plain", run_step_by_step), ("fast", run_all_steps)):
            times[name].append(step(run))
    plain, fast = (statistics.median(times[name][1:]) for name in ("plain", "fast"))
    frames = args.batch_size * args.frames
    print(f"{device.type}, {args.threads} threads, PyTorch {torch.__version__}, amp {args.amp}; {vars(args)}")
    print(f"matrix products of {GEMM_SIZE}: {gemm_rate(device, args.amp) / 1e9:.0f} GFLOP/s")
    print(f"plain recurrences: {plain:.3f} s a step, {frames / plain:.0f} frames/s")
    print(f"fast recurrences:  {fast:.3f} s a step, {frames / fast:.0f} frames/s, {plain / fast:.2f} times as fast")


class TrainingStep:
    """One step of a full-size model on random clips of equal length, with either kind of recurrences; returns its seconds."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.device, self.amp = device, args.amp
        self.model = get_model("Tacotron2", {}).to(device).train()
        self.criterion = get_loss_function("Tacotron2")
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        batch, frames = args.batch_size, args.frames
        text = torch.randint(1, 148, (batch, args.symbols), device=device)
        mels = torch.randn(batch, 80, frames, device=device)
        lengths = [torch.full((batch,), n, device=device) for n in (args.symbols, frames)]
        gates = (torch.arange(frames, device=device) >= frames - 1).float().expand(batch, -1)
        self.inputs: tuple[Tensor, ...] = (text, lengths[0], mels, lengths[1])
        self.targets = (mels, gates)

    def __call__(self, run: object) -> float:
        tacotron2.decoder.run_all_steps = run  # type: ignore[assignment]
        precision.synchronize(self.device)
        start = time.perf_counter()
        with precision.autocast(self.device, precision.half_dtype(self.device, self.amp)):
            loss = self.criterion(self.model(*self.inputs), self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        precision.synchronize(self.device)
        return time.perf_counter() - start


def gemm_rate(device: torch.device, amp: bool) -> float:
    """Operations a second of a large matrix product in the step's precision: the machine's limit."""
    a = torch.randn(GEMM_SIZE, GEMM_SIZE, device=device)
    seconds = []
    for _ in range(6):
        precision.synchronize(device)
        start = time.perf_counter()
        with precision.autocast(device, precision.half_dtype(device, amp)):
            _ = a @ a
        precision.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return 2 * GEMM_SIZE**3 / statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
