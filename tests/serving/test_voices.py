"""Voices of folders: the files of each, their names and vocoders, and mistakes."""

from pathlib import Path

import pytest
import torch

from common.errors import DataError
from common.inference.config import GRIFFIN_LIM
from serving.config import ServingConfig
from serving.errors import RequestError
from serving.stream import SpeechRequest
from serving.voices import Voices
from synthesizer import EMBEDDED, Line
from tests.serving.conftest import reference


def embedded(folder: Path, **names: str) -> Path:
    """A folder with links to checkpoints of the embedded voice, by the names of the links."""
    folder.mkdir(parents=True)
    for name, target in (names or {"tacotron2__safetensors": "tacotron2.safetensors"}).items():
        (folder / name.replace("__", ".")).symlink_to(EMBEDDED / target)
    return folder


def voices_of(folder: Path, **settings: object) -> Voices:
    return Voices(ServingConfig(cpu=True, voices=folder, **settings))


def test_names_and_vocoders_are_known_before_models_are_loaded(tmp_path: Path) -> None:
    embedded(tmp_path / "anna")
    embedded(tmp_path / "ben", tacotron2__pt="tacotron2.safetensors", waveglow__pt="waveglow.safetensors")
    (tmp_path / "notes.txt").write_text("not a folder\n")
    (tmp_path / ".hidden").mkdir()
    voices = voices_of(tmp_path)
    assert voices.names == ["embedded", "anna", "ben", "heart", "spanish"] and voices.default == "embedded"
    assert voices.vocoders("anna") == [GRIFFIN_LIM]
    assert voices.vocoders("ben") == ["waveglow", GRIFFIN_LIM]
    assert voices.vocoders("embedded") == ["pulse-noise", "waveglow", GRIFFIN_LIM]  # its config.json
    assert voices.vocoders("heart") == ["pulse-noise", GRIFFIN_LIM]  # the other one of this repository
    assert voices_of(tmp_path, default_voice="ben").names == ["ben", "embedded", "anna", "heart", "spanish"]
    assert voices_of(tmp_path, embedded=False).names == ["anna", "ben"]
    assert voices_of(tmp_path, vocoder=GRIFFIN_LIM).vocoders("ben")[0] == GRIFFIN_LIM


def test_a_folder_comes_before_an_embedded_voice_and_a_name_of_openai(tmp_path: Path) -> None:
    embedded(tmp_path / "heart")
    embedded(tmp_path / "nova")
    voices = voices_of(tmp_path)
    assert voices.vocoders("heart") == [GRIFFIN_LIM]
    assert voices.resolve("Nova") == "nova"
    assert {voices.resolve(name) for name in ("alloy", "Alloy", "", None)} == {"embedded"}
    with pytest.raises(RequestError, match="'novak' is not one of embedded, heart, nova, spanish"):
        voices.resolve("novak")


def test_a_folder_with_checkpoints_is_a_voice_of_its_name(tmp_path: Path) -> None:
    folder = embedded(tmp_path / "ben", tacotron2__pt="tacotron2.safetensors", waveglow__pt="waveglow.safetensors")
    (folder / "notes").mkdir()  # no voice
    voices = voices_of(folder)
    assert voices.names == ["embedded", "ben", "heart", "spanish"] and voices.vocoders("ben")[0] == "waveglow"
    (folder / "config.json").write_text('{"name": "mine", "vocoder": "griffin-lim"}')
    mine = voices_of(folder)
    assert mine.names == ["embedded", "heart", "mine", "spanish"] and mine.vocoders("mine")[0] == GRIFFIN_LIM
    (folder / "config.json").write_text('{"name": "embedded"}')
    with pytest.raises(DataError, match=r"its name, embedded, belongs to .* or change `name` in its config\.json"):
        voices_of(folder)


def test_mistakes_name_the_folder(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no subfolder"):
        voices_of(tmp_path)
    embedded(tmp_path / "empty", waveglow__pt="waveglow.safetensors")
    with pytest.raises(DataError, match=r"empty: no acoustic model, expected tacotron2.safetensors, tacotron2.pt"):
        voices_of(tmp_path)
    embedded(tmp_path / "other" / "embedded")
    with pytest.raises(DataError, match=r"--default-voice clara: no such voice, expected embedded"):
        voices_of(tmp_path / "other", embedded=False, default_voice="clara")


@pytest.mark.slow
def test_a_voice_of_a_folder_speaks_as_the_library_does(tmp_path: Path) -> None:
    names = ("tacotron2.safetensors", "waveglow.safetensors")
    embedded(tmp_path / "ben", **{name.replace(".", "__"): name for name in names})
    voices = voices_of(tmp_path, embedded=False)
    voices.load("cpu")
    assert voices.sampling_rate("ben") == 22050
    settings = SpeechRequest(text="", voice="ben", sigma=0.6, denoising_strength=0.03)
    voice = voices.get(settings, 4)
    audio = torch.cat(list(voice.stream_line(Line("Two.", 4))))
    expected = reference("Two.", 4, vocoder="waveglow", sigma_infer=0.6, denoising_strength=0.03)
    assert torch.equal(audio, expected)
    assert voices.get(SpeechRequest(text="", voice="ben", vocoder=GRIFFIN_LIM)).acoustic.model is voice.acoustic.model


@pytest.mark.parametrize(("flag", "name"), [("fp16", "half"), ("int8", "int8"), ("plain", "plain")])
def test_flags_of_the_server_reach_its_voices(flag: str, name: str) -> None:
    settings = Voices(ServingConfig(**{flag: True}))._settings
    assert [getattr(settings, one) for one in ("half", "int8", "plain")].count(True) == 1 and getattr(settings, name)
