"""A line's random numbers through a WaveGlow: its own in any batch, in a stream, and for each of its pieces."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor

from common.data.filelist import BadRows
from common.draws import Draws
from common.inference.stages import Line, Pipeline, cut_line, mels_from_texts, stream, synthesise
from common.inference.vocoders import LoadedModel, NeuralVocoder, limit
from models import REGISTRY
from tests.common.inference.test_stages import CPU, Batches, FirstMels, Outputs, acoustic, exhaust, pipeline

SIZES = {"n_flows": 2, "n_early_every": 2, "WN_config": {"n_layers": 1, "n_channels": 4}}
SIZES |= {"n_mel_channels": 3, "hop_length": 4, "upsample_kernel_size": 8}


def waveglow(strength: float = 0.0) -> NeuralVocoder:
    """An untrained model, whose audio is its noise through rotations."""
    spec = REGISTRY["WaveGlow"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = spec.build(**SIZES).eval()
    return NeuralVocoder(LoadedModel(spec, model, {}), pipeline().audio, CPU, False, 0.9, strength)


def voice() -> Pipeline:
    return pipeline()._replace(vocoder=waveglow())


def test_an_item_of_a_batch_has_its_own_noise() -> None:
    vocode, mels, lengths = waveglow(), torch.randn(3, 3, 12), torch.tensor([12, 9, 10])
    keys = [(7, 0, 0), (7, 1, 0), (7, 2, 0)]
    together, _ = vocode(mels, lengths, Draws.of(keys, "vocoder", CPU))
    for item, key in enumerate(keys):
        one = slice(item, item + 1)
        alone, _ = vocode(mels[one], lengths[one], Draws.of([key], "vocoder", CPU))
        samples = int(lengths[item]) * 4
        assert torch.equal(together[item, :samples], alone[0, :samples])
        assert together[item].abs().max() > 0.1


def audio_of(line: Line, limit: int) -> Tensor:
    (speech,) = synthesise([line], voice(), limit).speeches
    assert speech is not None
    return speech.audio


def test_lines_and_pieces_of_one_text_differ_by_their_numbers_and_seeds() -> None:
    texts = [audio_of(Line("abcdefgh", seed, number), 0) for seed in (1, 2) for number in (0, 1)]
    assert len({tuple(audio.tolist()) for audio in texts}) == 4
    twice = audio_of(Line("abcd-abcd", 1, 0), 4)
    first, second = twice[: 4 * 2 * 4], twice[-4 * 2 * 4 :]
    assert not torch.equal(first, second)
    keys = [part.key for part in cut_line(Line("abcd-abcd", 5, 3), voice().acoustic, 4)]
    assert keys == [(5, 3, 0), (5, 3, 1)]


def test_a_stream_has_the_noise_of_the_whole() -> None:
    line = Line("abcd-efgh", 3, 2)
    parts, (speech, _) = exhaust(stream(line, voice(), 4))  # type: ignore[misc]
    assert torch.allclose(torch.cat(parts), audio_of(line, 4), atol=1e-6)
    assert torch.allclose(speech.audio, torch.cat(parts), atol=1e-6)


def test_other_settings_of_a_vocoder() -> None:
    mels, lengths = torch.randn(1, 3, 512), torch.tensor([512])
    vocode = waveglow()

    def audio(vocoder: NeuralVocoder) -> Tensor:
        return vocoder(mels, lengths, Draws.of([(1, 0)], "vocoder", CPU))[0]

    louder = vocode.with_settings(0, 1.8, 0.0)
    assert torch.allclose(audio(louder), 2 * audio(vocode), atol=1e-5)  # an untrained model is linear in its noise
    assert (vocode.sigma, vocode.denoiser) == (0.9, None)


def test_a_predicted_peak_above_full_scale_scales_the_audio_down() -> None:
    audio = torch.tensor([0.5, -2.0, 3.0])
    assert limit(audio, 2.0).tolist() == [0.25, -1.0, 1.0]
    assert limit(audio, 0.5).tolist() == [0.5, -1.0, 1.0]


def test_values_that_are_not_finite_name_their_line() -> None:
    class Overflowing(Batches):
        """Mels of two symbols overflow."""

        def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
            outputs = super().infer(ids, lengths)
            return outputs._replace(mels=outputs.mels.where((lengths != 2)[:, None, None], torch.inf))

    stages = voice()
    stages = stages._replace(acoustic=stages.acoustic._replace(model=Overflowing()))
    with pytest.raises(BadRows) as error:
        synthesise([Line("abc", 0, 0), Line("abcd-ab", 0, 4)], stages, 4)
    assert list(error.value.problems) == [4]
    assert "NaN or infinite mels" in error.value.problems[4]


def test_a_stream_yields_no_audio_that_is_not_finite() -> None:
    class Overflowing(FirstMels):
        """The second of two parts overflows."""

        def stream(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None):
            yield mels[0, 0, :4]
            yield torch.tensor([0.5, torch.nan])
            return self(mels, lengths, draws)

    parts = []
    with pytest.raises(BadRows) as error:
        for part in stream(Line("abc", 0, 4), voice()._replace(vocoder=Overflowing())):
            parts.append(part)
    assert [part.tolist() for part in parts] == [[1.0, 1.0, 2.0, 2.0]]
    assert list(error.value.problems) == [4] and "NaN or infinite audio" in error.value.problems[4]


@pytest.mark.parametrize("text", ["abcde-b", "b-abcde", "abcde-abcde"])
def test_a_line_is_finished_if_all_of_its_pieces_are(text: str) -> None:
    """A piece of five letters runs to the limit."""
    (speech, short) = synthesise([Line(text), Line("b-b-b-b")], pipeline(), 4).speeches
    assert speech is not None and short is not None
    assert (speech.finished, short.finished) == (False, True)


def test_a_speech_does_not_keep_its_batch_in_memory() -> None:
    (short, _) = synthesise([Line("a"), Line("abcdefgh" * 4)], pipeline()).speeches
    assert short is not None
    for tensor in (short.audio, short.mel, short.alignment):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_a_short_item_of_a_batch_is_lengthened_as_it_is_alone() -> None:
    batch, _ = mels_from_texts(["abcdefgh", "a"], acoustic(), CPU, half=False)
    alone, _ = mels_from_texts(["a"], acoustic(), CPU, half=False)
    assert torch.equal(batch.item(1).mels, alone.mels)
    assert batch.item(1).mels.shape[2] == 8


def test_means_of_a_run_count_each_item_once() -> None:
    class HalfFocus(Batches):
        """An item alone has half of the attention on its symbol."""

        def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
            outputs = super().infer(ids, lengths)
            return outputs._replace(alignments=outputs.alignments * (0.5 if len(ids) == 1 else 1.0))

    stages = voice()
    stages = stages._replace(acoustic=stages.acoustic._replace(model=HalfFocus()))
    batch = synthesise([Line("abc", 0, number) for number in range(4)], stages, 0, batch_size=3)
    assert batch.numbers["attention_focus"] == pytest.approx((3 * 1.0 + 0.5) / 4)


def test_the_seconds_of_a_stream_are_those_of_the_vocoder_or_of_its_denoiser() -> None:
    vocode, mels = waveglow(), torch.randn(1, 3, 12)

    def denoise(audio: Tensor, strength: float) -> Tensor:
        time.sleep(0.5)
        return audio

    vocode.denoiser = denoise  # type: ignore[assignment]
    start = time.perf_counter()
    _, (_, numbers) = exhaust(vocode.stream(mels, torch.tensor([12]), Draws.of([(1, 0)], "vocoder", CPU)))  # type: ignore[misc]
    assert numbers["denoiser_latency"] >= 0.5
    assert 0 < numbers["waveglow_latency"] + numbers["denoiser_latency"] <= time.perf_counter() - start
