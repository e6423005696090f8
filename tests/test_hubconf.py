"""The entry points of torch.hub from a local clone, without a network."""

import socket
from dataclasses import astuple

import pytest
import torch
from tacotron2_waveglow.common.errors import DataError, UsageError

import hubconf
from models import load_model
from synthesizer import EMBEDDED
from tests.recipe import ROOT, train_tiny_model


@pytest.fixture(autouse=True)
def no_network(monkeypatch):

    def refuse(*args: object) -> None:
        raise AssertionError("torch.hub must not connect")

    monkeypatch.setattr(socket.socket, "connect", refuse)


def load(entry: str, *args: object, **kwargs: object):
    return torch.hub.load(str(ROOT), entry, *args, source="local", **kwargs)


def test_every_dependency_is_a_requirement() -> None:
    """torch.hub refuses to load where one is missing."""
    requirements = (ROOT / "requirements.txt").read_text().lower()
    assert all(name in requirements for name in hubconf.dependencies if name != "torch")


@pytest.mark.parametrize("entry", ["nvidia_tacotron2", "nvidia_waveglow"])
def test_a_model_has_the_embedded_weights(entry: str) -> None:
    model = load(entry)
    name = {"nvidia_tacotron2": "Tacotron2", "nvidia_waveglow": "WaveGlow"}[entry]
    expected = load_model(name, EMBEDDED / f"{name.lower()}.safetensors").state_dict()
    assert not model.training
    for key, weights in model.state_dict().items():
        assert torch.equal(weights, expected[key])


@pytest.mark.slow
def test_the_published_example_runs() -> None:
    """Text to audio as in the published hub page, with the embedded voice's weights."""
    tacotron2, waveglow, utils = load("nvidia_tacotron2"), load("nvidia_waveglow"), load("nvidia_tts_utils")
    waveglow = waveglow.remove_weightnorm(waveglow)
    ids, lengths = utils.prepare_input_sequence(["Hi.", "Good morning."])
    assert ids.device == lengths.device == tacotron2.embedding.weight.device == torch.device("cpu")  # with a GPU, there
    assert lengths.tolist() == sorted(lengths.tolist(), reverse=True)
    with torch.no_grad():
        mels, mel_lengths, _ = tacotron2.infer(ids, lengths)
        audio = waveglow.infer(mels[:1])
        z = torch.randn(1, waveglow.config.n_group, audio.shape[1] // waveglow.config.n_group)
        assert torch.equal(waveglow.infer(mels[:1], z=z), waveglow.infer(mels[:1], 1.0, z))  # the published sigma
    assert mels.shape[:2] == (2, 80) and mel_lengths[0] > mel_lengths[1] > 10
    assert audio.shape == (1, mels.shape[2] * 256)
    assert 0.05 < audio.abs().max() < 2


def test_a_checkpoint_takes_the_place_of_the_embedded_weights() -> None:
    path = train_tiny_model("WaveGlow")
    model = load("nvidia_waveglow", checkpoint=str(path))
    assert torch.equal(model.upsample.weight, load_model("WaveGlow", path).upsample.weight)


def test_new_weights_of_any_size_and_half_precision() -> None:
    assert load("nvidia_tacotron2", map_location="meta").embedding.weight.is_meta
    model = load("nvidia_tacotron2", pretrained=False, n_mel_channels=6, decoder_rnn_dim=8, model_math="fp16")
    assert model.config.n_mel_channels == 6
    assert model.embedding.weight.dtype == torch.float16
    sizes = {"n_channels": 8, "n_layers": 2, "WN_config": {"kernel_size": 5}, "n_flows": 2}
    model = hubconf.nvidia_waveglow(pretrained=False, force_reload=True, **sizes)
    assert (model.config.n_flows, *astuple(model.config.WN_config)) == (2, 5, 8, 2)


@pytest.mark.parametrize(
    ("entry", "arguments", "error", "message"),
    [
        ("nvidia_tacotron2", {"checkpoint": "nowhere.pt"}, DataError, "nowhere.pt: no such file"),
        ("nvidia_tacotron2", {"n_mel_channels": 6}, UsageError, "n_mel_channels: weights have their own config"),
        (
            "nvidia_tacotron2",
            {"map_locale": "cpu"},
            UsageError,
            "^map_locale: no argument of this entry, and no key of Tac",
        ),
        ("nvidia_waveglow", {"pretrained": False, "checkpoint": "x.pt"}, UsageError, "leave one of them out"),
        ("nvidia_waveglow", {"pretrained": False, "n_mels": 6}, DataError, "n_mels"),
        ("nvidia_waveglow", {"model_math": "int4"}, UsageError, "model_math: 'int4', expected one of fp32, fp16"),
        ("embedded_voice", {"vocoder": "griffin"}, UsageError, "expected one of waveglow, pulse-noise, griffin-lim"),
    ],
)
def test_mistakes_have_one_clear_error(entry: str, arguments: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        load(entry, **arguments)


def test_a_checkpoint_of_another_model_and_a_single_text_are_refused() -> None:
    with pytest.raises(DataError, match="is it a checkpoint of Tacotron2"):
        load("nvidia_tacotron2", checkpoint=str(train_tiny_model("WaveGlow")))
    with pytest.raises(UsageError, match="expected a list of texts"):
        load("nvidia_tts_utils").prepare_input_sequence("Hello.")
