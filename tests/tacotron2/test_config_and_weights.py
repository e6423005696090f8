"""The config keys and the flags that set them, against the published tables."""

import argparse
import dataclasses
import math

import pytest
import torch
from torch import nn

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
        ("n_mel_channels", 0, "a whole number of at least 1"),
        ("n_frames_per_step", 0, "a whole number of at least 1"),
        ("n_symbols", -3, "a whole number of at least 1"),
        *(("max_decoder_steps", value, "a whole number from 1 to 1000000") for value in (-3, 1_000_001)),
        *((name, 4, "an odd size") for name in PUBLISHED if "kernel_size" in name),
        ("encoder_embedding_dim", 511, "an even size"),
        ("prenet_dim", None, "a whole number of at least 1"),
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
    assert Tacotron2Config(gate_threshold=1.0).gate_threshold == 1.0  # which never stops
    with pytest.raises(UsageError) as error:
        Tacotron2Config(prenet_dim=0, postnet_kernel_size=6, p_attention_dropout=2.0)
    assert str(error.value).split("; ") == [
        "--prenet-dim: 0, expected a whole number of at least 1",
        "--p-attention-dropout: 2.0, expected a probability in [0, 1)",
        "--postnet-kernel-size: 6, expected an odd size, which keeps the length",
    ]
    with pytest.raises(DataError, match=r"Tacotron2 config: .*'prenet_size'"):
        models.get_model("Tacotron2", {"prenet_size": 256})


SMALL = {"encoder_n_convolutions": 1, "postnet_n_convolutions": 2, "decoder_rnn_dim": 8, "attention_rnn_dim": 8}


def published_layout() -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes, in order: mels 80, channels 512, LSTMs 1024 (four gates each), prenet 256, attention 128."""
    rows: list[tuple[str, tuple[int, ...]]] = [("embedding.weight", (148, 512))]

    def conv_norm(name, *shape):
        out = shape[:1]
        rows.extend([(f"{name}.0.conv.weight", shape), (f"{name}.0.conv.bias", out)])
        rows.extend((f"{name}.1.{part}", out) for part in ("weight", "bias", "running_mean", "running_var"))
        rows.append((f"{name}.1.num_batches_tracked", ()))

    def lstm(name, suffix, inputs, hidden):
        rows.extend((f"{name}.weight_{part}{suffix}", (4 * hidden, n)) for part, n in (("ih", inputs), ("hh", hidden)))
        rows.extend((f"{name}.bias_{part}{suffix}", (4 * hidden,)) for part in ("ih", "hh"))

    for i in range(3):
        conv_norm(f"encoder.convolutions.{i}", 512, 512, 5)
    lstm("encoder.lstm", "_l0", 512, 256)
    lstm("encoder.lstm", "_l0_reverse", 512, 256)
    rows.append(("decoder.prenet.layers.0.linear_layer.weight", (256, 80)))
    rows.append(("decoder.prenet.layers.1.linear_layer.weight", (256, 256)))
    lstm("decoder.attention_rnn", "", 256 + 512, 1024)
    attention = "decoder.attention_layer"
    rows.append((f"{attention}.query_layer.linear_layer.weight", (128, 1024)))
    rows.append((f"{attention}.memory_layer.linear_layer.weight", (128, 512)))
    rows.append((f"{attention}.v.linear_layer.weight", (1, 128)))
    rows.append((f"{attention}.location_layer.location_conv.conv.weight", (32, 2, 31)))
    rows.append((f"{attention}.location_layer.location_dense.linear_layer.weight", (128, 32)))
    lstm("decoder.decoder_rnn", "", 1024 + 512, 1024)
    for name, out in (("linear_projection", 80), ("gate_layer", 1)):
        rows.append((f"decoder.{name}.linear_layer.weight", (out, 1024 + 512)))
        rows.append((f"decoder.{name}.linear_layer.bias", (out,)))
    for i, (into, out) in enumerate([(80, 512), (512, 512), (512, 512), (512, 512), (512, 80)]):
        conv_norm(f"postnet.convolutions.{i}", out, into, 5)
    return rows


@pytest.fixture(scope="module")
def full_model():
    torch.manual_seed(0)
    return models.get_model("Tacotron2", {})


def test_state_dict_has_the_published_layout(full_model):
    layout = [(name, tuple(tensor.shape)) for name, tensor in full_model.state_dict().items()]
    assert layout == published_layout()
    assert sum(parameter.numel() for parameter in full_model.parameters()) == 28_193_153
    # an optimizer's state goes by the parameters' order
    learned = [name for name, _ in layout if not name.split(".")[-1].startswith(("running", "num_batches"))]
    assert [name for name, _ in full_model.named_parameters()] == learned
    assert {parameter.dtype for parameter in full_model.parameters()} == {torch.float32}


def assert_uniform(weight, bound):
    """Uniform in ±bound; the standard deviation within four times its own, sqrt(1/5n) of it."""
    n = weight.numel()
    assert weight.abs().max() <= bound
    assert weight.abs().max() > bound * (1 - 10 / n)
    assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=4 / math.sqrt(5 * n))
    assert abs(weight.mean().item()) < 4 * bound / math.sqrt(3 * n)


RELU, TANH = math.sqrt(2), 5 / 3
XAVIER = [  # name, gain, fan in + fan out
    ("encoder.convolutions.0.0.conv", RELU, 5 * 1024),
    ("encoder.convolutions.2.0.conv", RELU, 5 * 1024),
    ("decoder.prenet.layers.0.linear_layer", 1, 80 + 256),
    ("decoder.prenet.layers.1.linear_layer", 1, 256 + 256),
    ("decoder.attention_layer.query_layer.linear_layer", TANH, 1024 + 128),
    ("decoder.attention_layer.memory_layer.linear_layer", TANH, 512 + 128),
    ("decoder.attention_layer.v.linear_layer", 1, 128 + 1),
    ("decoder.attention_layer.location_layer.location_conv.conv", 1, 31 * (2 + 32)),
    ("decoder.attention_layer.location_layer.location_dense.linear_layer", TANH, 32 + 128),
    ("decoder.linear_projection.linear_layer", 1, 1536 + 80),
    ("decoder.gate_layer.linear_layer", 1, 1536 + 1),
    ("postnet.convolutions.0.0.conv", TANH, 5 * (80 + 512)),
    ("postnet.convolutions.3.0.conv", TANH, 5 * 1024),
    ("postnet.convolutions.4.0.conv", 1, 5 * (512 + 80)),
]


def test_weights_start_xavier_uniform(full_model):
    for name, gain, fans in XAVIER:
        assert_uniform(full_model.get_parameter(f"{name}.weight"), gain * math.sqrt(6 / fans))
    assert_uniform(full_model.embedding.weight, math.sqrt(3) * math.sqrt(2 / (148 + 512)))


def test_batchnorm_weights_start_at_one_or_uniform(full_model):
    model = models.get_model("Tacotron2", SMALL, uniform_initialize_bn_weight=True)
    ones, uniform = ([m for m in one.modules() if isinstance(m, nn.BatchNorm1d)] for one in (full_model, model))
    assert len(ones) == 8 and all(torch.equal(norm.weight, torch.ones_like(norm.weight)) for norm in ones)
    for norm in uniform:
        assert not norm.bias.any() and (norm.eps, norm.momentum) == (1e-5, 0.1)
        assert 0 <= norm.weight.min() < norm.weight.max() < 1
    assert_uniform(torch.cat([2 * norm.weight - 1 for norm in uniform]), 1.0)
