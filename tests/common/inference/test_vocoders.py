"""Vocoders: precision, seeds, the order of items, denoiser, streams, Griffin-Lim; batches of lines; settings of a voice."""

import argparse
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from common.audio.audio_processing import griffin_lim, predict_peak
from common.audio.stft import AudioConfig, TacotronSTFT
from common.draws import Draws
from common.errors import DataError, UsageError
from common.fast import FastWay, Request
from common.inference.config import contradictions
from common.inference.stages import Line, mels_from_texts, prepare_model
from common.inference.vocoders import LoadedModel, Vocoder, clips_of_one_length, griffin_lim_of, limit, timed_parts
from common.spec import VocoderInference
from models import REGISTRY
from synthesizer import Checkpoint, SynthesisConfig, Synthesizer, load
from tests.common.inference.test_stages import CPU, SILENCE, FirstMels, acoustic, exhaust, simple_voice
from tests.common.training.test_fine_tuning import SIZES as TACOTRON2_SIZES
from tests.common.training.test_fine_tuning import start_file


def griffin_lim_vocoder() -> Vocoder:
    options = {"n_mel_channels": 4}
    loaded = griffin_lim_of(LoadedModel(REGISTRY["Tacotron2"], None, options), CPU)
    return Vocoder(loaded, AudioConfig(**options), CPU, strength=0.1)


def test_griffin_lim_begins_with_the_phases_of_each_item_alone_and_in_a_batch() -> None:
    mels, stft, lengths = torch.randn(2, 4, 12) - 4, TacotronSTFT.from_config(AudioConfig(n_mel_channels=4)), [12, 9]
    vocode = griffin_lim_vocoder()
    sounds, numbers = vocode(mels, torch.tensor(lengths), Draws.of([(8, 0), (8, 1)], "vocoder", CPU))
    assert set(numbers) == {"griffin_lim_items_per_sec", "griffin_lim_latency"} and sounds.abs().max() <= 1.0
    for seed, item in product((8, 3), range(2)):
        frames, keys = lengths[item], [(seed, item)]
        sample = torch.cat((mels, torch.full((2, 4, 1), SILENCE)), dim=2)[item : item + 1, :, : frames + 1]
        wanted = griffin_lim(sample, stft, generator=Draws.of(keys, "vocoder", CPU))
        wanted = limit(wanted, predict_peak(sample, stft))[0]  # n + 1 frames make n hops
        assert torch.equal(sounds[item, : frames * 256], wanted) == (seed == 8)
        draws = Draws.of(keys, "vocoder", CPU)
        parts, _ = exhaust(vocode.stream(mels[item : item + 1], torch.tensor([frames]), draws))
        assert torch.allclose(torch.cat(parts), wanted, atol=1e-6)


class Product(nn.Module):
    """Makes every sample sigma x a product of the frame's mels, the same for a hop of 256."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.1, 1.3, 4)[None])

    def infer(self, mels: Tensor, sigma: float) -> Tensor:
        return sigma * (self.weight @ mels)[:, 0].repeat_interleave(256, dim=1)


def vocoder_of(calls: list[Request | float], strength: float, plain: bool, int8: bool = False) -> Vocoder:
    """A vocoder that notes the requests for its fast way, and the strengths of its denoiser."""

    def convert(model: nn.Module, request: Request) -> nn.Module:
        calls.append(request)
        return model

    def denoise(sound: Tensor, strength: float) -> Tensor:
        calls.append(strength)
        return sound + 1.0

    stages = VocoderInference(denoiser=lambda model, audio: denoise)
    ways = (FastWay(name="fast", phase="inference", applies=lambda *_: True, convert=convert, tolerance=0.0),)
    spec = argparse.Namespace(flag="product", inference=stages, fast_ways=ways)
    loaded = prepare_model(LoadedModel(spec, Product(), {}), Request(True, int8), plain)  # type: ignore[arg-type]
    return Vocoder(loaded, AudioConfig(), CPU, False, 0.5, strength)


def test_a_model_runs_in_the_precision_of_the_vocoder_and_int8_is_no_plain_way() -> None:
    vocode, mels, lengths, found = vocoder_of([], 0.0, plain=True), torch.randn(1, 4, 9), torch.tensor([8]), []
    for dtype in (torch.float32, torch.bfloat16):
        vocode.half = None if dtype == torch.float32 else dtype  # --half takes bfloat16 on some CPUs only
        audio, _ = vocode(mels, lengths)
        parts, _ = exhaust(vocode.stream(mels, lengths))
        assert audio.dtype == parts[0].dtype == torch.float32
        found.append(0.5 * (Product().weight.to(dtype) @ mels.to(dtype))[0, 0, :8].repeat_interleave(256).float())
        assert torch.equal(audio[0, : 8 * 256], found[-1]) and torch.equal(torch.cat(parts), found[-1])
    assert not torch.equal(*found)  # the two precisions differ
    with pytest.raises(UsageError, match="--int8: --plain"):
        vocoder_of([], 0.0, plain=True, int8=True)


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("strength", [0.0, 0.25])
def test_a_vocoder_with_its_denoiser(strength: float, plain: bool) -> None:
    calls: list[Request | float] = []
    vocode = vocoder_of(calls, strength, plain, int8=not plain)
    mels = torch.randn(2, 4, 9)
    sound, numbers = vocode(mels, torch.tensor([9, 5]))
    wanted = Product().infer(mels, 0.5)
    for item, samples in enumerate((9 * 256, 5 * 256)):
        own = wanted[item, :samples]
        assert torch.allclose(sound[item, :samples], own + 1.0 if strength else own)
    switched = [] if plain else [Request(True, int8=True)]
    assert calls == [*switched, *[strength] * (2 if strength else 0)]  # on a CPU one by one
    assert numbers["product_items_per_sec"] * numbers["product_latency"] == pytest.approx(14 * 256)
    assert (numbers["denoiser_latency"] > 0) == (strength > 0)


def test_parts_are_computed_without_gradients_and_end_at_the_samples() -> None:
    weight = torch.ones(1, requires_grad=True)
    steps = (weight * torch.full((1, size), float(size)) for size in (3, 2, 4))
    parts, (whole, _) = exhaust(timed_parts(steps, 4, CPU))  # type: ignore[misc]
    assert [part.tolist() for part in parts] == [[3, 3, 3], [2], []]
    assert whole.tolist() == [[3, 3, 3, 2, 2, 4, 4, 4, 4]] and not whole.requires_grad


@pytest.mark.parametrize("strength", [0.0, 0.25, None])
def test_a_stream_ends_at_the_length_of_its_clip_and_leaves_its_consumer_own_modes(strength: float | None) -> None:
    """Without a strength Griffin-Lim. Clips below MIN_FRAMES are lengthened with silence, which is no part of them."""
    vocode = griffin_lim_vocoder() if strength is None else vocoder_of([], strength, plain=False)
    mels = torch.randn(1, 4, 9)
    for frames in (1, 3, 5, 9):
        parts, (sound, numbers) = exhaust(vocode.stream(mels, torch.tensor([frames])))
        assert torch.equal(torch.cat(parts), sound[0, : frames * 256])
        assert sound.shape[1] > frames * 256 or frames == 9
        if strength is not None:
            assert torch.equal(sound, vocode(mels, torch.tensor([frames]))[0])
            assert set(numbers) == {"product_items_per_sec", "product_latency", "denoiser_latency"}
    next(vocode.stream(mels, torch.tensor([9])))
    assert not torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu")


def test_clips_go_one_by_one_on_a_cpu_and_by_equal_lengths_elsewhere() -> None:
    mels, lengths = torch.arange(40.0).expand(4, 3, 40), torch.tensor([40, 5, 31, 33])
    clips = list(clips_of_one_length(mels, lengths))
    assert [items for items, _ in clips] == [[0], [1], [2], [3]]
    assert [clip.shape for _, clip in clips] == [(1, 3, 41), (1, 3, 8), (1, 3, 32), (1, 3, 34)]
    assert clips[0][1][0, 0, -1] == pytest.approx(SILENCE) and torch.equal(clips[1][1][0], mels[0, :, :8])
    elsewhere = list(clips_of_one_length(mels.to("meta"), lengths))  # as on a GPU
    assert [(items, tuple(clip.shape)) for items, clip in elsewhere] == [([0, 3], (2, 3, 64)), ([1, 2], (2, 3, 32))]


SIZES = {"n_flows": 2, "n_early_every": 2, "WN_config": {"n_layers": 1, "n_channels": 4}}
SIZES |= {"n_mel_channels": 3, "hop_length": 4, "upsample_kernel_size": 8}


def waveglow(strength: float = 0.0) -> Vocoder:
    """An untrained model, whose audio is its noise through rotations."""
    spec = REGISTRY["WaveGlow"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = spec.build(**SIZES).eval()
    return Vocoder(LoadedModel(spec, model, {}), simple_voice().audio, CPU, False, 0.9, strength)


def voice() -> Synthesizer:
    return simple_voice(vocoder=waveglow(), longest_piece=4)


def audio_of(line: Line) -> Tensor:
    (speech,) = voice().speak_batch([line]).speeches
    assert speech is not None
    return speech.audio


def test_lines_and_pieces_of_one_text_differ_by_their_numbers_and_seeds() -> None:
    texts = [audio_of(Line("abcd-abcd", seed, number)) for seed in (1, 2) for number in (0, 1)]
    assert len({tuple(audio.tolist()) for audio in texts}) == 4
    assert not torch.equal(texts[0][: 4 * 2 * 4], texts[0][-4 * 2 * 4 :])
    assert [part.key for part in voice().cut_line(Line("abcd-abcd", 5, 3))] == [(5, 3, 0), (5, 3, 1)]


def test_audio_is_scaled_by_sigma_and_by_its_predicted_peak() -> None:
    mels, lengths, vocode = torch.randn(1, 3, 512), torch.tensor([512]), waveglow()

    def audio(vocoder: Vocoder) -> Tensor:
        return vocoder(mels, lengths, Draws.of([(1, 0)], "vocoder", CPU))[0]

    louder = vocode.with_settings(1.8, 0.0)
    assert torch.allclose(audio(louder), 2 * audio(vocode), atol=1e-5)  # an untrained model is linear in its noise
    audio = torch.tensor([0.5, -2.0, 3.0])
    assert limit(audio, torch.tensor(2.0)).tolist() == [0.25, -1.0, 1.0]
    assert limit(audio, torch.tensor(0.5)).tolist() == [0.5, -1.0, 1.0]


def test_a_short_item_of_a_batch_is_lengthened_as_it_is_alone_and_keeps_no_batch_in_memory() -> None:
    (short, _) = simple_voice().speak_batch([Line("a"), Line("abcdefgh" * 4)]).speeches
    assert short is not None
    for tensor in (short.audio, short.mel, short.alignment):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
    batch, _ = mels_from_texts(["abcdefgh", "a"], acoustic(), CPU, half=False)
    alone, _ = mels_from_texts(["a"], acoustic(), CPU, half=False)
    assert torch.equal(batch.item(1).mels, alone.mels)
    assert batch.item(1).mels.shape[2] == 8


def test_the_seconds_of_a_stream_are_those_of_the_vocoder_or_of_its_denoiser() -> None:
    vocode, waits, start = waveglow(), list[float](), time.perf_counter()

    def denoise(audio: Tensor, strength: float) -> Tensor:
        waits.append(0.05)
        time.sleep(waits[-1])
        return audio

    vocode.denoiser = denoise
    mels, draws = torch.randn(1, 3, 64), Draws.of([(1, 0)], "vocoder", CPU)
    _, (_, numbers) = exhaust(vocode.stream(mels, torch.tensor([64]), draws))  # type: ignore[misc]
    assert len(waits) > 1 and numbers["denoiser_latency"] >= sum(waits)
    assert 0 < numbers["waveglow_latency"] + numbers["denoiser_latency"] <= time.perf_counter() - start


AUDIO = {"sampling_rate": 8, "hop_length": 4, "filter_length": 16, "win_length": 16, "mel_fmax": 4.0}


def untrained_voice(own: dict[str, Any] | None = None, **config: Any) -> Synthesizer:
    """A voice with an untrained WaveGlow, whose checkpoint has `own` options."""
    acoustic = simple_voice().acoustic
    acoustic = acoustic._replace(options=acoustic.options | AUDIO)
    with torch.random.fork_rng():
        vocoding = LoadedModel(REGISTRY["WaveGlow"], REGISTRY["WaveGlow"].build(**SIZES).eval(), AUDIO | (own or {}))
    return Synthesizer(acoustic, vocoding, SynthesisConfig(**config), CPU)


def test_a_chosen_strength_replaces_that_of_the_voice_and_other_settings_leave_the_first_voice_as_it_is() -> None:
    own = {"denoising_strength": 0.25}
    for chosen, stored, strength in ((0.5, own, 0.5), (0.0, own, 0.0), (None, own, 0.25), (None, {}, 0.01)):
        vocoder: Any = untrained_voice(stored, denoising_strength=chosen).vocoder
        assert (vocoder.strength, vocoder.denoiser is None) == (strength, strength == 0)

    def settings(voice: Synthesizer) -> tuple[object, ...]:
        config, vocoder = voice.config, voice.vocoder
        of_vocoder = vocoder.sigma, vocoder.strength, vocoder.denoiser is not None  # type: ignore[attr-defined]
        return config.seed, config.sigma_infer, config.denoising_strength, *of_vocoder

    one = untrained_voice(sigma_infer=0.5, denoising_strength=0.25, seed=3)
    other = one.with_settings(7, 0.0, 0.0)
    assert settings(other) == (7, 0.0, 0.0, 0.0, 0.0, False)
    assert settings(one) == (3, 0.5, 0.25, 0.5, 0.25, True)
    assert settings(other.with_settings(8)) == (8, 0.0, 0.0, 0.0, 0.0, False)
    assert settings(other.with_settings(8, 0.5, 0.25)) == (8, 0.5, 0.25, 0.5, 0.25, True)


def test_lines_have_the_seed_of_the_config_or_one_of_the_generator_and_a_voice_draws_none() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    untrained_voice({"denoising_strength": 0.25}).with_settings(1, 0.5, 0.5)
    assert torch.equal(torch.get_rng_state(), before)
    assert [tuple(line) for line in untrained_voice(seed=0).lines(["a", "b"])] == [("a", 0, 0), ("b", 0, 1)]
    one = untrained_voice(seed=None)
    torch.manual_seed(1)
    first, second = (one.lines(["a", "b"]) for _ in range(2))
    assert first[0].seed == first[1].seed != second[0].seed
    torch.manual_seed(1)
    assert one.lines(["a", "b"]) == first


def test_audio_is_within_full_scale_at_once_and_in_a_stream() -> None:
    one = simple_voice(vocoder=FirstMels(1.0), longest_piece=3)
    (speech,) = one.speak("ab-c")
    assert speech.audio.tolist() == [1.0] * 16 + [0.0] * 4 + [1.0] * 8  # 1, 2 and 3, clipped
    assert torch.cat(list(one.stream("ab-c"))).tolist() == speech.audio.tolist()
    parts, (streamed, _) = exhaust(one.stream_line(one.lines(["ab-c"])[0], 0.5))  # type: ignore[misc]
    assert torch.cat(parts).tolist() == [*streamed.audio.tolist(), *[0.0] * 4]
    assert streamed.audio.tolist() == speech.audio.tolist()
    assert one.stream_pieces(one.cut_line(one.lines(["ab-c"])[0]))[0].steps.__next__().max() == 1.0


def test_settings_that_inference_may_change_contradict_nothing_and_other_audio_does() -> None:
    stored = {"a": 1, "nested": {"x": 2, "y": 3}}
    requested = {"a": 1, "nested": {"x": 5, "y": 4}, "new": 7}
    assert contradictions(requested, stored, frozenset({"x"})) == ["y is 3 in it, 4 as requested"]
    assert len(contradictions(requested, stored)) == 2
    assert contradictions({"nested": {"x": 2}}, {"nested": None}) == []
    message = r"^a model .*: trained with different audio settings: --sampling-rate 8 and 16$"
    with pytest.raises(DataError, match=message):
        untrained_voice({"sampling_rate": 16})


def test_a_model_has_the_options_of_its_file_and_those_that_inference_may_change(tmp_path: Path) -> None:
    path = start_file(tmp_path / "x.pt", "Tacotron2", **TACOTRON2_SIZES)
    options = {"gate_threshold": 0.75, "attention_window": 4}
    loaded = load(Checkpoint(REGISTRY["Tacotron2"], path), SynthesisConfig(plain=True, options=options), CPU)
    assert loaded.options["sampling_rate"] == 16000
    assert (loaded.model.decoder.gate_threshold, loaded.model.config.decoder_rnn_dim) == (0.75, 8)
    assert loaded.options["attention_window"] == loaded.model.decoder.guard.attention_window == 4
    assert not loaded.model.training
