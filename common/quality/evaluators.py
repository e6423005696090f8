"""Shared parts of the measures that call models of others: imports of packages that may be missing, audio at their rate."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np

from common.errors import DataError

# N samples
INSTALL = "`bash scripts/evaluation.sh` installs what is missing"


@contextmanager
def optional_import(**stand_ins: Mapping[str, Any]) -> Iterator[None]:
    """Import an evaluator inside: a missing one becomes a DataError that names its installer.

    Args:
        stand_ins: modules that an evaluator imports and does not use here, name → attributes. One that cannot be found is
            in sys.modules while the block runs, and gone afterwards, so that nobody else takes it for the real one.
    """
    placed = [name for name in stand_ins if name not in sys.modules and find_spec(name) is None]
    for name in placed:
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None)  # without one, find_spec of the name raises instead of answering
        vars(module).update(stand_ins[name])
        sys.modules[name] = module
    try:
        yield
    except ImportError as error:
        raise DataError(f"the evaluation needs a package that cannot be imported ({error}); {INSTALL}") from error
    finally:
        for name in placed:
            sys.modules.pop(name, None)


def at_rate(audio: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Audio (N,) of `rate` Hz as float32 (N',) of `wanted` Hz, band-limited."""
    audio = np.asarray(audio, dtype=np.float32)
    if rate == wanted or not audio.size:
        return audio
    import librosa

    return librosa.resample(audio, orig_sr=rate, target_sr=wanted, res_type="soxr_hq")  # soxr comes with librosa
