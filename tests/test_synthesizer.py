"""The library: the same audio as the command, streams, errors, and no change to the process that uses it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import synthesizer
from common.audio.audio_processing import load_audio, to_pcm
from common.audio.stft import TacotronSTFT
from common.checkpoint.files import load_checkpoint
from common.errors import DataError, UsageError
from models import REGISTRY, recognise
from synthesizer import Line, Speech, SynthesisConfig, Synthesizer
from tests.recipe import ROOT, speech_flags, succeed, train_tiny_model

TEXTS = ["Good morning, it is seven o'clock.", "Two.", "The time is now nine o'clock in the evening."]


def voice(*, vocoder: bool = True, **settings: object) -> Synthesizer:
    config = SynthesisConfig(**settings)  # type: ignore[arg-type]
    waveglow = train_tiny_model("WaveGlow") if vocoder else None
    return Synthesizer.from_checkpoints(train_tiny_model("Tacotron2"), waveglow, config=config, device="cpu")


def command(folder: Path, *words: object) -> list[np.ndarray]:
    succeed("inference.py", *speech_flags(folder, *TEXTS), "--seed", 0, *words)
    return [to_pcm(load_audio(folder / f"audio_{i}.wav", 22050)) for i in range(len(TEXTS))]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"longest_piece": 30, "speed": 1.5, "seed": 5, "sigma_infer": 0.5},
            ["--longest-piece", 30, "--speed", 1.5, "--seed", 5, "-s", 0.5],
        ),
        (
            {"denoising_strength": 0.0, "plain": True, "options": {"max_decoder_steps": 7}, "normalize": "peak"},
            ["-d", 0, "--plain", "--max-decoder-steps", 7, "--normalize", "peak"],
        ),
    ],
)
def test_audio_is_that_of_the_command(tmp_path: Path, settings: dict, words: list) -> None:
    if "speed" in settings:
        pytest.importorskip("av", reason="of requirements/serving.txt")
    speeches = voice(**settings).speak(TEXTS)
    for speech, samples in zip(speeches, command(tmp_path, *words), strict=True):
        assert isinstance(speech, Speech) and speech.sampling_rate == 22050
        assert speech.audio.dtype == torch.float32 and speech.audio.abs().max() <= 1
        np.testing.assert_array_equal(to_pcm(speech.audio), samples)


def test_a_speech_has_its_mel_and_alignment() -> None:
    ours = voice(vocoder=False)
    (speech,) = ours.speak("Two.")
    steps, frames = 20, 100  # the decoder's limit: the gate of a model of two epochs never fires
    assert speech.alignment.shape == (steps, len(ours.symbols("Two."))) and not speech.finished
    assert speech.mel.shape == (10, frames) and len(speech.audio) == frames * 256
    again = TacotronSTFT.from_config(ours.audio).mel_spectrogram(speech.audio[None])[0, :, :frames]
    both = torch.stack((again.flatten(), speech.mel.flatten()))
    assert torch.corrcoef(both)[0, 1] > 0.9  # the audio is that of the mel
    assert not speech.audio.is_inference() and not speech.mel.is_inference()


def test_pauses_stand_in_their_places_and_texts_without_words_have_no_sound() -> None:
    ours = voice(vocoder=False, lexicon={"two": "One"})
    text = "[pause:0.5s]Title\n\nTwo,[pause:0.25s] two.[pause:1s]"
    speech, silent = ours.speak([text, "* * *"])
    assert ours.speak([]) == []
    assert (speech.pieces, silent.pieces, len(silent.audio)) == (3, 0, 0)
    frames, seconds = 3 * 100 * 256, 0.5 + 0.35 + 0.25 + 1.0
    assert len(speech.audio) == frames + sum(round(22050 * pause) for pause in (0.5, 0.35, 0.25, 1.0))
    assert not speech.audio[:11025].any() and speech.audio[11025:12000].any() and not speech.audio[-22050:].any()
    assert sum(map(len, ours.stream(text))) == len(speech.audio) == pytest.approx(frames + 22050 * seconds, abs=4)
    assert ours.symbols("Two.") == list("one.") and not ours.has_words("...")
    for call in (ours.speak, lambda text: list(ours.stream(text)), ours.has_words):
        with pytest.raises(DataError, match="nothing to speak" if call != ours.has_words else "expected 0 to 60 s"):
            call("[pause:99s]" if call == ours.has_words else "🙂")


def test_batches_are_yielded_as_they_are_done_and_sound_as_speak(monkeypatch) -> None:
    ours = voice()
    want, lines = ours.speak(TEXTS), ours.lines(TEXTS)
    assert lines == [Line(text, 0, number) for number, text in enumerate(TEXTS)]
    batches = ours.speak_batches(lines, 2)
    positions, first = next(batches)
    assert positions == [2, 0] and not first.halved  # the longest two
    rest = list(batches)
    assert [numbers for numbers, _ in rest] == [[1]]
    for position, speech in zip([2, 0, 1], [*first.speeches, *rest[0][1].speeches], strict=True):
        assert speech and torch.allclose(speech.audio, want[position].audio, atol=1e-5)
    for memory, size in ((1, 1), (5 << 30, 5), (1 << 40, 64)):
        monkeypatch.setattr(synthesizer, "available_memory", lambda device, memory=memory: memory)
        assert ours.default_batch_size() == size
    with pytest.raises(DataError, match="item 2: "):
        next(ours.speak_batches(ours.lines(["One.", "Two {HH"])))


def test_mistakes_are_errors_of_the_user(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(DataError, match=r"none\.pt"):
        Synthesizer.from_checkpoints(tmp_path / "none.pt")
    with pytest.raises(UsageError, match="--decoder-rnn-dim is 24 in it, 32 as requested"):
        voice(options={"decoder_rnn_dim": 32})
    with pytest.raises(UsageError, match="options: tempo: no such option"):
        voice(options={"tempo": 2})
    through = SynthesisConfig(vocoder="griffin-lim")
    with pytest.raises(UsageError, match="griffin-lim needs no checkpoint"):
        Synthesizer.from_checkpoints(train_tiny_model("Tacotron2"), train_tiny_model("WaveGlow"), config=through)
    with pytest.raises(UsageError, match="--normalize peak: needs the whole audio"):
        voice(normalize="peak").stream("Two.")  # at the call, not at the first part
    with pytest.raises(UsageError) as error:
        SynthesisConfig(sigma_infer=-1, denoising_strength=float("nan"), longest_piece=-2, normalize="loud")
    assert all(flag in str(error.value) for flag in ("--sigma-infer", "--denoising", "--longest-piece", "--normalize"))
    monkeypatch.setattr(synthesizer, "EMBEDDED", tmp_path)
    with pytest.raises(DataError, match="no such voice"):
        Synthesizer.embedded()


APP = """
import warnings, torch, librosa, numpy, scipy.signal, soundfile  # third parties change filters when they are imported
from concurrent.futures import ThreadPoolExecutor
import app.models

def state():
    backends = torch.backends.cudnn
    return (
        torch.get_num_threads(), torch.get_default_dtype(), torch.get_rng_state().tolist(), torch.get_float32_matmul_precision(),
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), backends.enabled,
        backends.benchmark, backends.allow_tf32, torch.get_default_device(), list(warnings.filters),
    )

calls = []
torch.manual_seed(7)
before = state()
from synthesizer import Synthesizer
import common.precision
common.precision.keep_freed_memory = calls.append  # the call of mallopt: only commands may make it
common.precision.configure = lambda *_: calls.append(_)
assert state() == before, "import"
voices = [Synthesizer.from_checkpoints({tacotron2!r}, vocoder, device="cpu") for vocoder in (None, {waveglow!r})]
assert state() == before, "construction"
texts = ["One.", "It is two o'clock."]
alone = [[speech.audio for speech in voice.speak(texts)] for voice in voices]
assert state() == before, "speak"
list(voices[1].stream("Two."))
assert state() == before, "stream"
assert not calls
with ThreadPoolExecutor(2) as threads:  # other threads than that which loaded the voices
    for _ in range(3):
        runs = [threads.submit(voice.speak, texts) for voice in voices]
        for run, wanted in zip(runs, alone):
            assert all(torch.equal(speech.audio, audio) for speech, audio in zip(run.result(), wanted))
model = torch.hub.load({root!r}, "nvidia_waveglow", False, source="local", n_channels=4)
assert app.models.NAME == "ours" and type(model).__mro__[1].__module__.endswith("waveglow.model")
assert not torch.equal(*(audio[0][:999] for audio in alone))
"""


@pytest.mark.slow
def test_an_app_finds_its_process_unchanged_and_has_models_of_its_own_and_two_voices_in_threads(tmp_path: Path) -> None:
    """In another folder, with a clone in PYTHONPATH as docs/inference.md says; each voice says what it says alone."""
    files = {model.lower(): str(train_tiny_model(model)) for model in ("Tacotron2", "WaveGlow")}
    (tmp_path / "app").mkdir()
    (tmp_path / "app/models.py").write_text('NAME = "ours"')
    code = APP.format(root=str(ROOT), **files)
    (tmp_path / "app/__main__.py").write_text(code)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "app"]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_a_file_says_of_which_model_it_is() -> None:
    vocoders = [spec for spec in REGISTRY.values() if spec.role == "vocoder"]
    for name, file in (("WaveGlow", "waveglow"), ("PulseNoise", "pitch")):
        contents = load_checkpoint(ROOT / "voice" / f"{file}.safetensors")
        assert recognise(contents, vocoders).name == recognise(contents, vocoders[::-1]).name == name
