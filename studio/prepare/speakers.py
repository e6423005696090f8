"""Detection of several speakers: two groups of clips are two voices if their voice embeddings point in different directions.

docs/own-voice.md has the measured rates of detection and of false alarms.
"""

# K clips, D size of an embedding

from __future__ import annotations

import statistics
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.audio.audio_processing import read_audio
from common.data.parallel import stream_parallel
from common.errors import DataError
from common.quality.evaluators import VoiceEmbedder
from studio.prepare.arguments import PrepareOptions
from studio.prepare.clips import CutClip, CutRecordings
from studio.prepare.ledger import ClipSound, remembered

FEWEST_CLIPS, SMALLEST_GROUP = 10, 3
ALIKE = 0.8  # cosine of two groups' mean directions; below it they are two voices
SEVERAL = 0.1  # share of the clips; a second voice with fewer is taken for faulty clips
# Cosine, and seconds: an mp3 of 32 kbit/s keeps 0.9945, other sentences of a speaking clock reach 0.988.
SAME, SAME_LENGTH = 0.993, 0.1
STARTS = (0.5, 0.1, 0.9)  # quantiles along a principal axis at which the search starts
AXES, ROUNDS = 3, 30  # principal axes; rounds of k-means from each start

ROOM = 0.5  # seconds in which a reverberant room's sound falls by 60 dB
# Cosine: four speakers with 0.3 to 1 s of reverberation are alike to themselves by at least 0.87, to others by at most 0.83.
ALIKE_IN_ROOM = 0.85
REFERENCES = 8  # clips that are given another sound
WORSE_SNR, NARROWER = 3.0, 500.0  # dB, Hz; smaller differences of the sound do not make another voice
WIDE, CLEAN = 10000.0, 35.0  # Hz, dB; beyond these nothing is cut off or added
TELEPHONE, TELEPHONE_LOW = 4500.0, 300.0  # Hz; a band that ends below the first begins at the second


class Sound(NamedTuple):
    """How clips were recorded: medians of their ratio of speech to noise in dB, and of their bandwidth in Hz."""

    snr: float
    bandwidth: float


class VoiceGroups(NamedTuple):
    """The smaller of two groups of clips, by index, empty if all clips have one voice; and the cosine between the groups."""

    others: list[int]
    likeness: float


def describe_voices(sounds: Sequence[ClipSound], ledger: Path, workers: int) -> np.ndarray:
    """Return the embedding (K, D) of each clip; those in the ledger, a file, are not computed again, and others are dropped."""
    describe = partial(stream_parallel, describe_voice, workers=workers, title="comparing voices")
    digests = sorted(sound.digest for sound in sounds)
    embeddings = remembered(ledger, sounds, describe, tidy=lambda ledger: digests)
    return np.array([embeddings[sound.digest] for sound in sounds])


@cache
def _embedder() -> VoiceEmbedder:
    return VoiceEmbedder()


def describe_voice(path: Path) -> list[float]:
    """Return the embedding (D,) of a clip, rounded, since further digits depend on the processor."""
    audio = read_audio(path, None)
    return [round(value, 3) for value in _embedder()(audio.samples.numpy(), audio.rate).tolist()]


def is_sound_only(ours: Sequence[ClipSound], ours_sound: Sound, theirs: np.ndarray, theirs_sound: Sound) -> bool:
    """Return True if what sets clips apart is their sound: some of ours, made to sound like them, have their voice.

    Noise, a narrow band and a reverberant room change an embedding as much as another speaker does. `theirs` are embeddings (K, D).
    """
    is_worse = theirs_sound.snr < ours_sound.snr - WORSE_SNR or theirs_sound.bandwidth < ours_sound.bandwidth - NARROWER
    sound = theirs_sound if is_worse else Sound(CLEAN, WIDE)
    clips = [read_audio(clip.path, None) for clip in ours[:: max(1, len(ours) // REFERENCES)][:REFERENCES]]

    def likeness(room: float) -> float:
        changed = [degrade(clip.samples.numpy(), clip.rate, sound, room) for clip in clips]
        embedded = [_embedder()(samples, clip.rate) for samples, clip in zip(changed, clips, strict=True)]
        return float(_direction(np.array(embedded)) @ _direction(theirs))

    return (is_worse and likeness(0.0) >= ALIKE) or likeness(ROOM) >= ALIKE_IN_ROOM


def degrade(samples: np.ndarray, rate: int, sound: Sound, room: float = 0.0) -> np.ndarray:
    """Give a clip (N,) noise and the bandwidth of other clips, in a room whose reverberation takes some seconds."""
    from scipy import signal  # takes half a second to import; few preparations compare voices

    changed = samples.astype(np.float64)
    if room:  # exponentially decaying noise, as strong as the direct sound
        times = np.arange(1, round(room * rate)) / rate
        tail = np.random.default_rng(0).standard_normal(len(times)) * 10 ** (-3 * times / room)
        changed = signal.fftconvolve(changed, np.append(1.0, tail / np.linalg.norm(tail)))[: len(changed)]
    if sound.bandwidth < min(WIDE, 0.45 * rate):
        changed = signal.sosfilt(signal.butter(8, sound.bandwidth, "low", fs=rate, output="sos"), changed)
    if sound.bandwidth < TELEPHONE:
        changed = signal.sosfilt(signal.butter(4, TELEPHONE_LOW, "high", fs=rate, output="sos"), changed)
    if sound.snr < CLEAN:
        level = float(np.sqrt(np.mean(np.square(changed)))) * 10 ** (-sound.snr / 20)
        changed = changed + np.random.default_rng(0).normal(0.0, level, len(changed))
    return changed.astype(np.float32)


def find_copies(embeddings: np.ndarray, seconds: Sequence[float], order: Sequence[int]) -> dict[int, int]:
    """Find clips, with embeddings (K, D) of length 1, that repeat another one, as in another format.

    Of clips that are alike, the earliest in `order`, indices (K,), is the original. Returns the index of what each repeats.
    """
    copies: dict[int, int] = {}
    originals: list[int] = []
    lengths = np.asarray(seconds)
    for index in order:
        near = np.array(originals, int)[np.abs(lengths[originals] - lengths[index]) <= SAME_LENGTH]
        likeness = embeddings[near] @ embeddings[index]
        if len(near) and likeness.max() >= SAME:
            copies[index] = int(near[likeness.argmax()])
        else:
            originals.append(index)
    return copies


def find_voices(embeddings: np.ndarray) -> VoiceGroups:
    """Divide embeddings (K, D) of length 1 into the two groups that differ most, by k-means on the sphere from several starts."""
    if len(embeddings) < FEWEST_CLIPS:
        return VoiceGroups([], 1.0)
    centred = embeddings - embeddings.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:AXES]
    best, group = 1.0, np.zeros(len(embeddings), bool)
    for projection in (centred @ axis for axis in axes):
        for start in STARTS:
            labels = _two_means(embeddings, projection > np.quantile(projection, start))
            likeness = _likeness(embeddings, labels)
            if likeness < best:
                best, group = likeness, labels
    if best >= ALIKE:
        return VoiceGroups([], best)
    others = group if 2 * group.sum() <= len(group) else ~group
    return VoiceGroups(np.flatnonzero(others).tolist(), best)


def _two_means(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Divide points (K, D) into two groups, starting from labels (K,): each joins the group with the nearer mean direction."""
    for _ in range(ROUNDS):
        if labels.all() or not labels.any():
            break
        ours, theirs = (_direction(points[group]) for group in (labels, ~labels))
        moved = points @ ours > points @ theirs
        if (moved == labels).all():
            break
        labels = moved
    return labels


def _likeness(points: np.ndarray, labels: np.ndarray) -> float:
    """Return the cosine between two groups' mean directions; 1 if one is too small."""
    if min(labels.sum(), (~labels).sum()) < SMALLEST_GROUP:
        return 1.0
    return float(_direction(points[labels]) @ _direction(points[~labels]))


def _direction(points: np.ndarray) -> np.ndarray:
    mean: np.ndarray = points.mean(axis=0)
    return mean / max(float(np.linalg.norm(mean)), 1e-9)


class ComparedVoices(NamedTuple):
    """The clips in another voice than most, and the embedding (K, D) of each clip, or without one None."""

    others: set[str]
    embeddings: np.ndarray | None


def compare_voices(cut: CutRecordings, options: PrepareOptions) -> ComparedVoices:
    """Find the clips in another voice than most. Raises DataError if they are many and several speakers are not allowed."""
    if options.allow_several_speakers:
        return ComparedVoices(set(), None)
    clips = [clip for recording in cut.recordings for clip in recording.clips]
    sounds = [clip.sound(options.project.clips) for clip in clips]
    embeddings = describe_voices(sounds, options.project.state / "voices.jsonl", options.num_workers)
    voices = find_voices(embeddings)
    ours = sorted(set(range(len(clips))) - set(voices.others))
    one, other = (_sound_of([clips[index] for index in group]) for group in (ours, voices.others))
    if voices.others and is_sound_only([sounds[index] for index in ours], one, embeddings[voices.others], other):
        return ComparedVoices(set(), embeddings)
    others = {clips[index].name for index in voices.others}
    if len(others) >= SEVERAL * len(clips):
        names = sorted({r.name for r in cut.recordings for clip in r.clips if clip.name in others})
        raise DataError(
            f"several speakers: {len(others)} of {len(clips)} clips have another voice than the others (similarity"
            f" {voices.likeness:.2f}, expected at least {ALIKE:g}): {', '.join(names[:10])}{' …' * (len(names) > 10)}\n"
            "A voice is learned from one speaker: move the others' recordings to another folder, or use all of them with"
            " --allow-several-speakers"
        )
    return ComparedVoices(others, embeddings)


def _sound_of(clips: Sequence[CutClip]) -> Sound:
    snrs, widths = [clip.measures.snr for clip in clips], [clip.measures.bandwidth for clip in clips]
    return Sound(statistics.median(snrs or [0.0]), statistics.median(widths or [0.0]))
