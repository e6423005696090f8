"""A voice from an export directory: a Synthesizer that runs the directory's files; and the voice that a command's flags name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from common import precision
from common.errors import DataError, UsageError
from common.inference.arguments import SpeakingOptions
from common.inference.config import SynthesisConfig
from common.inference.vocoders import LoadedModel
from common.options import from_options
from exports import engines, torchscript
from exports.manifest import NAME as MANIFEST
from exports.manifest import ExportManifest, read_manifest
from exports.models import VOCODERS, Call, PartwiseTacotron2, ScriptedTacotron2
from models import REGISTRY, default_options
from synthesizer import Synthesizer, choose_checkpoints
from tacotron2.config import Tacotron2Config
from tacotron2.guard import DecodingGuard
from tacotron2.spec import SPEC as ACOUSTIC
from waveglow.spec import SPEC as VOCODER

ACOUSTIC_PARTS = ("encoder", "decoder_step", "postnet")
Models = tuple[Any, LoadedModel]  # the acoustic model of an export, and its vocoder


def named_voice(options: SpeakingOptions, config: SynthesisConfig, device: torch.device) -> Synthesizer:
    """Load the voice that flags name: an export, or checkpoints, else the one that `choose_checkpoints` finds.

    Raises UsageError for both, DataError as `load_voice` and Synthesizer do.
    """
    named = options.checkpoints(REGISTRY.values())
    if not options.export:
        choice = choose_checkpoints(named, config.vocoder)
        return Synthesizer.from_choice(choice, config=config, device=device)
    if named or config.vocoder:
        raise UsageError("--export: has models of its own; leave checkpoints, --voice and --vocoder out")
    return load_voice(options.export, config, device)


def load_voice(
    directory: Path, config: SynthesisConfig | None = None, device: torch.device | None = None
) -> Synthesizer:
    """Load a voice from an export directory.

    Args:
        directory: written by `python -m exports`.
        config: the Synthesizer's; its options may only be those that need no new export.
        device: the device for TorchScript; ONNX files choose by their providers.

    Raises:
        DataError: missing or changed files, or a missing runtime.
        UsageError: options that need a new export.
    """
    manifest = read_manifest(directory)
    if not VOCODERS.keys() & manifest.models.keys():
        found, wanted = ", ".join(manifest.models), " or ".join(VOCODERS)
        raise DataError(f"{directory / MANIFEST}: models: {found}; expected {wanted}; export again")
    config = config or SynthesisConfig()
    if config.half or config.int8:
        raise UsageError(f"{directory}: the number format is fixed by the files; leave --fp16 and --int8 out")
    manifest, options = _with_options(directory, manifest, config)
    target = manifest.target
    device = device if device and target == "torchscript" else torch.device("cpu")
    if target not in RUNTIMES:
        raise DataError(f"{directory}: target {target!r}, expected one of {', '.join(RUNTIMES)}")
    with precision.separate_rng(device, 0):
        acoustic, vocoder = RUNTIMES[target](directory, manifest, options, device)
    description = f"{manifest.voice}, exported to {directory} for {target}"
    loaded = LoadedModel(ACOUSTIC, acoustic, options, directory / MANIFEST)
    return Synthesizer(loaded, vocoder, config, device, description)


def _with_options(
    directory: Path, manifest: ExportManifest, config: SynthesisConfig
) -> tuple[ExportManifest, dict[str, Any]]:
    """The manifest and all options, updated from the config. Raises UsageError for options that the files fix."""
    free = {*ACOUSTIC.free_at_inference, *ACOUSTIC.run_options}
    if fixed := [name for name in config.options if name not in free]:
        flags = ", ".join("--" + name.replace("_", "-") for name in fixed)
        raise UsageError(f"{directory}: {flags}: fixed by the export; leave these flags out")
    stored = manifest.models[ACOUSTIC.name]
    changes = {name: value for name, value in config.options.items() if name in ACOUSTIC.free_at_inference}
    models = manifest.models | {ACOUSTIC.name: stored | changes}
    own = {name: getattr(manifest, name) for name in ("sigma_infer", "denoising_strength")}
    return replace(manifest, models=models), default_options() | manifest.options | own | dict(config.options)


def _run_scripts(directory: Path, manifest: ExportManifest, options: dict[str, Any], device: torch.device) -> Models:
    torchscript.check_guard(from_options(DecodingGuard, options))
    acoustic, vocoder, denoiser = (
        torch.jit.load(directory / f"{name}.ts", map_location=device) for name in torchscript.NAMES
    )
    model = ScriptedTacotron2(acoustic, Tacotron2Config(**manifest.models[ACOUSTIC.name]))
    return model, torchscript.load_vocoder(vocoder, denoiser, manifest.models[VOCODER.name], options)


def _run_parts(
    ending: str,
    open_part: Callable[[Path], Call],
    directory: Path,
    manifest: ExportManifest,
    options: dict[str, Any],
    device: torch.device,
) -> Models:
    vocoder = next(entry for name, entry in VOCODERS.items() if name in manifest.models)
    parts = {name: open_part(directory / f"{name}.{ending}") for name in (*ACOUSTIC_PARTS, *vocoder.names)}
    decoding = Tacotron2Config(**manifest.models[ACOUSTIC.name]), from_options(DecodingGuard, options)
    loaded = vocoder.load(parts, manifest.models[vocoder.spec.name], options)
    return PartwiseTacotron2(parts, *decoding), loaded


RUNTIMES: dict[str, Callable[[Path, ExportManifest, dict[str, Any], torch.device], Models]] = {
    "torchscript": _run_scripts,
    "programs": partial(_run_parts, "pt2", engines.open_program),
    "aotinductor": partial(_run_parts, "pt2", engines.open_package),
    **dict.fromkeys(("onnx", "onnx-int8", "onnx-float16"), partial(_run_parts, "onnx", engines.open_onnx)),
    "tensorrt": partial(_run_parts, "onnx", engines.open_tensorrt),
}
