"""Options of a voice: names, defaults, valid values, and the checks against the settings a checkpoint stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

from common import arguments
from common.audio.audio_processing import NORMALIZATIONS, TARGET_RMS
from common.audio.stft import AudioConfig
from common.data.filelist import BadRows
from common.data.lexicon import Lexicon, lexicon_of
from common.errors import DataError, UsageError
from common.options import NOT_NEGATIVE, Check, from_options, option, problems_of
from common.spec import AcousticInference, ModelSpec

GRIFFIN_LIM = "griffin-lim"  # instead of a vocoder model
TRAINED = Path("output")  # where training leaves its checkpoints by default
SIGMA, DENOISING_STRENGTH = 0.9, 0.01
BYTES_PER_LINE = 2**30  # of device memory per line of a batch, if no batch size is given
MOST_LINES = 64
LONG_LIST = 8  # longest list that a message shows in full
EMBEDDED_DENOISING_STRENGTH = 0.03  # the embedded WaveGlow is small and hums; voice/README.md has the measurement

SLOWEST, FASTEST = 0.25, 4.0  # as in OpenAI's API
SPEED = Check(lambda speed: SLOWEST <= speed <= FASTEST, f"{SLOWEST:g} to {FASTEST:g}")


@dataclass(frozen=True, kw_only=True)
class SynthesisConfig:
    """Options of a Synthesizer. Raises UsageError that lists every value out of range by its flag, DataError for a bad lexicon.

    `options` holds flags of the models and of audio by name, for example {"gate_threshold": 0.6, "attention_window": 4}. A flag
    that contradicts a checkpoint's stored settings is a UsageError when the checkpoint is loaded.
    """

    # "griffin-lim", or the flag of a vocoder model; None: the one that has a checkpoint
    vocoder: str | None = None
    sigma_infer: float | None = option(
        None,
        f"standard deviation of the vocoder's input noise (default: {SIGMA}; an export: its own)",
        "-s",
        check=NOT_NEGATIVE,
    )
    denoising_strength: float | None = option(
        None,
        "how much of the vocoder's own hum to subtract; 0: none "
        f"(default: {DENOISING_STRENGTH}; embedded voice: {EMBEDDED_DENOISING_STRENGTH}; an export: its own)",
        "-d",
        check=NOT_NEGATIVE,
    )
    half: bool = option(False, "half precision: float16 on a GPU, bfloat16 on a CPU that supports it", flag="--fp16")
    int8: bool = option(False, arguments.INT8_HELP)
    plain: bool = option(False, arguments.PLAIN_HELP)
    longest_piece: int = option(
        150,
        "split phrases of more than N characters (numbers count as words), at ends of sentences where possible, then at "
        "; : or dashes, then at commas (0: never)",
        check=NOT_NEGATIVE,
    )
    # at each call; None: one from PyTorch's generator at each call
    seed: int | None = option(
        0,
        "random seed for dropout and the vocoder's noise, combined with each line's number: same seed, same sound; inference.py "
        "draws and logs one if none is given",
        type=arguments.seed,
        check=NOT_NEGATIVE,
    )
    normalize: str = option(
        "none",
        "level of each sound; peak: largest magnitude at full scale, as in the published recipe; "
        f"loudness: RMS of {TARGET_RMS}, without clipping",
        choices=NORMALIZATIONS,
    )
    speed: float = option(
        1.0,
        f"speed of the speech, {SLOWEST:g} to {FASTEST:g}; the pitch stays the same; needs the package av",
        check=SPEED,
    )
    # in a program, a Lexicon or a mapping will do as well
    lexicon: Path | Lexicon | Mapping[str, str] | None = option(
        None,
        "UTF-8 file of words with their spoken forms: WRITTEN, a tab, and words or {ARPAbet}; lines that begin with # are comments",
        type=Path,
    )
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "lexicon", lexicon_of(self.lexicon))
        problems = problems_of(self)
        if self.normalize not in NORMALIZATIONS:
            problems.append(f"--normalize: {self.normalize!r}, expected one of {', '.join(NORMALIZATIONS)}")
        if self.speed != 1.0 and not find_spec("av"):
            problems.append("--speed: needs the package av, which `python -m pip install av` installs")
        if problems:
            raise UsageError("\n".join(problems))


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
    """Raise DataError if a checkpoint's own settings of audio and text cannot work, so that no flag is blamed for them."""
    try:
        from_options(AudioConfig, data)
        if clashes := contradictions(spec.config_from_options(data), stored):
            raise DataError(f"the model's {'; '.join(clashes)}")
        if isinstance(spec.inference, AcousticInference):
            spec.inference.encode(["a"], data)
    except BadRows:  # the alphabet lacks this letter
        return
    except (ValueError, TypeError, AttributeError, LookupError) as error:
        raise DataError(f"{path}: its data options cannot work: {error}") from None


def _difference(stored: Any, requested: Any) -> str:
    """Describe how two values differ; long lists by the first difference."""
    if isinstance(stored, list) and isinstance(requested, list) and max(len(stored), len(requested)) > LONG_LIST:
        pairs = zip_longest(stored, requested, fillvalue="nothing")
        place, (ours, theirs) = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
        lengths = f"has {len(stored)} entries in it, {len(requested)} as requested"
        return f"{lengths}, and differs first at {place}: {ours!r}, {theirs!r}"
    return f"is {stored} in it, {requested} as requested"
