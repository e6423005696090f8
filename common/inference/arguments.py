"""Flags of the commands that synthesise speech, and the options they become. `specs` are the models of the registry."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from common.arguments import actions_of, add_audio_arguments, add_retired_arguments, given_options
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
        "voice folder with FLAG.safetensors for each model, as `python -m studio.train` writes it; checkpoints given by flag "
        "replace those in the folder",
        metavar="DIR",
    )
    cpu: bool = option(False, "run on the CPU even if there is a GPU")
    named: dict[str, Path] = field(default_factory=dict)  # checkpoints given by flag, by the flags of their models
    config: SynthesisConfig = field(default_factory=SynthesisConfig)
    flags: dict[str, Any] = field(default_factory=dict)  # all flags that no checkpoint stores, for the log

    def checkpoints(self, specs: Specs) -> dict[str, Path]:
        """Return the checkpoints that were named, by flag or by --voice, by the flags of their models."""
        return named_checkpoints({"voice": self.voice, **self.named}, specs)


def add_speaking_arguments(parser: argparse.ArgumentParser, specs: Specs, **defaults: Any) -> None:
    """Add the flags that choose the models and set how they decode, including those of the models and of audio.

    `defaults` replace those of SynthesisConfig.
    """
    add = parser.add_argument
    add_voice_argument(parser)
    for spec in specs:
        newest = f"{TRAINED}/checkpoint_{spec.name}_last.pt"
        default = f"(default: {newest}, or the embedded voice)"
        add(f"--{spec.flag}", type=Path, metavar="CHECKPOINT", help=f"{spec.role} model {default}")
    vocoder = f"vocoder; {GRIFFIN_LIM} needs no model (default: the one with a checkpoint, otherwise {GRIFFIN_LIM})"
    add("--vocoder", choices=[*vocoder_flags(specs), GRIFFIN_LIM], help=vocoder)
    add_vocoding_arguments(parser)
    add_fields(parser, SynthesisConfig, "seed", **defaults)
    precision = parser.add_mutually_exclusive_group()
    add_fields(precision, SynthesisConfig, "half")
    add_fields(precision, SpeakingOptions, "cpu")
    add_fields(parser, SynthesisConfig, "int8", "plain")
    add_audio_arguments(parser)
    for spec in specs:
        spec.add_arguments(parser)
    add_retired_arguments(parser, RETIRED)


def add_voice_argument(parser: argparse.ArgumentParser) -> None:
    """Add --voice."""
    add_fields(parser, SpeakingOptions, "voice")


def add_vocoding_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of the step from mels to audio."""
    add_fields(parser, SynthesisConfig, "sigma_infer", "denoising_strength")


def vocoder_flags(specs: Specs) -> list[str]:
    """List the flags of the vocoder models."""
    return [spec.flag for spec in specs if spec.role == "vocoder"]


def speaking_options(
    options: type[Speaking], parser: argparse.ArgumentParser, argv: list[str], specs: Specs, **more: Any
) -> Speaking:
    """Parse a command line with the flags of `add_speaking_arguments` into the command's options; `more` are further fields.

    Raises UsageError for values out of range.
    """
    values = vars(parser.parse_args(argv))
    named = {spec.flag: path for spec in specs if (path := values[spec.flag])}
    config = synthesis_config(values, given_options(parser, argv), specs)
    parts = {"named": named, "config": config, "flags": own_flags(values, specs)}
    return from_options(options, values | parts | more)


def synthesis_config(values: Options, given_flags: Options, specs: Specs) -> SynthesisConfig:
    """Build the config of parsed flags; `given_flags` are those on the command line. Raises UsageError as the config does."""
    of_models = {name: value for name, value in given_flags.items() if name in model_options(specs)}
    more: dict[str, Any] = {"options": of_models}
    if values["voice"] and values["vocoder"] is None and not any(values[flag] for flag in vocoder_flags(specs)):
        more["vocoder"] = default_vocoder(values["voice"], specs)
    return from_options(SynthesisConfig, {**values, **more})


def named_checkpoints(values: Options, specs: Specs) -> dict[str, Path]:
    """Return the checkpoints that parsed flags name, including those in the folder of --voice, by the flags of their models."""
    in_folder = read_voice_folder(values["voice"], specs) if values["voice"] else {}
    return in_folder | {spec.flag: path for spec in specs if (path := values.get(spec.flag))}


def own_flags(values: Options, specs: Specs) -> dict[str, Any]:
    """Return the parsed flags that no checkpoint stores: a command's own."""
    names = {"half": "fp16"}  # the log has the flag's name
    return {names.get(name, name): value for name, value in values.items() if name not in model_options(specs)}


def model_options(specs: Specs) -> set[str]:
    """Return the names of the flags of audio and of the models."""
    adders = [add_audio_arguments, *(spec.add_arguments for spec in specs)]
    return {action.dest for add in adders for action in actions_of(add)}
