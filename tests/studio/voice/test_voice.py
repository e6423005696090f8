"""A voice: its vocoders, its weights, and the strength of its denoiser."""

import math
from dataclasses import replace

import numpy as np
import pytest
import soundfile
import torch

from common.checkpoint.files import load_checkpoint, save_checkpoint
from common.inference.config import EMBEDDED_DENOISING_STRENGTH, GRIFFIN_LIM
from common.quality.report import ReportLine, System
from common.quality.words import Errors
from models import REGISTRY
from studio.plan.file import Plan
from studio.plan.inputs import Material
from studio.project import Project
from studio.train.progress import TrainingProgress
from studio.voice.card import Facts, card
from studio.voice.verdict import EMBEDDED_VOICE, RECORDINGS, SPEAKER, Listener, choose_vocoder, judge
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
from tests.studio.projects import SETTINGS

OTHER = replace(SETTINGS, warm_start=None)


def test_griffin_lim_comes_before_a_vocoder_that_hums() -> None:
    hums = replace(SETTINGS, warm_start=str(EMBEDDED / "waveglow.safetensors"))
    for settings, expected in ((OTHER, ["waveglow", GRIFFIN_LIM]), (hums, [GRIFFIN_LIM, "waveglow"])):
        plan = Plan(seed=1, threads=1, cpu=True, models={"Tacotron2": OTHER, "WaveGlow": settings})
        assert preferred_vocoders(plan) == expected
    assert preferred_vocoders(replace(plan, models={})) == [GRIFFIN_LIM]


def test_words_of_other_languages_are_not_counted() -> None:
    """A French card said 420.9 % of words wrong, and that number chose the vocoder."""
    skip_without_evaluators()
    english = Material(minutes=9, clips=90, validation_clips=5, longest_seconds=9, characters=30, sampling_rate=22050)
    french = replace(english, text_options={"text_cleaners": ["numbers_fr", "basic_cleaners"]})
    assert usable_measures(english)[0] == ["asr"] and "wer" not in usable_measures(english)[1]
    measures, missing = usable_measures(french)
    assert measures == [] and missing["wer"] == "words, because the recogniser only knows English"


def test_the_strength_of_the_warm_start_stays(tmp_path) -> None:
    embedded = EMBEDDED / "waveglow.safetensors"
    checkpoint = load_checkpoint(embedded)
    save_checkpoint(tmp_path / "plain.pt", checkpoint)
    save_checkpoint(tmp_path / "humming.pt", checkpoint | {"data": checkpoint["data"] | {"denoising_strength": 0.2}})
    starts = {None: None, str(tmp_path / "plain.pt"): None, str(tmp_path / "humming.pt"): 0.2}
    starts[str(embedded)] = EMBEDDED_DENOISING_STRENGTH
    for start, strength in starts.items():
        assert start_strength(replace(SETTINGS, warm_start=start)) == strength


@pytest.mark.parametrize("name", ["Tacotron2", "WaveGlow"])
def test_a_voice_has_the_averaged_weights_of_the_best_checkpoint(project: Project, name: str) -> None:
    folder, checkpoint = project.run(name), load_checkpoint(train_tiny_model(name))
    folder.mkdir(parents=True)
    project.voice.mkdir()
    averaged = {key: torch.zeros_like(value) for key, value in checkpoint["state_dict"].items()}
    save_checkpoint(folder / f"checkpoint_{name}_best.pt", checkpoint | {"epoch": 5, "ema_state_dict": averaged})
    save_checkpoint(folder / f"checkpoint_{name}_7.pt", checkpoint)
    assert best_checkpoint(project, name).name == f"checkpoint_{name}_best.pt"
    assert write_model(project, name, replace(OTHER, warm_start=str(EMBEDDED / "waveglow.safetensors")))["epoch"] == 5
    written = load_checkpoint(project.voice / f"{REGISTRY[name].file_stem}.safetensors")
    assert all(not value.any() for value in written["state_dict"].values())
    strength = EMBEDDED_DENOISING_STRENGTH if name == "WaveGlow" else None
    assert written["data"].get("denoising_strength") == strength


NAN = math.nan


def system(wrong: float, likeness: float, repeats: float = NAN, lines: int = 2) -> System:
    """A system whose lines of 100 words have a share of wrong ones, a likeness, and a skip and repeats; nan: not measured."""
    counts = {} if math.isnan(wrong) else {"wer": Errors(round(100 * wrong), 100)}
    values = {SPEAKER: likeness, "skips": 1.0, "repeats": repeats}
    values = {name: value for name, value in values.items() if not math.isnan(value)}
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
        ((NAN, 0.7, 2.1), (NAN, 0.6, 1), "worse than the embedded one: skipping and repeating more and closer to the"),
        ((NAN, 0.7, 0.2), (NAN, 0.6, 0), "better than the embedded one: reading as surely and closer to the speaker"),
        ((0.08, 0.7, 9.9), (0.07, 0.6, 0), "better than the embedded one: as easy to understand and closer to the"),
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
    progress = TrainingProgress(project.root / "progress.json")
    progress.spend("WaveGlow", 120.0)
    progress.finish("WaveGlow", "", "all 4 epochs")
    settings = replace(OTHER, batch_size=3, grad_accumulation_steps=5, learning_rate=0.25)
    figures = {"minutes": 9.0, "clips": 90, "validation_clips": 5, "longest_seconds": 8.0, "characters": 30}
    facts = Facts(
        project=project,
        plan=Plan(seed=1, threads=1, cpu=True, models={"WaveGlow": settings}),
        progress=progress,
        material=Material(**figures, sampling_rate=16000),
        checkpoints={"WaveGlow": {"iteration": 77, "epoch": 6}},
        reports={"WaveGlow": {2: {"coverage": 0.5, "val_loss": 1.25}}},
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
