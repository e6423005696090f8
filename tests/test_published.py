"""Scripts written for the published recipe: its names exist, and do here what they did there."""

import argparse
import json
import pickle
import re
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io.wavfile import read, write

import data_functions
import loss_functions
import models
import train
from common.data.mels import save_mel
from common.errors import DataError, UsageError
from inference import MeasureTime, load_and_setup_model, pad_sequences, prepare_input_sequence
from tacotron2.text import cmudict, text_to_sequence
from tacotron2.text.numbers import normalize_numbers
from tacotron2_common import layers, utils
from tacotron2_common.audio_processing import (
    dynamic_range_compression,
    dynamic_range_decompression,
    griffin_lim,
    window_sumsquare,
)
from tacotron2_common.stft import STFT
from tests.recipe import MODELS, ROOT, run, train_tiny_model
from waveglow.denoiser import Denoiser

CLOCK = ROOT / "filelists/clock_audio_text_val_filelist.txt"
PAGE = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
NAMES = re.findall(r"^\| `([\w.]+)` \| ((?:`\w+`,? ?)+) \|", PAGE, flags=re.M)  # of its table: module, names


@pytest.mark.parametrize(("module", "names"), NAMES, ids=[module for module, _ in NAMES])
def test_the_names_of_a_module_can_be_imported(module: str, names: str) -> None:
    assert [name for name in re.findall(r"\w+", names) if not hasattr(import_module(module), name)] == []
    assert len(NAMES) > 25


def test_symbols_stay_the_list_whatever_is_imported_first() -> None:
    import tacotron2.text.symbols

    assert isinstance(tacotron2.text.symbols, list) and len(tacotron2.text.symbols) == 148


@pytest.mark.parametrize("name", sorted(train.refuse.__globals__["SUCCESSORS"]))
def test_a_name_that_is_gone_says_what_takes_its_place(name: str) -> None:
    with pytest.raises(ImportError, match=f"train.{name} of the published recipe: common|models"):
        exec(f"from train import {name}", {})
    module, _, attribute = train.refuse.__globals__["SUCCESSORS"][name].split(",")[0].rpartition(".")
    assert callable(getattr(import_module(module), attribute))
    with pytest.raises(ImportError, match="cannot import name 'no_such'"):
        exec("from train import no_such", {})


def arguments(name: str, *more: str) -> argparse.Namespace:
    """Parse as a published script does: its own flags, then the model's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    parser = models.model_parser(name, parser)
    words = [*MODELS[name].split(), "--n-mel-channels", "10", "--unknown", *more]
    args, unknown = parser.parse_known_args(words)
    assert "--unknown" in unknown
    return argparse.Namespace(**vars(args), load_mel_from_disk=False, segment_length=4096)


@pytest.mark.parametrize("name", ["Tacotron2", "WaveGlow"])
def test_a_training_loop_in_the_published_style_learns(name: str) -> None:
    torch.manual_seed(1)
    args = arguments(name)
    config = models.get_model_config(name, args)
    model = models.get_model(name, config, cpu_run=True, uniform_initialize_bn_weight=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    criterion = loss_functions.get_loss_function(name, 1.0)
    collate_fn = data_functions.get_collate_function(name, getattr(args, "n_frames_per_step", 1))
    trainset = data_functions.get_data_loader(name, str(ROOT), str(CLOCK), args)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.Subset(trainset, range(4)), batch_size=2, collate_fn=collate_fn, drop_last=True
    )
    batch_to_gpu = data_functions.get_batch_to_gpu(name)
    losses = []
    model.train()
    for epoch in range(8):
        train.adjust_learning_rate(0, epoch, optimizer, 1e-2, [6], 0.1, 0)
        for batch in loader:
            x, y, num_items = batch_to_gpu(batch)
            y_pred = model(x)
            loss = criterion(y_pred, y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            assert int(num_items) > 1000 if name == "WaveGlow" else int(num_items) > 50
    assert losses[-1] < 0.8 * losses[0]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-3)
    with train.evaluating(model):
        assert not model.training
    assert model.training and criterion(tuple(y_pred), y).item() == pytest.approx(loss.item())
    assert pickle.loads(pickle.dumps(model))(x)[0].shape == y_pred[0].shape


def test_inference_in_the_published_style_speaks(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    paths = {name: str(train_tiny_model(name)) for name in MODELS}
    measurements: dict[str, float] = {}
    tacotron2 = load_and_setup_model("Tacotron2", parser, paths["Tacotron2"], False, True, forward_is_infer=True)
    waveglow = load_and_setup_model("WaveGlow", parser, paths["WaveGlow"], False, True, forward_is_infer=True)
    denoiser = Denoiser(waveglow, n_overlap=4, mode="zeros")
    sequences, lengths = prepare_input_sequence(["Hi.", "Half past nine."], True)
    assert lengths.tolist() == [15, 3] and sequences[0].tolist() == text_to_sequence(
        "Half past nine.", ["english_cleaners"]
    )
    with torch.no_grad(), MeasureTime(measurements, "tacotron2_time", True):
        mel, mel_lengths, alignments = tacotron2(sequences, lengths)
    with torch.no_grad(), MeasureTime(measurements, "waveglow_time", True):
        audios = waveglow(mel, sigma=0.9).float()
        audios = denoiser(audios, strength=0.01).squeeze(1)
    assert measurements["tacotron2_time"] > 0 and alignments.shape[::2] == (2, 15)
    for i, audio in enumerate(audios):
        audio = audio[: mel_lengths[i] * 256]
        write(tmp_path / f"audio_{i}.wav", 22050, (audio / audio.abs().max()).numpy())
        assert len(read(tmp_path / f"audio_{i}.wav")[1]) == mel_lengths[i] * 256


def test_a_model_of_flags_alone_and_the_padding_of_texts(monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script.py", "--wn-channels", "16", "--other"])
    model = load_and_setup_model("WaveGlow", argparse.ArgumentParser(), None, True, True)
    assert model.config.WN_config.n_channels == 16 and not model.training
    assert next(model.parameters()).dtype == torch.float32  # no half precision on a CPU
    padded, lengths = pad_sequences([torch.IntTensor([3]), torch.IntTensor([1, 2])])
    assert padded.tolist() == [[1, 2], [3, 0]] and lengths.tolist() == [2, 1]
    with pytest.raises(UsageError, match="PulseNoise: no model of the published recipe"):
        data_functions.get_batch_to_gpu("PulseNoise")


def test_batches_have_the_published_form(tmp_path: Path) -> None:
    """Three frames a step; the stored mel's frames count up, so that each value has its place."""
    for number, frames in (("1", 4), ("2", 5)):
        save_mel(tmp_path / f"{number}.pt", torch.arange(10.0 * frames).reshape(10, frames))
    (tmp_path / "list.txt").write_text("1.pt|Hi.\n2.pt|Good day.\n")
    args = arguments("Tacotron2")
    args.load_mel_from_disk, args.n_frames_per_step = True, 3
    loader = data_functions.get_data_loader("Tacotron2", str(tmp_path), str(tmp_path / "list.txt"), args)
    assert [clip[2] for clip in loader] == [3, 9] and len(loader) == 2
    collate = data_functions.get_collate_function("Tacotron2", 3)
    text, text_lengths, mels, gates, mel_lengths, characters = collate([*loader])
    assert (text.shape, text_lengths.tolist(), mel_lengths.tolist(), characters.tolist()) == (
        (2, 9),
        [9, 3],
        [5, 4],
        [3, 9],
    )
    assert torch.equal(mels[1, :, :4], loader[0][1]) and mels.shape == (2, 10, 6) and (mels[1, :, 4:] == 0).all()
    assert gates.tolist() == [[0, 0, 0, 1, 1, 1]] * 2  # the last frame's step has three
    (x_text, _, _, longest, _), targets, items = data_functions.get_batch_to_gpu("Tacotron2")(
        (text, text_lengths, mels, gates, mel_lengths, characters)
    )
    assert x_text.device == targets[1].device and (longest, int(items)) == (9, 9)


def test_utils(tmp_path: Path) -> None:
    samples = np.array([0, 1, -32768, 32767], np.int16)
    write(tmp_path / "a.wav", 16000, samples)
    audio, rate = utils.load_wav_to_torch(tmp_path / "a.wav")
    assert (audio.tolist(), audio.dtype, rate) == (samples.tolist(), torch.float32, 16000)
    (tmp_path / "no.wav").write_text("text")
    with pytest.raises(DataError, match=r"no.wav: .*expected a wav file"):
        utils.load_wav_to_torch(tmp_path / "no.wav")
    assert utils.get_mask_from_lengths(torch.tensor([1, 3])).tolist() == [[False, True, True], [False] * 3]
    (tmp_path / "list.txt").write_text("a.wav|One.\n")
    assert utils.load_filepaths_and_text("d", tmp_path / "list.txt") == [("d/a.wav", "One.")]
    (tmp_path / "c.json").write_text(json.dumps({"run": {"batch-size": 3}, "other": {"x": [1]}}))
    parser = argparse.ArgumentParser()
    parser.add_argument("--config-file", action=utils.ParseFromConfigFile, type=str)
    args = parser.parse_args(["--config-file", str(tmp_path / "c.json")])
    assert (args.batch_size, args.x) == (3, [1])


def test_layers_and_transforms() -> None:
    conv = layers.ConvNorm(2, 3, kernel_size=3, stride=2, dilation=2, w_init_gain="tanh")
    x = torch.randn(1, 2, 20)
    expected = torch.nn.functional.conv1d(x, conv.conv.weight, conv.conv.bias, stride=2, padding=2, dilation=2)
    torch.testing.assert_close(conv(x), expected)
    assert layers.ConvNorm(2, 3, 5, padding=0)(x).shape == (1, 3, 16)
    assert layers.LinearNorm(2, 4, bias=False, w_init_gain="relu").linear_layer.bias is None
    tone = torch.sin(torch.arange(8192) * 0.3)[None]
    magnitude, phase = STFT(512, 128, 512).transform(tone)
    torch.testing.assert_close(STFT(512, 128, 512).inverse(magnitude, phase), tone, atol=1e-4, rtol=0)
    torch.manual_seed(1)
    again = griffin_lim(magnitude, STFT(512, 128, 512), 60)
    assert ((STFT(512, 128, 512).transform(again)[0] - magnitude).norm() / magnitude.norm()).item() < 0.3
    levels = torch.tensor([1e-7, 0.5])
    back = dynamic_range_decompression(dynamic_range_compression(levels, 2), 2)
    torch.testing.assert_close(back, torch.tensor([1e-5, 0.5]))
    assert window_sumsquare("hann", 3, hop_length=4, win_length=8, n_fft=8)[8] == pytest.approx(1.0)


def test_numbers_and_the_pronouncing_dictionary(tmp_path: Path) -> None:
    assert normalize_numbers("$3 and 21st") == "three dollars and twenty-first"
    lines = [";;; comment\n", "READ  R EH1 D\n", "READ(1)  R IY1 D\n", "'TIS  T IH1 Z\n", "BAD  XX1 D\n"]
    (tmp_path / "cmudict").write_text("".join(lines))
    words = cmudict.CMUDict(str(tmp_path / "cmudict"))
    assert len(words) == 2 and words.lookup("read") == ["R EH1 D", "R IY1 D"] and words.lookup("bad") is None
    assert cmudict.CMUDict(lines, keep_ambiguous=False).lookup("read") is None
    assert len(cmudict.valid_symbols) == 84


def test_the_published_command_of_mels(tmp_path: Path) -> None:
    row = CLOCK.read_text().splitlines()[0]
    (tmp_path / "wavs.txt").write_text(row.replace("corpus/", f"{ROOT}/corpus/") + "\n")
    (tmp_path / "mels.txt").write_text(f"{tmp_path}/mel.pt|{row.split('|')[1]}\n")
    command = ("preprocess_audio2mel.py", "--wav-files", tmp_path / "wavs.txt", "--mel-files", tmp_path / "mels.txt")
    assert run(*command, "--num-workers", 1).code == 0
    assert torch.load(tmp_path / "mel.pt", weights_only=True).shape[0] == 80
    assert "usage: train.py" in run("main.py", "-h").out
    for words in (["test_infer.py"], ["inference_perf.py"], ["main.py", "--bench-class", "perf-infer"]):
        assert "usage: python -m benchmarks.latency" in run(*words, "-h").out
