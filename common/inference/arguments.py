"""Flags of the commands that synthesise speech, and the options they become. `specs` are the models of the registry."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common.arguments import add_audio_arguments, add_retired_arguments, given_options, model_options
from common.inference.config import GRIFFIN_LIM, TRAINED, SynthesisConfig
from common.inference.voice_folder import default_vocoder, read_voice_folder
from common.options import add_fields, from_options, option
from common.spec import ModelSpec, Options

RETIRED = ("--precompute",)

Specs = Collection[ModelSpec]
Speaking = TypeVar("Speaking", bound="SpeakingOptions")


@dataclass(frozen=True, kw_only=True)
class SpeakingOptions:
    """Options of a command that speaks: its voice, and the device it runs on. Each command's own options extend it."""

    voice: Path | None = option(
        None,
        "folder of a voice, as `python -m studio.train` writes it, with the weights of each model; checkpoints "
        "given by flag replace those in it",
        metavar="DIR",
    )
    export: Path | None = option(
        None, "folder that `python -m exports` wrote, to speak with in place of checkpoints", metavar="DIR"
    )
    cpu: bool = option(False, "run on the CPU even if there is a GPU")
    named: dict[str, Path] = field(default_factory=dict)  # checkpoints given by flag, by the flags of their models
    config: SynthesisConfig = field(default_factory=SynthesisConfig)
    flags: dict[str, Any] = field(default_factory=dict)  # all flags that no checkpoint stores, for the log

    def checkpoints(self, specs: Specs) -> dict[str, Path]:
        """Return the checkpoints given by flag or in the folder of --voice, by the flags of their models."""
        return (read_voice_folder(self.voice, specs) if self.voice else {}) | self.named


def add_speaking_arguments(parser: argparse.ArgumentParser, specs: Specs, **defaults: Any) -> None:
    """Add the flags that choose the models and set how they decode, including those of the models and of audio.

    `defaults` replace those of SynthesisConfig.
    """
    default = f"the one with a checkpoint, or {GRIFFIN_LIM}; embedded voice: the one in its config.json"
    vocoder = f"vocoder; {GRIFFIN_LIM} needs no model (default: {default})"
    newest = f"{TRAINED}/checkpoint_{{}}_last.pt, or the embedded voice"
    add_voice_arguments(parser, specs, newest, vocoder_names(specs), vocoder)
    add_fields(parser, SynthesisConfig, "seed", "lexicon", **defaults)
    precision = parser.add_mutually_exclusive_group()
    add_fields(precision, SynthesisConfig, "half")
    add_fields(precision, SpeakingOptions, "cpu")
    add_fields(parser, SynthesisConfig, "int8", "plain")
    add_audio_arguments(parser)
    for spec in specs:
        spec.add_arguments(parser)
    add_retired_arguments(parser, RETIRED)


def add_voice_arguments(
    parser: argparse.ArgumentParser, specs: Specs, default: str, vocoders: list[str], vocoder_help: str
) -> None:
    """Add the flags that name a voice, its checkpoints (`default`: what a model without one is; {} is its name) and its vocoder."""
    add_fields(parser, SpeakingOptions, "voice")
    for spec in specs:
        help_text = f"{spec.role} model (default: {default.format(spec.name)})"
        parser.add_argument(f"--{spec.flag}", dest=spec.flag, type=Path, metavar="CHECKPOINT", help=help_text)
    parser.add_argument("--vocoder", choices=vocoders, help=vocoder_help)
    add_fields(parser, SynthesisConfig, "sigma_infer", "denoising_strength")


def vocoder_flags(specs: Specs) -> list[str]:
    """List the flags of the vocoder models."""
    return [spec.flag for spec in specs if spec.role == "vocoder"]


def vocoder_names(specs: Specs) -> list[str]:
    """List all vocoders: the flags of the models, and Griffin-Lim."""
    return [*vocoder_flags(specs), GRIFFIN_LIM]


def speaking_options(
    options: type[Speaking], parser: argparse.ArgumentParser, argv: list[str], specs: Specs
) -> Speaking:
    """Parse a command line with the flags of `add_speaking_arguments` into the command's options.

    Raises UsageError for values out of range.
    """
    args = parser.parse_args(argv)
    config = synthesis_config(args, given_options(parser, argv), specs)
    parts = {"named": _named(args, specs), "config": config, "flags": own_flags(args, specs)}
    return from_options(options, vars(args) | parts)


def synthesis_config(args: argparse.Namespace, given_flags: Options, specs: Specs) -> SynthesisConfig:
    """Build the config of parsed flags; `given_flags` are those on the command line. Raises UsageError as the config does."""
    options = {name: value for name, value in given_flags.items() if name in model_options(specs)}
    values = vars(args) | {"options": options}
    if args.voice and args.vocoder is None and not any(flag in _named(args, specs) for flag in vocoder_flags(specs)):
        values["vocoder"] = default_vocoder(args.voice, specs)
    return from_options(SynthesisConfig, values)


def named_checkpoints(args: argparse.Namespace, specs: Specs) -> dict[str, Path]:
    """Return the checkpoints that flags name, including those in the folder of --voice, by the flags of the models."""
    return SpeakingOptions(voice=args.voice, named=_named(args, specs)).checkpoints(specs)


def _named(args: argparse.Namespace, specs: Specs) -> dict[str, Path]:
    return {spec.flag: path for spec in specs if (path := getattr(args, spec.flag))}


def own_flags(args: argparse.Namespace, specs: Specs) -> dict[str, Any]:
    """Return the flags that no checkpoint stores: a command's own."""
    return {name: value for name, value in vars(args).items() if name not in model_options(specs)}
