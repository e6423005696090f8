"""Settings of the server: names, defaults and allowed values."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from common.errors import UsageError
from common.inference.config import problems_below_zero
from common.web.sockets import LARGEST_PORT
from serving.conversation_settings import ConversationConfig

API_KEY_VARIABLE = "TTS_API_KEY"  # of the environment, where --api-key is not given


@dataclass(frozen=True, kw_only=True)
class ServingConfig:
    """Settings of a server. Raises UsageError that names the flag of every value out of range."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: a free one
    voices: Path | None = None  # a folder; each subfolder is a voice
    embedded: bool = True  # serve the voice that comes with the code
    default_voice: str | None = None  # None: the embedded voice, or else the first one by name
    vocoder: str | None = None  # of requests that name none; None: each voice's own default
    seed: int | None = None  # of requests that name none; None: one is drawn for each
    cpu: bool = False
    half: bool = False
    int8: bool = False
    plain: bool = False
    batching: bool = True  # compute the mels of waiting requests as one batch
    max_batch: int = 16  # requests that are computed at once
    max_queue: int = 64  # requests that wait for their turn or are computed
    timeout: float = 60.0  # seconds from the arrival of a request to the last part of its audio
    max_characters: int = 4096  # of a text, as OpenAI's
    max_body: int = 2**20  # bytes of a request's body
    max_inputs: int = 32  # texts of a batch request
    max_sockets: int = 64  # WebSockets that are open at once
    idle_timeout: float = 60.0  # seconds in which a client reads nothing, or a WebSocket has no message and no audio
    grace: float = 30.0  # seconds for requests in progress when the server stops
    api_key: str | None = None
    cors_origins: tuple[str, ...] = ()
    log_texts: bool = False
    page: bool = True  # mount the page where its packages are installed
    conversation: ConversationConfig = field(default_factory=ConversationConfig)  # of the page
    wyoming_port: int | None = None  # of the Wyoming protocol; None: off

    def __post_init__(self) -> None:
        problems = problems_below_zero({"grace": self.grace})
        for name in ("port", "wyoming_port"):
            if (port := getattr(self, name)) is not None and not 0 <= port <= LARGEST_PORT:
                problems.append(f"--{name.replace('_', '-')}: {port}, expected 0 to {LARGEST_PORT}")
        for name in ("max_batch", "max_queue", "max_characters", "max_body", "max_inputs", "max_sockets"):
            if (value := getattr(self, name)) < 1:
                problems.append(f"--{name.replace('_', '-')}: {value}, expected at least 1")
        for name in ("timeout", "idle_timeout"):
            if not 0 < (seconds := getattr(self, name)) < float("inf"):
                problems.append(f"--{name.replace('_', '-')}: {seconds}, expected more than 0 seconds")
        if self.api_key is not None and not self.api_key.strip():
            problems.append("--api-key: empty, expected a key, or leave it out")
        if self.voices is None and not self.embedded:
            problems.append("--no-embedded: no voice is left, expected --voices DIR with it")
        if problems:
            raise UsageError("\n".join(problems))
