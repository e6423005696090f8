"""The spec of Tacotron 2 for training and inference."""

import dataclasses
import math

import numpy as np
import pytest
import torch

import models
from common.audio.stft import TacotronSTFT
from common.errors import UsageError
from common.spec import AcousticInference, Preview
from loss_functions import get_loss_function
from tacotron2.config import Tacotron2Config
from tacotron2.data_function import Tacotron2Batch, TextMelDataset, encode
from tacotron2.guard import DecodingGuard
from tacotron2.model import Tacotron2, Tacotron2Inference, Tacotron2Output
from tacotron2.preview import preview
from tacotron2.spec import SPEC, config_from_options
from tacotron2.transfer import transfer


def test_its_names_parts_and_factories():
    assert models.get_spec("Tacotron2") is SPEC
    assert (SPEC.flag, SPEC.role) == ("tacotron2", "acoustic")
    assert isinstance(SPEC.inference, AcousticInference)
    keys = {field.name for field in dataclasses.fields(Tacotron2Config)}
    assert keys > SPEC.free_at_inference == {"max_decoder_steps", "gate_threshold", "decoder_no_early_stopping"}
    options = {"load_mel_from_disk": True, "text_cleaners": ["basic_cleaners"]}
    assert isinstance(SPEC.make_dataset(options, []), TextMelDataset)
    assert SPEC.inference.encode is encode
    assert SPEC.inference.spell("Ab", options) == ["a", "b"]
    assert SPEC.stored_options == ("text_cleaners", "symbols")
    assert SPEC.transfer is transfer
    assert SPEC.run_options == ("text_reading", "attention_stop", "attention_window", "max_frames_per_symbol")


def test_the_config_is_read_from_the_options():
    options = {"n_mel_channels": 40, "prenet_dim": 8, "gate_threshold": 0.7, "learning_rate": 1.0, "hop_length": 256}
    config = config_from_options(options)
    assert config == {"n_mel_channels": 40, "prenet_dim": 8, "gate_threshold": 0.7}
    model = models.get_model("Tacotron2", config | {"encoder_n_convolutions": 1, "decoder_rnn_dim": 4})
    assert isinstance(model, Tacotron2)
    assert (model.config.prenet_dim, model.config.attention_dim) == (8, 128)


def test_an_alphabet_sets_the_number_of_symbols_and_a_table_too_small_is_an_error():
    own = ["_", *"абв"]
    assert config_from_options({"symbols": own}) == {"n_symbols": 4}
    for given in (148, 4):  # the default, which nobody may have typed, and the right one
        assert config_from_options({"symbols": own, "n_symbols": given}) == {"n_symbols": 4}
    with pytest.raises(UsageError, match=r"^--n-symbols: 5, expected 4, the symbols in --symbols-file; it can be left"):
        config_from_options({"symbols": own, "n_symbols": 5})
    assert config_from_options({"symbols": None}) == {}
    for given in (148, 150):
        assert config_from_options({"symbols": None, "n_symbols": given}) == {"n_symbols": given}
    with pytest.raises(UsageError, match=r"^--n-symbols: 147, expected at least 148, .* needs --symbols-file$"):
        config_from_options({"symbols": None, "n_symbols": 147})
    assert config_from_options({"n_symbols": 11}) == {"n_symbols": 11}  # the alphabet is the checkpoint's to say


def test_criterion_follows_the_options():
    options = {"mask_padding": True, "n_frames_per_step": 2, "guided_attention_weight": 1.0, "learning_rate": 1.0}
    criterion = get_loss_function("Tacotron2", options=options)
    outputs = Tacotron2Output(torch.ones(1, 5, 4), torch.ones(1, 5, 4), torch.zeros(1, 4), torch.ones(1, 2, 2))
    lengths = torch.tensor([3])
    targets = (torch.full((1, 5, 4), 1.0), torch.zeros(1, 4), lengths, torch.tensor([2]))
    targets[0][:, :, 3] = 9.0  # past the end, where masking does not look
    terms = criterion.terms(outputs, targets)
    off_diagonal = 2 * (1 - np.exp(-0.25 / (2 * 0.4**2))) / 4  # two steps of two frames, two symbols
    expected = {"mel": 0.0, "mel_postnet": 0.0, "gate": np.log(2), "guided_attention": off_diagonal}
    assert {name: term.item() for name, term in terms.items()} == pytest.approx(expected, rel=1e-6)
    plain = get_loss_function("Tacotron2").terms(outputs, targets[:2])
    assert plain["mel"].item() == pytest.approx(64 / 4)
    assert "guided_attention" not in plain


def batch_of(mels, mel_lengths, text_lengths) -> Tacotron2Batch:
    """Clips of up to five symbols."""
    text, gates = torch.ones(len(mels), 5, dtype=torch.int64), torch.zeros(len(mels), mels.shape[2])
    lengths, names = (torch.tensor(text_lengths), torch.tensor(mel_lengths)), tuple("abc"[: len(mels)])
    return Tacotron2Batch(text, lengths[0], mels, gates, lengths[1], names)


@pytest.mark.parametrize("r", [1, 2])
def test_preview(r):
    """Plots, sounds and numbers cover the first clip's own frames, steps and symbols, without padding."""
    model, stft, frames = Tacotron2(n_frames_per_step=r, decoder_rnn_dim=4, attention_rnn_dim=4), TacotronSTFT(), 7
    steps, all_steps = -(-frames // r), -(-10 // r)
    batch = batch_of(torch.randn(2, 80, 10) - 5, [frames, 10], [4, 3])
    alignments = torch.full((2, all_steps, 5), 0.25)
    alignments[0, steps:], alignments[1, :, 0] = 1.0, 0.75
    mels = torch.randn(2, 80, 10) - 5

    def show(refined):
        torch.manual_seed(0)  # Griffin-Lim's first phases
        return preview(model, batch, Tacotron2Output(mels, refined, torch.zeros(2, 10), alignments), stft)

    shown, other = show(mels), show(torch.nn.functional.pad(mels[:, :, :frames], (0, 3)))
    assert shown.scalars["attention_focus"] == pytest.approx((0.25 + 0.75) / 2)
    assert {name for name in shown.figures if "free" not in name} == {"alignment", "gate", "mel"}

    def drawn(name):
        return [axes.images[0].get_array() for axes in shown.figures[name].axes if axes.images]

    assert drawn("alignment")[0].shape == (4, steps)
    for image, expected in zip(drawn("mel"), (batch.mels, mels), strict=False):
        np.testing.assert_array_equal(image, expected[0, :, :frames])
    assert shown.sounds["griffin_lim"].shape == ((frames - 1) * 256,)
    assert torch.equal(shown.sounds["griffin_lim"], other.sounds["griffin_lim"])


class FixedOutput(Tacotron2):
    """Fake model: for any input, item i is i + 4 frames long and attends to one symbol a step."""

    def infer(self, text, text_lengths, max_steps=None):
        items, self.limit = len(text), max_steps
        lengths = torch.arange(items) + 4
        lengths[-1] = self.frame_limits(text_lengths, max_steps)[-1]  # the last one does not stop
        alignments = torch.nn.functional.one_hot(torch.arange(max_steps) % text.shape[1], text.shape[1]).float()
        return Tacotron2Inference(torch.full((items, 80, max_steps), -5.0), lengths, alignments.expand(items, -1, -1))


def free_run(frames: int, mel_lengths: list[int], guard: DecodingGuard) -> tuple[FixedOutput, Preview]:
    """The fake model's validation of three clips of five symbols, whose teacher-forced attention is even."""
    model, items = FixedOutput(decoder_rnn_dim=4, attention_rnn_dim=4), len(mel_lengths)
    model.decoder.guard = guard
    batch = batch_of(torch.randn(items, 80, frames), mel_lengths, [5] * items)
    outputs = Tacotron2Output(batch.mels, batch.mels, batch.gates, torch.full((items, frames, 5), 0.2))
    return model, preview(model, batch, outputs, TacotronSTFT())


@pytest.mark.slow
def test_free_running_is_previewed_beside_teacher_forcing():
    """Plots and numbers with "free_running" in their names come from inference, not from teacher forcing."""
    model, shown = free_run(10, [8, 10, 10], DecodingGuard())
    assert model.limit == 20
    assert shown.scalars["attention_focus"] == pytest.approx(0.2)
    assert shown.scalars["free_running_attention_focus"] == pytest.approx(1.0)
    assert shown.scalars["free_running_length_ratio"] == pytest.approx((4 / 8 + 5 / 10 + 20 / 10) / 3)
    assert shown.scalars["free_running_stopped"] == pytest.approx(2 / 3)
    for item in range(2):
        image = shown.figures[f"free_running_alignment_{item}"].axes[0].images[0].get_array()
        np.testing.assert_array_equal(image, np.eye(5)[: item + 4].T)
        assert shown.sounds[f"free_running_{item}"].shape == ((item + 3) * 256,)


def test_a_clip_cut_at_its_own_limit_did_not_stop_by_itself():
    """The limit is 5 symbols x 0.8 frames + 50 = 54, far below twice the longest clip."""
    model, shown = free_run(40, [40, 40, 40], DecodingGuard(max_frames_per_symbol=0.8))
    assert model.limit == 80
    assert shown.scalars["free_running_length_ratio"] == pytest.approx((4 + 5 + 54) / 120)
    assert shown.scalars["free_running_stopped"] == pytest.approx(2 / 3)


def test_dropout_rates_of_training_are_set_and_invalid_ones_are_errors() -> None:
    model = Tacotron2(decoder_rnn_dim=4, attention_rnn_dim=4)
    assert (model.decoder.drop_frame_rate, model.encoder.p_dropout, model.postnet.p_dropout) == (0.0, 0.5, 0.5)
    SPEC.prepare_training(model, {"drop_frame_rate": 0.25, "p_convolution_dropout": 0.125})
    assert (model.decoder.drop_frame_rate, model.encoder.p_dropout, model.postnet.p_dropout) == (0.25, 0.125, 0.125)
    for flag in ("drop_frame_rate", "p_convolution_dropout"):
        for share in (1.0, -0.1, math.nan):
            with pytest.raises(UsageError, match="--" + flag.replace("_", "-")):
                SPEC.prepare_training(model, {flag: share})
