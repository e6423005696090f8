"""Options of a voice: their names, their defaults, the values that they may have, and those that contradict a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any

from common.audio.loudness import NORMALIZATIONS
from common.audio.stft import AudioConfig
from common.data.filelist import BadRows
from common.errors import DataError, UsageError
from common.options import from_options
from common.spec import AcousticInference, ModelSpec

GRIFFIN_LIM = "griffin-lim"  # in place of a vocoder model
TRAINED = Path("output")  # where training leaves its checkpoints by default
DENOISING_STRENGTH = 0.01
BYTES_PER_LINE = 2**30  # of the device's memory for each line of a batch, if no batch size is given
MOST_LINES = 64
LONG_LIST = 8  # entries that a message shows all of
EMBEDDED_DENOISING_STRENGTH = 0.03  # the embedded WaveGlow is small and hums; voice/README.md has the measurement


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """Options of a Synthesizer. Raises UsageError that names the flag of every value out of range.

    `options` holds flags of the models and of audio by their names, such as {"gate_threshold": 0.6, "attention_window": 4}. A flag
    that contradicts a checkpoint's stored settings is a UsageError when the checkpoint is loaded.
    """

    vocoder: str | None = None  # "griffin-lim", or the flag of a vocoder model; None: the one that has a checkpoint
    sigma_infer: float = 0.9  # standard deviation of the vocoder's noise
    denoising_strength: float | None = None  # None: DENOISING_STRENGTH, or the embedded voice's own
    half: bool = False
    int8: bool = False
    plain: bool = False
    longest_piece: int = 150  # characters above which a text is cut; 0: never
    seed: int | None = 0  # of dropout and noise, at each call; None: one from PyTorch's generator at each call
    normalize: str = "none"  # one of NORMALIZATIONS
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        numbers = ("sigma_infer", "denoising_strength", "longest_piece", "seed")
        values = {name: getattr(self, name) for name in numbers}
        problems = problems_below_zero({name: value for name, value in values.items() if value is not None})
        if self.normalize not in NORMALIZATIONS:
            problems.append(f"--normalize: {self.normalize!r}, expected one of {', '.join(NORMALIZATIONS)}")
        if problems:
            raise UsageError("\n".join(problems))


def problems_below_zero(values: Mapping[str, float]) -> list[str]:
    """List a sentence for each option that is not a finite number of at least 0."""
    wrong = {name: value for name, value in values.items() if not 0 <= value < math.inf}  # NaN fails this as well
    return [f"--{name.replace('_', '-')}: {value}, expected 0 or more" for name, value in wrong.items()]


def contradictions(
    requested: Mapping[str, Any], stored: Mapping[str, Any], free: frozenset[str] = frozenset()
) -> list[str]:
    """List the requested settings that differ from the stored ones, nested settings included."""
    problems = []
    for name, value in requested.items():
        if isinstance(value, Mapping):
            inner = stored.get(name)
            problems += contradictions(value, inner if isinstance(inner, Mapping) else {}, free)
        elif name not in free and stored.get(name, value) != value:
            problems.append(f"{name} {_difference(stored[name], value)}")
    return problems


def check_data_options(spec: ModelSpec, data: Mapping[str, Any], stored: Mapping[str, Any], path: Path) -> None:
    """Raise DataError where a checkpoint's settings of audio and text cannot work: they are the file's fault, not a flag's."""
    try:
        from_options(AudioConfig, data)
        if clashes := contradictions(spec.config_from_options(data), stored):
            raise DataError(f"the model's {'; '.join(clashes)}")
        if isinstance(spec.inference, AcousticInference):
            spec.inference.encode(["a"], data)
    except BadRows:  # an alphabet without this letter
        return
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise DataError(f"{path}: its data options cannot work: {error}") from None


def _difference(stored: Any, requested: Any) -> str:
    """Describe how two values differ; of long lists, by the first place."""
    if isinstance(stored, list) and isinstance(requested, list) and max(len(stored), len(requested)) > LONG_LIST:
        pairs = zip_longest(stored, requested, fillvalue="nothing")
        place, (ours, theirs) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        lengths = f"has {len(stored)} entries in it, {len(requested)} as requested"
        return f"{lengths}, and differs first at {place}: {ours!r}, {theirs!r}"
    return f"is {stored} in it, {requested} as requested"
