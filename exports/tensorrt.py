"""TensorRT: a script that builds engines from the ONNX files with trtexec. Not yet tested on a GPU."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping

from common import precision
from exports.parts import Part, axis_name
from waveglow.config import WaveGlowConfig

Profile = Mapping[str, tuple[int, ...]]

# The sizes of the dynamic axes that an engine supports: the smallest, the usual (for which it is fastest), the largest.
BATCHES, SYMBOLS, FRAMES = (1, 1, 16), (2, 100, 300), (8, 600, 2000)
HEAD = """#!/usr/bin/env bash
# Build TensorRT engines from the ONNX files of this directory: bash build_engines.sh [flags of trtexec, such as --fp16].
# Shapes outside these profiles need another engine. tts.onnx has no engine: ONNX Runtime runs its Loops.
set -euo pipefail
cd "$(dirname "$0")"
"""


def build_script(parts: Iterable[Part], vocoder: WaveGlowConfig) -> str:
    """The trtexec commands for the parts, each with a profile of shapes."""
    samples = tuple(frames * vocoder.hop_length for frames in FRAMES)
    groups = tuple(size // vocoder.n_group for size in samples)
    profile = {"batch": BATCHES, "symbols": SYMBOLS, "frames": FRAMES, "samples": samples, "groups": groups}
    return HEAD + "\n".join(_command(part, profile) for part in parts) + "\n"


def _command(part: Part, profile: Profile) -> str:
    shapes = []
    for which, flag in enumerate(("--minShapes", "--optShapes", "--maxShapes")):
        sizes = {name: _sizes(part, name, profile, which) for name in part.inputs}
        joined = ",".join(f"{name}:{'x'.join(map(str, size))}" for name, size in sizes.items() if size)
        shapes.append(f"{flag}={joined}")
    return f'trtexec --onnx={part.name}.onnx --saveEngine={part.name}.plan {" ".join(shapes)} "$@"'


def _sizes(part: Part, name: str, profile: Profile, which: int) -> list[int]:
    """The shape of an input at one end of the profile."""
    axes = part.input_axes[name]
    return [
        profile[axis_name(axes[axis])][which] if axis in axes else size
        for axis, size in enumerate(part.inputs[name].shape)
    ]


def no_engines() -> str:
    """Why no engine is built here."""
    reason = "no trtexec" if precision.gpu_count() and not shutil.which("trtexec") else "no GPU"
    return f"engines: skipped, as this machine has {reason}; run build_engines.sh on one with both (not yet tested)"
