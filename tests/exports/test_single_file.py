"""tts.onnx against the plain models on the same draws, item by item, alone and in batches. Tolerance: 1e-4."""

import numpy as np
import pytest
import torch

from common.audio.stft import SILENCE
from exports.random_numbers import KeepMasks, Noise
from exports.targets import Source
from tests.exports.conftest import AUDIO, skip_without_packages
from waveglow.denoiser import Denoiser

pytestmark = pytest.mark.slow

TOLERANCE = 1e-4
LEAST = 8  # frames that the vocoder takes at least
SETTINGS = {"sigma": np.array(0.6, np.float32), "strength": np.array(0.1, np.float32), "max_steps": np.array(25)}


@pytest.fixture
def session(export_of):
    skip_without_packages()
    import onnxruntime

    return onnxruntime.InferenceSession(str(export_of("onnx") / "tts.onnx"))


def batch_of(lengths: list[int]) -> dict[str, np.ndarray]:
    inside = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"ids": (torch.randint(1, 100, inside.shape) * inside).numpy(), "lengths": np.array(lengths)}


@torch.no_grad()
def plain_speech(source: Source, ids: torch.Tensor, seed: int, monkeypatch):
    """Audio (N,) and mel (M, T) of one text (S,) from the plain models with SETTINGS, with the single file's draws."""
    sigma, strength, max_steps = (value.item() for value in SETTINGS.values())
    decoder, seeds = source.acoustic.decoder, torch.tensor([seed])
    draw, step = KeepMasks(decoder.prenet.dim, decoder.prenet.p_dropout), iter(range(10**6))
    masks = lambda steps, batch, device: draw(torch.tensor(next(step)), seeds)[None]  # noqa: E731
    monkeypatch.setattr(decoder.prenet, "draw_keep_masks", masks)
    mels, (length,), _ = source.acoustic.infer(ids[None], torch.tensor([len(ids)]), max_steps)
    length = int(length)
    frames = max(LEAST, mels.shape[2])
    filled = torch.full((1, mels.shape[1], frames), SILENCE)
    filled[:, :, :length] = mels[:, :, :length]
    config = source.vocoder.config
    audio = source.vocoder.infer(filled, sigma, Noise(config.n_group, config.hop_length)(filled, seeds))
    denoiser = Denoiser(source.vocoder, AUDIO["filter_length"], AUDIO["hop_length"], AUDIO["win_length"])
    return denoiser(audio, strength)[0, : length * config.hop_length], mels[0, :, :length]


@pytest.mark.parametrize("lengths", [[6], [11, 4], [3, 20, 9, 14]], ids=len)
def test_each_item_equals_the_plain_models(session, source, monkeypatch, lengths: list[int]) -> None:
    inputs, seeds = batch_of(lengths), np.array([2**33 + 1, -4, 5, 2**32 - 1])[: len(lengths)]
    audio, audio_lengths, mels, mel_lengths = session.run(None, inputs | SETTINGS | {"seeds": seeds})
    assert audio.shape == (len(lengths), audio_lengths.max())
    for i, length in enumerate(lengths):
        ids = torch.from_numpy(inputs["ids"][i, :length])
        sound, mel = plain_speech(source, ids, int(seeds[i]), monkeypatch)
        assert (audio_lengths[i], mel_lengths[i]) == (len(sound), mel.shape[1])
        torch.testing.assert_close(torch.from_numpy(mels[i, :, : mel_lengths[i]]), mel, rtol=0, atol=TOLERANCE)
        torch.testing.assert_close(torch.from_numpy(audio[i, : audio_lengths[i]]), sound, rtol=0, atol=TOLERANCE)
        assert not audio[i, audio_lengths[i] :].any()
    assert len(lengths) == 1 or len(set(audio_lengths.tolist())) > 1


def test_an_item_is_the_same_in_any_batch_and_at_any_place(session) -> None:
    inputs, seeds = batch_of([8, 17, 5]), np.array([5, 1, 9])
    audio, lengths, *_ = session.run(None, inputs | {"seeds": seeds})
    for order in ([0], [2, 0], [1, 2, 0]):
        longest = max(inputs["lengths"][order])
        some = {"ids": inputs["ids"][order, :longest], "lengths": inputs["lengths"][order], "seeds": seeds[order]}
        sounds, some_lengths, *_ = session.run(None, some)
        assert some_lengths.tolist() == lengths[order].tolist()
        for sound, i in zip(sounds, order, strict=True):
            np.testing.assert_allclose(sound[: lengths[i]], audio[i, : lengths[i]], rtol=0, atol=TOLERANCE)


def test_inputs_with_defaults_may_be_left_out(session, source) -> None:
    inputs = batch_of([7, 7])
    audio, *_ = session.run(None, inputs)
    voice = source.voice
    given = {"seeds": np.zeros(2, np.int64), "sigma": np.array(voice.config.sigma_infer, np.float32)}
    given |= {"strength": np.array(voice.denoising_strength, np.float32), "max_steps": np.array(40)}
    np.testing.assert_array_equal(audio, session.run(None, inputs | given)[0])
    others, *_ = session.run(None, inputs | {"seeds": np.array([1, 1])})
    assert others.shape != audio.shape or not np.allclose(others, audio)


def test_the_limit_of_steps_holds(session) -> None:
    *_, mel_lengths = session.run(None, batch_of([9, 30]) | {"max_steps": np.array(1)})
    assert max(mel_lengths) <= 2  # frames of one step
