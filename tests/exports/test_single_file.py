"""tts.onnx against the plain models on the same draws, item by item, alone and in batches."""

import re

import numpy as np
import pytest
import torch

from common.audio.stft import SILENCE
from exports.random_numbers import KeepMasks
from exports.targets import ExportSource
from tests.exports.conftest import AUDIO, pulse_noise_source, skip_without_packages, small_source
from waveglow.denoiser import Denoiser

pytestmark = pytest.mark.slow

TOLERANCE = {"WaveGlow": 1e-4, "PulseNoise": 1e-3}  # the phase of pulses adds up the rounding of the pitch
LEAST = 8  # frames that the vocoder takes at least
SETTINGS = {"sigma": np.array(0.6, np.float32), "strength": np.array(0.1, np.float32)}
SOURCES = {"onnx": small_source, "onnx-pulse-noise": pulse_noise_source}


@pytest.fixture(params=SOURCES)
def source(request) -> ExportSource:
    return SOURCES[request.param]()


@pytest.fixture
def session(export_of, source):
    skip_without_packages()
    import onnxruntime

    name = "onnx" if source is small_source() else "onnx-pulse-noise"
    return onnxruntime.InferenceSession(str(export_of("onnx").parent / name / "tts.onnx"))


def batch_of(lengths: list[int]) -> dict[str, np.ndarray]:
    inside = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"ids": (torch.randint(1, 100, inside.shape) * inside).numpy(), "lengths": np.array(lengths)}


@torch.no_grad()
def plain_speech(source: ExportSource, ids: torch.Tensor, seed: int, max_steps: int, monkeypatch):
    """Audio (N,) and mel (M, T) of one text (S,) from the plain models with SETTINGS, with the single file's draws."""
    decoder, seeds, kind, config = source.acoustic.decoder, torch.tensor([seed]), source.kind, source.vocoder.config
    draw, step = KeepMasks(decoder.prenet.dim, decoder.prenet.p_dropout), iter(range(10**6))
    masks = lambda steps, batch, device: draw(torch.tensor(next(step)), seeds)[None]  # noqa: E731
    monkeypatch.setattr(decoder.prenet, "draw_keep_masks", masks)
    mels, (length,), _ = source.acoustic.infer(ids[None], torch.tensor([len(ids)]), max_steps)
    length = int(length)
    filled = torch.full((1, mels.shape[1], max(LEAST, mels.shape[2]) + kind.more_frames), SILENCE)
    filled[:, :, :length] = mels[:, :, :length]
    noise = kind.noise(config)(filled, seeds)
    if kind.settings:
        denoiser = Denoiser(
            source.vocoder, AUDIO["filter_length"], win_length=AUDIO["win_length"], hop_length=AUDIO["hop_length"]
        )
        sigma, strength = (value.item() for value in SETTINGS.values())
        audio = denoiser(source.vocoder.infer(filled, sigma, noise), strength)
    else:
        audio = source.vocoder.infer(filled, noise)
    return audio[0, : length * config.hop_length], mels[0, :, :length]


@pytest.mark.parametrize("max_steps", [4, 25])
@pytest.mark.parametrize("lengths", [[6], [3, 20, 9, 14]], ids=len)
def test_each_item_equals_the_plain_models(session, source, monkeypatch, lengths: list[int], max_steps: int) -> None:
    """Alone and in a batch, whether it ends by itself or at the limit of steps."""
    inputs, seeds = batch_of(lengths), np.array([2**33 + 1, -4, 5, 2**32 - 1])[: len(lengths)]
    given = inputs | {name: SETTINGS[name] for name in source.kind.settings}
    audio, audio_lengths, mels, mel_lengths = session.run(
        None, given | {"seeds": seeds, "max_steps": np.array(max_steps)}
    )
    assert audio.shape == (len(lengths), audio_lengths.max())
    tolerance = TOLERANCE[source.kind.spec.name]
    for i, length in enumerate(lengths):
        ids = torch.from_numpy(inputs["ids"][i, :length])
        sound, mel = plain_speech(source, ids, int(seeds[i]), max_steps, monkeypatch)
        assert (audio_lengths[i], mel_lengths[i]) == (len(sound), mel.shape[1])
        torch.testing.assert_close(torch.from_numpy(mels[i, :, : mel_lengths[i]]), mel, rtol=0, atol=1e-4)
        torch.testing.assert_close(torch.from_numpy(audio[i, : audio_lengths[i]]), sound, rtol=0, atol=tolerance)
        assert not audio[i, audio_lengths[i] :].any()
    assert len(lengths) == 1 or max_steps == 4 or len(set(audio_lengths.tolist())) > 1


def test_tritons_config_names_the_inputs_and_outputs_of_the_file(export_of) -> None:
    """With their types and sizes; a reshape to [ ] leaves only the batch."""
    skip_without_packages()
    import onnxruntime

    folder = export_of("triton-onnx") / "tts_onnx"
    session = onnxruntime.InferenceSession(str(folder / "1" / "model.onnx"))
    described = [*session.get_inputs(), *session.get_overridable_initializers(), *session.get_outputs()]
    values, types = {value.name: value for value in described}, {"INT64": "tensor(int64)", "FP32": "tensor(float)"}
    row = r'name: "(\w+)" data_type: TYPE_(\w+) dims: \[ (.*?) \]( reshape)?'
    rows = re.findall(row, (folder / "config.pbtxt").read_text())
    assert {value.name for value in session.get_outputs()} < {name for name, *_ in rows}
    for name, kind, sizes, reshaped in rows:
        assert values[name].type == types[kind]
        assert len(values[name].shape) == 1 + (0 if reshaped else len(sizes.split(",")))


def test_inputs_with_defaults_may_be_left_out(session, source) -> None:
    inputs = batch_of([7, 7])
    audio, *_ = session.run(None, inputs)
    usual = {"sigma": source.voice.sigma_infer, "strength": source.voice.denoising_strength}
    given = {name: np.array(usual[name], np.float32) for name in source.kind.settings}
    given |= {"seeds": np.zeros(2, np.int64), "max_steps": np.array(40)}
    np.testing.assert_array_equal(audio, session.run(None, inputs | given)[0])
    others, *_ = session.run(None, inputs | {"seeds": np.array([1, 1])})
    assert others.shape != audio.shape or not np.allclose(others, audio)
