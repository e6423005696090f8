"""Settings of a Synthesizer with models whose outputs a test can compute: strengths, seeds, batches and levels."""

from pathlib import Path
from typing import Any

import pytest
import torch

from common.errors import DataError
from common.inference.config import contradictions
from common.inference.vocoders import LoadedModel, NeuralVocoder
from models import REGISTRY
from synthesizer import Checkpoint, SynthesisConfig, Synthesizer, load
from tests.common.inference.test_stages import CPU, FirstMels, SmallMemory, exhaust
from tests.common.inference.test_stages import simple_voice as voice_of_letters
from tests.common.inference.test_vocoders import SIZES
from tests.common.training.test_fine_tuning import SIZES as TACOTRON2_SIZES
from tests.common.training.test_fine_tuning import start_file

AUDIO = {"sampling_rate": 8, "hop_length": 4, "filter_length": 16, "win_length": 16, "mel_fmax": 4.0}


def voice(own: dict[str, Any] | None = None, **config: Any) -> Synthesizer:
    """A voice with an untrained WaveGlow, whose checkpoint has `own` options."""
    acoustic = voice_of_letters().acoustic
    acoustic = acoustic._replace(options=acoustic.options | AUDIO)
    with torch.random.fork_rng():
        vocoding = LoadedModel(REGISTRY["WaveGlow"], REGISTRY["WaveGlow"].build(**SIZES).eval(), AUDIO | (own or {}))
    return Synthesizer(acoustic, vocoding, SynthesisConfig(**config), CPU)


def simple_voice(**config: Any) -> Synthesizer:
    """A voice whose audio is the number of each letter, from 1, for eight samples."""
    one = voice(**config)
    one.vocoder = FirstMels(1.0)  # type: ignore[assignment]
    return one


@pytest.mark.parametrize(
    ("chosen", "own", "strength"),
    [
        (0.5, {"denoising_strength": 0.25}, 0.5),
        (0.0, {"denoising_strength": 0.25}, 0.0),
        (None, {"denoising_strength": 0.25}, 0.25),
        (None, {}, 0.01),
        (0.0, {}, 0.0),
    ],
)
def test_a_chosen_strength_replaces_that_of_the_voice(chosen: float | None, own: dict, strength: float) -> None:
    one = voice(own, denoising_strength=chosen)
    assert one.denoising_strength == strength
    assert isinstance(one.vocoder, NeuralVocoder)
    assert (one.vocoder.strength, one.vocoder.denoiser is None) == (strength, strength == 0)


def test_models_of_different_audio_are_an_error() -> None:
    with pytest.raises(DataError, match=r"different audio settings: sampling_rate is 8 and 16$"):
        voice({"sampling_rate": 16})


def test_a_voice_with_other_settings_leaves_the_first_as_it_is() -> None:
    one = voice(sigma_infer=0.5, denoising_strength=0.25, seed=3)
    other = one.with_settings(7, 0.0, 0.0)
    assert (other.config.seed, other.config.sigma_infer, other.config.denoising_strength) == (7, 0.0, 0.0)
    assert (other.vocoder.sigma, other.vocoder.strength, other.vocoder.denoiser) == (0.0, 0.0, None)
    assert (one.config.seed, one.config.sigma_infer, one.config.denoising_strength) == (3, 0.5, 0.25)
    assert (one.vocoder.sigma, one.vocoder.strength, one.vocoder.denoiser is None) == (0.5, 0.25, False)
    same = other.with_settings(8)
    assert (same.config.sigma_infer, same.config.denoising_strength) == (0.0, 0.0)
    back = other.with_settings(8, 0.5, 0.25)
    assert back.vocoder.denoiser is not None


def test_lines_have_the_seed_of_the_config_or_one_of_the_generator_and_a_voice_draws_none() -> None:
    """Building a voice draws nothing from the generator of the process."""
    torch.manual_seed(1)
    before = torch.get_rng_state()
    voice({"denoising_strength": 0.25}).with_settings(1, 0.5, 0.5)
    assert torch.equal(torch.get_rng_state(), before)
    assert [tuple(line) for line in voice(seed=0).lines(["a", "b"])] == [("a", 0, 0), ("b", 0, 1)]
    one = voice(seed=None)
    torch.manual_seed(1)
    first, second = (one.lines(["a", "b"]) for _ in range(2))
    assert first[0].seed == first[1].seed != second[0].seed
    torch.manual_seed(1)
    assert one.lines(["a", "b"]) == first


def test_a_batch_size_of_zero_is_one_batch() -> None:
    one = simple_voice()
    lines = one.lines(["a", "abc"] * 35)  # more than the largest default
    batches = list(one.speak_batches(lines, 0))
    assert [len(positions) for positions, _ in batches] == [70]
    assert batches[0][0] == [*range(1, 70, 2), *range(0, 70, 2)]
    assert sum(len(positions) for positions, _ in one.speak_batches(lines)) == 70
    assert max(len(positions) for positions, _ in one.speak_batches(lines)) <= 64
    assert [len(speech.audio) for speech in one.speak(["a", "abc", "ab"])] == [8, 24, 16]


def test_audio_is_within_full_scale_at_once_and_in_a_stream() -> None:
    one = simple_voice(longest_piece=3)
    (speech,) = one.speak("ab-c")
    assert speech.audio.tolist() == [1.0] * 16 + [0.0] * 4 + [1.0] * 8  # 1, 2 and 3, clipped
    parts = list(one.stream("ab-c"))
    assert all(len(part) for part in parts)
    assert torch.cat(parts).tolist() == speech.audio.tolist()
    parts, (streamed, _) = exhaust(one.stream_line(one.lines(["ab-c"])[0], 0.5))  # type: ignore[misc]
    assert streamed.audio.tolist() == speech.audio.tolist()
    assert torch.cat(parts).tolist() == [*speech.audio.tolist(), *[0.0] * 4]
    assert one.stream_pieces(one.cut_line(one.lines(["ab-c"])[0]))[0].steps.__next__().max() == 1.0


def test_settings_that_inference_may_change_contradict_nothing() -> None:
    stored = {"a": 1, "nested": {"x": 2, "y": 3}}
    requested = {"a": 1, "nested": {"x": 5, "y": 4}, "new": 7}
    assert contradictions(requested, stored, frozenset({"x"})) == ["y is 3 in it, 4 as requested"]
    assert len(contradictions(requested, stored)) == 2
    assert contradictions({"nested": {"x": 2}}, {"nested": None}) == []


def test_a_text_that_does_not_fit_into_memory_is_named() -> None:
    one = simple_voice()
    one.acoustic = one.acoustic._replace(model=SmallMemory(3))
    with pytest.raises(DataError, match=r"^items 2, 3: not enough memory"):
        one.speak(["abc", "abcd", "abcde", "a"])


def test_griffin_lim_has_the_seed_of_the_config() -> None:
    one = Synthesizer(voice().acoustic, None, SynthesisConfig(seed=5), CPU)
    assert one.vocoder.seed == 5  # type: ignore[attr-defined]


def test_a_model_has_the_options_of_its_file_and_those_that_inference_may_change(tmp_path: Path) -> None:
    path = start_file(tmp_path / "x.pt", "Tacotron2", **TACOTRON2_SIZES)
    options = {"gate_threshold": 0.75, "attention_window": 4}
    loaded = load(Checkpoint(REGISTRY["Tacotron2"], path), SynthesisConfig(plain=True, options=options), CPU)
    assert loaded.options["sampling_rate"] == 16000
    assert (loaded.model.decoder.gate_threshold, loaded.model.config.decoder_rnn_dim) == (0.75, 8)
    assert loaded.options["attention_window"] == loaded.model.decoder.guard.attention_window == 4
    assert not loaded.model.training
