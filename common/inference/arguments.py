"""Flags of the commands that synthesise speech, and the config that they stand for. `specs` are the models of the registry."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from common.arguments import (
    actions_of,
    add_audio_arguments,
    add_plain_argument,
    add_preparation_arguments,
    add_retired_arguments,
    seed,
)
from common.inference.config import (
    DENOISING_STRENGTH,
    EMBEDDED_DENOISING_STRENGTH,
    GRIFFIN_LIM,
    TRAINED,
    SynthesisConfig,
)
from common.inference.config import SynthesisConfig as D
from common.inference.voice_folder import default_vocoder, read_voice_folder
from common.spec import ModelSpec

RETIRED = ("--precompute",)

Specs = Collection[ModelSpec]


def add_speaking_arguments(parser: argparse.ArgumentParser, specs: Specs, default_seed: int | None = D.seed) -> None:
    """Add the flags that choose the models and set how they decode, those of the models and of audio among them."""
    add = parser.add_argument
    add_voice_argument(parser)
    for spec in specs:
        newest = f"{TRAINED}/checkpoint_{spec.name}_last.pt"
        default = f"(default: {newest}, or the embedded voice)"
        add(f"--{spec.flag}", type=Path, metavar="CHECKPOINT", help=f"{spec.role} model {default}")
    without = f"{GRIFFIN_LIM} needs no model (default: the one that has a checkpoint, or else {GRIFFIN_LIM})"
    add("--vocoder", choices=[*vocoder_flags(specs), GRIFFIN_LIM], help=without)
    add_vocoding_arguments(parser)
    drawn = "" if default_seed is not None else " (default: drawn, and written to the log)"
    numbers = (
        f"of the prenet's dropout and the vocoder's noise, for each line by its number: same seed, same sound{drawn}"
    )
    add("--seed", type=seed, default=default_seed, help=numbers)
    number_format = parser.add_mutually_exclusive_group()
    half = "half precision: float16 on a GPU, bfloat16 on a CPU that has it"
    number_format.add_argument("--fp16", action="store_true", help=half)
    number_format.add_argument("--cpu", action="store_true", help="stay on the CPU even where there is a GPU")
    add_preparation_arguments(parser)
    add_plain_argument(parser)
    add_audio_arguments(parser)
    for spec in specs:
        spec.add_arguments(parser)
    add_retired_arguments(parser, RETIRED)


def add_voice_argument(parser: argparse.ArgumentParser) -> None:
    """Add --voice."""
    folder = "folder of a voice, with FLAG.safetensors of its models, as `python -m studio.train` writes it"
    parser.add_argument(
        "--voice", type=Path, metavar="DIR", help=f"{folder}; a checkpoint named beside it replaces its own"
    )


def add_vocoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the step from mels to audio."""
    add = parser.add_argument
    sigma = "standard deviation of the noise that becomes sound"
    add("-s", "--sigma-infer", type=float, default=D.sigma_infer, help=sigma)
    defaults = f"default: %(default)s; the embedded voice's: {EMBEDDED_DENOISING_STRENGTH}"
    hum = f"share of the vocoder's own hum to subtract; 0: none ({defaults})"
    add("-d", "--denoising-strength", type=float, default=DENOISING_STRENGTH, help=hum)


def vocoder_flags(specs: Specs) -> list[str]:
    """List the flags of the vocoder models."""
    return [spec.flag for spec in specs if spec.role == "vocoder"]


def synthesis_config(args: argparse.Namespace, given_flags: Mapping[str, Any], specs: Specs) -> SynthesisConfig:
    """Build the config of parsed flags; `given_flags` are those on the command line. Raises UsageError as the config does."""
    names = {field.name for field in fields(SynthesisConfig)} & set(vars(args))
    values = {name: getattr(args, name) for name in names} | {
        "half": args.fp16,
        "denoising_strength": given_flags.get("denoising_strength"),
        "options": {name: value for name, value in given_flags.items() if name in model_options(specs)},
    }
    if args.voice and args.vocoder is None and not any(getattr(args, flag) for flag in vocoder_flags(specs)):
        values["vocoder"] = default_vocoder(args.voice, specs)
    return SynthesisConfig(**values)


def named_checkpoints(args: argparse.Namespace, specs: Specs) -> dict[str, Path]:
    """Return the checkpoints that flags name, those in the folder of --voice among them, by the flags of the models."""
    in_folder = read_voice_folder(args.voice, specs) if args.voice else {}
    return in_folder | {spec.flag: path for spec in specs if (path := getattr(args, spec.flag))}


def own_flags(args: argparse.Namespace, specs: Specs) -> dict[str, Any]:
    """Return the flags that no checkpoint stores: a command's own."""
    return {name: value for name, value in vars(args).items() if name not in model_options(specs)}


def model_options(specs: Specs) -> set[str]:
    """Return the names of the flags of audio and of the models."""
    adders = [add_audio_arguments, *(spec.add_arguments for spec in specs)]
    return {action.dest for add in adders for action in actions_of(add)}
