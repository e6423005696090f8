"""Choices of a project, and samples of them: the audio of inference.py, one at a time, also while a training saves."""

import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from common.audio.audio_processing import load_audio, to_pcm
from common.checkpoint.files import load_checkpoint, save_checkpoint
from common.errors import DataError, UsageError
from common.inference.config import DENOISING_STRENGTH, EMBEDDED_DENOISING_STRENGTH
from studio.page.choices import find_files, list_vocoders, list_voices
from studio.page.samples import ATTEMPTS, SampleRequest, SampleSpeaker, load_voice, read_unchanged
from studio.plan.file import Plan, write_plan
from studio.project import Project
from studio.wording import without_folders
from synthesizer import EMBEDDED, SynthesisConfig, Synthesizer
from tests.recipe import ROOT, succeed
from tests.studio.projects import SETTINGS, add_runs, add_voice, make_project

pytestmark = pytest.mark.slow

TEXT = "It is noon. The kettle is on, and the clock in the kitchen strikes twelve times, slowly. " * 2


@pytest.fixture(scope="module")
def project(tmp_path_factory) -> Project:
    project = make_project(Project(name="mine", projects=tmp_path_factory.mktemp("projects")))
    add_runs(project)
    add_voice(project)
    return project


@pytest.fixture(scope="module")
def speaker() -> Iterator[SampleSpeaker]:
    speaker = SampleSpeaker(cpu=True)
    yield speaker
    speaker.close()


def command(project: Project, folder: Path, *words: object) -> np.ndarray:
    """The samples that inference.py writes for TEXT."""
    (folder / "phrase.txt").write_text(TEXT + "\n")
    succeed("inference.py", "-i", folder / "phrase.txt", "-o", folder, "--cpu", *words)
    return to_pcm(load_audio(folder / "audio_0.wav", 22050))


def test_choices_are_those_that_are_there(project: Project, tmp_path: Path) -> None:
    voices = ["voice", "Tacotron2 best", "Tacotron2 last", "Tacotron2 0", "embedded"]
    vocoders = ["own", "griffin-lim", "voice waveglow", "WaveGlow best", "WaveGlow last", "WaveGlow 0"]
    assert [key for _, key in list_voices(project)] == voices
    assert [key for _, key in list_vocoders(project)] == [*vocoders, "embedded waveglow", "embedded pulse-noise"]
    assert [key for _, key in list_voices(Project(name="none", projects=tmp_path))] == ["embedded"]


def test_a_checkpoint_speaks_as_the_command_does(project: Project, speaker: SampleSpeaker, tmp_path: Path) -> None:
    settings = {"voice": "Tacotron2 last", "vocoder": "WaveGlow best", "seed": 7, "sigma": 0.5, "strength": 0.1}
    sample = speaker.speak(SampleRequest(project=project, text=TEXT, **settings))
    words = ["--tacotron2", project.run("Tacotron2") / "checkpoint_Tacotron2_last.pt"]
    words += ["--waveglow", project.run("WaveGlow") / "checkpoint_WaveGlow_best.pt"]
    samples = command(project, tmp_path, *words, "--seed", 7, "-s", 0.5, "-d", 0.1)
    np.testing.assert_array_equal(to_pcm(sample.speech.audio), samples)
    assert sample.speech.pieces == len(sample.symbols) == 4 and "seed 7" in sample.message
    assert sample.name == "Tacotron2, last checkpoint (epoch 1) with WaveGlow, best checkpoint (epoch 1)"
    assert sample.message.startswith(f"{sample.name}: {len(samples) / 22050:.2f} s of speech, computed in ")
    assert all(picture.shape[1] > 500 and picture.std() > 10 for picture in speaker.draw(sample))


def test_finished_and_embedded_voices_speak_as_the_command(
    project: Project, speaker: SampleSpeaker, tmp_path: Path
) -> None:
    sample = speaker.speak(SampleRequest(project=project, text=TEXT, voice="voice"))
    samples = command(project, tmp_path, "--voice", project.voice, "--seed", 0)
    np.testing.assert_array_equal(to_pcm(sample.speech.audio), samples)
    assert sample.name == "the finished voice (epoch 1) with griffin-lim"
    sample = speaker.speak(SampleRequest(project=project, text="Two.", voice="embedded", seed=3))
    (expected,) = Synthesizer.embedded(config=SynthesisConfig(seed=3), device="cpu").speak("Two.")
    assert torch.equal(sample.speech.audio, expected.audio)


def test_a_vocoder_of_a_run_has_the_strength_that_its_plan_gives_the_voice(project: Project) -> None:
    humming = replace(SETTINGS, warm_start=str(EMBEDDED / "waveglow.safetensors"))
    for models, strength in (({"WaveGlow": humming}, EMBEDDED_DENOISING_STRENGTH), ({}, DENOISING_STRENGTH)):
        write_plan(project.plan, Plan(seed=1, threads=1, cpu=True, models=models))
        voice = load_voice(find_files(project, "Tacotron2 last", "WaveGlow best"), torch.device("cpu"))
        assert voice.denoising_strength == strength
        assert find_files(project, "voice", "voice waveglow").strength is None  # the finished one stores its own
    project.plan.unlink()


def test_models_stay_until_another_one_is_chosen_or_written(project: Project, speaker: SampleSpeaker) -> None:
    request = SampleRequest(project=project, text="Two.", voice="Tacotron2 0")
    first = speaker.speak(request)
    again = speaker.speak(request)
    assert first.loading > 10 * again.loading and again.loading < 0.05
    assert torch.equal(first.speech.audio, again.speech.audio)
    path = project.run("Tacotron2") / "checkpoint_Tacotron2_0.pt"
    checkpoint = load_checkpoint(path) | {"epoch": 5}
    save_checkpoint(path, checkpoint)
    assert "epoch 5" in speaker.speak(request).name
    save_checkpoint(path, checkpoint | {"epoch": 0})


@pytest.mark.parametrize("saves", [0, 1, ATTEMPTS - 1, ATTEMPTS])
def test_checkpoints_that_are_replaced_meanwhile_are_read_whole(tmp_path: Path, saves: int) -> None:
    """A pair of reads between which a training saves is read again, until both have the weights of one save."""
    path = tmp_path / "checkpoint_WaveGlow_best.pt"
    epochs = iter(range(100))

    def save() -> None:
        value = next(epochs)
        save_checkpoint(path, {"epoch": value, "state_dict": {"weight": torch.full((10,), float(value))}})

    def read() -> list[float]:
        nonlocal saves
        first = load_checkpoint(path)
        if saves > 0:
            saves -= 1
            save()
        second = load_checkpoint(path)
        return [value for whole in (first, second) for value in (whole["epoch"], *whole["state_dict"]["weight"])]

    save()
    if saves == ATTEMPTS:
        with pytest.raises(DataError, match="keeps replacing this checkpoint"):
            read_unchanged([path], read)
    else:
        expected = saves
        values, _ = read_unchanged([path], read)
        assert set(map(float, values)) == {expected}


def test_a_checkpoint_that_is_gone_damaged_or_elsewhere_is_an_error_in_words(project, speaker, tmp_path: Path) -> None:
    run = project.run("Tacotron2")
    path, last, other = run / "checkpoint_Tacotron2_3.pt", run / "checkpoint_Tacotron2_last.pt", tmp_path / "other.pt"
    request = SampleRequest(project=project, text="Two.", voice="Tacotron2 3")
    with pytest.raises(DataError, match="this voice is gone; choose another one: the finished voice, Tacotron2, best"):
        speaker.speak(request)
    path.write_bytes(b"no checkpoint")
    last.unlink()
    try:
        with pytest.raises(DataError) as caught:
            speaker.speak(request)
        message = without_folders(str(caught.value), project.projects)
        assert message.startswith("mine/runs/tacotron2/checkpoint_Tacotron2_3.pt: no checkpoint")
        path.unlink()
        shutil.copy(run / "checkpoint_Tacotron2_0.pt", other)
        path.symlink_to(other)
        with pytest.raises(DataError) as caught:
            find_files(project, "Tacotron2 3")
        assert str(tmp_path) not in str(caught.value)
    finally:
        path.unlink()
        last.symlink_to("checkpoint_Tacotron2_1.pt")


@pytest.mark.parametrize("key", ["../mine", "/etc/passwd", "voice waveglow", "", "Tacotron2 ../../x"])
def test_keys_are_no_paths(project: Project, key: str) -> None:
    with pytest.raises(DataError, match="this voice is gone"):
        find_files(project, key)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"text": " \n"}, "text: empty, expected a sentence"),
        ({"text": "a" * 1001}, "text: 1001 characters, expected at most 1000"),
        ({"seed": -1}, "seed: -1, expected 0 to 4294967295"),
        ({"sigma": 11.0}, "sigma: 11.0, expected 0 to 10"),
        ({"strength": float("nan")}, "strength: nan, expected 0 to 10"),
    ],
)
def test_values_out_of_range_are_named(tmp_path: Path, values: dict, message: str) -> None:
    request = {"project": Project(name="mine", projects=tmp_path), "text": "Two.", "voice": "voice"}
    with pytest.raises(UsageError, match=message):
        SampleRequest(**request | values)


def test_texts_that_cannot_be_read_are_named(project: Project, speaker: SampleSpeaker) -> None:
    with pytest.raises(DataError, match=r"^text: .*no ARPAbet symbol 'XX'"):
        speaker.speak(SampleRequest(project=project, text="{XX}", voice="voice"))


def test_messages_contain_no_folder_of_the_machine(tmp_path: Path) -> None:
    projects = tmp_path / "studio"
    messages = {
        f"{projects}/mine/plan.json: no such file": "mine/plan.json: no such file",
        f"{ROOT}/voice/waveglow.safetensors: damaged": "voice/waveglow.safetensors: damaged",
        "/home/someone/a.pt: cut short; beside it: /home/b.pt": "a.pt: cut short; beside it: b.pt",
        "x 1/2 and https://example.org/a": "x 1/2 and https://example.org/a",
        "a\x1b[2J": "a\\x1b[2J",
        f"run python -m studio.plan mine --projects {projects} first": "run python -m studio.plan mine first",
    }
    for message, expected in messages.items():
        assert without_folders(message, projects) == expected


def test_the_samples_of_another_priority(project: Project, speaker: SampleSpeaker) -> None:
    """The thread of samples yields to a training; the thread that asks keeps its priority."""
    if not shutil.which("nice"):
        pytest.skip("priorities of threads are Linux's")
    before = os.getpriority(os.PRIO_PROCESS, 0)
    speaker.speak(SampleRequest(project=project, text="Two.", voice="voice"))
    own = speaker._thread.submit(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id())).result()
    assert own >= 10 and os.getpriority(os.PRIO_PROCESS, 0) == before
