"""Faults of clips by name, from measurements of each clip and comparison with the others."""

# N samples, C channels, T frames, K clips

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from common.data.report import FULL_SCALE, clipped_runs
from common.progress import counted
from studio.prepare.arguments import CuttingConfig, FaultLimits
from studio.prepare.levels import LOWEST

AROUND = 2.0  # seconds before and after a clip in which pauses show the noise
FEWEST_FRAMES = 10  # of pauses; with fewer, the clip's quietest frames show the noise
QUIETEST = 5  # per cent of the frames
BEST_SNR = 99.0  # dB, of digital silence
WINDOW = 0.02  # seconds of a spectrum
HIGHEST = 12000.0  # Hz; speech has little above
BAND_DEPTH = 55.0  # dB below the loudest frequency; weaker sound is outside the bandwidth
LETTERS = 2  # a wrong word has about half its letters wrong; one that is only spelled apart has none
PACE_FEWEST = 20  # clips for a meaningful median pace
SILENCE, FILLED = "digital silence", ", filled"
DISTORTED = 50.0  # runs of clipped samples a second; a few at the loudest places do no harm
LEAST_PEAK = 0.05  # of a clip whose flat peaks below full scale count; in quieter ones equal samples are common
TOO_QUIET, FAR_BELOW = -55.0, 30.0  # dBFS, and dB below the median: what is left of 16 bits is too little
UNUSABLE = ("too short", "too long", "too quiet", "no text", "words", "cut in speech", "distorted", "speaker", "double")


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


class Candidate(NamedTuple):
    """What decides the faults of a clip."""

    seconds: float
    text: str
    in_speech: bool
    measures: Measures
    words_wrong: float  # share of the transcript; nan if nothing was compared
    letters_wrong: float  # likewise
    speaker: bool  # another voice than the others'
    double: str  # name of the clip that it repeats, or ""
    silence: float  # seconds of digital silence


def find_faults(clips: Sequence[Candidate], cutting: CuttingConfig, limits: FaultLimits) -> list[list[str]]:
    """Return the faults of each clip (K,), with their figures."""
    median_level = float(np.median([clip.measures.level for clip in clips])) if clips else 0.0
    paces = [len(clip.text) / clip.seconds for clip in clips if clip.text]
    median_pace = float(np.median(paces)) if len(paces) >= PACE_FEWEST else math.nan
    return [_faults_of(clip, median_level, median_pace, cutting, limits) for clip in clips]


def _faults_of(
    clip: Candidate, median_level: float, median_pace: float, cutting: CuttingConfig, limits: FaultLimits
) -> list[str]:
    sound, distance = clip.measures, clip.measures.level - median_level
    pace = len(clip.text) / clip.seconds / median_pace if clip.text else math.nan
    wrong = min(clip.words_wrong, LETTERS * clip.letters_wrong)
    is_distorted = sound.clipping > max(limits.clipping_runs, DISTORTED * clip.seconds)
    is_quiet = sound.level < TOO_QUIET or distance < -FAR_BELOW
    faults = {
        f"too short ({clip.seconds:.1f} s)": clip.seconds < cutting.min_duration,
        f"too long ({clip.seconds:.1f} s)": clip.seconds > cutting.max_duration + 0.05,
        "no text": not clip.text,
        f"words ({100 * clip.words_wrong:.0f} % wrong)": wrong > limits.max_words_wrong,
        "cut in speech": clip.in_speech,
        "speaker": clip.speaker,
        f"double of {clip.double}": bool(clip.double),
        f"{SILENCE} ({clip.silence:.2f} s{FILLED if cutting.fill_silence else ''})": clip.silence > 0,
        f"distorted ({sound.clipping} clipped runs)": is_distorted,
        f"clipping ({counted(sound.clipping, 'run')})": sound.clipping >= limits.clipping_runs and not is_distorted,
        f"noise (SNR {sound.snr:.0f} dB)": sound.snr < limits.min_snr,
        f"bandwidth ({sound.bandwidth:.0f} Hz)": sound.bandwidth < limits.min_bandwidth,
        f"too quiet ({sound.level:.0f} dBFS, {distance:+.0f} dB)": is_quiet,
        f"loudness ({distance:+.0f} dB)": abs(distance) > limits.loudness and not is_quiet,
        f"pace ({pace:.1f} times the median)": pace > limits.pace or pace < 1 / limits.pace,
    }
    return [name for name, applies in faults.items() if applies]


def is_usable(faults: Sequence[str]) -> bool:
    """Return True if none of the faults rules a clip out for training."""
    return not any(fault.startswith(UNUSABLE) for fault in faults)
