"""The clips of one recording: cut, converted to the rate of the models, measured, and recorded for later runs."""

# N samples, C channels, T frames

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from common.audio.audio_processing import at_rate, normalize, save_audio, to_pcm
from common.data.sources import SourceFile, file_digest
from common.errors import DataError
from common.files import parse_json, write_text
from common.progress import counted
from studio.prepare.arguments import CuttingConfig
from studio.prepare.cutting import Span, Unit, join_sentences, parts_of, share_texts, spans_of, units_of, windows_of
from studio.prepare.ledger import ClipSound
from studio.prepare.levels import (
    AROUND,
    AUDIBLE,
    Measures,
    SoundLevels,
    fill_silence,
    find_silence,
    find_sounds,
    is_speech,
    measure_clip,
    measure_levels,
    open_sound,
)
from studio.prepare.transcripts import Transcript

VERSION = 3  # of the cutting; records of another version are made again


class CutClip(NamedTuple):
    """A clip; times in seconds of the recording."""

    name: str
    start: float
    end: float
    text: str  # of its subtitles, or the recognised words of its parts
    in_speech: bool  # it starts or ends within speech
    digest: str  # of its samples as written
    silence: float  # seconds of digital silence, filled or not
    measures: Measures

    @property
    def seconds(self) -> float:
        """The length."""
        return self.end - self.start

    def sound(self, folder: Path) -> ClipSound:
        """The file in the folder of clips, with its digest."""
        return ClipSound(folder / f"{self.name}.wav", self.digest)


class CutRecording(NamedTuple):
    """A recording with its clips, in order; `rate` in Hz."""

    name: str
    key: str
    seconds: float
    rate: int
    channels: int
    speech: float  # seconds of sound between pauses
    missing: float  # seconds that the file's header states and the file lacks
    clips: list[CutClip]


class UnwritableError(DataError):
    """A clip cannot be written: the project's folder is at fault, not the recording."""


class CuttingJob(NamedTuple):
    """A recording to cut, and the folders for its record and its clips."""

    source: SourceFile
    transcript: Transcript | None
    config: CuttingConfig
    records: Path
    clips: Path
    language: str = "en"  # ISO 639-1
    recogniser: str = ""  # the one whose words find sentence ends and divide long subtitles; "" if these do not matter
    words: tuple[str, ...] = ()  # recognised in each part (K,)
    longest_pauses: tuple[float, ...] = ()  # (K,), as join_sentences takes them

    @property
    def is_one_clip(self) -> bool:
        """True for a recording with a text but no times, which stays whole if it is short enough."""
        return self.transcript is not None and not self.transcript.cues

    def units(self, levels: SoundLevels, has_words: bool) -> list[Unit]:
        """Divide the recording at every pause, or at its subtitles, which words divide further."""
        cues = self.transcript.cues if self.transcript else ()
        return units_of(levels, self.config, cues, self.is_one_clip, has_words)

    def add_words(self, units: Sequence[Unit]) -> list[Unit]:
        """Return the units with the texts that their words decide, joined to sentences; as they are without words."""
        if not self.words:
            return list(units)
        if self.transcript and self.transcript.cues:
            return share_texts(units, self.words, self.language)
        units = [replace(unit, text=text) for unit, text in zip(units, self.words, strict=True)]
        return join_sentences(units, self.longest_pauses, self.config)


def cut_parts(job: CuttingJob, folder: Path) -> CutRecording | None:
    """Cut the parts of a recording whose words are needed, into a folder: between pauses, of long subtitles, or without a text all.

    None if no words are needed, for existing clips, or a bad file.
    """
    try:
        if read_record(job.records / f"{_key_of(job)}.json", job.clips):
            return None
        parts = job._replace(records=folder, clips=folder)
        key = _key_of(parts)
        if record := read_record(folder / f"{key}.json", folder):
            return record
        levels = measure_levels(job.source.path)
        units = parts.units(levels, True)
        spans = (parts_of if job.transcript else windows_of)(units, levels.seconds, job.config)
        if job.transcript and job.transcript.cues:
            spans = [span for span, unit in zip(spans, units, strict=True) if unit.shared is not None]
        return _store(parts, key, levels, spans) if spans and (len(units) > 1 or not job.transcript) else None
    except UnwritableError:
        raise
    except DataError:  # cut_recording names it
        return None


def cut_recording(job: CuttingJob) -> CutRecording | str:
    """Cut a recording, or read its record if the same content was cut with the same settings. Returns a problem as text.

    Raises UnwritableError if clips cannot be written: a full disk is no reason to leave out the recording.
    """
    try:
        key = _key_of(job)
        if record := read_record(job.records / f"{key}.json", job.clips):
            return record
        levels = measure_levels(job.source.path)
        units = job.add_words(job.units(levels, bool(job.words)))
        if not units:
            return f"{job.source.path}: {_without_speech(job, levels)}"
        return _store(job, key, levels, spans_of(units, levels.seconds, job.config))
    except UnwritableError:
        raise
    except DataError as error:
        return str(error)


def _without_speech(job: CuttingJob, levels: SoundLevels) -> str:
    loudest = float(np.max(levels.levels))
    if loudest < AUDIBLE:
        return f"no speech found in it: at {loudest:.0f} dBFS its loudest part is too quiet"
    if job.transcript and job.transcript.cues and is_speech(levels.levels).any():
        times = counted(len(job.transcript.cues), "time")
        return f"{times} in {job.transcript.origin}, none of which fits its {levels.seconds:.0f} s of sound"
    return "no speech found in it"


def _store(job: CuttingJob, key: str, levels: SoundLevels, spans: Sequence[Span]) -> CutRecording:
    """Write the clips of a recording, and then its record."""
    clips = list(_write_clips(job, levels, spans))
    speech = round(sum(sound.length for sound in find_sounds(levels, job.config.min_pause)), 3)
    missing = round(levels.missing / levels.rate, 3)
    facts = (job.source.name, key, round(levels.seconds, 3), levels.rate, levels.channels, speech, missing)
    record = CutRecording(*facts, clips)
    write_text(job.records / f"{key}.json", json.dumps(record, ensure_ascii=False))
    return record


def _key_of(job: CuttingJob) -> str:
    cues = job.transcript.cues if job.transcript else ()
    facts = [VERSION, job.source.name, job.source.slug, file_digest(job.source.path), asdict(job.config), cues]
    facts.append(job.is_one_clip)
    if job.recogniser:
        facts += [job.recogniser, job.transcript.text if job.transcript else ""]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def read_record(path: Path, clips: Path) -> CutRecording | None:
    """Read the record of a recording; None without one, or if one of its clips is missing."""
    try:
        fields: list[Any] = parse_json(path.read_bytes())
        rows = [CutClip._make([*row[:-1], Measures._make(row[-1])]) for row in fields[-1]]
        record = CutRecording._make([*fields[:-1], rows])
    except (OSError, ValueError, TypeError, IndexError):
        return None
    return record if all((clips / f"{clip.name}.wav").is_file() for clip in rows) else None


def _write_clips(job: CuttingJob, levels: SoundLevels, spans: Sequence[Span]) -> Iterator[CutClip]:
    speech = is_speech(levels.levels)
    width = max(4, len(str(len(spans))))
    sounds = read_spans(job.source.path, levels.rate, spans)
    for number, (span, samples) in enumerate(zip(spans, sounds, strict=True), 1):
        name = job.source.slug if len(spans) == 1 else f"{job.source.slug}_{number:0{width}}"
        first, last = (round(time / levels.step) for time in (span.start, span.end))
        near = slice(max(0, first - round(AROUND / levels.step)), last + round(AROUND / levels.step))
        of_speech, of_pauses = levels.levels[first:last][speech[first:last]], levels.levels[near][~speech[near]]
        measures = measure_clip(samples, levels.rate, of_speech, of_pauses)
        audio, silence = _finish(samples.mean(axis=1), levels.rate, job.config)
        try:
            save_audio(job.clips / f"{name}.wav", audio, job.config.sampling_rate)
        except DataError as error:
            raise UnwritableError(str(error)) from None
        digest = hashlib.sha256(to_pcm(audio).tobytes()).hexdigest()[:32]
        times = (round(span.start, 3), round(span.end, 3))
        yield CutClip(name, *times, span.text, span.in_speech, digest, silence, measures)


def _finish(mono: np.ndarray, rate: int, config: CuttingConfig) -> tuple[torch.Tensor, float]:
    """Convert a clip (N,) to its rate and level, and fill digital silence. Returns it, and the seconds of digital silence."""
    converted = at_rate(mono, rate, config.sampling_rate)
    audio = normalize(torch.from_numpy(converted).clamp(-1, 1), config.normalize).numpy()
    silent = find_silence(audio, config.sampling_rate)
    if config.fill_silence and silent.any():
        audio = fill_silence(audio, silent)
    return torch.from_numpy(audio), round(int(silent.sum()) / config.sampling_rate, 3)


def read_spans(path: Path, rate: int, spans: Sequence[Span]) -> Iterator[np.ndarray]:
    """Yield the samples (N, C) of spans in order, without overlap, holding at most a clip and a block in memory."""
    limits = [(round(span.start * rate), round(span.end * rate)) for span in spans]
    with open_sound(path) as sound:
        held, position = np.zeros((0, sound.channels), np.float32), 0  # the position in the file of held[0]
        for block in sound.blocks:
            held = np.concatenate([held, block])
            while limits and limits[0][1] <= position + len(held):
                start, end = limits.pop(0)
                yield held[start - position : end - position]
            wanted = limits[0][0] if limits else position + len(held)
            unused = min(max(0, wanted - position), len(held))
            held, position = held[unused:], position + unused
        for start, end in limits:  # rounding may put the last end a sample beyond the file's
            yield held[start - position : end - position]


class CutRecordings(NamedTuple):
    """Recordings with their clips, transcripts by recording, and the problems of recordings left out."""

    recordings: list[CutRecording]
    transcripts: Mapping[str, Transcript]
    problems: list[str]


def remove_stale(records: Path, clips: Path, recordings: Sequence[CutRecording]) -> None:
    """Remove, from two folders, the records and the clips of recordings that are gone or were cut differently."""
    keys = {f"{recording.key}.json" for recording in recordings}
    names = {clip.name for recording in recordings for clip in recording.clips}
    for path in records.glob("*.json"):
        if path.name not in keys:
            for name in _clips_of(path) - names:
                (clips / f"{name}.wav").unlink(missing_ok=True)
            path.unlink()


def _clips_of(record: Path) -> set[str]:
    try:
        return {row[0] for row in parse_json(record.read_bytes())[-1] if "/" not in row[0]}
    except (OSError, ValueError, TypeError, IndexError):
        return set()
