"""The verdict on a voice: whether it is better or worse than the embedded one, by wrong words and by likeness to the speaker.

A voice of another language, which the embedded one does not speak, is described beside the recordings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from common.audio.audio_processing import load_audio
from common.errors import DataError
from common.inference.voice_folder import read_config
from common.progress import counted
from common.quality.evaluators import VoiceEmbedder
from common.quality.report import Interval, ReportLine, System, bootstrap, capped_error_rate, mean, pooled_rate

SPEAKER = "speaker"  # the measure of likeness: among the values of a line
SHORTEST = 0.4  # seconds of a clip whose voice can be compared
CLOSE_WORDS = 0.02  # share of words: systems as close as this are understood equally well
CLOSE_VOICE = 0.01  # of likeness, similarly
LEAST_LINES = 10  # for a verdict
ENOUGH_WAY = 0.2  # of the way from the embedded voice's likeness to the recordings' own: after one step it was 0.07
BETTER, WORSE, UNDECIDED, UNCLEAR = "better", "worse", "undecided", "unclear"
FAR_WORDS = 0.1  # a voice with this many more wrong words is the worse one, however close to the speaker
KEY = "verdict"  # in config.json of a voice
RECORDINGS, EMBEDDED_VOICE = "the recordings", "the embedded voice"
EFFORT = "easier to understand", "as easy to understand", "harder to understand"
NEARNESS = "further from the speaker", "no closer to the speaker", "closer to the speaker"
NEARNESS_TO_RECORDINGS = "further from the speaker", "as close to the speaker", "closer to the speaker"
ADVICE = (
    "use the embedded voice (no --voice) until this one is better; more minutes of speech and a longer training help"
)
UNDECIDED_ADVICE = (
    "listen to both voices and judge for yourself; more minutes of speech give more lines and a clear verdict"
)
HEARD_TEXTS = "the recordings' wrong words, because the recogniser wrote their texts"
UNCLEAR_ADVICE = "it is far harder to understand than the recordings; more minutes of speech and a longer training help"


class Listener:
    """Measures the likeness of lines to a speaker: the cosine of a line's voice embedding with the mean of some clips'."""

    def __init__(self, clips: Iterable[Path], rate: int) -> None:
        """Listen to the speaker's clips, of `rate` Hz. Raises DataError if the package is not installed."""
        self.embed = VoiceEmbedder()
        sounds = (load_audio(path, rate).numpy() for path in clips)
        total = np.sum([self.embed(sound, rate) for sound in sounds if has_voice(sound, rate)], axis=0)
        self.speaker = total / max(float(np.linalg.norm(total)), 1e-9)

    def __call__(self, line: ReportLine, rate: int) -> ReportLine:
        """Return a line, of `rate` Hz, with its likeness, unless it is too short for one."""
        if not has_voice(line.sound, rate):
            return line
        return line._replace(values=line.values | {SPEAKER: float(np.dot(self.embed(line.sound, rate), self.speaker))})


def has_voice(sound: np.ndarray, rate: int) -> bool:
    """Return True if a sound (N,) is long enough to compare its voice, and no silence."""
    return len(sound) > SHORTEST * rate and bool(np.any(sound))


class Score(NamedTuple):
    """A system's share of wrong words, at most all of a line's, and its mean likeness; nan: not measured."""

    words: float
    likeness: float

    def __str__(self) -> str:
        words = "" if math.isnan(self.words) else f"{100 * self.words:.1f} % of words wrong"
        likeness = "" if math.isnan(self.likeness) else f"likeness {self.likeness:.3f}"
        return ", ".join(filter(None, (words, likeness))) or "not measured"


def score(system: System) -> Score:
    """Score a system."""
    return Score(capped_error_rate(system), mean(np.array(_likeness(system.lines))))


def choose_vocoder(systems: Mapping[str, System], preferred: Sequence[str]) -> str:
    """Choose among vocoders: of those close to the fewest wrong words the one with the highest likeness.

    Without likeness, the fewest wrong words; between equal ones, and where nothing is measured, the first of `preferred`.
    """
    scores = {name: score(systems[name]) for name in preferred}
    counted = [found.words for found in scores.values() if not math.isnan(found.words)]
    fewest = min(counted, default=math.nan)
    near = [name for name, found in scores.items() if not found.words > fewest + CLOSE_WORDS]
    return max(near, key=lambda name: tuple(np.nan_to_num([scores[name].likeness, -scores[name].words])))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A voice's score beside those of the embedded voice, None in another language, and of the recordings.

    The differences are over lines, with 95 % intervals: wrong words beyond those of the embedded voice (`harder`), likeness beyond
    its own (`closer`); nan: not measured. Without it they are those to the recordings. `unmeasured` says what is missing and why.
    """

    voice: Score
    embedded: Score | None
    recordings: Score
    harder: Interval
    closer: Interval
    count: int  # lines
    unmeasured: str = ""
    heard_texts: bool = False  # the recogniser wrote the texts: that it hears them in the recordings says nothing

    @property
    def way(self) -> float:
        """Share of the way from the embedded voice's likeness to the recordings' own; nan if it is not measured."""
        return self.closer.value / self._whole if self._whole > CLOSE_VOICE else math.nan

    @property
    def _whole(self) -> float:
        return self.recordings.likeness - self.embedded.likeness if self.embedded else math.nan

    @property
    def wanted(self) -> float:
        """The likeness that a voice must have beyond the embedded one's: a share of the way to the recordings' own."""
        return CLOSE_VOICE if math.isnan(self._whole) else max(CLOSE_VOICE, ENOUGH_WAY * self._whole)

    @property
    def outcome(self) -> str:
        """BETTER or WORSE where enough lines show it, "" where nothing is measured, else UNDECIDED, as where words are not counted.

        Beside the recordings: UNCLEAR where far more words are wrong, else "".
        """
        is_unclear = self.harder.low > CLOSE_WORDS and self.harder.value > FAR_WORDS
        if self.embedded is None:
            return UNCLEAR if is_unclear else ""
        if math.isnan(self.harder.value) and math.isnan(self.closer.value):
            return ""
        if self.count < LEAST_LINES:
            return UNDECIDED
        if is_unclear or self.closer.high < self.wanted:
            return WORSE
        is_close = math.isnan(self.closer.value) or (self.closer.low > 0 and self.closer.value >= self.wanted)
        return BETTER if is_close and self.harder.high <= FAR_WORDS else UNDECIDED

    @property
    def is_worse(self) -> bool:
        """True if enough lines show that the voice is not worth its training yet."""
        return self.outcome == WORSE

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        beside_itself = self.heard_texts and self.embedded is None and self.outcome != UNCLEAR
        compared = [
            "" if beside_itself else _compare(self.harder, CLOSE_WORDS, EFFORT),
            _compare(self.closer, CLOSE_VOICE, NEARNESS if self.embedded else NEARNESS_TO_RECORDINGS),
        ]
        found = [word for word in compared if word]
        if not found:
            return "The voice was not judged."
        way = "" if math.isnan(self.way) else f" ({100 * self.way:.0f} % of the way to the recordings' own likeness)"
        on = f"on {counted(self.count, 'validation line')}"
        seen = f"{' and '.join(found)}{way}, {on}"
        if self.embedded is None:
            return f"Beside the recordings the voice is {seen}."
        if self.outcome != UNDECIDED:
            return f"The voice is {self.outcome} than the embedded one: {seen}."
        few = f"; a verdict needs {LEAST_LINES}" if self.count < LEAST_LINES else ", which do not show more"
        return f"Undecided whether the voice is better than the embedded one: it seems {seen}{few}."

    def lines(self, name: str, need: str) -> list[str]:
        """Describe the verdict: the scores, a sentence, and a warning with what helps where the voice is not better."""
        scores = {f"the voice, {name}": self.voice, EMBEDDED_VOICE: self.embedded, RECORDINGS: self.recordings}
        lines = [f"{system}: {found}" for system, found in scores.items() if found]
        lines.append(self.sentence)
        if self.embedded and self.count >= LEAST_LINES and not math.isnan(self.closer.low):
            low, high = self.closer.low, self.closer.high
            lines.append(
                f"Likeness beyond the embedded voice's: {self.closer.value:+.3f}, 95 % interval {low:+.3f} to {high:+.3f}."
            )
        lines += [f"Not measured: {self.unmeasured}."] if self.unmeasured else []
        advice = {WORSE: ADVICE, UNDECIDED: UNDECIDED_ADVICE, UNCLEAR: UNCLEAR_ADVICE}.get(self.outcome)
        if advice:
            lines.append(f"warning: {advice}{f'; {need}' if need else ''}")
        return lines


def _compare(difference: Interval, near: float, words: tuple[str, str, str]) -> str:
    """Return the word for a difference: far below 0, near it, or far above; "" for nan."""
    if math.isnan(difference.value):
        return ""
    return words[1 if abs(difference.value) < near else 2 if difference.value > 0 else 0]


class Stored(NamedTuple):
    """A verdict as config.json has it: its lines, and whether to begin with the embedded voice."""

    lines: list[str]
    prefers_embedded: bool


def read_verdict(voice: Path) -> Stored:
    """Read the verdict on a voice from its folder; an empty one if there is none, or the file is damaged."""
    try:
        stored = read_config(voice)[KEY]
        return Stored([str(line) for line in stored["lines"]], stored["prefers_embedded"] is True)
    except (DataError, KeyError, TypeError):
        return Stored([], False)


def judge(systems: Mapping[str, System], vocoder: str, unmeasured: Sequence[str], heard_texts: bool = False) -> Verdict:
    """Judge a voice through one of its vocoders, beside the embedded one if that is among the systems."""
    own, other = systems[vocoder].lines, systems.get(EMBEDDED_VOICE, systems[RECORDINGS]).lines
    embedded = score(systems[EMBEDDED_VOICE]) if EMBEDDED_VOICE in systems else None
    recordings = score(systems[RECORDINGS])
    pairs = [(_capped(mine), _capped(theirs)) for mine, theirs in zip(own, other, strict=True)]
    harder = bootstrap(np.array([(*mine, *theirs) for mine, theirs in pairs]), _beyond)
    likeness = [mine - theirs for mine, theirs in zip(_likeness(own), _likeness(other), strict=True)]
    return Verdict(
        voice=score(systems[vocoder]),
        embedded=embedded,
        recordings=recordings._replace(words=math.nan) if heard_texts else recordings,
        harder=harder,
        closer=bootstrap(likeness),
        count=len(own),
        unmeasured="; ".join([*unmeasured, HEARD_TEXTS] if heard_texts else unmeasured),
        heard_texts=heard_texts,
    )


def _capped(line: ReportLine) -> tuple[float, float]:
    """Return a line's wrong words, at most all of them, and its words; nan if they are not counted."""
    errors = line.counts["wer"].cap() if "wer" in line.counts else None
    return (math.nan, math.nan) if errors is None else (errors.errors, errors.count)


def _beyond(counts: np.ndarray) -> float:
    """Return the share of wrong words of the first pair of columns beyond that of the second."""
    return pooled_rate(counts[:, :2]) - pooled_rate(counts[:, 2:])


def _likeness(lines: Sequence[ReportLine]) -> list[float]:
    """Return the likeness of each line; nan where it is not measured."""
    return [line.values.get(SPEAKER, math.nan) for line in lines]
