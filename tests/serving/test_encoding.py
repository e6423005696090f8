"""Bytes of each format against libsndfile, Python's own reader of wav, and FFmpeg's decoder."""

import io
import math
import re
import shutil
import struct
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from serving.encoding import CODECS, AudioEncoder
from tests.serving.conftest import HEADERLESS, decode

RATE, SECONDS, PITCH = 22050, 2.0, 440.0


def tone(seconds: float = SECONDS) -> Tensor:
    return 0.3 * torch.sin(2 * torch.pi * PITCH * torch.arange(round(seconds * RATE)) / RATE)


def parts(audio: Tensor) -> list[Tensor]:
    return list(audio.split([8000, 1, 15000, len(audio) - 23001]))


def encode(name: str, audio: Tensor, *settings: object) -> bytes:
    encoder = AudioEncoder(name, RATE, *settings)
    return b"".join([*map(encoder.encode, parts(audio)), encoder.finish()])


def pitch(samples: np.ndarray, rate: int) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(np.argmax(spectrum)) * rate / len(samples)


@pytest.mark.parametrize("name", sorted(CODECS))
def test_a_file_in_parts_has_the_tone_at_its_level(name: str) -> None:
    expected = CODECS[name].rate or RATE
    samples, rate = decode(encode(name, tone()), HEADERLESS.get(name), expected)
    assert rate == expected
    assert len(samples) / rate == pytest.approx(SECONDS, abs=0.1)  # lossy encoders pad
    assert pitch(samples, rate) == pytest.approx(PITCH, abs=1)
    middle = samples[len(samples) // 4 : -len(samples) // 4]
    assert np.sqrt(2) * middle.std() == pytest.approx(0.3, rel=0.06)  # LAME scales by 0.95


def test_wav_pcm_and_flac_are_the_samples_of_the_library() -> None:
    audio = torch.cat((torch.randn(30000).clamp(-1, 1), torch.tensor([-1.0, 1.0, 0.0])))
    samples, wav = np.frombuffer(encode("pcm", audio), "<i2"), encode("wav", audio)
    assert abs(samples - audio.double().numpy() * 2**15).max() <= 1 and samples[-3:].tolist() == [
        -(2**15),
        2**15 - 1,
        0,
    ]
    assert wav[44:] == samples.tobytes()
    # format 1 (PCM), channels, samples and bytes a second, bytes of a sample, bits: of Microsoft's RIFF
    assert struct.unpack("<4s4x4s4sIHHIIHH4s4x", wav[:44]) == (
        *(b"RIFF", b"WAVE", b"fmt ", 16),
        *(1, 1, RATE, 2 * RATE, 2, 16, b"data"),
    )
    flac, _ = decode(encode("flac", audio))
    np.testing.assert_array_equal(flac * 32768, samples)


def test_readers_read_a_wav_of_unknown_length_to_its_end(tmp_path: Path) -> None:
    """sox knows this length as that of a pipe, and reads without a warning."""
    path, count = tmp_path / "a.wav", round(SECONDS * RATE)
    path.write_bytes(data := encode("wav", tone()))
    assert soundfile.info(path).frames == count
    with wave.open(str(path)) as file:
        assert file.getparams()[:3] == (1, 2, RATE) and file.readframes(10**9) == data[44:]
    if shutil.which("sox"):
        found = subprocess.run(["sox", path, "-t", "raw", "-"], capture_output=True)
        assert found.stdout == data[44:] and found.stderr == b""


@pytest.mark.parametrize("name", ["wav", "flac", "mp3", "opus"])
def test_a_whole_file_states_its_length(name: str) -> None:
    """LAME tells decoders what it has padded, which libsndfile leaves alone."""
    encoder = AudioEncoder(name, RATE, whole=True)
    assert b"".join(map(encoder.encode, parts(tone()))) == b""
    info = soundfile.info(io.BytesIO(encoder.finish()))
    assert info.frames / info.samplerate == pytest.approx(SECONDS, abs=0.08 if name == "mp3" else 1e-6)


@pytest.mark.parametrize("name", ["mp3", "opus", "aac", "flac", "wav"])
def test_bytes_come_before_the_end(name: str) -> None:
    """Of two seconds, the first half leaves with the first of two parts; an encoder holds less than half a second.

    LAME's Xing or Info frame, which a stream cannot fill in, would be a frame of silence with a wrong length.
    """
    first = AudioEncoder(name, RATE).encode(tone(1.0))
    samples, rate = decode(first)
    assert len(samples) / rate > 0.5 and not re.search(b"Xing|Info", first[:500])


@pytest.mark.parametrize("speed", [0.25, 0.4, 1.5, 4.0])
def test_speed_changes_the_duration_and_not_the_pitch(speed: float) -> None:
    samples = np.frombuffer(encode("pcm", tone(), speed), "<i2") / 32768
    assert len(samples) / RATE == pytest.approx(SECONDS / speed, abs=0.1)
    assert pitch(samples, RATE) == pytest.approx(PITCH, abs=2)
    assert AudioEncoder("pcm", RATE, speed, 8000).seconds(torch.zeros(RATE)) == 1 / speed


def test_samples_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="NaN or infinite"):
        AudioEncoder("mp3", RATE).encode(torch.tensor([float("nan")]))


@pytest.mark.parametrize("rate", [24000, 16000, 44100])
def test_another_rate_has_no_seams(rate: int) -> None:
    """A chord at the instants of the other rate, whatever the parts: the closed form is the reference."""
    pitches, ends = torch.tensor([[150.0], [440.0], [1900.0], [3300.0]], dtype=torch.float64), [1, 2, 700, 8000, 8003]

    def chord(count: int, rate: int) -> Tensor:
        return 0.2 * torch.sin(2 * torch.pi * pitches * torch.arange(count) / rate).sum(0)

    for count in (30001, 22050, 517):
        audio = chord(count, RATE).float()
        streamed, whole = AudioEncoder("pcm", RATE, 1.0, rate), AudioEncoder("pcm", RATE, 1.0, rate)
        cut = [part for part in audio.tensor_split(ends) if len(part)]
        data = b"".join([*map(streamed.encode, cut), streamed.finish()])
        assert data == whole.encode(audio) + whole.finish()
        samples = torch.tensor(np.frombuffer(data, "<i2") / 32768)
        assert len(samples) == math.ceil(count * rate / RATE)  # those before the end of the last one
        assert (samples - chord(len(samples), rate))[100:-100].abs().sum() < 1e-4 * len(samples)


def test_the_last_samples_reach_the_file() -> None:
    """An impulse 5 ms before the end, through Opus's change of rate."""
    audio = torch.zeros(2 * RATE)
    audio[-110:-100] = 0.9
    samples, rate = decode(encode("opus", audio))
    assert np.abs(samples[round(1.98 * rate) :]).max() > 0.2
    assert len(samples) >= 2 * rate
