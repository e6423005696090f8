"""Reading and writing audio files, levels of sounds, and audio from log-mels without a vocoder (Griffin-Lim)."""

# B batch, N samples, F frequency bins, T frames, M mels

from __future__ import annotations

import io
import math
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from common.audio.mpeg import estimates_length, quiet_decoder
from common.audio.parts import parts_in_context, scaled
from common.audio.stft import STFT, TacotronSTFT
from common.draws import Draws
from common.errors import DataError
from common.files import atomic_write, writing

# A lossy codec may push loud passages slightly past full scale, where every player clips.
LOSSY_CODECS = {"VORBIS", "OPUS", "MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III"}
LOSSY_PEAK = 1.5
ROUNDS, MOMENTUM = 60, 0.99  # of Griffin-Lim
MEL_ROUNDS = 20  # of mel_to_magnitude
# frames of Griffin-Lim's parts: the first is short, to be ready soon; long ones overlap less
FIRST_PART, OTHER_PARTS = 32, 256
PART_WINDOWS = 24  # windows of context on either side of a part
LOUDEST = 3  # frames among which the loudest one is; check_mels lets through no fewer
CREST = 3.0  # ratio of a frame's largest magnitude to its root mean square; 3 to 5 in speech and noise
OGG_HEADER = 27  # bytes of a page before its segment table
OGG_LONGEST_PAGE = OGG_HEADER + 255 + 255 * 255
FORMATS = {"wav": "PCM_16", "flac": "PCM_16", "ogg": "VORBIS"}  # file name ending -> 16-bit codec
SAMPLE_FORMATS = ("int16", "float32")
ENCODED_SAMPLES = 2**16  # samples encoded at once; libsndfile's Vorbis encoder fails on minutes of audio
READ_SAMPLES = 2**20  # samples read at once
NORMALIZATIONS = ("none", "peak", "loudness")  # of the level of a whole sound
FULL_SCALE = 1.0
TARGET_RMS = 0.1  # -20 dB relative to full scale
STREAMED_SIZE = 0x7FFF0000  # or more is what writers to a pipe state, since they do not know the size yet


class AudioFile(NamedTuple):
    """A file's samples (N,), float32 in [-1, 1] and mixed down to mono, its rate in Hz and its number of channels."""

    samples: Tensor
    rate: int
    channels: int


def load_audio(path: str | os.PathLike[str], sampling_rate: int) -> Tensor:
    """Read a mono file of any format and bit depth that libsndfile reads, as float32 (N,) in [-1, 1].

    Args:
        path: wav, flac, ogg, …
        sampling_rate: the rate the file must have, in Hz; nothing is resampled.

    Raises:
        DataError: as read_audio does.
    """
    return read_audio(path, sampling_rate).samples


def read_audio(path: str | os.PathLike[str], sampling_rate: int | None) -> AudioFile:
    """Read a mono file with the given rate or, if that is None, any file, mixing its channels down.

    Raises:
        DataError: a file that is missing, not audio, cut short, empty, not mono, of another rate, or whose samples
            are not numbers in [-1, 1].
    """
    import soundfile  # imported here, so that models can train and be measured without libsndfile

    name = os.fspath(path)
    with _explain_errors(name), soundfile.SoundFile(name) as file:
        if sampling_rate is not None:
            check_header(name, file.channels, file.samplerate, sampling_rate)
        samples, promised = _read_blocks(file), file.frames
        container, codec, rate = file.format, file.subtype, file.samplerate
    with _explain_errors(name):
        _check_whole(name, container, len(samples), promised)
    mono = samples.mean(axis=1)
    limit = LOSSY_PEAK if codec in LOSSY_CODECS else 1.0
    return AudioFile(torch.from_numpy(clip_samples(name, mono, limit)), rate, samples.shape[1])


def clip_samples(name: str | os.PathLike[str], samples: np.ndarray, limit: float) -> np.ndarray:
    """Clip samples of a file to [-1, 1]. Raises DataError for some that are NaN, infinite or beyond `limit`."""
    peak = float(np.abs(samples).max())
    if not np.isfinite(peak):
        raise DataError(f"{name}: samples that are NaN or infinite")
    if peak > limit:
        raise DataError(f"{name}: samples up to {peak:g}, expected -1 to 1: scale the audio down")
    return samples.clip(-1.0, 1.0)


def count_samples(path: str | os.PathLike[str], sampling_rate: int) -> int:
    """Return the number of samples that the header of a mono file with this rate states. Raises DataError as read_audio does."""
    import soundfile

    name = os.fspath(path)
    with _explain_errors(name), soundfile.SoundFile(name) as file:
        check_header(name, file.channels, file.samplerate, sampling_rate)
        if estimates_length(name):
            return len(read_audio(name, sampling_rate).samples)
        samples: int = file.frames
    if not samples:
        raise DataError(f"{name}: no samples in it")
    return samples


@contextmanager
def _explain_errors(name: str) -> Iterator[None]:
    """Context that turns libsndfile's errors about a file into DataError, and drops its decoders' own messages."""
    import soundfile

    if not os.path.isfile(name):
        raise DataError(f"{name}: no such audio file")
    try:
        with quiet_decoder(name):
            yield
    except FileNotFoundError:  # it went away in between
        raise DataError(f"{name}: no such audio file") from None
    except TypeError:  # soundfile's error for a name that ends in .raw
        raise DataError(f"{name}: not an audio file, or one without a header, expected wav, flac, ogg …") from None
    except soundfile.LibsndfileError as error:
        raise DataError(f"{name}: not an audio file, or damaged ({error.error_string.strip()})") from None


def _read_blocks(file: Any) -> np.ndarray:
    """Read all samples (N, C) in blocks, because a damaged header may state more than fit into memory."""
    size = max(1, READ_SAMPLES // file.channels)
    blocks = [file.read(size, dtype="float32", always_2d=True)]
    while len(blocks[-1]) == size:
        blocks.append(file.read(size, dtype="float32", always_2d=True))
    return np.concatenate(blocks)


def _check_whole(name: str, container: str, found: int, promised: int) -> None:
    if lost := _missing_wav_bytes(name) if container in ("WAV", "WAVEX") else 0:
        raise DataError(f"{name}: cut short, {lost} bytes of samples fewer than its header says: copy it again")
    if container == "OGG" and not _ogg_has_an_end(name):
        raise DataError(f"{name}: cut short, it stops before its last Ogg page: copy it again")
    if estimates_length(name):
        if found >= promised:  # libsndfile stops there
            raise DataError(
                f"{name}: does not state its length, so that only a part may be read: convert it to wav or flac"
            )
    elif found != promised:
        raise DataError(f"{name}: cut short or damaged, {found} samples of {promised}: copy it again")
    if not found:
        raise DataError(f"{name}: no samples in it")


def check_header(name: str, channels: int, rate: int, expected_rate: int) -> None:
    """Raise DataError for a file that is not mono or has another rate."""
    if channels != 1:
        raise DataError(f"{name}: {channels} channels, expected mono: mix it down, for instance with `ffmpeg -ac 1`")
    if rate != expected_rate:
        raise DataError(
            f"{name}: {rate} Hz, expected {expected_rate} Hz: resample it, for instance with "
            f"`ffmpeg -ar {expected_rate}`, or set --sampling-rate"
        )


def _missing_wav_bytes(name: str) -> int:
    """Count the bytes missing from the data chunk of a RIFF wav, which libsndfile reads without an error."""
    with open(name, "rb") as file:
        if file.read(12)[:4] != b"RIFF":  # RIFX, RF64
            return 0
        while len(header := file.read(8)) == 8:
            chunk, size = struct.unpack("<4sI", header)
            if chunk == b"data":
                held = os.fstat(file.fileno()).st_size - file.tell()
                return 0 if size >= STREAMED_SIZE else max(0, size - held)
            file.seek(size + size % 2, os.SEEK_CUR)  # chunks start at even offsets
    return 0


def _ogg_has_an_end(name: str) -> bool:
    """Return True if an Ogg file's last page is complete and marked as last (RFC 3533), which libsndfile does not check."""
    with open(name, "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - OGG_LONGEST_PAGE))
        tail = file.read()
    page = tail[max(0, tail.rfind(b"OggS")) :]
    if len(page) < OGG_HEADER:
        return False
    segments = page[OGG_HEADER : OGG_HEADER + page[OGG_HEADER - 1]]
    marked_as_last = bool(page[5] & 4)
    return marked_as_last and len(page) >= OGG_HEADER + len(segments) + sum(segments)


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Resample samples (N,), band-limited and exact to 20 bits: librosa.resample bit for bit, without its import of seconds."""
    import soxr

    length = math.ceil(len(samples) * (wanted / rate))
    found = soxr.resample(samples, rate, wanted, "HQ")[:length]
    return np.pad(found, (0, length - len(found)))


def at_rate(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Return samples (N,) of `rate` Hz at the wanted rate, as float32 (N',), unchanged where the rates agree."""
    samples = np.asarray(samples, dtype=np.float32)
    return samples if rate == wanted or not samples.size else resample(samples, rate, wanted)


def to_pcm(audio: Tensor) -> np.ndarray:
    """Convert audio, clipped to [-1, 1], to 16-bit samples. Raises ValueError if any is not finite."""
    samples = audio.detach().float().cpu().numpy()
    if not np.isfinite(samples).all():
        raise ValueError("the audio has samples that are NaN or infinite")
    # The exact inverse of load_audio: libsndfile's own conversion scales by 32767 one way and 32768 the other.
    return np.clip(np.rint(samples * 32768.0), -32768, 32767).astype("<i2")


def save_audio(
    path: str | os.PathLike[str], audio: Tensor, sampling_rate: int, sample_format: str = SAMPLE_FORMATS[0]
) -> None:
    """Write audio (N,) as a mono file, atomically; values outside [-1, 1] are clipped.

    Args:
        path: the file, with an ending from FORMATS; its folder is created if missing.
        audio: (N,), on any device and of any float type.
        sampling_rate: in Hz.
        sample_format: one of SAMPLE_FORMATS; float32 is for wav only.

    Raises:
        DataError: audio of another shape or with samples that are not finite; a file that cannot be written.
    """
    target = Path(path)
    if audio.dim() != 1:
        raise DataError(f"{target}: audio of shape {tuple(audio.shape)}, expected (samples,)")
    try:
        pcm = to_pcm(audio)
    except ValueError as error:
        raise DataError(f"{target}: not written, {error}") from None
    samples = pcm if sample_format == "int16" else audio.detach().float().cpu().clamp(-1, 1).numpy()
    container = target.suffix.removeprefix(".")
    contents = encode(samples, sampling_rate, container, FORMATS[container] if sample_format == "int16" else "FLOAT")
    with writing(target), atomic_write(target) as file:
        file.write(contents)


def encode(samples: np.ndarray, sampling_rate: int, container: str, codec: str) -> bytes:
    """Return the content of a file of one of FORMATS with samples (N,), 16-bit integers or floats in [-1, 1]."""
    import soundfile

    contents = io.BytesIO()
    with soundfile.SoundFile(contents, "w", sampling_rate, 1, codec, format=container.upper()) as encoder:
        for start in range(0, len(samples), ENCODED_SAMPLES):
            encoder.write(samples[start : start + ENCODED_SAMPLES])
    return contents.getvalue()


def normalize(audio: Tensor, mode: str) -> Tensor:
    """Scale audio (N,) by a single factor; silence and audio that is not finite are returned unchanged.

    Args:
        audio: float, in or slightly beyond [-1, 1].
        mode: "none"; "peak": the largest magnitude becomes full scale; "loudness": the root mean square about the mean becomes
            TARGET_RMS, or less if the largest magnitude would exceed full scale.
    """
    if mode == "none" or not audio.numel():
        return audio
    peak = audio.abs().max()
    if not 0 < peak < torch.inf:
        return audio
    gain = FULL_SCALE / peak
    if mode == "loudness":
        gain = torch.minimum(gain, TARGET_RMS / (audio - audio.mean()).square().mean().sqrt())
    return (gain * audio).clamp(-FULL_SCALE, FULL_SCALE)  # rounding may exceed full scale by one step


@torch.no_grad()
def griffin_lim(
    log_mels: Tensor, stft: TacotronSTFT, n_iters: int = ROUNDS, generator: torch.Generator | Draws | None = None
) -> Tensor:
    """Audio (B, N) from log-mels (B, M, T), N = (T - 1) * hop_length: the shortest audio that has T frames.

    Nothing is learned: speech is understandable and sounds metallic. Items of a batch do not influence each other,
    but zeros in padding are loud frames; cut the audio to the mels' own lengths. Loud mels may leave [-1, 1].

    Args:
        log_mels: float, on the device of `stft`.
        stft: the transform that made the mels.
        n_iters: rounds of phase estimation.
        generator: the source of the random initial phases, for a repeatable result; draws have their own for each item.

    Raises:
        DataError: mels of another shape, with values that are not finite, or too short.
    """
    check_mels(log_mels, stft)
    with torch.autocast(log_mels.device.type, enabled=False):
        magnitude = mel_to_magnitude(log_mels, stft)
        start = torch.polar(magnitude, _draw_phases(magnitude, generator))
        return retrieve_phases(magnitude, start, stft.stft, n_iters)


@torch.no_grad()
def griffin_lim_in_parts(
    log_mels: Tensor, stft: TacotronSTFT, generator: torch.Generator | Draws | None = None
) -> Iterator[Tensor]:
    """Yield the audio (1, N) of griffin_lim in parts (1, n), the first one soon, to within about 1e-5 of it.

    A part's phases are estimated together with the frames around it. Each round of Griffin-Lim reaches only as far as windows
    overlap, and the influence of early rounds fades, so that of far frames is below rounding. Raises what griffin_lim raises.
    """
    check_mels(log_mels, stft)
    hop, hops = stft.config.hop_length, log_mels.shape[2] - 1
    around = PART_WINDOWS * stft.config.filter_length // hop
    with torch.autocast(log_mels.device.type, enabled=False):
        magnitude = mel_to_magnitude(log_mels, stft)
        whole = torch.polar(magnitude, _draw_phases(magnitude, generator))
        for near, own in parts_in_context(hops, around, FIRST_PART, OTHER_PARTS):
            frames = slice(near.start, near.stop + 1)
            audio = retrieve_phases(magnitude[:, :, frames], whole[:, :, frames], stft.stft)
            yield audio[:, scaled(own, hop)]


@torch.no_grad()
def predict_peak(log_mels: Tensor, stft: TacotronSTFT) -> Tensor:
    """Predict the peaks (B, 1) of audio with log-mels (B, M, T): CREST times the root mean square of the loudest frame.

    A frame's mean square follows from its magnitudes by Parseval's theorem; those of the frames with the largest mels suffice.
    """
    config = stft.config
    with torch.autocast(log_mels.device.type, enabled=False):
        loudest = log_mels.float().exp().square().sum(1, keepdim=True).topk(LOUDEST).indices  # (B, 1, LOUDEST)
        magnitude = mel_to_magnitude(log_mels.gather(2, loudest.expand(-1, log_mels.shape[1], -1)), stft)
        energy = 2 * magnitude.square().sum(1).amax(1, keepdim=True) / config.filter_length
        return CREST * (energy / stft.stft.window.square().sum()).sqrt()


def check_mels(log_mels: Tensor, stft: TacotronSTFT) -> None:
    if log_mels.dim() != 3 or log_mels.shape[1] != stft.config.n_mel_channels:
        wanted = f"(batch, {stft.config.n_mel_channels}, frames)"
        raise DataError(f"log-mels of shape {tuple(log_mels.shape)}, expected {wanted}")
    shortest = stft.config.filter_length // 2 // stft.config.hop_length + 2
    if log_mels.shape[2] < shortest:
        raise DataError(f"log-mels of {log_mels.shape[2]} frames, expected at least {shortest}")
    if not torch.isfinite(log_mels).all():  # host sync, once per call
        raise DataError("log-mels with values that are NaN or infinite")


def mel_to_magnitude(log_mels: Tensor, stft: TacotronSTFT) -> Tensor:
    """Find non-negative magnitudes (B, F, T) with the given log-mels (B, M, T); zero where no filter reaches.

    Starts from the transposed filters' smooth guess and applies multiplicative updates for the Kullback-Leibler divergence (Lee and
    Seung, 2001, theorem 2). 20 of them reproduce the mels to 0.1 % and land nearer to the true magnitudes than the pseudo-inverse
    cut at zero (16-18 % off against 24 %).
    """
    basis = stft.mel_basis.float()
    mels = log_mels.float().exp().transpose(1, 2)  # a few frames as rows take a quarter of their time as columns
    to_bins = basis / basis.sum(0).clamp(min=1e-12)  # over the sum of the filters at each bin
    magnitude = mels @ to_bins
    for _ in range(MEL_ROUNDS):
        magnitude = magnitude * ((mels / (magnitude @ basis.T).clamp(min=1e-10)) @ to_bins)
    return magnitude.transpose(1, 2)


def _draw_phases(magnitude: Tensor, generator: torch.Generator | Draws | None) -> Tensor:
    """Draw random phases in radians, with the magnitudes' shape (B, F, T)."""
    if isinstance(generator, Draws):
        return 2 * torch.pi * generator.uniform(*magnitude.shape[1:])
    device = magnitude.device if generator is None else generator.device
    return 2 * torch.pi * torch.rand(magnitude.shape, generator=generator, device=device).to(magnitude.device)


def retrieve_phases(
    magnitude: Tensor, estimate: Tensor, stft: STFT, n_iters: int = ROUNDS, momentum: float = MOMENTUM
) -> Tensor:
    """Find audio (B, N) with approximately the magnitudes (B, F, T): fast Griffin-Lim (Perraudin, Balazs, Soendergaard, 2013).

    The complex `estimate` (B, F, T) has these magnitudes and the phases to start from. A momentum of 0 is the algorithm of Griffin
    and Lim (1984).
    """
    previous = 0 * estimate
    for _ in range(n_iters):
        consistent = stft.spectrum(stft.from_spectrum(estimate))  # the nearest spectrum that audio can have
        accelerated = consistent + momentum * (consistent - previous)
        estimate = magnitude * accelerated.sgn()
        previous = consistent
    return stft.from_spectrum(estimate)
