"""The folder of a voice, as inference.py --voice and the server read it."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.io import wavfile

from common.errors import DataError
from common.inference.voice_folder import default_vocoder, find_checkpoint, read_voice_folder
from models import RECIPE, REGISTRY
from tests.recipe import run, succeed, train_tiny_model

SPECS = RECIPE.values()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    voice = tmp_path / "voice"
    voice.mkdir()
    for spec in SPECS:
        shutil.copy(train_tiny_model(spec.name), voice / f"{spec.flag}.pt")
    return voice


def speak(tmp_path: Path, output: str, *words: object) -> np.ndarray:
    (tmp_path / "phrase.txt").write_text("Good morning.\n")
    words = (*words, "-i", tmp_path / "phrase.txt", "-o", tmp_path / output, "--seed", 3, "--cpu")
    succeed("inference.py", *words, "--max-decoder-steps", 20)
    return wavfile.read(tmp_path / output / "audio_0.wav")[1]


def test_a_folder_speaks_as_its_checkpoints_do_or_through_griffin_lim(folder: Path, tmp_path: Path) -> None:
    named = [word for spec in SPECS for word in (f"--{spec.flag}", folder / f"{spec.flag}.pt")]
    np.testing.assert_array_equal(speak(tmp_path, "a", "--voice", folder), speak(tmp_path, "b", *named))
    (folder / "config.json").write_text('{"vocoder": "griffin-lim"}', encoding="utf-8-sig")
    configured = speak(tmp_path, "c", "--voice", folder)
    (folder / "config.json").unlink()
    (folder / "waveglow.pt").unlink()
    np.testing.assert_array_equal(speak(tmp_path, "d", "--voice", folder), configured)


def test_mistakes_in_a_folder_name_the_file(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"none: no such folder, expected one with tacotron2\.safetensors"):
        read_voice_folder(tmp_path / "none", SPECS)
    with pytest.raises(DataError, match=r"no acoustic model, .*; it has voices in it, choose one: voice$"):
        read_voice_folder(tmp_path, SPECS)
    (folder / "config.json").write_text('{"vocoder": "hifi"}')
    with pytest.raises(DataError, match=r"config\.json: vocoder: 'hifi', expected one of waveglow, griffin-lim"):
        default_vocoder(folder, SPECS)
    (folder / "config.json").write_text("[1]")
    result = run("inference.py", "-i", "phrases/phrase.txt", "--voice", folder)
    assert result.code == 1 and result.err.startswith(f"error: {folder}/config.json: a list")


def test_the_first_of_several_files_of_a_model_is_taken(tmp_path: Path) -> None:
    names = ["waveglow.safetensors", "waveglow.pt", "waveglow.pth"]
    names += ["checkpoint_WaveGlow_best.pt", "checkpoint_WaveGlow_last.pt"]
    for name in reversed(names):
        (tmp_path / name).touch()
        assert find_checkpoint(tmp_path, RECIPE["WaveGlow"]) == tmp_path / name
    (tmp_path / "pitch.pt").touch()
    assert default_vocoder(tmp_path, REGISTRY.values()) == "waveglow"
