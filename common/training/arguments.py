"""train.py's command line: the flags of every model, then the model's own."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from common.arguments import actions_of, add_audio_arguments, add_retired_arguments, config_file_argv, given_options
from common.errors import UsageError
from common.options import add_fields, from_options, problems_of
from common.parser import Parser
from common.spec import ModelSpec, TrainingDefaults
from common.training.fine_tuning import adopt_settings
from common.training.options import TrainOptions, wrong_pairs

# Flags that the published recipe parses and ignores, or that PyTorch's launcher replaces.
RETIRED = (
    *("--text-cleaners", "--use-saved-learning-rate", "--grad-clip", "--dynamic-loss-scaling", "--dist-url"),
    *("--dist-backend", "--group-name", "--rank", "--world-size", "--local_rank", "--local-rank"),
)
# Groups of a --config-file that are not for train.py: what the studio's plan.json says to studio.train, and to people.
STUDIO, NOTES = "studio", "notes"
# Options whose defaults differ by model.
BY_MODEL = [field.name for field in fields(TrainingDefaults) if field.name != "batch_size_amp"]


def add_training_arguments(parser: argparse.ArgumentParser, defaults: TrainingDefaults) -> None:
    """Add the flags that all models share, with the defaults of one of them."""
    _add_shared(parser, {"": defaults})


def _add_shared(parser: argparse.ArgumentParser, by_model: Mapping[str, TrainingDefaults]) -> None:
    """Add the flags that all models share, with a model's defaults; of several models, by name, the help lists them."""
    only = next(iter(by_model.values())) if len(by_model) == 1 else None
    values = {name: getattr(only, name, None) for name in BY_MODEL}
    late = {"batch_size": None, "anneal_factor": None}  # make_options fills them in
    add_fields(parser, TrainOptions, **values | late | {"anneal_steps": list(values["anneal_steps"] or [])})
    add_audio_arguments(parser)
    for action in parser._actions:
        if action.dest in BY_MODEL and (only is None or action.default is None):
            shown = [f"{_show(action.dest, one)} for {name}".removesuffix(" for ") for name, one in by_model.items()]
            action.help = f"{action.help} (default: {'; '.join(shown)})"


def _show(name: str, defaults: TrainingDefaults) -> str:
    if name == "batch_size":
        return f"{defaults.batch_size_amp} with --amp, else {defaults.batch_size}"
    value = getattr(defaults, name)
    if isinstance(value, tuple):
        return " ".join(map(str, value)) or "none"
    return "off" if value is None else str(value)


def parse_training_arguments(
    argv: list[str], registry: dict[str, ModelSpec], description: str
) -> tuple[TrainOptions, ModelSpec]:
    """Parse train.py's command line. -m is read first, since the other flags and their defaults depend on the model."""
    first = Parser(prog="train.py", description=description, add_help=False)
    first.add_argument("-m", "--model-name", choices=list(registry), help="model to train; with -h, its flags")
    name = first.parse_known_args(argv)[0].model_name
    if name is None:
        if {"-h", "--help"} & set(argv):
            _help_without_model(first, registry)
        first.error(f"the following arguments are required: -m/--model-name, one of {', '.join(registry)}")
    spec = registry[name]
    parser = model_parser(spec, first)
    args = parser.parse_args(argv)
    if args.config_file:
        argv = config_file_argv(args.config_file, parser, {*registry, STUDIO, NOTES} - {name}) + argv
        args = parser.parse_args(argv)
    options = make_options(vars(args), spec.training)
    if options.start.warm_start:
        given = given_options(parser, argv)
        actions = {action.dest: action for action in actions_of(spec.add_arguments, add_audio_arguments)}
        settings = adopt_settings(options, given, spec, actions)
        options = replace(options, model=settings)
    return options, spec


def model_parser(spec: ModelSpec, first: Parser) -> Parser:
    """Build the parser of train.py -m MODEL; `first` has the flags that come before the model's."""
    parser = Parser(
        prog="train.py",
        usage=f"%(prog)s -m {spec.name} [flags]  (-h lists them)",  # a list of all flags would hide the message
        description=first.description,
        parents=[first],
    )
    add_training_arguments(parser, spec.training)
    spec.add_training_arguments(parser)
    spec.add_arguments(parser)
    add_retired_arguments(parser, RETIRED)
    return parser


def _help_without_model(first: Parser, registry: dict[str, ModelSpec]) -> None:
    """Print the flags of every model, and exit."""
    parser = Parser(
        prog="train.py",
        usage="%(prog)s -m MODEL [flags]",
        description=first.description,
        epilog=f"train.py -m MODEL -h adds the flags of a model: {', '.join(registry)}.",
        parents=[first],
    )
    _add_shared(parser, {name: spec.training for name, spec in registry.items()})
    parser.print_help()
    parser.exit()


def make_options(values: dict[str, Any], defaults: TrainingDefaults) -> TrainOptions:
    """Build the options of parsed flags. Raises one UsageError for all values that cannot work."""
    if values["batch_size"] is None:
        values["batch_size"] = defaults.usual_batch(values["amp"])
    if values["anneal_factor"] is None:
        values["anneal_factor"] = 0.3 if values["amp"] else 0.1
    options = from_options(TrainOptions, values)
    options = replace(options, model={name: value for name, value in values.items() if name not in options.flat})
    if wrong := [*problems_of(options), *wrong_pairs(options)]:
        raise UsageError("\n".join(wrong))
    return options
