"""The verdict on a voice: which vocoder is the default, and whether the voice is worse than the embedded one."""

import math

import numpy as np
import pytest
import soundfile

from common.inference.config import GRIFFIN_LIM
from common.quality.report import Line, System
from common.quality.words import Errors
from studio.voice.verdict import EMBEDDED_VOICE, RECORDINGS, SPEAKER, Listener, choose_vocoder, judge
from tests.recipe import ROOT, skip_without_evaluators

NAN = math.nan


def system(wrong: float, likeness: float, repeats: float = NAN, lines: int = 2) -> System:
    """A system whose lines of 100 words have a share of wrong ones, a likeness, and a skip and repeats; nan: not measured."""
    counts = {} if math.isnan(wrong) else {"wer": Errors(round(100 * wrong), 100)}
    values = {SPEAKER: likeness, "skips": 1.0, "repeats": repeats}
    values = {name: value for name, value in values.items() if not math.isnan(value)}
    return System("a system", [Line("", np.zeros(1), "", values, counts, {})] * lines, 1.0)


@pytest.mark.parametrize(
    ("griffin_lim", "waveglow", "pulse_noise", "expected"),
    [
        ((0.10, 0.7), (0.30, 0.9), (0.20, 0.8), GRIFFIN_LIM),  # words first
        ((0.10, 0.7), (0.30, 0.9), (0.11, 0.8), "pulse-noise"),  # then likeness
        ((0.10, 0.7), (0.12, 0.9), (0.11, 0.8), "waveglow"),
        ((0.10, NAN), (0.11, NAN), (0.09, NAN), "pulse-noise"),
        ((NAN, 0.7), (NAN, 0.6), (NAN, 0.8), "pulse-noise"),  # another language
        ((9.00, 0.7), (0.90, 0.6), (2.00, 0.8), "waveglow"),  # endless lines count as all wrong
        ((0.10, 0.7), (0.10, 0.7), (0.10, 0.7), "waveglow"),
        ((NAN, NAN), (NAN, NAN), (NAN, NAN), "waveglow"),
        ((0.10, 0.7), (0.10, NAN), (0.10, 0.7), "pulse-noise"),  # one that is silent
    ],
)
def test_words_then_likeness_choose_the_vocoder(griffin_lim, waveglow, pulse_noise, expected: str) -> None:
    found = {GRIFFIN_LIM: system(*griffin_lim), "waveglow": system(*waveglow), "pulse-noise": system(*pulse_noise)}
    assert choose_vocoder(found, ["waveglow", "pulse-noise", GRIFFIN_LIM]) == expected


@pytest.mark.parametrize(
    ("voice", "embedded", "sentence"),
    [
        ((0.72, 0.598), (0.07, 0.666), "worse than the embedded one: harder to understand and further from the"),
        ((0.41, 0.768), (0.07, 0.669), "worse than the embedded one: harder to understand and closer to the speaker"),
        ((0.08, 0.669), (0.07, 0.669), "worse than the embedded one: as easy to understand and no closer to the"),
        ((0.12, 0.768), (0.07, 0.669), "better than the embedded one: harder to understand and closer to the speaker"),
        ((0.02, 0.768), (0.07, 0.669), "better than the embedded one: easier to understand and closer to the speaker"),
        ((NAN, 0.5), (NAN, 0.6), "worse than the embedded one: further from the speaker"),
        ((NAN, 0.7, 2.1), (NAN, 0.6, 1), "worse than the embedded one: skipping and repeating more and closer to the"),
        ((NAN, 0.7, 0.9), (NAN, 0.6, 0), "better than the embedded one: skipping and repeating more and closer to the"),
        ((NAN, 0.7, 0.2), (NAN, 0.6, 0), "better than the embedded one: reading as surely and closer to the speaker"),
        (
            (0.08, 0.7, 9.9),
            (0.07, 0.6, 0),
            "better than the embedded one: as easy to understand and closer to the speaker",
        ),
        ((0.05, NAN), (0.05, NAN), "better than the embedded one: as easy to understand"),
        ((NAN, NAN), (NAN, NAN), "not judged"),
    ],
)
def test_a_voice_is_judged_beside_the_embedded_one(voice, embedded, sentence: str) -> None:
    """A training of two minutes ended with "finished": 72 % of words wrong, and further from the speaker than before."""
    systems = {"mine": system(*voice), EMBEDDED_VOICE: system(*embedded), RECORDINGS: system(0.05, 0.923)}
    verdict = judge(systems, "mine", ["words, because the recogniser only knows English"])
    lines = verdict.lines("mine", "about 3 h are needed")
    assert sentence in verdict.sentence and verdict.sentence in lines
    assert verdict.sentence.endswith((", on 2 validation lines.", "not judged."))
    assert "the recordings: 5.0 % of words wrong, likeness 0.923" in lines
    assert verdict.is_worse == ("worse" in sentence) == lines[-1].startswith("warning: use the embedded voice")
    assert lines[-1].endswith("; about 3 h are needed") == verdict.is_worse
    assert "Not measured: words, because the recogniser only knows English." in lines


def test_a_speaker_is_like_himself_and_silence_like_nobody() -> None:
    skip_without_evaluators("resemblyzer")

    clips = [ROOT / "corpus" / "sentences" / f"sentence_{number:04}.ogg" for number in range(1, 6)]
    listen = Listener(clips[:4], 22050)
    sound, rate = soundfile.read(clips[4])
    own, high, silent = (
        listen(Line("", audio, "", {}, {}, {}), rate * faster).values.get(SPEAKER)
        for audio, faster in ((sound, 1), (sound, 2), (np.zeros(rate), 1))
    )
    assert own > 0.8 > high and silent is None
