"""Audio as bytes of a file format, part by part, optionally at another speed or sampling rate.

FFmpeg's libraries encode and filter, through PyAV. At the original speed and rate, wav, pcm and flac have exactly the samples of
`common.audio.audio_processing.to_pcm`.
"""

from __future__ import annotations

import io
from typing import NamedTuple

import av
import numpy as np
import torch
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from torch import Tensor

from common.audio.audio_processing import to_pcm
from common.audio.tempo import Filter, make_frame

# n samples of a part

BIT_RATE = 64_000  # bits per second of lossy formats
OGG_PAGE = 100_000  # microseconds; FFmpeg's default of one second would delay the first sound
# Sizes in a wav header while the length is unknown, FFmpeg's and what every reader, sox too, takes for "to the end".
WAV_HEADER, UNKNOWN_SIZE, STREAMED_SIZE = 44, b"\xff\xff\xff\xff", (0x7FFFF000).to_bytes(4, "little")


class Codec(NamedTuple):
    """A format of the API: its media type, and FFmpeg's names of container and encoder."""

    media_type: str
    container: str
    encoder: str
    rate: int | None = None  # Hz; None: the audio's
    options: tuple[tuple[str, str], ...] = ()  # of the container
    ending: str = ""  # of the file's name, if it is not that of the format


CODECS = {
    "wav": Codec("audio/wav", "wav", "pcm_s16le", options=(("fflags", "bitexact"),)),  # nothing but samples
    "pcm": Codec("audio/pcm", "s16le", "pcm_s16le"),
    "mp3": Codec("audio/mpeg", "mp3", "libmp3lame"),
    "opus": Codec("audio/ogg", "ogg", "libopus", 48_000, (("page_duration", str(OGG_PAGE)),), "ogg"),
    "aac": Codec("audio/aac", "adts", "aac"),
    "flac": Codec("audio/flac", "flac", "flac"),
    "g711_ulaw": Codec("audio/PCMU", "mulaw", "pcm_mulaw", 8000, ending="ulaw"),  # of telephony (RFC 3551)
    "g711_alaw": Codec("audio/PCMA", "alaw", "pcm_alaw", 8000, ending="alaw"),
}


class AudioEncoder:
    """Encodes the audio of one stream: `encode` each part, then `finish`. The bytes together are a file.

    Args:
        name: a format of CODECS.
        rate: of the audio, in Hz.
        speed: SLOWEST to FASTEST; the pitch stays the same.
        output_rate: of the file, in Hz; by default the audio's. Opus always has 48,000 Hz, G.711 8,000 Hz.
        volume: factor for the samples; those beyond full scale are clipped.
        whole: all bytes come from `finish`, and the file states its length.
    """

    def __init__(
        self,
        name: str,
        rate: int,
        speed: float = 1.0,
        output_rate: int | None = None,
        *,
        volume: float = 1.0,
        whole: bool = False,
    ) -> None:
        codec = CODECS[name]
        self.rate, self.ending = codec.rate or output_rate or rate, codec.ending or name
        self.media_type = codec.media_type + (f";rate={self.rate};channels=1" if name == "pcm" else "")
        self.speed, self._volume = speed, volume
        self._input_rate = rate * speed  # samples of input in a second of output
        self._filter = Filter(rate, speed, self.rate) if speed != 1.0 or self.rate != rate else None
        self._file = Container(codec, self.rate, whole)

        self.second: AudioEncoder | None = None  # for the same audio in another format
        self._second_bytes = b""

    def take_second(self) -> bytes:
        """Return the bytes of the second file since the last call."""
        taken, self._second_bytes = self._second_bytes, b""
        return taken

    def seconds(self, audio: Tensor) -> float:
        """Return how long a part (n,) of audio lasts at the file's speed."""
        return len(audio) / self._input_rate

    def encode(self, audio: Tensor) -> bytes:
        """Encode a part (n,) of audio in [-1, 1]; may return no bytes yet. Raises ValueError for non-finite samples."""
        if self.second is not None:
            self._second_bytes += self.second.encode(audio)
        audio = audio.float() * self._volume
        samples = to_pcm(audio)  # without a filter, and to refuse what is not finite
        return self._file.write(samples if self._filter is None else to_pcm(self._filter.process(audio)))

    def finish(self) -> bytes:
        """Return the last bytes."""
        if self.second is not None:
            self._second_bytes += self.second.finish()
        last = torch.zeros(0) if self._filter is None else self._filter.finish()
        return self._file.write(to_pcm(last)) + self._file.finish()


class Container:
    """FFmpeg's encoder and container: 16-bit samples (n,) -> bytes; if `whole`, all at the end, with their number in the header."""

    def __init__(self, codec: Codec, rate: int, whole: bool) -> None:
        self.rate, self.position, self.bytes = rate, 0, Whole() if whole else Sink()
        self.needs_size = codec.container == "wav" and not whole
        self.file = av.open(self.bytes, "w", format=codec.container, options=dict(codec.options))
        stream = self.file.add_stream(codec.encoder, rate=codec.rate or rate, layout="mono")
        assert isinstance(stream, AudioStream)
        self.stream = stream
        if codec.encoder != "flac":
            self.stream.bit_rate = BIT_RATE
        self.stream.codec_context.open()
        self.resampler = AudioResampler(self.stream.codec_context.format, "mono", codec.rate or rate)

    def write(self, samples: np.ndarray) -> bytes:
        """Encode samples; the encoder keeps those that do not fill a frame."""
        if len(samples):
            frame = make_frame(samples, "s16", self.rate, self.position)
            self.position += len(samples)
            self._encode(self.resampler.resample(frame))
        return self._take()

    def finish(self) -> bytes:
        """Return the bytes of the remaining samples and the container's end."""
        self._encode([*self.resampler.resample(None), None])
        self.file.close()
        return self.bytes.getvalue() if isinstance(self.bytes, Whole) else self._take()

    def _take(self) -> bytes:
        data = self.bytes.take()
        if self.needs_size and data:
            self.needs_size = False
            data = data[:WAV_HEADER].replace(UNKNOWN_SIZE, STREAMED_SIZE) + data[WAV_HEADER:]
        return data

    def _encode(self, frames: list[AudioFrame | None] | list[AudioFrame]) -> None:
        for frame in frames:
            self.file.mux(self.stream.encode(frame))


class Sink:
    """A file that cannot seek, so that FFmpeg writes formats that can be streamed."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._bytes += data
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def take(self) -> bytes:
        """Return the bytes since the last call."""
        data = bytes(self._bytes)
        self._bytes.clear()
        return data


class Whole(io.BytesIO):
    """A file in memory, whose header FFmpeg fills in at the end."""

    def take(self) -> bytes:
        """Return nothing before the end."""
        return b""
