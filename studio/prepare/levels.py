"""The level of a recording over time, the pauses in it, digital silence, and the measures of a clip.

Noise gates and editors leave digital silence, stretches without even the sound of the room. Its log-mels lie at the lower bound,
log(1e-5), far below those of room noise, and a model trained on recordings with noise predicts them badly. So low noise takes its
place.
"""

# N samples, n of a block, T frames, C channels

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import soundfile

from common.audio.audio_processing import LOSSY_CODECS, LOSSY_PEAK, clip_samples
from common.audio.mpeg import estimates_length, quiet_decoder
from common.audio.silence import FRAME, frame_powers
from common.data.report import FULL_SCALE, clipped_runs
from common.errors import DataError

BLOCK = 2**18  # samples read at once, over all channels
LOWEST = -100.0  # dBFS, of digital silence: 16 bits end at -98
AUDIBLE = -65.0  # dBFS; a recording that stays below has no speech
FLOOR_WINDOW = 60.0  # seconds over which the noise level is taken as constant
FLOOR_PERCENTILE = 5
RISE = 0.35  # of the distance from noise to speech in dB; frames above are speech
DEEPEST = 40.0  # dB below speech; anything lower is silence
BURST = 0.05  # seconds; a shorter sound between pauses is a click
STEP = 1 / 32768  # of 16 bits
SHORTEST = 0.03  # seconds; half a mel window, 0.023, is enough to silence a whole frame at the end of a clip
BELOW_SPEECH = 50.0  # dB, level of the noise that fills a stretch
LOWEST_NOISE = 2 * STEP  # root mean square; anything less would be digital silence again
AROUND = 2.0  # seconds before and after a clip in which pauses show the noise
FEWEST_FRAMES = 10  # of pauses; with fewer, the clip's quietest frames show the noise
QUIETEST = 5  # per cent of the frames
BEST_SNR = 99.0  # dB, of digital silence
WINDOW = 0.02  # seconds of a spectrum
HIGHEST = 12000.0  # Hz; speech has little above
BAND_DEPTH = 55.0  # dB below the loudest frequency; weaker sound is outside the bandwidth
LEAST_PEAK = 0.05  # of a clip whose flat peaks below full scale count; in quieter ones equal samples are common


class SoundLevels(NamedTuple):
    """A recording: rate in Hz, channels, length N, and the level (T,) in dBFS of each FRAME of the mean of its channels."""

    rate: int
    channels: int
    samples: int
    levels: np.ndarray
    missing: int = 0  # samples that the file's header states and the file lacks

    @property
    def seconds(self) -> float:
        """The length."""
        return self.samples / self.rate

    @property
    def step(self) -> float:
        """Seconds from frame to frame: about FRAME, a whole number of samples."""
        return frame_size(self.rate) / self.rate


class TimeSpan(NamedTuple):
    """A time span in seconds."""

    start: float
    end: float

    @property
    def length(self) -> float:
        """In seconds."""
        return self.end - self.start


def frame_size(rate: int) -> int:
    """Return the samples of a frame."""
    return max(1, round(FRAME * rate))


def measure_levels(path: Path) -> SoundLevels:
    """Read a file once, in blocks. Raises DataError if it cannot be read or has no samples."""
    with open_sound(path) as sound:
        size, rest, powers, samples = frame_size(sound.rate), np.zeros(0), [], 0
        for block in sound.blocks:
            samples += len(block)
            rest = np.concatenate([rest, block.mean(axis=1, dtype=np.float64)])
            whole = len(rest) // size * size
            if whole:
                powers.append(frame_powers(rest[:whole], size))
            rest = rest[whole:]
        if len(rest):
            powers.append(frame_powers(rest, size))
    if not samples:
        raise DataError(f"{path}: no samples in it")
    missing = max(0, sound.stated - samples)
    return SoundLevels(sound.rate, sound.channels, samples, decibels(np.concatenate(powers)), missing)


def decibels(powers: np.ndarray) -> np.ndarray:
    """Convert mean squares to dBFS, at least LOWEST."""
    return (10 * np.log10(np.maximum(powers, 10 ** (LOWEST / 10)))).astype(np.float32)


def is_speech(levels: np.ndarray) -> np.ndarray:
    """Return True for each frame (T,) whose level in dBFS is above the threshold between noise and speech.

    The noise is the 5th percentile of a minute around the frame. Speech is the median of all frames in the upper half between the
    lowest and the highest level.
    """
    floor = _noise_floor(levels)
    top, bottom = float(np.percentile(levels, 99.9)), float(floor.min())
    if top < AUDIBLE:
        return np.zeros(len(levels), bool)
    loud = float(np.median(levels[levels >= (top + bottom) / 2]))
    threshold = np.maximum(np.minimum(floor, loud) * (1 - RISE) + RISE * loud, loud - DEEPEST)
    return levels > np.minimum(threshold, loud - 3)  # steady sound is no pause


def _noise_floor(levels: np.ndarray) -> np.ndarray:
    """Return the noise level around each frame (T,)."""
    step = round(FLOOR_WINDOW / FRAME)
    n_windows = max(1, round(len(levels) / step))
    windows = np.array_split(levels, n_windows)
    middles = np.cumsum([len(window) for window in windows]) - np.array([len(window) / 2 for window in windows])
    floors = [float(np.percentile(window, FLOOR_PERCENTILE)) for window in windows]
    return np.interp(np.arange(len(levels)), middles, floors)


def find_sounds(recording: SoundLevels, min_pause: float) -> list[TimeSpan]:
    """Return the stretches of sound between pauses of at least `min_pause` seconds, in order."""
    return sounds_of_mask(is_speech(recording.levels), recording.step, min_pause)


def sounds_of_mask(mask: np.ndarray, step: float, min_pause: float) -> list[TimeSpan]:
    """Return the stretches of sound as find_sounds does, from frames (T,) of `step` seconds that are True for speech."""
    speech = np.concatenate(([0], mask.astype(np.int8), [0]))
    starts, ends = np.flatnonzero(np.diff(speech) == 1), np.flatnonzero(np.diff(speech) == -1)
    joined: list[TimeSpan] = []
    for start, end in zip((starts * step).tolist(), (ends * step).tolist(), strict=True):
        if joined and start - joined[-1].end < min_pause - step / 2:
            joined[-1] = TimeSpan(joined[-1].start, end)
        else:
            joined.append(TimeSpan(start, end))
    return [sound for sound in joined if sound.length > BURST - step / 2]


def find_silence(audio: np.ndarray, rate: int) -> np.ndarray:
    """Return True for each sample of a clip as written, (N,) in [-1, 1], N at least 1, within digital silence.

    That is a stretch of at least SHORTEST in which each frame of 10 ms has a standard deviation below one step of 16 bits: zeros,
    any other constant, or dither. A room at -70 dBFS has ten steps. The rate is in Hz.
    """
    size = frame_size(rate)
    silent = np.repeat(frame_powers(audio, size) < STEP**2, size)[: len(audio)]
    edges = np.flatnonzero(np.diff(silent, prepend=False, append=False))
    for start, end in edges.reshape(-1, 2):
        silent[start:end] = end - start >= round(SHORTEST * rate)
    return silent


def fill_silence(audio: np.ndarray, silent: np.ndarray) -> np.ndarray:
    """Add white noise to the silent samples (N,) of a clip, BELOW_SPEECH below the root mean square of the others.

    Those do not change. The clip itself seeds the noise, so copies of a clip stay copies.
    """
    power = float(np.var(audio[~silent], dtype=np.float64)) if not silent.all() else 0.0
    level = max(math.sqrt(power) * 10 ** (-BELOW_SPEECH / 20), LOWEST_NOISE)
    seed = list(hashlib.sha256(audio.tobytes()).digest())
    filled = audio.copy()
    filled[silent] += np.random.default_rng(seed).normal(0.0, level, int(silent.sum()))
    return filled


class Measures(NamedTuple):
    """Measurements of a clip as recorded."""

    level: float  # of its speech, dBFS
    clipping: int  # runs of at least three samples at full scale, or at the same peak below it
    snr: float  # estimated, dB
    bandwidth: float  # Hz


def measure_clip(samples: np.ndarray, rate: int, speech: np.ndarray, pauses: np.ndarray) -> Measures:
    """Measure a clip: samples (N, C) in [-1, 1] at `rate` Hz.

    `speech` are levels (T,) in dBFS of the frames of its speech, `pauses` (T',) those of the pauses in it and around it.
    """
    power, quiet = 10 ** (LOWEST / 10), 0.0  # of a clip without speech
    if len(speech):
        power = float(np.mean(10 ** (speech.astype(np.float64) / 10)))
        quiet = float(np.percentile(speech, QUIETEST))
    if (
        len(pauses) >= FEWEST_FRAMES
    ):  # between words there is nothing but noise; else the quietest speech has to stand for it
        quiet = float(np.median(pauses))
    noise = 10 ** (quiet / 10)
    ratio = (power - noise) / noise  # the frames of speech have the noise in them
    snr = 10 * math.log10(ratio) if ratio > 0 else 0.0
    if quiet <= LOWEST + 1:  # digital silence in the pauses, which hides what noise there is
        snr = BEST_SNR
    runs = sum(_flat_peaks(channel) for channel in samples.T)
    level = round(10 * math.log10(power), 1)
    return Measures(level, runs, round(min(snr, BEST_SNR), 1), bandwidth(samples.mean(axis=1), rate))


def _flat_peaks(samples: np.ndarray) -> int:
    """Count the clipped runs of a channel (N,), at full scale or, if it was turned down later, at its own peak."""
    peak = float(np.abs(samples).max(initial=0.0))
    scaled = samples / np.float32(peak) if LEAST_PEAK < peak < FULL_SCALE else samples
    return len(clipped_runs(scaled.astype(np.float32)))


def bandwidth(samples: np.ndarray, rate: int) -> float:
    """Return the frequency in Hz up to which a clip (N,) has sound, at most HIGHEST.

    For each frequency the 95th percentile of its power over frames of WINDOW counts, since only some sounds have high frequencies.
    """
    from scipy import signal  # takes half a second to import, which the page's server can spare

    size = round(WINDOW * rate)
    if len(samples) < 2 * size:
        return min(rate / 2, HIGHEST)
    frequencies, _, spectra = signal.spectrogram(samples.astype(np.float32), rate, "blackmanharris", size, size // 2)
    loudest = np.percentile(spectra, 95, axis=1)
    (audible,) = np.nonzero(loudest > loudest.max() * 10 ** (-BAND_DEPTH / 10))
    return round(float(min(frequencies[audible[-1]], HIGHEST)), -2) if len(audible) and loudest.max() > 0 else 0.0


class OpenSound(NamedTuple):
    """An open sound file: rate in Hz, channels, and blocks (n, C) of float32 to be read once, in order.

    Its header states a number of samples; 0 if it does not.
    """

    rate: int
    channels: int
    blocks: Iterator[np.ndarray]
    stated: int = 0


@contextmanager
def open_sound(path: Path) -> Iterator[OpenSound]:
    """Open a sound file with libsndfile or else, if PyAV is installed, with FFmpeg's libraries.

    Raises DataError for a file that neither of them reads, and, while its blocks are read, for damage and for samples that are
    NaN, infinite or far above full scale.
    """
    if estimates_length(path) and find_spec("av"):  # libsndfile may stop too early
        with _open_with_av(path, "it does not state its length") as sound:
            yield sound
        return
    try:
        with quiet_decoder(path):
            file = soundfile.SoundFile(os.fspath(path))
    except (soundfile.LibsndfileError, TypeError) as error:  # TypeError: a name that ends in .raw
        reason = getattr(error, "error_string", str(error)).strip()
        with _open_with_av(path, reason) as sound:
            yield sound
        return
    with file:
        limit = LOSSY_PEAK if file.subtype in LOSSY_CODECS else 1.0
        stated = 0 if estimates_length(path) else file.frames
        yield OpenSound(file.samplerate, file.channels, _read_with_libsndfile(path, file, limit), stated)


def _read_with_libsndfile(path: Path, file: Any, limit: float) -> Iterator[np.ndarray]:
    size = max(1, BLOCK // file.channels)
    while True:
        try:
            with quiet_decoder(path):
                block = file.read(size, dtype="float32", always_2d=True)
        except soundfile.LibsndfileError as error:
            raise DataError(f"{path}: damaged ({error.error_string.strip()})") from None
        if not len(block):
            return
        yield clip_samples(path, block, limit)


@contextmanager
def _open_with_av(path: Path, reason: str) -> Iterator[OpenSound]:
    """Open a file with PyAV, after libsndfile has refused it for `reason`."""
    try:
        import av
    except ImportError:
        raise DataError(
            f"{path}: libsndfile does not read it ({reason}); pip install -r requirements/studio.txt adds FFmpeg's formats"
        ) from None
    try:
        # A playlist may name other files and hosts: read this file only.
        with av.open(os.fspath(path), options={"protocol_whitelist": "file"}) as container:
            if not container.streams.audio:
                raise DataError(f"{path}: no sound in it")
            stream = container.streams.audio[0]
            yield OpenSound(stream.rate, stream.channels, _read_with_av(path, container, stream))
    except DataError:
        raise
    except (av.error.FFmpegError, ValueError) as error:
        raise DataError(f"{path}: not an audio file, or damaged ({getattr(error, 'strerror', error)})") from None


def _read_with_av(path: Path, container: Any, stream: Any) -> Iterator[np.ndarray]:
    import av
    from av.audio.resampler import AudioResampler

    converter = AudioResampler(format="fltp")  # of the file's own rate and channels
    try:
        for frame in container.decode(stream):
            for part in converter.resample(frame):
                yield clip_samples(path, part.to_ndarray().T.astype(np.float32), LOSSY_PEAK)
    except (av.error.FFmpegError, AttributeError) as error:
        raise DataError(f"{path}: damaged ({getattr(error, 'strerror', error)})") from None
