"""Detection of several speakers by pitch and spectral envelope: two groups of clips that lie far apart are two voices.

Another microphone or room changes the envelope too and counts as another voice. Both spoil a model of one voice.
"""

# K clips, D features

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.audio.audio_processing import read_audio
from common.data.parallel import stream_parallel
from common.quality.evaluators import at_rate
from common.quality.likeness import RATE, analyse
from studio.ledger import Ledger
from studio.recognition import Sound

ORDER = 12  # cepstral coefficients c1 to c12; higher ones differ from text to text
PITCH_WEIGHT = 2.0
FEWEST_VOICED = 40  # frames of 5 ms; clips with fewer are left out
FEWEST_CLIPS = 10
SMALLEST_GROUP = 3  # clips
SEPARATION = 8.0  # pooled standard deviations between two voices; clips of one speaker divide into groups 3 to 4 apart
SHRINKAGE = 0.1  # of the covariance towards its mean variance, for few clips
STARTS = (0.5, 0.15, 0.85)  # quantiles along a principal axis where the search starts
AXES, ROUNDS = 3, 30  # principal axes; rounds of k-means from each start
SEVERAL = 0.1  # share of the clips from which on a second voice is no mistake in a few clips


class Voices(NamedTuple):
    """The smaller of two groups of clips, by index; empty where all clips are of one voice. Their distance, in deviations."""

    others: list[int]
    separation: float


def describe_voices(sounds: Sequence[Sound], ledger: Ledger, workers: int) -> list[list[float] | None]:
    """Return the features (D,) of each clip, None where too little of it is voiced; those in the ledger are not measured again."""
    todo = [sound for sound in {sound.digest: sound for sound in sounds}.values() if sound.digest not in ledger.values]
    features = stream_parallel(describe_voice, [sound.path for sound in todo], workers, "comparing voices")
    for sound, values in zip(todo, features, strict=True):
        ledger.add(sound.digest, values)
    return [ledger.get(sound.digest) for sound in sounds]


def describe_voice(path: Path) -> list[float] | None:
    """Return the median logarithm of the pitch, weighted, and the mean mel-cepstrum of the voiced frames of a clip."""
    audio = read_audio(path, None)
    analysis = analyse(at_rate(audio.samples.numpy(), audio.rate, RATE), RATE)
    voiced = analysis.f0 > 0
    if voiced.sum() < FEWEST_VOICED:
        return None
    pitch = PITCH_WEIGHT * float(np.median(np.log(analysis.f0[voiced])))
    return [round(value, 5) for value in (pitch, *analysis.cepstra[voiced, 1 : ORDER + 1].mean(axis=0).tolist())]


def find_voices(features: Sequence[Sequence[float] | None]) -> Voices:
    """Divide clips into the two groups that are farthest apart: k-means, then Fisher's discriminant between the groups."""
    places = [index for index, values in enumerate(features) if values is not None]
    if len(places) < FEWEST_CLIPS:
        return Voices([], 0.0)
    points = np.array([features[index] for index in places])
    centred = points - points.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:AXES]
    best, group = 0.0, np.zeros(len(points), bool)
    for projection in (centred @ axis for axis in axes):
        for start in STARTS:
            labels = _two_means(points, projection > np.quantile(projection, start))
            distance = _separation(points, labels)
            if distance > best:
                best, group = distance, labels
    if best < SEPARATION:
        return Voices([], best)
    others = group if 2 * group.sum() <= len(group) else ~group
    return Voices([places[index] for index in np.flatnonzero(others)], best)


def _two_means(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Divide points (K, D) into two groups by k-means, from labels (K,) on."""
    for _ in range(ROUNDS):
        if labels.all() or not labels.any():
            break
        distances = [np.square(points - points[group].mean(axis=0)).sum(axis=1) for group in (~labels, labels)]
        moved = distances[1] < distances[0]
        if (moved == labels).all():
            break
        labels = moved
    return labels


def _separation(points: np.ndarray, labels: np.ndarray) -> float:
    """Return the distance of two groups along Fisher's discriminant in pooled standard deviations; 0 for a group that is too small."""
    one, other = points[labels], points[~labels]
    if min(len(one), len(other)) < SMALLEST_GROUP:
        return 0.0
    within = (np.cov(one.T) * (len(one) - 1) + np.cov(other.T) * (len(other) - 1)) / (len(points) - 2)
    within += SHRINKAGE * np.trace(within) / len(within) * np.eye(len(within))
    direction = np.linalg.solve(within, one.mean(axis=0) - other.mean(axis=0))
    ours, theirs = one @ direction, other @ direction
    deviation = np.sqrt((ours.var() + theirs.var()) / 2)
    return float(abs(ours.mean() - theirs.mean()) / deviation) if deviation > 0 else 0.0
