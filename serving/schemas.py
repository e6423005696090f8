"""The JSON of requests as pydantic models: OpenAI's fields and this server's own."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field

from common.arguments import LARGEST_SEED
from serving.encoding import FASTEST, SLOWEST
from serving.stream import LARGEST_SIGMA, LARGEST_STRENGTH, SpeechRequest

Format = Literal["wav", "mp3", "opus", "aac", "flac", "pcm"]
StreamFormat = Literal["audio", "sse"]
Rate = Literal[8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
Sigma = Annotated[float, Field(ge=0, le=LARGEST_SIGMA)]
Strength = Annotated[float, Field(ge=0, le=LARGEST_STRENGTH)]


class VoiceId(BaseModel):
    """OpenAI's other form of a voice."""

    id: str


class Options(BaseModel):
    """Settings shared by requests, batches and WebSockets."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)  # OpenAI's API grows

    model: Annotated[
        str | None, Field(description="an id from /v1/models or one of OpenAI's; all give the same speech")
    ] = None
    voice: Annotated[str | VoiceId | None, Field(description="an id from /v1/voices; default: the server's")] = None
    response_format: Annotated[Format, Field(description="format of the audio")] = "mp3"
    speed: Annotated[
        float, Field(ge=SLOWEST, le=FASTEST, description="speed of the speech; the pitch stays the same")
    ] = 1.0
    sample_rate: Annotated[
        Rate | None, Field(description="sampling rate of the file in Hz; default: the voice's own")
    ] = None
    seed: Annotated[Seed | None, Field(description="random seed: same seed, same audio; default: drawn")] = None
    sigma: Annotated[Sigma | None, Field(description="standard deviation of a vocoder model's noise")] = None
    denoising_strength: Annotated[Strength | None, Field(description="how much of a vocoder's own hum to subtract")] = (
        None
    )
    vocoder: Annotated[str | None, Field(description="one of the voice's vocoders; default: its first")] = None

    def request(self, text: str, number: int = 0) -> SpeechRequest:
        """Make the engine's request for a text."""
        return SpeechRequest(
            text=text,
            voice=self.voice.id if isinstance(self.voice, VoiceId) else self.voice,
            vocoder=self.vocoder,
            seed=self.seed,
            number=number,
            sigma=self.sigma,
            denoising_strength=self.denoising_strength,
        )


class SpeechBody(Options):
    """The body of POST /v1/audio/speech."""

    input: Annotated[str, Field(description="the text to speak")]
    stream_format: Annotated[StreamFormat, Field(description="a file, or events with base64 in JSON")] = "audio"


class CaptionBody(Options):
    """The body of POST /v1/audio/speech/timestamps, and of Kokoro-FastAPI's /dev/captioned_speech."""

    input: Annotated[str, Field(description="the text to speak")]
    stream: Annotated[bool, Field(description="a line of JSON for each part of the audio, or one for all of it")] = True
    return_timestamps: Annotated[bool, Field(description="list the words and their times")] = True


class BatchBody(Options):
    """The body of POST /v1/audio/speech/batch."""

    # Fail at the first error: a body of half a million numbers would otherwise have as many.
    input: Annotated[
        list[str], FailFast(), Field(min_length=1, description="the texts to speak, each into a file of its own")
    ]


class SocketMessage(Options):
    """A message of the WebSocket. Only the first message's settings count."""

    response_format: Literal["pcm"] = "pcm"
    type: Literal["start", "text", "end", "cancel"]
    text: str = ""


class ErrorObject(BaseModel):
    """OpenAI's fields of an error."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: Annotated[str | None, Field(description="the field of the request that is wrong")]
    code: Annotated[str | None, Field(description="a name for programs")]


class ErrorBody(BaseModel):
    """The body of an answer with an error."""

    error: ErrorObject
