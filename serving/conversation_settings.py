"""Options of a conversation, and their flags."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from common.errors import UsageError
from common.quality.recogniser import SIZES

KNOWLEDGE = Path(__file__).with_name("knowledge.txt")
INSTRUCTIONS = (
    "Your answers are spoken. Give one to three short sentences of plain English, without lists, links or markup."
)
KEY_VARIABLE = "CHAT_API_KEY"


@dataclass(frozen=True, kw_only=True)
class ConversationConfig:
    """Options of a conversation. Raises UsageError that names the flags of every problem."""

    knowledge: Path = KNOWLEDGE
    chat_url: str | None = None  # None: answers come from `knowledge`
    chat_model: str | None = None
    chat_instructions: str = INSTRUCTIONS
    chat_timeout: float = 60.0  # seconds without a word of the endpoint
    remembered_turns: int = 10  # latest turns that an answer may refer to
    recogniser: str = "tiny"
    recogniser_dir: Path | None = None  # None: the weights that come with the package

    def __post_init__(self) -> None:
        problems = []
        if (self.chat_url is None) != (self.chat_model is None):
            problems.append("--chat-url and --chat-model: one is missing, expected both or none")
        if self.chat_url is not None and not self.chat_url.startswith(("http://", "https://")):
            problems.append(f"--chat-url: {self.chat_url!r}, expected http://… or https://…")
        if not 0 < self.chat_timeout < float("inf"):
            problems.append(f"--chat-timeout: {self.chat_timeout}, expected more than 0 seconds")
        if self.remembered_turns < 0:
            problems.append(f"--remembered-turns: {self.remembered_turns}, expected 0 or more")
        if self.recogniser != "tiny" and self.recogniser_dir is None:
            problems.append(f"--recogniser {self.recogniser}: its weights are not in the package; add --recogniser-dir")
        if problems:
            raise UsageError("\n".join(problems))


def add_conversation_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ConversationConfig."""
    default = ConversationConfig()
    purpose = "of python -m serving.conversation, and of the page's tab of this name"
    add = parser.add_argument_group("conversation", purpose).add_argument
    add("--knowledge", type=Path, default=default.knowledge, help="text file with one `question|answer` a line")
    endpoint = "answers come from this OpenAI-compatible endpoint instead, such as http://127.0.0.1:11434/v1"
    add("--chat-url", metavar="URL", help=f"{endpoint}; its key, if it needs one, is in the variable {KEY_VARIABLE}")
    add("--chat-model", metavar="NAME", help="name of the endpoint's model")
    add("--chat-instructions", default=default.chat_instructions, help="system message for the model")
    add("--chat-timeout", type=float, default=default.chat_timeout, help="seconds that the endpoint may stay silent")
    latest = "latest questions and answers that an answer may refer to"
    add("--remembered-turns", type=int, default=default.remembered_turns, metavar="N", help=latest)
    add("--recogniser", choices=SIZES, default=default.recogniser, help="size of the speech recogniser")
    folder = "folder with encoder_model and decoder_model_merged of the recogniser"
    add("--recogniser-dir", type=Path, help=f"{folder} (default: the tiny one's package)")


def conversation_config(args: Mapping[str, Any]) -> ConversationConfig:
    """Build the config of parsed flags, by their names. Raises UsageError as the config does."""
    return ConversationConfig(**{field.name: args[field.name] for field in fields(ConversationConfig)})
