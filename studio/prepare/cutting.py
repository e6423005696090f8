"""Where to cut a recording: at pauses near sentence ends, into clips of a length that can be trained on."""

# T frames, U units

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from common.data.text_files import ends_sentence
from studio.prepare.alignment import assign_words
from studio.prepare.arguments import CuttingConfig
from studio.prepare.levels import SoundLevels, TimeSpan, find_sounds, is_speech, sounds_of_mask
from studio.prepare.transcripts import Cue

SNAP = 0.6  # largest distance from a subtitle's time to its pause, in seconds
LATE = 1.2  # seconds that speech may go on after a subtitle
FORCED_FROM = 0.4  # share of the longest clip before which no cut is forced
SHORTER_PAUSES = (0.12, 0.08)  # seconds; tried in speech that is too long for a clip
QUIET = 0.05  # seconds of low level at which a cut is forced
WINDOW = 28.0  # seconds of a stretch that a recogniser hears at once
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
    is_late: bool = False  # it begins within speech
    is_last: bool = False  # speech without a text follows it, so that its clip ends here
    shared: int | None = None  # number of a text that it shares with units of the same number, to be divided by words


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


def units_of(
    levels: SoundLevels,
    config: CuttingConfig,
    cues: Sequence[Cue] = (),
    is_one_clip: bool = False,
    has_words: bool = False,
) -> list[Unit]:
    """Divide a recording at every pause, or at its subtitles, `cues` in order; units then consist of whole ones.

    A recording that has one text, `is_one_clip`, stays whole if it is short enough. Where there are words, subtitles too long for
    a clip are divided at pauses, into units that share a text.
    """
    sounds = find_sounds(levels, config.min_pause)
    if not sounds:
        return []
    if cues:
        units = units_of_cues(cues, sounds, levels.seconds)
        return divide_long(units, sounds, levels, config) if has_words else units
    if is_one_clip and sounds[-1].end - sounds[0].start + 2 * config.margin <= config.max_duration:
        return [Unit(sounds[0].start, sounds[-1].end)]
    return [part for sound in sounds for part in divide(Unit(sound.start, sound.end), levels, config)]


def parts_of(units: Sequence[Unit], seconds: float, config: CuttingConfig) -> list[Span]:
    """Return a span for each unit of a recording of this many seconds."""
    return [_span(units, number, number + 1, seconds, config.margin) for number in range(len(units))]


def windows_of(units: Sequence[Unit], seconds: float, config: CuttingConfig) -> list[Span]:
    """Return spans of at most WINDOW seconds for the units of a recording, each up to the longest pause in its second half.

    None for a recording that is no longer than a clip.
    """
    spans, first = [], 0 if seconds > config.max_duration else len(units)
    while first < len(units):
        lengths = {last: units[last - 1].end - units[first].start for last in range(first + 1, len(units) + 1)}
        fitting = [last for last in lengths if lengths[last] <= WINDOW] or [first + 1]
        late = [last for last in fitting if lengths[last] >= WINDOW / 2] or fitting[-1:]
        last = (
            max(late, key=lambda last: units[last].start - units[last - 1].end)
            if fitting[-1] < len(units)
            else len(units)
        )
        spans.append(_span(units, first, last, seconds, config.margin))
        first = last
    return spans


def spans_of(units: Sequence[Unit], seconds: float, config: CuttingConfig) -> list[Span]:
    """Return the spans of the clips for the units of a recording of this many seconds."""
    return [_span(units, first, last, seconds, config.margin) for first, last in group(units, config)]


def join_sentences(units: Sequence[Unit], longest_pauses: Sequence[float], config: CuttingConfig) -> list[Unit]:
    """Join the units (U,) of each sentence that fits into a clip, so that no cut divides it.

    longest_pauses: (U,) in seconds, the longest pause after each unit within a sentence.
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


def divide(unit: Unit, levels: SoundLevels, config: CuttingConfig) -> list[Unit]:
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


def divide_in_speech(unit: Unit, levels: SoundLevels, longest: float) -> list[Unit]:
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


def units_of_cues(cues: Sequence[Cue], sounds: Sequence[TimeSpan], seconds: float) -> list[Unit]:
    """Return a unit for each subtitle, from the pause nearest its start to the last sound before the next one's.

    The times of subtitles are rarely exact, and most end where the next begins, so that starts tell more than ends. Subtitles
    whose start is not within SNAP of a pause, or whose pause a nearer one takes, belong to the one before.
    """
    cues = [cue for cue in cues if cue.start < seconds]
    pauses = nearest_pauses([cue.start for cue in cues], sounds)
    units: list[Unit] = []
    first = 0
    while first < len(cues):
        last = next((place for place in range(first + 1, len(cues)) if pauses[place] is not None), len(cues))
        following = pauses[last] if last < len(cues) else None
        units += _unit_of_cues(cues[first:last], pauses[first], following, sounds, seconds)
        first = last
    return units


def nearest_pauses(starts: Sequence[float], sounds: Sequence[TimeSpan]) -> list[int | None]:
    """Return for each start the sound that begins after the nearest pause, by index; None if it is not within SNAP.

    Each pause belongs to one start, and the order stays: of all pairs the nearest ones are taken first.
    """
    ends = [-math.inf, *(sound.end for sound in sounds[:-1])]  # of the sounds before the pauses
    pairs = []
    for index, start in enumerate(starts):
        for place in range(max(0, bisect.bisect_left(sounds, (start - SNAP,))), len(sounds)):
            if ends[place] > start + SNAP:
                break
            distance = max(ends[place] - start, start - sounds[place].start, 0.0)
            pairs.append((distance, abs(start - sounds[place].start), index, place))
    chosen: list[tuple[int, int]] = []  # (index, place), in order
    for _, _, index, place in sorted(pairs):
        at = bisect.bisect_left(chosen, (index, -1))
        is_free = at == len(chosen) or (chosen[at][0] != index and chosen[at][1] > place)
        if is_free and (at == 0 or chosen[at - 1][1] < place):
            chosen.insert(at, (index, place))
    found = dict(chosen)
    return [found.get(index) for index in range(len(starts))]


def _unit_of_cues(
    cues: Sequence[Cue], place: int | None, following: int | None, sounds: Sequence[TimeSpan], seconds: float
) -> list[Unit]:
    """Return the unit of adjacent subtitles, from the sound `place` to the sound before `following`; none without a sound."""
    end = min(max(cue.end for cue in cues), seconds)
    limit = len(sounds) if following is None else following
    first = place if place is not None else bisect.bisect([sound.end for sound in sounds], cues[0].start)
    inside = [index for index in range(first, limit) if sounds[index].start < end]
    if not inside:
        return []
    last = inside[-1]
    overlap = end - sounds[last].start
    if last > first and overlap < min(SNAP, sounds[last].length / 2):  # it ends late, in a sound without a text
        last -= 1
    start = sounds[first].start if place is not None else max(cues[0].start, sounds[first].start)
    is_long = sounds[last].end - end > LATE  # speech goes on long after it
    unit = Unit(start, end if is_long else sounds[last].end, " ".join(cue.text for cue in cues), is_forced=is_long)
    unit = replace(unit, is_sentence_end=ends_sentence(unit.text), is_late=start > sounds[first].start)
    return [replace(unit, is_last=last + 1 < limit)] if unit.end > unit.start else []


def divide_long(
    units: Sequence[Unit], sounds: Sequence[TimeSpan], levels: SoundLevels, config: CuttingConfig
) -> list[Unit]:
    """Divide the units of subtitles that are too long for a clip at their pauses, into parts that share the text."""
    divided: list[Unit] = []
    for number, unit in enumerate(units):
        if unit.end - unit.start + 2 * config.margin <= config.max_duration:
            divided.append(unit)
            continue
        inside = [(max(sound.start, unit.start), min(sound.end, unit.end)) for sound in sounds]
        whole = [Unit(start, end) for start, end in inside if start < end]
        parts = [part for stretch in whole for part in divide(stretch, levels, config)]
        parts = [replace(part, text=unit.text, shared=number) for part in parts]
        parts[0] = replace(parts[0], is_late=unit.is_late)
        parts[-1] = replace(parts[-1], is_forced=unit.is_forced, is_last=unit.is_last)
        divided += parts
    return divided


def share_texts(units: Sequence[Unit], words: Sequence[str], language: str = "en") -> list[Unit]:
    """Divide each shared text among its units, by the words recognised in each of those units, in order.

    Units that get none of it are left out, and no clip goes across them.
    """
    remaining = iter(words)
    shared: list[Unit] = []
    for number, stretch in groupby(units, key=lambda unit: unit.shared):
        parts = list(stretch)
        if number is None:
            shared += parts
            continue
        texts = assign_words(parts[0].text, [next(remaining) for _ in parts], language)
        for part, text in zip(parts, texts, strict=True):
            if text:
                shared.append(replace(part, text=text, is_sentence_end=ends_sentence(text), shared=None))
            elif shared:
                shared[-1] = replace(shared[-1], is_last=True)
    return shared


def group(units: Sequence[Unit], config: CuttingConfig) -> list[tuple[int, int]]:
    """Join units into clips, (first, last + 1) each: the division with the lowest cost, by dynamic programming."""
    best = np.full(len(units) + 1, np.inf)
    best[0] = 0.0
    previous = np.zeros(len(units) + 1, dtype=int)
    for last in range(1, len(units) + 1):
        for first in range(last - 1, -1, -1):
            length = units[last - 1].end - units[first].start + 2 * config.margin
            if first < last - 1 and (length > config.max_duration or units[first].is_last):
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
    in_speech = units[last - 1].is_forced or units[first].is_late or (first > 0 and units[first - 1].is_forced)
    text = " ".join(unit.text for unit in units[first:last] if unit.text)
    first_second = max(0.0, start - min(margin, max(0.0, before) / 2))
    last_second = min(seconds, end + min(margin, max(0.0, after) / 2))
    return Span(first_second, last_second, text, in_speech)
