"""The JSON of requests as pydantic models: OpenAI's fields and this server's own."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from common.arguments import LARGEST_SEED
from serving.config import FASTEST, LOUDEST, SLOWEST, Rate, ServingConfig
from serving.encoding import AudioEncoder
from serving.stream import SpeechRequest

Format = Literal["wav", "mp3", "opus", "aac", "flac", "pcm", "g711_ulaw", "g711_alaw"]
StreamFormat = Literal["audio", "sse"]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
UpTo10 = Annotated[float, Field(ge=0, le=10)]
LENGTH_IN_HEADER = frozenset({"wav", "flac"})  # formats whose readers trust the length that a header states
OF_THE_ENGINE = {field.name for field in fields(SpeechRequest)}
CASELESS = ("model", "response_format", "second_format", "stream_format", "vocoder")


def as_number(value: Any) -> Any:
    """Return the number that a form or a query has as text."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value


class Options(BaseModel):
    """Settings shared by requests and batches."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)  # OpenAI's API grows

    model: Annotated[
        str | None, Field(description="any name, such as those of /v1/models; all give the same speech")
    ] = None
    voice: Annotated[
        str | None,
        Field(description="an id from /v1/voices, also as an object with the field id; default: the server's"),
    ] = None
    response_format: Annotated[Format, Field(description="format of the audio")] = "mp3"
    speed: Annotated[
        float | None,
        Field(
            ge=SLOWEST,
            le=FASTEST,
            description="speed of the speech at the same pitch; default: the server's, usually 1",
        ),
    ] = None
    volume: Annotated[
        float | None, Field(ge=0, le=LOUDEST, description="factor for the samples; default: the server's, usually 1")
    ] = None
    sample_rate: Annotated[
        Rate | None,
        BeforeValidator(as_number),
        Field(
            description="sampling rate of the file in Hz; default: 24,000 for pcm over HTTP (or the server's), the voice's own "
            "for others; opus always has 48,000, g711 8,000"
        ),
    ] = None
    seed: Annotated[Seed | None, Field(description="random seed: same seed, same audio; default: drawn")] = None
    sigma: Annotated[UpTo10 | None, Field(description="standard deviation of a vocoder model's noise")] = None
    denoising_strength: Annotated[UpTo10 | None, Field(description="how much of a vocoder's own hum to subtract")] = (
        None
    )
    vocoder: Annotated[str | None, Field(description="one of the voice's vocoders; default: its first")] = None

    @model_validator(mode="before")
    @classmethod
    def take_defaults(cls, values: Any) -> Any:
        """Read null and "" as the default, {"id": NAME} as a voice, and names of models and formats in any case."""
        if not isinstance(values, dict):
            return values
        kept = {name: value for name, value in values.items() if name == "input" or value not in (None, "")}
        if isinstance(voice := kept.get("voice"), dict) and "id" in voice:
            kept["voice"] = voice["id"]
        return kept | {name: kept[name].lower() for name in CASELESS if isinstance(kept.get(name), str)}

    def encoder(self, rate: int, config: ServingConfig, whole: bool, kind: Format | None = None) -> AudioEncoder:
        """Make the encoder for audio of a rate, in Hz, of a file that is sent whole or in parts; `kind`: another format."""
        kind = kind or self.response_format
        output_rate = self.sample_rate or (config.pcm_rate if kind == "pcm" else None)
        speed = config.speed if self.speed is None else self.speed
        volume = config.volume if self.volume is None else self.volume
        return AudioEncoder(kind, rate, speed, output_rate, volume=volume, whole=whole)

    def request(self, text: str) -> SpeechRequest:
        """Make the engine's request for a text."""
        return SpeechRequest(text=text, **self.model_dump(include=OF_THE_ENGINE))


class SpeechBody(Options):
    """The body of POST /v1/audio/speech."""

    input: Annotated[str, Field(description="the text to speak")]
    stream_format: Annotated[StreamFormat, Field(description="a file, or events with base64 in JSON")] = "audio"
    stream: Annotated[
        bool | None,
        Field(
            description="true: send the file while it is computed; false: send it whole, with its length; default: false for wav "
            "and flac, true for other formats and for events"
        ),
    ] = None

    @property
    def is_whole(self) -> bool:
        """True if the file is sent when it is complete."""
        streams = self.response_format not in LENGTH_IN_HEADER if self.stream is None else self.stream
        return self.stream_format == "audio" and not streams


class SpeechQuery(SpeechBody):
    """The query of GET /v1/audio/speech."""

    input: Annotated[str, Field(validation_alias=AliasChoices("text", "input"), description="the text to speak")]


class CaptionBody(Options):
    """The body of POST /v1/audio/speech/timestamps, and of Kokoro-FastAPI's /dev/captioned_speech."""

    input: Annotated[str, Field(description="the text to speak")]
    stream: Annotated[bool, Field(description="a line of JSON for each part of the audio, or one for all of it")] = True
    return_timestamps: Annotated[bool, Field(description="list the words and their times")] = True
    second_format: Annotated[Format | None, Field(description="also send the file in this format, as `second`")] = None
    details: Annotated[bool, Field(description="end with a line of details: the mel and the alignment as pictures")] = (
        False
    )


class BatchBody(Options):
    """The body of POST /v1/audio/speech/batch."""

    # Fail at the first error: a body of half a million numbers would otherwise have as many.
    input: Annotated[
        list[str], FailFast(), Field(min_length=1, description="the texts to speak, each into a file of its own")
    ]


class ErrorObject(BaseModel):
    """OpenAI's fields of an error."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: Annotated[str | None, Field(description="the field of the request that is wrong")]
    code: Annotated[str | None, Field(description="a name for programs")]


class ErrorBody(BaseModel):
    """The body of an answer with an error."""

    error: ErrorObject
