"""What would change a run in silence: settings that a resumed run has other than its checkpoint, and clips that two lists share."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from common.checkpoint.files import last_link
from common.errors import listed
from common.options import flag_of, values_of
from common.progress import counted
from common.training.optimization import last_rate
from common.training.state import TrainState

# Options that a checkpoint stores to compare them; those of RATE decide the learning rate of each step.
RATE = ("learning_rate", "lr_scaling", "lr_schedule", "anneal_steps", "anneal_factor", "warmup_steps", "epochs")
OTHERS = ("optimizer", "weight_decay", "grad_clip_thresh", "ema_decay", "seed")
LEAP = 1.25  # times the rate of the step before, which no schedule takes in one step


def settings_of(state: TrainState) -> dict[str, Any]:
    """Return what a checkpoint stores of a run to compare it with one that resumes: plain values by option, and its clips."""
    options, clips = state.setup.options, clips_of(state, "training")
    values = values_of(options.optimization) | {"seed": options.run.seed}
    found: dict[str, Any] = {name: values[name] for name in (*RATE, *OTHERS)}
    digest = hashlib.sha256(json.dumps(sorted(clips)).encode()).hexdigest()
    return found | {"clips": len(clips), "list": digest}


def resumed_otherwise(state: TrainState, checkpoint: Mapping[str, Any]) -> list[str]:
    """List a sentence for each setting of a resumed run that differs from its checkpoint's, and for a rate that leaps."""
    now, stored = settings_of(state), checkpoint.get("run")
    if not stored or checkpoint.get("optimizer") is None:
        return []
    differing = [name for name in (*RATE, *OTHERS) if name in stored and now[name] != stored[name]]
    if now["lr_schedule"] != "cosine":  # the others do not depend on the end
        differing = [name for name in differing if name != "epochs"]
    lines = [
        f"{flag_of(name)} {_shown(now[name])}, where the checkpoint had {_shown(stored[name])}" for name in differing
    ]
    if now["list"] != stored.get("list"):
        lines.append(
            f"--training-files: {counted(now['clips'], 'clip')}, not the same as the checkpoint's {stored.get('clips')}"
        )
    group = checkpoint["optimizer"]["param_groups"][0]
    before = float(group.get("lr", 0)) / float(group.get("lr_scale", 1))  # of the last step
    return lines + (rate_leap(state, before) if set(differing) & set(RATE) else [])


def rate_leap(state: TrainState, before: float) -> list[str]:
    """Return a sentence on a learning rate that leaps from `before`, and on how to go on without."""
    after, last = state.learning_rate, last_rate(state.setup.options.optimization, state.setup.pace)
    start = last_link(state.setup.options.run.output, state.setup.spec.name)
    if before <= 0 or not math.isfinite(before) or after <= LEAP * before:
        return []
    return [
        f"the learning rate leaps from {before:.2g} to {after:.2g} with these flags, and ends at {last:.2g}; to go on "
        f"without the leap: --lr-schedule constant --learning-rate {before:.2g} --warmup-steps 0 --lr-scaling none, "
        f"or a schedule of its own from these weights, which rises gently: --warm-start {start} --warmup-steps 200 and another -o"
    ]


def clips_of(state: TrainState, part: str) -> list[str]:
    """List the files of the training or validation clips, as the filelist names them; a state that only takes steps has none."""
    loader: Any = getattr(getattr(state, "loaders", None), part, None)
    return [row.path for row in loader.dataset.dataset.utterances] if loader else []


def shared_clips(state: TrainState) -> list[str]:
    """Return a sentence on clips of training that validation has, too."""
    shared = sorted(set(clips_of(state, "validation")) & set(clips_of(state, "training")))
    if not shared:
        return []
    both = f"{counted(len(shared), 'clip')} of validation {'is' if len(shared) == 1 else 'are'} in training, too"
    return [f"{both}, which makes the validation loss too low: {listed(shared)}"]


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
