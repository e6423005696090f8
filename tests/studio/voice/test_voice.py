"""A voice: its vocoders, its weights, and the strength of its denoiser."""

import math
import signal
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch
from scipy import stats

from common.checkpoint.files import load_checkpoint, save_checkpoint
from common.inference.config import EMBEDDED_DENOISING_STRENGTH, GRIFFIN_LIM
from common.inference.voice_folder import about_voice
from common.options import from_options
from common.quality import recogniser
from common.quality.recogniser import RecogniserConfig
from common.quality.report import ReportLine, System
from common.quality.words import Errors
from common.run.interrupt import Stopped, StopRequest
from common.training.options import StartConfig, TrainOptions
from models import REGISTRY
from studio.plan.file import Plan
from studio.plan.inputs import Material
from studio.project import Project
from studio.train.progress import RunLog
from studio.voice.card import Facts, card
from studio.voice.verdict import (
    BETTER,
    EMBEDDED_VOICE,
    RECORDINGS,
    SPEAKER,
    UNDECIDED,
    WORSE,
    Listener,
    choose_vocoder,
    judge,
)
from studio.voice.voice import (
    best_checkpoint,
    listen_to_speaker,
    preferred_vocoders,
    start_strength,
    usable_measures,
    write_model,
)
from synthesizer import EMBEDDED
from tests.recipe import ROOT, skip_without_evaluators, train_tiny_model
from tests.studio.projects import FLAGS, OPTIONS

HUMS = replace(OPTIONS, start=StartConfig(warm_start=EMBEDDED / "waveglow.safetensors"))


def test_griffin_lim_comes_before_a_vocoder_that_hums() -> None:
    for options, expected in ((OPTIONS, ["waveglow", GRIFFIN_LIM]), (HUMS, [GRIFFIN_LIM, "waveglow"])):
        plan = Plan(groups={}, models={"Tacotron2": OPTIONS, "WaveGlow": options})
        assert preferred_vocoders(plan) == expected
    assert preferred_vocoders(replace(plan, models={})) == [GRIFFIN_LIM]


def test_words_of_a_language_that_nothing_recognises_are_not_counted(monkeypatch) -> None:
    """A French card said 420.9 % of words wrong, and that number chose the vocoder."""
    skip_without_evaluators()
    english = Material(minutes=9, clips=90, validation_clips=5, longest_seconds=9, characters=30, sampling_rate=22050)
    french = replace(english, hearing=RecogniserConfig(language="fr"))
    assert usable_measures(english)[0] == ["asr"] and "wer" not in usable_measures(english)[1]
    monkeypatch.setattr(recogniser, "find_spec", lambda name: None if name == "faster_whisper" else "there")
    measures, missing = usable_measures(french)
    assert measures == [] and missing["wer"].startswith("words, because no recogniser of French (fr) is installed")


def test_the_strength_of_the_warm_start_stays(tmp_path) -> None:
    embedded = EMBEDDED / "waveglow.safetensors"
    checkpoint = load_checkpoint(embedded)
    save_checkpoint(tmp_path / "plain.pt", checkpoint)
    save_checkpoint(tmp_path / "humming.pt", checkpoint | {"data": checkpoint["data"] | {"denoising_strength": 0.2}})
    starts = {None: None, tmp_path / "plain.pt": None, tmp_path / "humming.pt": 0.2}
    starts[embedded] = EMBEDDED_DENOISING_STRENGTH
    for start, strength in starts.items():
        assert start_strength(start) == strength


@pytest.mark.parametrize("name", ["Tacotron2", "WaveGlow"])
def test_a_voice_has_the_averaged_weights_of_the_best_checkpoint(project: Project, name: str) -> None:
    folder, checkpoint = project.run(name), load_checkpoint(train_tiny_model(name))
    folder.mkdir(parents=True)
    project.voice.mkdir()
    averaged = {key: torch.zeros_like(value) for key, value in checkpoint["state_dict"].items()}
    save_checkpoint(folder / f"checkpoint_{name}_best.pt", checkpoint | {"epoch": 5, "ema_state_dict": averaged})
    save_checkpoint(folder / f"checkpoint_{name}_7.pt", checkpoint)
    assert best_checkpoint(project, name).name == f"checkpoint_{name}_best.pt"
    assert write_model(project, name, Plan(groups={}, models={name: HUMS}))["epoch"] == 5
    written = load_checkpoint(project.voice / f"{REGISTRY[name].file_stem}.safetensors")
    assert all(not value.any() for value in written["state_dict"].values())
    strength = EMBEDDED_DENOISING_STRENGTH if name == "WaveGlow" else None
    assert written["data"].get("denoising_strength") == strength


NAN = math.nan


def system(wrong: float, likeness: float, lines: int = 12) -> System:
    """A system whose lines of 100 words have a share of wrong ones, and a likeness; nan: not measured."""
    counts = {} if math.isnan(wrong) else {"wer": Errors(round(100 * wrong), 100)}
    values = {} if math.isnan(likeness) else {SPEAKER: likeness}
    return System("a system", [ReportLine("", np.zeros(1), "", values, counts, {})] * lines, 1.0)


@pytest.mark.parametrize(
    ("griffin_lim", "waveglow", "pulse_noise", "expected"),
    [
        ((0.10, 0.7), (0.30, 0.9), (0.20, 0.8), GRIFFIN_LIM),  # words first
        ((0.10, 0.7), (0.30, 0.9), (0.11, 0.8), "pulse-noise"),  # then likeness
        ((0.10, NAN), (0.11, NAN), (0.09, NAN), "pulse-noise"),
        ((NAN, 0.7), (NAN, 0.6), (NAN, 0.8), "pulse-noise"),  # another language
        ((9.00, 0.7), (0.90, 0.6), (2.00, 0.8), "waveglow"),  # endless lines count as all wrong
        ((0.10, 0.7), (0.10, 0.7), (0.10, 0.7), "waveglow"),
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
        ((0.12, 0.768), (0.07, 0.669), "better than the embedded one: harder to understand and closer to the speaker"),
        ((NAN, 0.6), (NAN, 0.7), "worse than the embedded one: further from the speaker"),
        ((0.08, 0.7), (0.07, 0.6), "better than the embedded one: as easy to understand and closer to the"),
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
    assert "the recordings: 5.0 % of words wrong, likeness 0.923" in lines
    assert verdict.is_worse == ("worse" in sentence) == lines[-1].endswith("; about 3 h are needed")


def test_a_voice_whose_words_nothing_counts_is_never_the_better_one() -> None:
    systems = {"mine": system(NAN, 0.9), EMBEDDED_VOICE: system(NAN, 0.6), RECORDINGS: system(NAN, 0.923)}
    assert judge(systems, "mine", []).outcome == UNDECIDED


def test_a_voice_of_another_language_is_judged_beside_the_recordings() -> None:
    """The English voice was recommended for Spanish."""
    recordings, good, bad = system(0.05, 0.93), system(0.06, 0.85), system(0.4, 0.85)
    for mine, words, warned in (
        (good, "as easy to understand and further", False),
        (bad, "harder to understand", True),
    ):
        verdict = judge({"mine": mine, RECORDINGS: recordings}, "mine", [])
        lines = verdict.lines("mine", "")
        assert f"Beside the recordings the voice is {words}" in verdict.sentence and not verdict.is_worse
        assert lines[-1].startswith("warning: it is far harder") == warned and "embedded" not in "".join(lines)
        heard = judge(
            {"mine": mine, RECORDINGS: system(0, 0.93)}, "mine", [], heard_texts=True
        )  # by the recogniser's texts
        assert ("to understand" in heard.sentence) == warned and "the recordings: likeness 0.930" in heard.lines(
            "mine", ""
        )
        assert "Not measured: the recordings' wrong words, because the recogniser wrote their texts." in heard.lines(
            "", ""
        )


def uneven(likeness: list[float]) -> System:
    whole = system(0.07, 0.5, lines=len(likeness))
    lines = [
        line._replace(values=line.values | {SPEAKER: value}) for line, value in zip(whole.lines, likeness, strict=True)
    ]
    return whole._replace(lines=lines)


@pytest.mark.parametrize(
    ("gains", "outcome", "words"),
    [
        ([0.028], UNDECIDED, "on 1 validation line; a verdict needs 10"),
        (
            [0.3] * 9,
            UNDECIDED,
            "77 % of the way to the recordings' own likeness), on 9 validation lines; a verdict needs",
        ),
        ([0.028] * 10, WORSE, "closer to the speaker (7 % of the way"),  # one step
        ([0.02, 0.3] * 6, BETTER, "closer to the speaker (41 % of the way"),
        ([-0.3, 0.5] * 6, UNDECIDED, "which do not show more"),  # the interval has both sides of what is wanted
        ([-0.02] * 12, WORSE, "further from the speaker"),
    ],
)
def test_a_verdict_knows_how_many_lines_it_has(gains: list[float], outcome: str, words: str) -> None:
    """After one step on 31 s of speech, likeness 0.594 against 0.566 on one line was called better; the recording has 0.956."""
    systems = {"mine": uneven([0.566 + gain for gain in gains]), EMBEDDED_VOICE: uneven([0.566] * len(gains))}
    verdict = judge(systems | {RECORDINGS: uneven([0.956] * len(gains))}, "mine", [])
    assert (verdict.outcome, verdict.is_worse) == (outcome, outcome == WORSE) and words in verdict.sentence
    assert ("warning: " in verdict.lines("mine", "")[-1]) == (outcome != BETTER)
    if len(set(gains)) > 1:
        found = stats.bootstrap((gains,), np.mean, method="percentile", n_resamples=1000, rng=1).confidence_interval
        assert (verdict.closer.low, verdict.closer.high) == pytest.approx(found, abs=0.03)


def test_words_are_compared_line_by_line() -> None:
    """Lines that are hard for both voices do not widen the interval of their difference."""
    hard = System("a", [*system(0.6, NAN).lines, *system(0.1, NAN).lines], 1.0)
    harder = System("b", [*system(0.7, NAN).lines, *system(0.2, NAN).lines], 1.0)
    verdict = judge({"mine": harder, EMBEDDED_VOICE: hard, RECORDINGS: hard}, "mine", [])
    assert verdict.harder == pytest.approx((0.1, 0.1, 0.1)) and verdict.voice.words == pytest.approx(0.45)


def test_a_signal_ends_the_verdict_at_once() -> None:
    with StopRequest() as stop:
        with pytest.raises(Stopped), stop.at_once():
            signal.raise_signal(signal.SIGTERM)
        assert stop.is_requested and stop.exit_code == 0
        with pytest.raises(Stopped), stop.at_once():
            pass
    with StopRequest() as stop, stop.at_once():
        pass


def test_the_language_and_the_words_of_a_voice_are_for_its_listeners(tmp_path) -> None:
    (tmp_path / "config.json").write_text('{"language": "de", "words_wrong": 0.31, "speaker": "a woman"}')
    assert about_voice(tmp_path) == ("de", "a woman", 0.31)
    (tmp_path / "config.json").write_text('{"language": 7, "words_wrong": true}')
    assert about_voice(tmp_path) == about_voice(tmp_path / "none") == ("en", "", None)


def test_a_speaker_is_like_himself_and_silence_like_nobody(project: Project) -> None:
    skip_without_evaluators("resemblyzer")
    clips = [ROOT / "corpus" / "sentences" / f"sentence_{number:04}.ogg" for number in range(1, 6)]
    project.training_list.parent.mkdir()
    for path, listed in ((project.training_list, clips[:1]), (project.validation_list, clips[1:2])):
        path.write_text("".join(f"{clip}|x\n" for clip in listed))
    learned = [found.speaker for found in (listen_to_speaker(project, 22050), Listener(clips[:1], 22050))]
    np.testing.assert_array_equal(*learned)  # of the clips for training
    listen = Listener(clips[:4], 22050)
    sound, rate = soundfile.read(clips[4])
    own, high, silent = (
        listen(ReportLine("", audio, "", {}, {}, {}), rate * faster).values.get(SPEAKER)
        for audio, faster in ((sound, 1), (sound, 2), (np.zeros(rate), 1))
    )
    assert own > 0.8 > high and silent is None


def test_the_card_has_each_figure_in_its_place(project: Project) -> None:
    log = RunLog(project.root / "nvlog.json")
    log.epoch, log.seconds, log.finished = 3, 120.0, True
    log.reports = {2: {"coverage": 0.5, "val_loss": 1.25}}
    values = FLAGS | {"warm_start": None, "batch_size": 3, "grad_accumulation_steps": 5, "learning_rate": 0.25}
    options = from_options(TrainOptions, values)
    figures = {"minutes": 9.0, "clips": 90, "validation_clips": 5, "longest_seconds": 8.0, "characters": 30}
    facts = Facts(
        project=project,
        plan=Plan(groups={}, models={"WaveGlow": options}),
        material=Material(**figures, sampling_rate=16000),
        checkpoints={"WaveGlow": {"iteration": 77, "epoch": 6}},
        logs={"WaveGlow": log},
        systems=[system(0.1, 0.7)],
        verdict=["good"],
        vocoder="waveglow",
        samples=["One."],
    )
    lines = [line for line in card(facts).splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert [row[1] for row in rows if len(row) == 2][2:8] == ["9.0", "90", "5", "8.0", "30", "16000"]
    assert ["WaveGlow", "random weights", "77", "6", "15", "0.25, cosine", "2.0", "all 4 epochs"] in rows
    assert ["2", "50", "1.25"] in rows
