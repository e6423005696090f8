"""A voice: its vocoders, its weights, and the strength of its denoiser."""

from dataclasses import replace

import pytest
import torch

from common.checkpoint.files import load_checkpoint, save_checkpoint
from common.inference.config import EMBEDDED_DENOISING_STRENGTH, GRIFFIN_LIM
from models import REGISTRY
from studio.plan.file import Plan
from studio.plan.material import Material
from studio.project import Project
from studio.voice.voice import best_checkpoint, preferred_vocoders, start_strength, usable_measures, write_model
from synthesizer import EMBEDDED
from tests.recipe import skip_without_evaluators, train_tiny_model
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
    tiny = train_tiny_model("WaveGlow")
    checkpoint = load_checkpoint(tiny)
    save_checkpoint(tmp_path / "humming.pt", checkpoint | {"data": checkpoint["data"] | {"denoising_strength": 0.2}})
    starts = {None: None, str(tiny): None, str(tmp_path / "humming.pt"): 0.2, str(tmp_path): None}
    starts[str(EMBEDDED / "waveglow.safetensors")] = EMBEDDED_DENOISING_STRENGTH
    for start, strength in starts.items():
        assert start_strength(replace(SETTINGS, warm_start=start)) == strength


@pytest.mark.parametrize("name", ["Tacotron2", "WaveGlow"])
def test_a_voice_has_the_averaged_weights_of_the_best_checkpoint(tmp_path, name: str) -> None:
    project = Project(name="mine", projects=tmp_path)
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
