"""Where to cut a recording: at pauses near sentence ends, into clips of a length that can be trained on."""

# T frames, U units

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from studio.prepare.arguments import CuttingConfig
from studio.prepare.levels import Interval, Levels, find_sounds, is_speech, sounds_of_mask
from studio.prepare.transcripts import Cue, ends_sentence

SNAP = 0.6  # largest distance from a subtitle's time to its pause, in seconds
FORCED_FROM = 0.4  # share of the longest clip before which no cut is forced
SHORTER_PAUSES = (0.12, 0.08)  # seconds; tried in speech that is too long for a clip
QUIET = 0.05  # seconds of low level at which a cut is forced
LONG_PAUSE = 0.6  # seconds; within a clip a longer one costs
# Costs of a division.
PER_CLIP, TOO_SHORT, TOO_LONG, NO_SENTENCE_END, FORCED = 0.3, 20.0, 50.0, 3.0, 4.0
COMFORTABLE = (2.5, 9.0)  # seconds; costs grow outside


@dataclass(frozen=True)
class Unit:
    """A stretch of speech that no cut divides, in seconds."""

    start: float
    end: float
    text: str = ""  # from subtitles or the recogniser
    is_sentence_end: bool | None = None  # None: unknown
    is_forced: bool = False  # more speech follows it, without a pause


class Span(NamedTuple):
    """A clip within its recording, in seconds, with the text of its units; `in_speech` if it starts or ends within speech."""

    start: float
    end: float
    text: str
    in_speech: bool

    @property
    def length(self) -> float:
        """In seconds."""
        return self.end - self.start


def units_of(levels: Levels, config: CuttingConfig, cues: Sequence[Cue] = (), is_one_clip: bool = False) -> list[Unit]:
    """Divide a recording at every pause, or at its subtitles.

    Args:
        levels: of the recording.
        config: limits of the clips.
        cues: its subtitles, in order; units then consist of whole ones.
        is_one_clip: the recording has one text; it stays whole if it is short enough.
    """
    sounds = find_sounds(levels.levels, levels.step, config.min_pause)
    if not sounds:
        return []
    if cues:
        return units_of_cues(cues, sounds, levels.seconds)
    if is_one_clip and sounds[-1].end - sounds[0].start + 2 * config.margin <= config.max_duration:
        return [Unit(sounds[0].start, sounds[-1].end)]
    return [part for sound in sounds for part in divide(Unit(sound.start, sound.end), levels, config)]


def parts_of(units: Sequence[Unit], seconds: float, config: CuttingConfig) -> list[Span]:
    """Return a span for each unit of a recording of this many seconds."""
    return [_span(units, number, number + 1, seconds, config.margin) for number in range(len(units))]


def spans_of(units: Sequence[Unit], seconds: float, config: CuttingConfig) -> list[Span]:
    """Return the spans of the clips for the units of a recording of this many seconds."""
    return [_span(units, first, last, seconds, config.margin) for first, last in group(units, config)]


def join_sentences(units: Sequence[Unit], longest_pauses: Sequence[float], config: CuttingConfig) -> list[Unit]:
    """Join the units of each sentence that fits into a clip, so that no cut divides it.

    Args:
        units: of a recording (U,), in order.
        longest_pauses: (U,) in seconds, the longest pause after each unit within a sentence.
        config: limits of the clips.
    """
    joined: list[Unit] = []
    first = 0
    for last in range(1, len(units) + 1):
        if last < len(units) and units[last].start - units[last - 1].end <= longest_pauses[last - 1]:
            continue
        sentence, first = units[first:last], last
        if sentence[-1].end - sentence[0].start + 2 * config.margin <= config.max_duration:
            text = " ".join(unit.text for unit in sentence if unit.text)
            joined.append(replace(sentence[-1], start=sentence[0].start, text=text))
        else:
            joined += [*(replace(unit, is_sentence_end=False) for unit in sentence[:-1]), sentence[-1]]
    return joined


def divide(unit: Unit, levels: Levels, config: CuttingConfig) -> list[Unit]:
    """Divide speech that is too long for a clip: at shorter pauses, or else where it is quietest."""
    longest = config.max_duration - 2 * config.margin
    if unit.end - unit.start <= longest:
        return [unit]
    first, last = (round(time / levels.step) for time in (unit.start, unit.end))
    is_sound = is_speech(levels.levels)[first:last]
    for pause in SHORTER_PAUSES:
        sounds = sounds_of_mask(is_sound, levels.step, pause)
        if len(sounds) > 1:
            parts = [replace(unit, start=unit.start + sound.start, end=unit.start + sound.end) for sound in sounds]
            return [piece for part in parts for piece in divide(part, levels, config)]
    return divide_in_speech(unit, levels, longest)


def divide_in_speech(unit: Unit, levels: Levels, longest: float) -> list[Unit]:
    """Divide speech without pauses where it is quietest, into parts of at most `longest` seconds."""
    parts = []
    while unit.end - unit.start > longest:
        first, last = (round((unit.start + share * longest) / levels.step) for share in (FORCED_FROM, 1.0))
        width = max(1, round(QUIET / levels.step))
        powers = np.convolve(10 ** (levels.levels[first:last] / 10), np.ones(width), mode="valid")
        place = (first + int(powers.argmin()) + width / 2) * levels.step
        parts.append(Unit(unit.start, place, is_forced=True))
        unit = replace(unit, start=place)
    return [*parts, unit]


def units_of_cues(cues: Sequence[Cue], sounds: Sequence[Interval], seconds: float) -> list[Unit]:
    """Move the boundaries of subtitles into pauses. Subtitles without a pause between them become one unit.

    The times of subtitles are rarely exact: a boundary moves by up to SNAP to the end of a stretch of sound.
    """
    cues = [cue for cue in cues if cue.start < seconds]
    starts, ends = np.array([sound.start for sound in sounds]), np.array([sound.end for sound in sounds])
    units: list[Unit] = []
    is_open = False
    for number, cue in enumerate(cues):
        following = cues[number + 1].start if number + 1 < len(cues) else None
        start, end = _nearest(starts, cue.start), _nearest(ends, min(cue.end, seconds))
        after = _nearest(starts, following) if following is not None else None
        is_adjacent = following is not None and following - cue.end < SNAP
        if is_adjacent and (end is None or after is None or end > after):  # no pause: the next cue belongs to this one
            end = None
        elif end is None:
            end = min(cue.end, seconds)
        if is_open:
            last = units.pop()
            units.append(Unit(last.start, end or cue.end, f"{last.text} {cue.text}", ends_sentence(cue.text)))
        else:
            start = cue.start if start is None else start
            units.append(Unit(start, end or cue.end, cue.text, ends_sentence(cue.text)))
        is_open = end is None
    return [unit for unit in units if unit.end > unit.start]


def _nearest(times: np.ndarray, time: float) -> float | None:
    """Return the nearest time within SNAP, or None."""
    nearest = float(times[np.abs(times - time).argmin()])
    return nearest if abs(nearest - time) <= SNAP else None


def group(units: Sequence[Unit], config: CuttingConfig) -> list[tuple[int, int]]:
    """Join units into clips, (first, last + 1) each: the division with the lowest cost, by dynamic programming."""
    best = np.full(len(units) + 1, np.inf)
    best[0] = 0.0
    previous = np.zeros(len(units) + 1, dtype=int)
    for last in range(1, len(units) + 1):
        for first in range(last - 1, -1, -1):
            length = units[last - 1].end - units[first].start + 2 * config.margin
            if length > config.max_duration and first < last - 1:
                break
            cost = best[first] + clip_cost(units, first, last, config)
            if cost < best[last]:
                best[last], previous[last] = cost, first
    groups = []
    last = len(units)
    while last:
        first = int(previous[last])
        groups.append((first, last))
        last = first
    return groups[::-1]


def clip_cost(units: Sequence[Unit], first: int, last: int, config: CuttingConfig) -> float:
    """Cost of a clip of units[first:last]: its length, the pauses in it, and where it ends."""
    length = units[last - 1].end - units[first].start + 2 * config.margin
    low, high = COMFORTABLE
    cost = PER_CLIP + max(0.0, (low - length) / low, (length - high) / 2) ** 2
    cost += TOO_SHORT * (length < config.min_duration) + TOO_LONG * (length > config.max_duration)
    inner = [units[i + 1].start - units[i].end for i in range(first, last - 1)]
    cost += sum(4 * max(0.0, pause - LONG_PAUSE) for pause in inner)
    if last < len(units):
        pause = units[last].start - units[last - 1].end
        cost += max(0.0, LONG_PAUSE - pause) / LONG_PAUSE
        cost += NO_SENTENCE_END * (units[last - 1].is_sentence_end is False) + FORCED * units[last - 1].is_forced
    return cost


def _span(units: Sequence[Unit], first: int, last: int, seconds: float, margin: float) -> Span:
    """Return a clip with silence at either end: the margin, or half of a shorter pause."""
    start, end = units[first].start, units[last - 1].end
    before = start - units[first - 1].end if first else 2 * start
    after = units[last].start - end if last < len(units) else 2 * (seconds - end)
    in_speech = units[last - 1].is_forced or (first > 0 and units[first - 1].is_forced)
    text = " ".join(unit.text for unit in units[first:last] if unit.text)
    return Span(
        max(0.0, start - min(margin, max(0.0, before) / 2)),
        min(seconds, end + min(margin, max(0.0, after) / 2)),
        text,
        in_speech,
    )
