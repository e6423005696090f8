"""WaveGlow's sizes as checkpoints store them, with their checks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from common.errors import DataError, UsageError
from common.options import COUNT, Check, option, problems_of

ADDED = ("hop_length", "upsample_kernel_size", "upsample_channels")  # keys that the published model lacks
EVEN = Check(lambda size: COUNT.holds(size) and not size % 2, "an even number of at least 2")
HALVES = EVEN._replace(expected=f"{EVEN.expected}, as one half of the channels moves the other")
ODD = Check(lambda size: COUNT.holds(size) and size % 2, "an odd number, to keep the layers' length")


@dataclass(frozen=True, kw_only=True)
class WNConfig:
    """Sizes of the network inside each flow."""

    kernel_size: int = option(3, "width of its convolutions, odd", flag="--wn-kernel-size", check=ODD)
    n_channels: int = option(512, "channels; 256 is twice as fast", flag="--wn-channels", check=EVEN)
    n_layers: int = option(8, "number of layers; the dilation doubles with each", flag="--wn-layers", check=COUNT)


@dataclass(frozen=True, kw_only=True)
class WaveGlowMemoryConfig:
    """Ways to train with less memory that are off by default."""

    recompute: bool = option(
        False,
        "recompute the flows' inner tensors in backward instead of storing them: a fraction of the memory, steps about a third "
        "longer",
    )


@dataclass(frozen=True, kw_only=True)
class WaveGlowConfig:
    """WaveGlow's keyword arguments, as checkpoints store them.

    Raises:
        UsageError: values that cannot work, all of them at once, each by its flag.
    """

    n_mel_channels: int = field(default=80, metadata={"check": COUNT})
    n_flows: int = option(12, "steps of flow", flag="--flows", check=COUNT)
    n_group: int = option(8, "samples per group, which become the flow's channels; even", flag="--groups", check=HALVES)
    n_early_every: int = option(4, "flows between early exits", flag="--early-every", check=COUNT)
    n_early_size: int = option(2, "channels output at each early exit", flag="--early-size", check=EVEN)
    WN_config: WNConfig = field(default_factory=WNConfig)
    hop_length: int = field(default=256, metadata={"check": COUNT})  # samples between two mel frames
    upsample_kernel_size: int = 1024
    upsample_channels: int | None = option(
        None,
        "channels of the upsampled mels, each flow's condition (default: as many as the mels have); a few, with larger --groups, "
        "train far faster",
        check=COUNT,
    )

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise UsageError("\n".join(problems))

    @property
    def upsampled_channels(self) -> int:
        """Channels of the upsampled mels."""
        return self.n_mel_channels if self.upsample_channels is None else self.upsample_channels

    @property
    def n_exits(self) -> int:
        """The number of early outputs."""
        return (self.n_flows - 1) // self.n_early_every

    @property
    def reach(self) -> int:
        """Frames on each side in the receptive field of one flow, the last one counted whole."""
        groups = (2**self.WN_config.n_layers - 1) * (self.WN_config.kernel_size // 2)
        return math.ceil(groups * self.n_group / self.hop_length)

    def problems(self) -> list[str]:
        """List the values that cannot work, one line per flag."""
        problems = problems_of(self)
        if not problems and self.upsample_kernel_size < self.hop_length:
            problems.append(
                f"--hop-length: {self.hop_length}, expected at most {self.upsample_kernel_size}, the upsampling kernel"
            )
        if not problems and self.n_group - self.n_exits * self.n_early_size < 2:
            problems.append(
                f"--early-size: {self.n_early_size}, but {self.n_exits} early outputs leave nothing to the last flow, "
                f"with --groups {self.n_group}, --flows {self.n_flows}, --early-every {self.n_early_every}"
            )
        return problems

    @classmethod
    def from_dict(cls, config: Mapping[str, Any]) -> WaveGlowConfig:
        """Build the config from plain keys and values, WN_config a dict; missing keys take their default.

        Raises:
            DataError: a key that WaveGlow does not have.
            UsageError: a value that cannot work.
        """
        wn_config = config.get("WN_config", {})
        if isinstance(wn_config, WNConfig):
            wn_config = asdict(wn_config)
        if unknown := [*_unknown(cls, config), *_unknown(WNConfig, wn_config)]:
            known = [f.name for f in (*fields(cls), *fields(WNConfig))]
            raise DataError(f"WaveGlow config: unknown keys {', '.join(unknown)}, expected {', '.join(known)}")
        return cls(**{**config, "WN_config": WNConfig(**wn_config)})

    def to_dict(self) -> dict[str, Any]:
        """Plain keys and values for a checkpoint; those of ADDED are left out at their defaults, for the published class."""
        defaults = {f.name: f.default for f in fields(self) if f.name in ADDED}
        return {name: value for name, value in asdict(self).items() if name not in ADDED or value != defaults[name]}


def _unknown(cls: type, config: Mapping[str, Any]) -> list[str]:
    return sorted(set(config) - {f.name for f in fields(cls)})
