"""Settings that a run takes from its --warm-start checkpoint, and weights: parsed flags and files alone, no training."""

import argparse
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import torch

from common.audio.stft import AudioConfig
from common.checkpoint.files import save_checkpoint
from common.errors import UsageError
from common.spec import config_of
from common.training.arguments import parse_training_arguments
from common.training.fine_tuning import warm_start
from models import REGISTRY

AUDIO = AudioConfig(sampling_rate=16000, n_mel_channels=10, mel_fmax=7000.0)
WAVEGLOW = {"n_mel_channels": 10, "n_flows": 4, "n_early_every": 2, "WN_config": {"n_layers": 2, "n_channels": 8}}
SIZES = {"symbols_embedding_dim": 8, "encoder_embedding_dim": 8, "attention_rnn_dim": 8, "decoder_rnn_dim": 8}
SIZES |= {"prenet_dim": 8, "attention_dim": 4, "postnet_embedding_dim": 8, "n_mel_channels": 10}


def start_file(path: Path, model: str, symbols: list[str] | None = None, **config: object) -> Path:
    """A checkpoint of an untrained model, whose average differs from its weights."""
    torch.manual_seed(3)
    net = REGISTRY[model].build(**config)
    weights = net.state_dict()
    average = {name: value + 1 if value.is_floating_point() else value for name, value in weights.items()}
    data = asdict(AUDIO) | ({"text_cleaners": ["basic_cleaners"], "symbols": symbols} if model == "Tacotron2" else {})
    content = {"state_dict": weights, "ema_state_dict": average, "config": config_of(net), "data": data}
    save_checkpoint(path, content)
    return path


def parse(model: str, output: Path, start: Path, *words: str) -> argparse.Namespace:
    command = ["-m", model, "-o", str(output), "--warm-start", str(start), *words]
    return argparse.Namespace(**parse_training_arguments(command, REGISTRY, "")[0].model)


def test_a_run_takes_audio_and_nested_sizes_of_the_file_but_for_named_audio(tmp_path: Path) -> None:
    start = start_file(tmp_path / "x.pt", "WaveGlow", **WAVEGLOW)
    args = parse("WaveGlow", tmp_path, start)
    assert {field.name: getattr(args, field.name) for field in fields(AudioConfig)} == asdict(AUDIO)
    assert (args.flows, args.early_every, args.wn_layers, args.wn_channels, args.wn_kernel_size) == (4, 2, 2, 8, 3)
    args = parse("WaveGlow", tmp_path, start, "--mel-fmin", "50", "--sampling-rate", "22050")
    assert (args.mel_fmin, args.sampling_rate, args.mel_fmax) == (50.0, 22050, 7000.0)
    start.rename(tmp_path / "checkpoint_WaveGlow_4.pt")  # a resumed run has the settings of its own checkpoint
    assert parse("WaveGlow", tmp_path, start, "--resume-from-last").wn_channels == 8
    assert parse("WaveGlow", tmp_path, start).wn_channels != 8


def test_sizes_that_differ_are_one_error_unless_weights_are_left_out(tmp_path: Path) -> None:
    start = start_file(tmp_path / "x.pt", "WaveGlow", **WAVEGLOW)
    words = ["--wn-channels", "16", "--flows", "6"]
    with pytest.raises(UsageError, match=r"(?s)--wn-channels: .*\n--flows: |--flows: .*\n--wn-channels: "):
        parse("WaveGlow", tmp_path, start, *words)
    args = parse("WaveGlow", tmp_path, start, *words, "--ignore-layers", "^WN")
    assert (args.flows, args.wn_channels, args.wn_layers) == (6, 16, 2)
    with pytest.raises(UsageError, match=r"--upsample-channels: 4, and .* has None"):
        parse("WaveGlow", tmp_path, start, "--upsample-channels", "4")


def test_settings_that_are_no_sizes_may_differ(tmp_path: Path) -> None:
    start = start_file(tmp_path / "x.pt", "Tacotron2", **SIZES, p_decoder_dropout=0.125)
    args = parse("Tacotron2", tmp_path, start, "--p-attention-dropout", "0.5", "--max-decoder-steps", "77")
    assert (args.p_attention_dropout, args.p_decoder_dropout, args.max_decoder_steps) == (0.5, 0.125, 77)
    assert (args.text_cleaners, args.decoder_rnn_dim) == (["basic_cleaners"], 8)


def test_the_alphabet_of_the_run_decides_its_size(tmp_path: Path) -> None:
    start = start_file(tmp_path / "x.pt", "Tacotron2", ["_", " ", "a", "b", "c", "d", "e"], **SIZES, n_symbols=7)
    args = parse("Tacotron2", tmp_path, start)
    assert (len(args.symbols), REGISTRY["Tacotron2"].config_from_options(vars(args))["n_symbols"]) == (7, 7)
    (tmp_path / "symbols.txt").write_text("\n".join([" ", "a", "b", "c"]) + "\n")
    args = parse("Tacotron2", tmp_path, start, "--symbols-file", str(tmp_path / "symbols.txt"))
    config = REGISTRY["Tacotron2"].config_from_options(vars(args))
    assert config["n_symbols"] == len(args.symbols) < 10
    assert config["decoder_rnn_dim"] == 8


def test_a_warm_start_takes_the_average_and_leaves_fresh_weights(tmp_path: Path) -> None:
    start, spec = start_file(tmp_path / "x.pt", "WaveGlow", **WAVEGLOW), REGISTRY["WaveGlow"]
    torch.manual_seed(7)
    net = spec.build(**WAVEGLOW)
    before = {name: value.clone() for name, value in net.state_dict().items()}
    note = warm_start(net, spec, start, {}, ["^upsample"])
    stored = torch.load(start, weights_only=True)["ema_state_dict"]
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name] if name.startswith("upsample") else stored[name]), name
    assert note.endswith("weights as a warm start at epoch 0; 2 tensors start anew")
