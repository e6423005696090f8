"""Tacotron 2 as TorchScript against the plain model: the same numbers, the same ends; and inference.py --torchscript."""

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from exports.models import ScriptedTacotron2
from exports.torchscript import script_acoustic
from tacotron2.model import Tacotron2
from tests.recipe import succeed, train_tiny_model

pytestmark = pytest.mark.slow

SIZES = {
    "n_mel_channels": 5, "n_symbols": 11, "symbols_embedding_dim": 6, "encoder_embedding_dim": 8, "attention_rnn_dim": 7,
    "attention_dim": 4, "attention_location_n_filters": 3, "attention_location_kernel_size": 5, "decoder_rnn_dim": 9,
    "prenet_dim": 6, "postnet_embedding_dim": 7, "max_decoder_steps": 30,
}  # fmt: skip


def two_models(**config) -> tuple[Tacotron2, ScriptedTacotron2]:
    """A model whose prenet drops nothing, and the same as TorchScript."""
    torch.manual_seed(0)  # with which the first test's clips end at three different steps
    plain = Tacotron2(**SIZES, **config).double().eval()
    plain.decoder.prenet.p_dropout = 0.0
    with torch.no_grad():
        for weight in plain.decoder.parameters():
            weight.mul_(1.5)  # far from uniform attention
        plain.decoder.gate_layer.linear_layer.weight.mul_(6)  # far from even chances to end
    return plain, ScriptedTacotron2(script_acoustic(plain), plain.config)


@pytest.mark.parametrize("config", [{}, {"n_frames_per_step": 3, "decoder_no_early_stopping": True}])
def test_the_scripted_model_equals_the_plain_one(config: dict) -> None:
    plain, fast = two_models(gate_threshold=0.5, **config)
    text, lengths = torch.randint(1, 11, (3, 7)), torch.tensor([7, 4, 6])
    for _ in range(3):  # TorchScript rewrites itself after its first runs
        expected, outputs = plain.infer(text, lengths), fast.infer(text, lengths)
        assert outputs.mel_lengths.tolist() == expected.mel_lengths.tolist()
        for ours, theirs in zip(outputs, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert config or len(set(expected.mel_lengths.tolist())) == 3
    assert expected.alignments.max() > 1.3 / 7


def test_the_limit_of_steps_holds() -> None:
    plain, fast = two_models(gate_threshold=1.0)  # which never fires
    text, lengths = torch.randint(1, 11, (1, 5)), torch.tensor([5])
    assert [model.infer(text, lengths, 4).mel_lengths.tolist() for model in (plain, fast)] == [[4], [4]]
    assert fast.infer(text, lengths).mels.shape == (1, 5, 30)


def test_the_command_speaks_with_scripted_models(tmp_path) -> None:
    """The same audio as --plain on the same seed, up to a few steps of 16 bits."""
    (tmp_path / "phrases.txt").write_text("Two.\nTen past nine.\n")
    words = ["-i", tmp_path / "phrases.txt", "--tacotron2", train_tiny_model("Tacotron2"), "--cpu"]
    words += ["--waveglow", train_tiny_model("WaveGlow"), "--seed", 3]
    out = succeed("inference.py", *words, "-o", tmp_path / "scripted", "--torchscript")
    assert "as TorchScript" in out
    succeed("inference.py", *words, "-o", tmp_path / "plain", "--plain")
    for name in ("audio_0.wav", "audio_1.wav"):
        (_, ours), (_, theirs) = (wavfile.read(tmp_path / folder / name) for folder in ("scripted", "plain"))
        assert len(ours) == len(theirs) > 0
        assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 4
