"""Settings of `studio.prepare`, each default written once."""

from __future__ import annotations

from dataclasses import dataclass

from common.audio.stft import AudioConfig
from common.errors import UsageError

KEY_VARIABLE = "TRANSCRIBER_API_KEY"  # of the environment


@dataclass(frozen=True, kw_only=True)
class CuttingConfig:
    """Settings that decide the clips of a recording. Times are in seconds.

    Raises UsageError for limits that contradict each other.
    """

    sampling_rate: int = AudioConfig.sampling_rate  # Hz, of the clips
    min_duration: float = 1.0
    max_duration: float = 11.0
    min_pause: float = 0.2  # a shorter silence belongs to a word
    margin: float = 0.1  # silence that stays at either end of a clip
    normalize: str = "loudness"  # one of common.audio.audio_processing.NORMALIZATIONS
    fill_silence: bool = True  # low noise in place of digital silence

    def __post_init__(self) -> None:
        if self.min_duration + 2 * self.margin >= self.max_duration:
            raise UsageError(
                f"--max-duration {self.max_duration:g}: expected more than --min-duration {self.min_duration:g} and two margins"
            )


@dataclass(frozen=True, kw_only=True)
class TextConfig:
    """Settings of the texts: the language, and the recogniser of the words."""

    language: str = "en"
    verify: bool = True
    transcriber: str | None = None  # base URL of an endpoint; None: the recogniser of common.quality
    transcriber_model: str = "whisper-1"
    transcriber_requests: int = 4  # at a time

    @property
    def recogniser(self) -> str:
        """The recogniser's name for stored words; "" where no recogniser has this language."""
        if self.transcriber:
            return f"{self.transcriber} {self.transcriber_model} {self.language}"
        return "moonshine tiny" if self.language == "en" else ""


@dataclass(frozen=True, kw_only=True)
class FaultLimits:
    """Limits from which on a clip has a fault. Levels are in dB."""

    clipping_runs: int = 3  # runs of samples at full scale
    min_snr: float = 20.0
    min_bandwidth: float = 5000.0  # Hz; telephone speech ends at 4000
    loudness: float = 8.0  # from the median of all clips
    max_words_wrong: float = 0.4  # share of a transcript's words
    pace: float = 2.5  # times the median letters a second, or less than one part in as many
