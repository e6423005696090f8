"""Small functions under the names and with the results of the published recipe's utils, for scripts written for it."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from common.data.filelist import read_filelist
from common.errors import DataError
from common.layers import length_mask
from common.precision import default_device


class ParseFromConfigFile(argparse.Action):
    """A flag whose value is a JSON file, {group: {flag: value}}: its values become options, with underscores in their names."""

    def __call__(
        self, parser: Any, namespace: argparse.Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Read the file."""
        for group in json.loads(Path(values).read_text(encoding="utf-8")).values():
            for name, value in group.items():
                setattr(namespace, name.replace("-", "_"), value)


def to_gpu(x: Tensor) -> Tensor:
    """Return a tensor, contiguous, on the GPU if there is one."""
    return x.contiguous().to(default_device(), non_blocking=True)


def get_mask_from_lengths(lengths: Tensor) -> Tensor:
    """True past the end of each sequence: lengths (B,) -> bool (B, longest)."""
    return ~length_mask(lengths, int(lengths.max()))


def load_wav_to_torch(full_path: str | os.PathLike[str]) -> tuple[Tensor, int]:
    """Read a wav file: samples as it stores them, in float32 but not scaled to [-1, 1], and the rate. Raises DataError."""
    from scipy.io import wavfile  # slow to import, and not needed by training

    try:
        rate, samples = wavfile.read(full_path)
    except ValueError as error:
        raise DataError(f"{full_path}: {error}, expected a wav file") from None
    return torch.from_numpy(samples.astype(np.float32)), rate


def load_filepaths_and_text(
    dataset_path: str | os.PathLike[str], filename: str | os.PathLike[str]
) -> list[tuple[str, str]]:
    """Read a filelist path|text: paths that begin with `dataset_path`, and texts. Raises DataError that lists bad rows."""
    return [(os.path.join(dataset_path, row.path), row.text) for row in read_filelist(filename)]


def fused_add_tanh_sigmoid_multiply(input_a: Tensor, input_b: Tensor, n_channels: Tensor | int) -> Tensor:
    """The gate of WN: tanh of the sum's first n_channels times sigmoid of the others; (B, 2H, G) each -> (B, H, G)."""
    signal, gate = (input_a + input_b).split(int(n_channels), dim=1)
    return torch.tanh(signal) * torch.sigmoid(gate)
