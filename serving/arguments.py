"""Serve voices over HTTP: python -m serving [--voices DIR]. docs/serving.md describes the interface.

Without --voices, the server has the embedded voice. It answers on --host and --port until SIGTERM or Ctrl-C, then finishes the
requests it has accepted. Each flag may also be a variable of the environment, such as TTS_PORT=8000 for --port, TTS_FP16=true or
TTS_PAGE=false; the command line comes first.
"""

from __future__ import annotations

import argparse
import os

from common.arguments import environment_argv, given_options
from common.inference.config import SynthesisConfig
from common.options import add_fields, from_options
from common.parser import Parser
from serving.config import API_KEY_VARIABLE, ServingConfig
from serving.logs import PREFIX

ADDRESS = ("host", "port", "wyoming_port", "root_path", "page")
VOICES = (
    *("voices", "embedded", "default_voice", "vocoder", "seed", "speed", "volume", "sentence_pause", "pcm_rate"),
    *("cpu", "fp16"),
)
LIMITS = (
    *("batching", "max_batch", "max_queue", "timeout", "max_characters", "max_body", "max_inputs", "max_sockets"),
    *("idle_timeout", "grace"),
)
LISTS = ("cors_origin", "allowed_host", "wyoming_client")
ACCESS = ("api_key", *LISTS, "log_format", "log_texts")


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all flags."""
    parser = Parser(prog="python -m serving", usage="%(prog)s [flags]  (-h lists all flags)", description=__doc__)
    add_fields(parser.add_argument_group("address"), ServingConfig, *ADDRESS)
    voices = parser.add_argument_group("voices")
    add_fields(voices, ServingConfig, *VOICES)
    add_fields(voices, SynthesisConfig, "int8", "plain", "lexicon")
    add_fields(parser.add_argument_group("load and limits"), ServingConfig, *LIMITS)
    add_fields(parser.add_argument_group("access and log"), ServingConfig, *ACCESS, **{name: [] for name in LISTS})
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
