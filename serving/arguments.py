"""Serve voices over HTTP: python -m serving [--voices DIR]. docs/serving.md describes the interface.

Without --voices, the server has the embedded voice. It answers on --host and --port until SIGTERM or Ctrl-C, then finishes the
requests it has accepted. Each flag may also be a variable of the environment, such as TTS_PORT=8000 for --port, TTS_FP16=true or
TTS_PAGE=false; the command line comes first.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields

from common.arguments import environment_argv, given_options
from common.inference.config import SynthesisConfig
from common.options import add_fields, from_options
from common.parser import Parser
from serving.config import API_KEY_VARIABLE, ServingConfig
from serving.logs import PREFIX

GROUPS = {
    "host": "address",
    "voices": "voices",
    "batching": "load and limits",
    "api_key": "access and log",
}  # by first option
LISTS = ("cors_origin", "allowed_host", "wyoming_client")


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all flags."""
    parser = Parser(prog="python -m serving", usage="%(prog)s [flags]  (-h lists all flags)", description=__doc__)
    group: argparse._ArgumentGroup
    for field in fields(ServingConfig):
        if field.name in GROUPS:
            group = parser.add_argument_group(GROUPS[field.name])
        owner = ServingConfig if field.metadata else SynthesisConfig
        add_fields(group, owner, field.name, **{name: [] for name in LISTS})
    return parser


def parse_args(argv: list[str]) -> ServingConfig:
    """Parse all flags, and the variables of the environment. Raises UsageError for values out of range."""
    parser = make_parser()
    given = given_options(parser, argv)  # first, for --help and mistakes
    options = vars(parser.parse_args([*environment_argv(parser, PREFIX, os.environ, given), *argv]))
    key = os.environ.get(API_KEY_VARIABLE) if options["api_key"] is None else options["api_key"]
    # A file's last line break is not part of the key; no header has spaces around its value.
    options |= {"api_key": key.strip() if key is not None else None, **{name: tuple(options[name]) for name in LISTS}}
    return from_options(ServingConfig, options)
