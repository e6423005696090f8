"""The functions of the published inference.py: from a checkpoint and texts to audio, one model after the other."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from common import precision
from common.checkpoint.files import load_checkpoint
from common.checkpoint.weights import clean_state_dict, restore_model
from common.errors import UsageError
from common.spec import AcousticInference
from models import acoustic_spec, as_published, get_model, get_model_config, get_spec, model_parser

# B batch, S symbols


def checkpoint_from_distributed(state_dict: Mapping[str, Tensor]) -> bool:
    """Return True if DistributedDataParallel has put `module.` before the names."""
    return any(name.startswith("module.") for name in state_dict)


def unwrap_distributed(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights without `module.` before their names."""
    return clean_state_dict(state_dict)


def load_and_setup_model(
    model_name: str,
    parser: argparse.ArgumentParser,
    checkpoint: str | None,
    fp16_run: bool,
    cpu_run: bool,
    forward_is_infer: bool = False,
    jittable: bool = False,
) -> nn.Module:
    """Load a model for inference, on the GPU unless `cpu_run`, or the CPU without one.

    The checkpoint's config builds it. For a file without one, and for no file, which gives random weights, the model's flags on the
    command line do, which may have the parser's, too. `fp16_run` has no effect on a CPU, `jittable` none at all.

    Raises:
        DataError: a file that is missing or holds another model.
    """
    args, _ = model_parser(model_name, parser).parse_known_args()
    flags = get_model_config(model_name, args)
    if checkpoint is None:
        model = get_model(model_name, flags)
    else:
        stored = load_checkpoint(Path(checkpoint))
        model = restore_model(get_spec(model_name), stored, checkpoint, None if "config" in stored else flags)
    model = as_published(model_name, model, cpu_run, forward_is_infer).eval()
    on_gpu = next(model.parameters()).device.type != "cpu"
    return model.half() if fp16_run and on_gpu else model


def pad_sequences(batch: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Pad symbol ids, the longest text first: texts (S,) each -> (B, S) int64 and lengths (B,)."""
    longest_first = sorted(batch, key=len, reverse=True)
    lengths = torch.tensor([len(ids) for ids in longest_first])
    return nn.utils.rnn.pad_sequence([ids.long() for ids in longest_first], batch_first=True), lengths


def prepare_input_sequence(
    texts: Sequence[str], cpu_run: bool = False, text_cleaners: Sequence[str] = ("english_cleaners",)
) -> tuple[Tensor, Tensor]:
    """Texts -> ids (B, S) and lengths (B,), the longest text first; on the GPU, or on the CPU without one.

    Raises:
        UsageError: no texts, one text in place of a list, or an unknown cleaner.
        DataError: texts that cannot be read, all of them in one message.
    """
    if isinstance(texts, str) or not texts:
        raise UsageError(f"prepare_input_sequence: {texts!r}, expected a list of texts")
    stages = acoustic_spec().inference
    assert isinstance(stages, AcousticInference)
    ids, lengths = stages.encode(list(texts), {"text_cleaners": list(text_cleaners)})
    ids, lengths = pad_sequences([row[:length] for row, length in zip(ids, lengths, strict=True)])
    device = precision.pick_device(cpu=cpu_run)
    return ids.to(device), lengths.to(device)


@contextmanager
def MeasureTime(measurements: MutableMapping[str, float], key: str, cpu_run: bool = False) -> Iterator[None]:
    """Store the seconds that the block takes under `key`, with all work of the GPU unless `cpu_run`."""
    device = precision.pick_device(cpu=cpu_run)
    precision.synchronize(device)
    start = time.perf_counter()
    yield
    precision.synchronize(device)
    measurements[key] = time.perf_counter() - start
