"""The stages of inference on models whose answers are known beforehand."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import NamedTuple

import librosa
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from common.audio.stft import AudioConfig, TacotronSTFT
from common.errors import UsageError
from common.fast import FastWay, Request
from common.inference.stages import (
    Loaded,
    Spoken,
    griffin_lim_vocoder,
    make_ready,
    neural_vocoder,
    say,
    speak,
    timed,
    trim,
)
from common.spec import AcousticInference, Piece, VocoderInference

CPU = torch.device("cpu")
SILENCE = float(np.float32(np.log(1e-5)))


class Said(NamedTuple):
    mels: Tensor
    lengths: Tensor
    alignments: Tensor


class Reader(nn.Module):
    """Says id i as 2 frames of i; takes one step more than the longest text, as the stop gate of a real one does."""

    def infer(self, ids: Tensor, lengths: Tensor) -> Said:
        steps = ids.shape[1] + 1
        frames = torch.cat((ids.float(), torch.zeros(len(ids), 1)), dim=1).repeat_interleave(2, dim=1)
        alignments = torch.eye(steps)[:, : ids.shape[1]].expand(len(ids), -1, -1)
        return Said(frames[:, None].expand(-1, 3, -1), 2 * lengths, alignments)


def encode(texts: list[str], options: dict) -> tuple[Tensor, Tensor]:
    ids = [torch.tensor([ord(letter) - ord("a") + options["first"] for letter in text]) for text in texts]
    return nn.utils.rnn.pad_sequence(ids, batch_first=True), torch.tensor([len(text) for text in texts])


def acoustic() -> Loaded:
    stages = AcousticInference(encode=encode, spell=lambda text, options: list(text))
    return Loaded(argparse.Namespace(flag="reader", inference=stages), Reader(), {"first": 1})  # type: ignore[arg-type]


def test_lines_are_spoken_in_their_order_with_silence_past_their_ends() -> None:
    spoken, numbers = speak(["ab", "cdcde", "a"], acoustic(), CPU, half=False)
    assert isinstance(spoken, Spoken)
    assert spoken.lengths.tolist() == [4, 10, 2]
    assert spoken.steps.tolist() == [2, 5, 1]
    assert spoken.text_lengths.tolist() == [2, 5, 1]
    assert spoken.finished == [True, True, True]
    wanted = torch.full((3, 12), SILENCE)
    for row, text in enumerate(["ab", "cdcde", "a"]):
        for step, letter in enumerate(text):
            wanted[row, 2 * step : 2 * step + 2] = ord(letter) - ord("a") + 1
    assert torch.allclose(spoken.mels, wanted[:, None].expand(-1, 3, -1))
    assert numbers["attention_focus"] == 1.0  # one symbol a step
    assert set(numbers) == {"reader_items_per_sec", "reader_latency", "attention_focus"}
    assert numbers["reader_items_per_sec"] * numbers["reader_latency"] == pytest.approx(16)


def test_an_item_that_runs_to_the_limit_is_unfinished() -> None:
    loaded = acoustic()

    class Endless(Reader):
        def infer(self, ids: Tensor, lengths: Tensor) -> Said:
            said = super().infer(ids, lengths)
            return said._replace(lengths=torch.tensor([said.mels.shape[2], 4]))

    spoken, _ = speak(["abc", "ab"], loaded._replace(model=Endless()), CPU, half=False)
    assert spoken.finished == [False, True]


def test_very_short_mels_are_lengthened_with_silence() -> None:
    spoken, _ = speak(["a"], acoustic(), CPU, half=False)
    assert spoken.mels.shape == (1, 3, 8)
    assert spoken.lengths.tolist() == [2]
    assert spoken.mels[0, 0].tolist() == pytest.approx([1.0, 1.0] + [SILENCE] * 6)


# --- long texts: "ab-c" is two pieces with half a second between ---

OPTIONS = {"first": 1, "sampling_rate": 8, "hop_length": 4, "mel_fmax": 4.0}


class Batches(Reader):
    """Remembers how many texts each batch has and how long they are; an item of five letters never ends."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[list[int]] = []

    def infer(self, ids: Tensor, lengths: Tensor) -> Said:
        said = super().infer(ids, lengths)
        self.sizes.append(lengths.tolist())
        return said._replace(lengths=torch.where(lengths == 5, said.mels.shape[2], said.lengths))


def in_pieces(text: str, limit: int, options: dict) -> list[Piece]:
    parts = text.split("-") if limit and len(text) > limit else [text]
    return [Piece(part, 0.5) for part in parts]


def encode_joined(texts: list[str], options: dict) -> tuple[Tensor, Tensor]:
    return encode([text.replace("-", "") for text in texts], options)


def first_mels(mels: Tensor, lengths: Tensor, hear=None) -> tuple[Tensor, dict[str, float]]:
    """Four samples a frame, and numbers that are easy to add up."""
    seconds = float(len(mels))
    if hear:
        hear(mels[0, 0, : int(lengths[0])].repeat_interleave(4))
    return mels[:, 0].repeat_interleave(4, dim=1), {
        "vocoder_items_per_sec": lengths.sum().item() / seconds,
        "vocoder_latency": seconds,
    }


def said(texts: list[str], limit: int, hear=None) -> tuple[list, dict[str, float], Batches]:
    stages = AcousticInference(encode=encode_joined, spell=lambda text, options: list(text), pieces=in_pieces)
    model = Batches()
    loaded = Loaded(argparse.Namespace(flag="reader", inference=stages), model, OPTIONS)  # type: ignore[arg-type]
    return *say(texts, loaded, first_mels, CPU, False, limit, hear), model


def test_pieces_are_joined_with_their_pauses() -> None:
    (long, short), _, _ = said(["ab-c-de", "b"], 3)
    frames = {letter: [ord(letter) - ord("a") + 1.0] * 8 for letter in "abcde"}  # 2 frames of 4 samples
    pause = [0.0] * 4  # half a second of 8 Hz
    assert long.sound.tolist() == [
        *frames["a"], *frames["b"], *pause, *frames["c"], *pause, *frames["d"], *frames["e"]
    ]  # fmt: skip
    assert short.sound.tolist() == frames["b"]
    assert (long.pieces, short.pieces) == (3, 1)
    assert (long.finished, short.finished) == (True, True)
    nan = float("nan")
    wanted = torch.tensor([[1, 0], [0, 1], [1, nan], [1, 0], [0, 1]])
    torch.testing.assert_close(long.alignment, wanted, equal_nan=True)
    assert short.alignment.tolist() == [[1.0]]


def test_texts_that_are_not_cut_are_one_batch_in_their_order() -> None:
    texts = ["a", "ab-c", "abc"] * 10
    speeches, numbers, model = said(texts, 4)
    assert model.sizes == [[1, 3, 3] * 10]
    assert [len(speech.sound) for speech in speeches] == [8, 24, 24] * 10
    assert numbers["vocoder_latency"] == 30.0
    assert said(["ab-" * 50 + "c"], 0)[2].sizes == [[101]]


def test_pieces_are_spoken_in_batches_of_like_lengths() -> None:
    texts = ["-".join(["ab"] * 10), "a", "-".join(["abcd"] * 8)]
    speeches, numbers, model = said(texts, 4)
    assert model.sizes == [[4] * 8 + [2] * 8, [2, 2, 1]]
    assert [speech.pieces for speech in speeches] == [10, 1, 8]
    assert [len(speech.sound) for speech in speeches] == [10 * 16 + 9 * 4, 8, 8 * 32 + 7 * 4]
    assert set(numbers) == {
        "reader_items_per_sec",
        "reader_latency",
        "vocoder_items_per_sec",
        "vocoder_latency",
        "attention_focus",
    }
    assert numbers["vocoder_latency"] == 19.0  # a second for each piece
    frames = 2 * (8 * 4 + 10 * 2 + 1)
    assert numbers["vocoder_items_per_sec"] * 19 == pytest.approx(frames)
    assert numbers["reader_items_per_sec"] * numbers["reader_latency"] == pytest.approx(frames)
    assert numbers["attention_focus"] == pytest.approx(1.0)


@pytest.mark.parametrize("limit", [0, 3])
def test_who_hears_texts_hears_them_in_their_order_with_pauses(limit: int) -> None:
    texts, heard = ["a", "ab-c-de", "b"], []
    speeches, numbers, model = said(texts, limit, heard.append)
    assert model.sizes == ([[1], [5], [1]] if limit == 0 else [[1], [2], [1], [2], [1]])
    after = torch.zeros(4)  # half a second of 8 Hz
    wanted = [part for speech in speeches for part in (speech.sound, after)]
    assert torch.cat(heard).tolist() == torch.cat(wanted).tolist()
    assert numbers["vocoder_latency"] == len(model.sizes)


def test_one_piece_without_an_end_leaves_its_text_unfinished() -> None:
    (first, second), _, _ = said(["ab-abcde", "ab-abcd"], 4)
    assert (first.finished, second.finished) == (False, True)


@dataclass
class Calls:
    prepared: tuple[Request, ...] = ()
    denoised: tuple[float, ...] = ()


class Repeater(nn.Module):
    """Makes every sample sigma x the frame's first mel."""

    def infer(self, mels: Tensor, sigma: float) -> Tensor:
        return sigma * mels[:, 0].repeat_interleave(256, dim=1)


def vocoder_of(calls: Calls, strength: float, plain: bool):
    def convert(model: nn.Module, request: Request) -> nn.Module:
        calls.prepared += (request,)
        return model

    def denoiser(model: nn.Module, audio: AudioConfig):
        def denoise(sound: Tensor, strength: float) -> Tensor:
            calls.denoised += (strength,)
            return sound + 1.0

        return denoise

    stages = VocoderInference(denoiser=denoiser)
    ways = (FastWay(name="fast", phase="inference", applies=lambda *_: True, convert=convert, tolerance=0.0),)
    spec = argparse.Namespace(flag="repeater", inference=stages, fast_ways=ways)
    loaded = make_ready(Loaded(spec, Repeater(), {}), Request(True, not plain), plain)  # type: ignore[arg-type]
    return neural_vocoder(loaded, AudioConfig(), CPU, False, 0.5, strength)


def test_other_weights_and_plain_contradict_each_other() -> None:
    spec = argparse.Namespace(inference=VocoderInference(denoiser=lambda model, audio: lambda sound, strength: sound))
    with pytest.raises(UsageError, match="--int8: --plain"):
        make_ready(Loaded(spec, Repeater(), {}), Request(int8=True), True)  # type: ignore[arg-type]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("strength", [0.0, 0.25])
def test_a_vocoder_with_its_denoiser(strength: float, plain: bool) -> None:
    calls = Calls()
    vocode = vocoder_of(calls, strength, plain)
    mels = torch.randn(2, 4, 9)
    sound, numbers = vocode(mels, torch.tensor([9, 5]))
    wanted = 0.5 * mels[:, 0].repeat_interleave(256, dim=1)
    assert torch.allclose(sound, wanted + 1.0 if strength else wanted)
    switched = {} if plain else {"prepared": (Request(True, int8=True),)}
    assert calls == Calls(denoised=(strength,) if strength else (), **switched)
    assert set(numbers) == {"repeater_items_per_sec", "repeater_latency", "denoiser_latency"}
    assert numbers["repeater_items_per_sec"] * numbers["repeater_latency"] == pytest.approx(14 * 256)
    assert (numbers["denoiser_latency"] > 0) == (strength > 0)


@pytest.mark.parametrize("strength", [0.0, 0.25])
def test_a_vocoder_is_heard_up_to_the_length(strength: float) -> None:
    heard: list[Tensor] = []
    mels = torch.randn(1, 4, 9)
    vocode = vocoder_of(Calls(), strength, plain=False)
    sound, numbers = vocode(mels, torch.tensor([5]), hear=heard.append)
    assert torch.equal(sound, vocode(mels, torch.tensor([5]))[0])
    assert torch.equal(torch.cat(heard), sound[0, : 5 * 256])
    assert set(numbers) == {"repeater_items_per_sec", "repeater_latency", "denoiser_latency"}
    vocode = griffin_lim_vocoder(AudioConfig(n_mel_channels=4), CPU, seed=3)
    sound, _ = vocode(mels, torch.tensor([9]), hear=heard.append)
    assert torch.equal(heard[-1], sound[0, : 9 * 256])


def test_griffin_lim_speaks_the_mels_alone_and_in_a_batch() -> None:
    config = AudioConfig()
    time = torch.arange(22050 // 2) / 22050
    tones = [0.4 * torch.sin(2 * torch.pi * pitch * time[:samples]) for pitch, samples in ((440, 11025), (1200, 6000))]
    stft = TacotronSTFT.from_config(config)
    mels = [stft.mel_spectrogram(tone[None])[0] for tone in tones]
    lengths = torch.tensor([mel.shape[1] for mel in mels])
    batch = torch.full((2, 80, int(lengths.max())), SILENCE)
    for row, mel in zip(batch, mels, strict=True):
        row[:, : mel.shape[1]] = mel
    vocode = griffin_lim_vocoder(config, CPU, seed=3)
    sounds, numbers = vocode(batch, lengths)
    assert set(numbers) == {"griffin_lim_items_per_sec", "griffin_lim_latency"}
    for tone, sound, frames in zip(tones, sounds, lengths.tolist(), strict=True):
        assert len(sound) >= frames * 256
        mine = sound[: len(tone) - 256].numpy()
        heard = librosa.feature.melspectrogram(y=mine, sr=22050, n_fft=1024, hop_length=256, power=1.0, fmax=8000.0)
        asked = librosa.feature.melspectrogram(
            y=tone.numpy(), sr=22050, n_fft=1024, hop_length=256, power=1.0, fmax=8000.0
        )
        middle = slice(4, frames - 6)
        assert np.array_equal(heard[:, middle].mean(1).argmax(), asked[:, middle].mean(1).argmax())
        assert heard[:, middle].sum() == pytest.approx(asked[:, middle].sum(), rel=0.1)
        alone, _ = vocode(
            batch[:1, :, :frames] if frames == lengths[0] else batch[1:, :, :frames], torch.tensor([frames])
        )
        assert torch.allclose(alone[0], sound[: alone.shape[1]], atol=1e-6)
    assert sounds.abs().max() <= 1.0


def test_sounds_are_cut_to_their_own_lengths() -> None:
    audio = torch.arange(20.0).expand(3, 20)
    cut = trim(audio, torch.tensor([5, 2, 0]), hop_length=4)
    assert [sound.tolist() for sound in cut] == [list(range(20)), list(range(8)), []]


def test_timed_returns_the_result_and_its_seconds() -> None:
    result, seconds = timed(lambda: sum(range(200_000)), CPU)
    assert result == 199_999 * 100_000
    assert 0 < seconds < 30
