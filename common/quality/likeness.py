"""Distance of speech from a recording of the same text: mel-cepstral distortion, and pitch differences on the same alignment.

Spectral envelope and pitch come from WORLD (Morise et al. 2016): CheapTrick, and DIO refined by StoneMask, which takes a tenth of
the time of Harvest. Dynamic time warping of the mel-cepstra aligns the clips.
"""

# N samples, F frames, W bins of a spectrum, C mel-cepstral coefficients, P steps of the warping path

from __future__ import annotations

import math
import warnings
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from common.audio.audio_processing import at_rate
from common.quality.evaluators import optional_import

RATE = 16000  # Hz at which clips are compared; mels end at 8 kHz, and an empty band above would outweigh all below
FRAME_PERIOD = 5.0  # milliseconds
ORDER = 24  # of the mel-cepstrum, customary at 16 to 24 kHz
ALPHA = 0.41  # constant of the all-pass that is nearest to the mel scale at RATE
SHORTEST = 0.1  # seconds; shorter audio is padded with silence, since the analysis needs a frame
DECIBEL = 10 / math.log(10)
LONGEST_COPY = 30  # seconds; the code of P.862 has room for fifty stretches of speech
SHORTEST_COPY = 0.5  # seconds; ESTOI compares stretches of 0.4
STOI_FAILED = 1e-5  # pystoi's answer where it finds no speech


class Likeness(NamedTuple):
    """Distance of a clip from the recording of its text.

    mcd: mel-cepstral distortion in dB, the mean over the warping path.
    f0_rmse: root mean squared difference of pitch in Hz over the path's steps voiced in both; nan if there are none.
    voicing_error: share of the path's steps voiced in only one of them.
    """

    mcd: float
    f0_rmse: float
    voicing_error: float


class Analysis(NamedTuple):
    """Pitch (F,) in Hz, 0 where unvoiced, and mel-cepstra (F, ORDER + 1), one frame every FRAME_PERIOD."""

    f0: np.ndarray
    cepstra: np.ndarray


def likeness(audio: np.ndarray, reference: np.ndarray, rate: int) -> Likeness:
    """Compare audio (N,) with a reference (N',), both in [-1, 1] at `rate` Hz. Raises DataError if pyworld is not installed.

    The distortion of two frames is 10/ln 10 * sqrt(2 * sum of squared differences of c1 to c24) (Kubichek 1993, "Mel-cepstral
    distance measure for objective speech quality assessment"); c0, the level, is left out. Silence is not removed.
    """
    one, other = (analyse(at_rate(clip, rate, RATE)) for clip in (audio, reference))
    import librosa

    costs, path = librosa.sequence.dtw(one.cepstra[:, 1:].T, other.cepstra[:, 1:].T, metric="euclidean")
    ours, theirs = path.T  # the last cell holds the cost of the whole path
    f0, f0_reference = one.f0[ours], other.f0[theirs]
    both = (f0 > 0) & (f0_reference > 0)
    return Likeness(
        mcd=DECIBEL * math.sqrt(2) * float(costs[-1, -1]) / len(path),
        f0_rmse=math.sqrt(np.mean((f0 - f0_reference)[both] ** 2)) if both.any() else math.nan,
        voicing_error=float(np.mean((f0 > 0) != (f0_reference > 0))),
    )


def aligned_likeness(audio: np.ndarray, reference: np.ndarray, rate: int) -> dict[str, float]:
    """Compare audio (N,) with a reference (N',) that it follows sample by sample: by wideband PESQ and by extended STOI.

    PESQ (ITU-T P.862.2) predicts an opinion score, at most 4.64; ESTOI (Jensen and Taal 2016) how intelligible it is, at most 1. A
    measure that finds too little speech is left out, and so is PESQ without its package. Raises DataError without pystoi.
    """
    with optional_import():
        from pystoi import stoi
    n_samples = min(len(audio), len(reference), LONGEST_COPY * rate)
    if n_samples < SHORTEST_COPY * rate:
        return {}
    ours, theirs = (at_rate(clip[:n_samples], rate, RATE) for clip in (audio, reference))
    values = {}
    with suppress(ImportError):
        from pesq import PesqError, pesq

        with suppress(PesqError, ValueError):  # no speech, or nothing but zeros
            values["pesq"] = float(pesq(RATE, theirs, ours, "wb"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where it finds no speech, and returns 1e-5
        score = float(stoi(theirs, ours, RATE, extended=True))
    return values | ({"estoi": score} if score > STOI_FAILED else {})


def analyse(audio: np.ndarray) -> Analysis:
    """Compute pitch and mel-cepstra of audio (N,) at RATE."""
    samples = _pad(audio, RATE)
    f0, times = _track(samples, RATE, FRAME_PERIOD)
    return Analysis(f0, mel_cepstra(_world().cheaptrick(samples, f0, times, RATE)))


def track_pitch(audio: np.ndarray, rate: int, period: float) -> np.ndarray:
    """Pitch in Hz, 0 where unvoiced, of audio (N,), every `period` milliseconds. DataError where pyworld is not installed."""
    return _track(_pad(audio, rate), rate, period)[0]


def _pad(audio: np.ndarray, rate: int) -> np.ndarray:
    samples = np.asarray(audio, dtype=np.float64)
    return np.pad(samples, (0, max(0, math.ceil(SHORTEST * rate) - len(samples))))


def _track(samples: np.ndarray, rate: int, period: float) -> tuple[np.ndarray, np.ndarray]:
    rough, times = _world().dio(samples, rate, frame_period=period)
    return _world().stonemask(samples, rough, times, rate), times


def _world() -> Any:
    with optional_import(pkg_resources={"get_distribution": _Version}):
        import pyworld
    return pyworld


def mel_cepstra(envelope: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """Compute mel-cepstra (F, ORDER + 1) of power spectra (F, W), evenly spaced from 0 Hz to half the sampling rate.

    They are the c in log|X(w)| = c0 + sum over m of c_m cos(m v(w)), where v is the frequency warped by an all-pass with constant
    `alpha` (Tokuda et al. 1994). As coefficients of a Fourier series in v they are integrals over v, computed here over w.
    """
    omega = np.linspace(0, np.pi, envelope.shape[1])
    slope = (1 - alpha**2) / (1 + alpha**2 - 2 * alpha * np.cos(omega))  # dv/dw
    # weight of each bin in the trapezoidal rule, doubled for the cosine series except for c0
    share = np.full(len(omega), 2.0)
    share[[0, -1]] = 1.0
    warped = omega + 2 * np.arctan2(alpha * np.sin(omega), 1 - alpha * np.cos(omega))  # 0 at 0, pi at pi
    basis = np.cos(np.outer(warped, np.arange(ORDER + 1))) * (slope * share / (len(omega) - 1))[:, None]
    basis[:, 0] /= 2
    return 0.5 * np.log(envelope) @ basis


class _Version(NamedTuple):
    """The part of pkg_resources that pyworld imports; setuptools no longer has it."""

    project_name: str
    version: str = "unknown"
