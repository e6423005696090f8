"""The verdict on a voice: whether it is better or worse than the embedded one, by wrong words and by likeness to the speaker."""

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
from common.quality.evaluators import VoiceEmbedder
from common.quality.report import ReportLine, System, capped_error_rate, mean

SPEAKER = "speaker"  # the measure of likeness: among the values of a line
SHORTEST = 0.4  # seconds of a clip whose voice can be compared
CLOSE_WORDS = 0.02  # share of words: systems as close as this are understood equally well
CLOSE_VOICE = 0.01  # of likeness, similarly
STUMBLES = "skips", "repeats"  # of attention: where words are not counted, they say how surely a voice reads
CLOSE_STUMBLES, FAR_STUMBLES = 0.5, 1.0  # a line
FAR_WORDS = 0.1  # a voice with this many more wrong words is the worse one, however close to the speaker
KEY = "verdict"  # in config.json of a voice
RECORDINGS, EMBEDDED_VOICE = "the recordings", "the embedded voice"
SURENESS = "reading more surely", "reading as surely", "skipping and repeating more"
EFFORT = "easier to understand", "as easy to understand", "harder to understand"
NEARNESS = "further from the speaker", "no closer to the speaker", "closer to the speaker"
ADVICE = (
    "use the embedded voice (no --voice) until this one is better; more minutes of speech and a longer training help"
)


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
    """A system's share of wrong words, at most all of a line's, its mean likeness, and its stumbles a line; nan: not measured."""

    words: float
    likeness: float
    stumbles: float

    def __str__(self) -> str:
        words = "" if math.isnan(self.words) else f"{100 * self.words:.1f} % of words wrong"
        likeness = "" if math.isnan(self.likeness) else f"likeness {self.likeness:.3f}"
        stumbles = "" if words or math.isnan(self.stumbles) else f"{self.stumbles:.1f} skips and repeats a line"
        return ", ".join(filter(None, (words, likeness, stumbles))) or "not measured"


def score(system: System) -> Score:
    """Score a system."""
    measures = [(SPEAKER,), STUMBLES]
    values = [[sum(line.values.get(name, math.nan) for name in names) for line in system.lines] for names in measures]
    likeness, stumbles = (mean(np.array(found)) for found in values)
    return Score(capped_error_rate(system), likeness, stumbles)


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
    """A voice's score beside those of the embedded voice and of the recordings; `unmeasured` says what is missing and why."""

    voice: Score
    embedded: Score
    recordings: Score
    count: int  # lines
    unmeasured: str = ""

    @property
    def harder(self) -> float:
        """Wrong words beyond those of the embedded voice; nan if they are not counted."""
        return self.voice.words - self.embedded.words

    @property
    def closer(self) -> float:
        """Likeness beyond that of the embedded voice; nan if it is not measured."""
        return self.voice.likeness - self.embedded.likeness

    @property
    def less_sure(self) -> float:
        """Stumbles a line beyond those of the embedded voice; nan where wrong words say more, or if they are not counted."""
        return self.voice.stumbles - self.embedded.stumbles if math.isnan(self.harder) else math.nan

    @property
    def is_worse(self) -> bool:
        """True if the voice is not closer to the speaker than the embedded one, or much harder to understand or less sure."""
        return self.closer < CLOSE_VOICE or self.harder > FAR_WORDS or self.less_sure > FAR_STUMBLES

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        compared = [
            _compare(self.harder, CLOSE_WORDS, EFFORT),
            _compare(self.less_sure, CLOSE_STUMBLES, SURENESS),
            _compare(self.closer, CLOSE_VOICE, NEARNESS),
        ]
        found = [word for word in compared if word]
        if not found:
            return "The voice was not judged."
        whole = "worse" if self.is_worse else "better"
        on = f"on {self.count} validation line{'s' * (self.count != 1)}"
        return f"The voice is {whole} than the embedded one: {' and '.join(found)}, {on}."

    def lines(self, name: str, need: str) -> list[str]:
        """Describe the verdict: the scores, a sentence, and a warning with what helps where the voice is worse."""
        scores = {f"the voice, {name}": self.voice, EMBEDDED_VOICE: self.embedded, RECORDINGS: self.recordings}
        lines = [f"{system}: {found}" for system, found in scores.items()]
        lines.append(self.sentence)
        lines += [f"Not measured: {self.unmeasured}."] if self.unmeasured else []
        if self.is_worse:
            lines.append(f"warning: {ADVICE}{f'; {need}' if need else ''}")
        return lines


def _compare(difference: float, near: float, words: tuple[str, str, str]) -> str:
    """Return the word for a difference: far below 0, near it, or far above; "" for nan."""
    if math.isnan(difference):
        return ""
    return words[1 if abs(difference) < near else 2 if difference > 0 else 0]


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


def judge(systems: Mapping[str, System], vocoder: str, unmeasured: Sequence[str]) -> Verdict:
    """Judge a voice through one of its vocoders."""
    voice, embedded, recorded = (score(systems[name]) for name in (vocoder, EMBEDDED_VOICE, RECORDINGS))
    count = len(systems[vocoder].lines)
    return Verdict(voice=voice, embedded=embedded, recordings=recorded, count=count, unmeasured="; ".join(unmeasured))
