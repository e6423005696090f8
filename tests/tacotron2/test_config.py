"""The config keys and the flags that set them, against the published tables."""

import argparse
import dataclasses

import pytest

import models
from common.errors import DataError, UsageError
from tacotron2.arg_parser import add_tacotron2_arguments, add_tacotron2_training_arguments
from tacotron2.config import Tacotron2Config
from tacotron2.spec import config_from_options

PUBLISHED = {
    "mask_padding": False, "n_mel_channels": 80, "n_symbols": 148, "symbols_embedding_dim": 512,
    "encoder_kernel_size": 5, "encoder_n_convolutions": 3, "encoder_embedding_dim": 512, "attention_rnn_dim": 1024,
    "attention_dim": 128, "attention_location_n_filters": 32, "attention_location_kernel_size": 31,
    "n_frames_per_step": 1, "decoder_rnn_dim": 1024, "prenet_dim": 256, "max_decoder_steps": 2000,
    "gate_threshold": 0.5, "p_attention_dropout": 0.1, "p_decoder_dropout": 0.1, "postnet_embedding_dim": 512,
    "postnet_kernel_size": 5, "postnet_n_convolutions": 5, "decoder_no_early_stopping": False,
}  # fmt: skip


def parse(*argv: str) -> dict:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_tacotron2_arguments(parser)
    add_tacotron2_training_arguments(parser)
    return vars(parser.parse_args(argv))


def test_the_default_and_the_flags_are_the_published_config():
    assert dataclasses.asdict(Tacotron2Config(**PUBLISHED)) == PUBLISHED == dataclasses.asdict(Tacotron2Config())
    options = parse()
    assert config_from_options(options | {"n_mel_channels": 80}) == PUBLISHED
    own = {name: value for name, value in options.items() if name not in PUBLISHED}
    assert own == {
        "text_cleaners": ["english_cleaners"], "text_reading": "spoken", "symbols": None, "attention_stop": 0,
        "attention_window": 0, "max_frames_per_symbol": 0.0, "load_mel_from_disk": False,
        "guided_attention_weight": 0.0, "guided_attention_sigma": 0.4, "guided_attention_decay": 1.0,
        "drop_frame_rate": 0.0, "p_convolution_dropout": 0.5, "longest_clip": 60.0, "symbols_per_second": 60.0,
        "graphs": False,
    }  # fmt: skip


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name != "n_mel_channels"])
def test_every_flag_sets_its_key(name):
    flag, default = "--" + name.replace("_", "-"), PUBLISHED[name]
    if isinstance(default, bool):
        assert config_from_options(parse(flag)) == config_from_options(parse()) | {name: True}
        assert parse(flag, "--no-" + flag[2:])[name] is False
        return
    value = type(default)(0.25) if isinstance(default, float) else default + 2
    assert config_from_options(parse(flag, str(value))) == config_from_options(parse()) | {name: value}


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *((name, 0, "at least 1") for name in ("n_mel_channels", "encoder_n_convolutions", "n_frames_per_step")),
        *((name, -3, "at least 1") for name in ("n_symbols", "max_decoder_steps")),
        *((name, 4, "an odd size") for name in PUBLISHED if "kernel_size" in name),
        ("encoder_embedding_dim", 511, "an even size"),
        ("p_attention_dropout", 1.0, r"a probability in \[0, 1\)"),
        ("gate_threshold", -0.1, r"a probability in \[0, 1\], where 1 never stops"),
        ("gate_threshold", 1.5, r"a probability in \[0, 1\]"),
        ("gate_threshold", float("nan"), r"a probability in \[0, 1\]"),
        ("p_decoder_dropout", -0.1, r"a probability in \[0, 1\)"),
        ("p_decoder_dropout", float("nan"), r"a probability in \[0, 1\)"),
    ],
)
def test_impossible_values_are_errors(name, value, expected):
    flag = "--" + name.replace("_", "-")
    with pytest.raises(UsageError, match=rf"^{flag}: {value}, expected {expected}[^;]*$"):
        Tacotron2Config(**{name: value})
    with pytest.raises(UsageError, match=flag):
        models.get_model("Tacotron2", {name: value})


def test_one_error_reports_all_problems_and_an_unknown_key_is_one():
    with pytest.raises(UsageError) as error:
        Tacotron2Config(prenet_dim=0, postnet_kernel_size=6, p_attention_dropout=2.0)
    assert str(error.value).split("; ") == [
        "--prenet-dim: 0, expected at least 1",
        "--p-attention-dropout: 2.0, expected a probability in [0, 1)",
        "--postnet-kernel-size: 6, expected an odd size, which keeps the length",
    ]
    with pytest.raises(DataError, match=r"Tacotron2 config: .*'prenet_size'"):
        models.get_model("Tacotron2", {"prenet_size": 256})
