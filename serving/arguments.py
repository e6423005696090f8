"""Serve voices over HTTP: python -m serving [--voices DIR]. docs/serving.md describes the interface.

Without --voices, the server has the embedded voice. It answers on --host and --port until SIGTERM or Ctrl-C; then it finishes the
accepted requests.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import fields
from pathlib import Path

from common.arguments import HelpFormatter, add_plain_argument, add_preparation_arguments, positive, seed
from common.inference.arguments import vocoder_flags
from common.inference.config import GRIFFIN_LIM
from common.parser import Parser
from models import REGISTRY
from serving.config import API_KEY_VARIABLE, ServingConfig
from serving.config import ServingConfig as D
from serving.conversation_settings import add_conversation_arguments, conversation_config


def make_parser() -> argparse.ArgumentParser:
    """Build the parser of all flags."""
    parser = Parser(prog="python -m serving", description=__doc__, formatter_class=HelpFormatter, allow_abbrev=False)
    add_address_arguments(parser.add_argument_group("address"))
    add_voice_arguments(parser.add_argument_group("voices"))
    add_limit_arguments(parser.add_argument_group("load and limits"))
    add_access_arguments(parser.add_argument_group("access and log"))
    add_conversation_arguments(parser)
    return parser


def add_address_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the places where the server listens."""
    add = group.add_argument
    add("--host", default=D.host, help="address to listen on; 0.0.0.0: every one of this machine")
    add("--port", type=int, default=D.port, help="port to listen on; 0: a free one, which the log names")
    add("--wyoming-port", type=int, default=D.wyoming_port, help="also speak Home Assistant's protocol on this port")
    add("--page", action=argparse.BooleanOptionalAction, default=D.page, help="show a page at /, if it is installed")


def add_voice_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags that choose voices and set how they compute."""
    add = group.add_argument
    voices = "folder with a subfolder of checkpoints for each voice, or the folder of one voice"
    add("--voices", type=Path, metavar="DIR", default=D.voices, help=voices)
    embedded = "serve the voice that comes with the code"
    add("--embedded", action=argparse.BooleanOptionalAction, default=D.embedded, help=embedded)
    default_voice = "voice of requests that name none (default: embedded, or else the first one by name)"
    add("--default-voice", metavar="NAME", default=D.default_voice, help=default_voice)
    vocoders = [*vocoder_flags(REGISTRY.values()), GRIFFIN_LIM]
    vocoder = "vocoder of requests that name none, for voices that have it (default: the voice's own)"
    add("--vocoder", choices=vocoders, default=D.vocoder, help=vocoder)
    numbers = "seed of requests that name none (default: drawn for each, and returned in the header X-Seed)"
    add("--seed", type=seed, default=D.seed, help=numbers)
    add("--cpu", action="store_true", help="stay on the CPU even where there is a GPU")
    half = "half precision: float16 on a GPU, bfloat16 on a CPU that has it"
    add("--fp16", dest="half", action="store_true", help=half)
    add_preparation_arguments(group)
    add_plain_argument(group)


def add_limit_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of batches, queues and limits."""
    add = group.add_argument
    batching = "compute waiting requests together; a request's audio does not change"
    add("--batching", action=argparse.BooleanOptionalAction, default=D.batching, help=batching)
    add("--max-batch", type=positive, default=D.max_batch, help="requests that are computed at once")
    queue = "requests that wait or are computed; the next one is answered with 503 and Retry-After"
    add("--max-queue", type=positive, default=D.max_queue, help=queue)
    timeout = "seconds from a request to the end of its audio; then 504, or the end of an answer that has begun"
    add("--timeout", type=float, default=D.timeout, help=timeout)
    characters = "of a text; longer ones are answered with 400"
    add("--max-characters", type=positive, default=D.max_characters, help=characters)
    add("--max-body", type=positive, default=D.max_body, help="bytes of a request; larger ones are answered with 413")
    add("--max-inputs", type=positive, default=D.max_inputs, help="texts of a batch request")
    sockets = "WebSockets that are open at once; the next one is closed with code 1013"
    add("--max-sockets", type=positive, default=D.max_sockets, help=sockets)
    idle = "seconds for which a client may read nothing, or a WebSocket be open without a message or audio, before it is cut off"
    add("--idle-timeout", type=float, default=D.idle_timeout, help=idle)
    grace = "seconds for accepted requests after SIGTERM or Ctrl-C"
    add("--grace", type=float, default=D.grace, help=grace)


def add_access_arguments(group: argparse._ArgumentGroup) -> None:
    """Add the flags of the key, of other origins, and of the log."""
    add = group.add_argument
    key = f"key that requests must have; other users of this machine can read flags, so rather set {API_KEY_VARIABLE}"
    add("--api-key", metavar="KEY", default=D.api_key, help=key)
    example = "such as https://example.org; repeat it for several (default: none)"
    origin = f"origin whose pages may call this server, {example}"
    add("--cors-origin", dest="cors_origins", action="append", default=[], metavar="ORIGIN", help=origin)
    add("--log-texts", action=argparse.BooleanOptionalAction, default=D.log_texts, help="write texts to the log")


def parse_args(argv: list[str]) -> ServingConfig:
    """Parse all flags. Raises UsageError for values out of range."""
    args = vars(make_parser().parse_args(argv))
    if args["api_key"] is None:
        args["api_key"] = os.environ.get(API_KEY_VARIABLE)
    if args["api_key"] is not None:
        args["api_key"] = args["api_key"].strip()  # a file's last line break; no header has spaces around its value
    args["cors_origins"] = tuple(args["cors_origins"])
    args["conversation"] = conversation_config(args)
    return ServingConfig(**{field.name: args[field.name] for field in fields(ServingConfig)})
