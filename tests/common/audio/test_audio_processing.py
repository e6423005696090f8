"""Audio files at every bit depth, the message of every refusal, Griffin-Lim against librosa's, and damaged mp3 files."""

import os
import re
import struct
import threading
import wave
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import librosa
import numpy as np
import pytest
import scipy.signal
import soundfile
import torch

from common.audio.audio_processing import (
    count_samples,
    griffin_lim,
    griffin_lim_in_parts,
    load_audio,
    mel_to_magnitude,
    predict_peak,
    read_audio,
    save_audio,
)
from common.audio.mpeg import estimates_length, quiet_decoder
from common.audio.stft import TacotronSTFT
from common.errors import DataError
from studio.prepare.levels import open_sound

RATE = 22050


def voice(samples: int = 16384) -> np.ndarray:
    """Something like a vowel: 40 harmonics of a gliding pitch, louder and softer, over faint noise; float64."""
    time = np.arange(samples) / RATE
    phase = 2 * np.pi * np.cumsum(120 + 40 * np.sin(2 * np.pi * 1.5 * time)) / RATE
    tones = sum(np.sin(k * phase) / k for k in range(1, 41)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))
    return 0.3 * tones + np.random.default_rng(0).normal(scale=0.002, size=samples)


def failure(call, *arguments: object) -> str:
    with pytest.raises(DataError) as error:
        call(*arguments)
    return str(error.value)


def write_pcm16(path: Path, pcm: np.ndarray, channels: int = 1, rate: int = RATE) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm.astype("<i2").tobytes())
    return path


def test_sixteen_bit_wav_is_fractions_of_full_scale_and_channels_are_mixed_to_their_mean(tmp_path: Path) -> None:
    pcm = np.array([0, 1, -1, 12345, 32767, -32768])
    audio = load_audio(write_pcm16(tmp_path / "a.wav", pcm), RATE)
    assert audio.dtype == torch.float32 and audio.tolist() == [k / 32768 for k in pcm]
    pcm = np.array([[1000, 3000], [-2000, 0], [30000, -30000]])
    audio = read_audio(write_pcm16(tmp_path / "a.wav", pcm, channels=2), None)
    assert (audio.rate, audio.channels) == (RATE, 2)
    assert audio.samples.tolist() == [2000 / 32768, -1000 / 32768, 0.0]


WAVE = ("wav PCM_U8", "wav PCM_24", "wav PCM_32", "wav FLOAT", "wav DOUBLE", "wavex PCM_24", "wavex FLOAT")


@pytest.mark.parametrize("kind", [*WAVE, "flac PCM_24"])
def test_lossless_formats_whole_and_cut_short(tmp_path: Path, kind: str) -> None:
    form, subtype = kind.split()
    want, path = voice(3000), tmp_path / f"a.{form[:4].removesuffix('e')}"
    soundfile.write(path, want, RATE, subtype=subtype, format=form)
    got = load_audio(path, RATE).numpy()
    assert got.shape == (3000,)
    assert np.abs(got - want).max() <= 1.5 * (2**-7 if subtype == "PCM_U8" else 2**-23)
    path.write_bytes(path.read_bytes()[:-600])
    said = "not an audio file, or damaged (" if form == "flac" else "cut short, 600 bytes of samples fewer"
    assert failure(load_audio, path, RATE).startswith(f"{path}: {said}")


def test_ogg_and_what_is_past_full_scale_is_clipped(tmp_path: Path) -> None:
    want = voice()
    soundfile.write(tmp_path / "a.ogg", want, RATE)
    got = load_audio(tmp_path / "a.ogg", RATE).numpy()
    assert np.linalg.norm(got - want) < 0.1 * np.linalg.norm(want)
    for ending, codec in (("ogg", "VORBIS"), ("ogg", "OPUS"), ("mp3", "MPEG_LAYER_III")):
        path, rate = tmp_path / f"{codec}.{ending}", 24000 if codec == "OPUS" else RATE
        soundfile.write(path, np.sign(voice()) * 0.999, rate, subtype=codec)
        assert np.abs(soundfile.read(path)[0]).max() > 1.02  # the codec rings
        assert float(load_audio(path, rate).abs().max()) == 1.0


def pcm16(path: Path, samples: int = 1000, cut: int = 0, **format: int) -> None:
    content = write_pcm16(path, np.zeros(samples), **format).read_bytes()
    path.write_bytes(content[: len(content) - cut])


def floats(path: Path, value: float) -> None:
    soundfile.write(path, np.array([0.0, value, 0.5]), RATE, subtype="FLOAT")


NOT_AUDIO = r"not an audio file, or damaged \("
REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "raw": (lambda path: path.write_bytes(bytes(400)), "not an audio file, or one without a header, expected wav"),
    "missing": (lambda path: None, "no such audio file$"),
    "a folder": (Path.mkdir, "no such audio file$"),
    "empty": (Path.touch, NOT_AUDIO),
    "text": (lambda path: path.write_bytes(b"hello world\n" * 100), NOT_AUDIO),
    "cut short": (
        partial(pcm16, cut=500),  # libsndfile reads it as if it had been shorter all along
        "cut short, 500 bytes of samples fewer than its header says: copy it again$",
    ),
    "without samples": (partial(pcm16, samples=0), "no samples in it$"),
    "stereo": (partial(pcm16, channels=2), "2 channels, expected mono: "),
    "another rate": (partial(pcm16, rate=16000), "16000 Hz, expected 22050 Hz: .*set --sampling-rate$"),
    "NaN": (partial(floats, value=np.nan), "samples that are NaN or infinite$"),
    "infinite": (partial(floats, value=-np.inf), "samples that are NaN or infinite$"),
    "too loud": (partial(floats, value=-1.25), "samples up to 1.25, expected -1 to 1: scale the audio down$"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_files_that_are_refused(tmp_path: Path, kind: str) -> None:
    path, (make, message) = tmp_path / f"a.{'raw' if kind == 'raw' else 'wav'}", REFUSED[kind]
    make(path)
    assert re.match(f"{re.escape(str(path))}: {message}", failure(load_audio, path, RATE))


def test_wav_with_chunks_around_the_samples_and_wav_streamed_into_a_pipe(tmp_path: Path) -> None:
    path = write_pcm16(tmp_path / "a.wav", np.arange(100))
    whole = path.read_bytes()
    odd, tail = b"LIST" + struct.pack("<I", 5) + b"12345\0", b"LIST" + struct.pack("<I", 4) + b"1234"
    path.write_bytes(whole[:12] + odd + whole[12:] + tail)
    assert load_audio(path, RATE).tolist() == [k / 32768 for k in range(100)]
    path.write_bytes(path.read_bytes()[: -len(tail) - 20])
    assert "cut short, 20 bytes" in failure(load_audio, path, RATE)
    streamed = bytearray(whole)
    streamed[4:8] = streamed[40:44] = b"\xff\xff\xff\xff"
    path.write_bytes(streamed)
    assert load_audio(path, RATE).shape == (100,)


def overwrite(content: bytes) -> bytes:
    return content[: len(content) // 2] + b"\x55" * 50 + content[len(content) // 2 + 50 :]


FLAC, OGG = "not an audio file, or damaged (", "cut short, it stops before its last Ogg page"


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        ("a.flac", lambda content: content[:-100], FLAC),
        ("a.ogg", lambda content: content[: len(content) // 2], OGG),
        ("a.ogg", lambda content: content[:-100], OGG),
        ("a.ogg", lambda content: content[: content.rindex(b"OggS")], OGG),  # between pages: libsndfile reads the rest
        ("a.flac", overwrite, FLAC),
        # its header states eight thousand million samples
        ("a.flac", lambda content: content[:21] + bytes([content[21] | 2]) + content[22:], FLAC),
        ("a.ogg", overwrite, "cut short or damaged, "),
    ],
)
def test_compressed_files_cut_short_or_damaged(tmp_path: Path, name: str, damage: Callable, reason: str) -> None:
    path = tmp_path / name
    soundfile.write(path, voice(4 * RATE), RATE)
    path.write_bytes(damage(path.read_bytes()))
    assert failure(load_audio, path, RATE).startswith(f"{path}: {reason}")


def test_saved_wav_is_sixteen_bit_and_clipped_and_each_of_its_values_survives(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    save_audio(path, torch.tensor([0.0, 0.5, 1.0, 1.5, 70000.0, -1.0, -1.5, 0.6 / 32768], dtype=torch.float64), 16000)
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16000)
        pcm = np.frombuffer(file.readframes(100), "<i2")
    assert pcm.tolist() == [0, 16384, 32767, 32767, 32767, -32768, -32768, 1]
    first = write_pcm16(tmp_path / "a.wav", np.arange(-32768, 32768))
    save_audio(tmp_path / "b.wav", load_audio(first, RATE), RATE)
    assert (tmp_path / "b.wav").read_bytes() == first.read_bytes()


def test_saving_replaces_or_fails_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "made" / "a.wav"
    for samples in (5, 3):
        save_audio(path, torch.ones(samples).half(), RATE)
        assert len(load_audio(path, RATE)) == samples
    assert list(path.parent.iterdir()) == [path]
    (tmp_path / "a.wav").mkdir()
    write_pcm16(tmp_path / "file", np.zeros(1))
    assert failure(save_audio, tmp_path / "a.wav", torch.zeros(3), RATE).endswith("cannot be written (Is a directory)")
    assert failure(save_audio, tmp_path / "file" / "b.wav", torch.zeros(3), RATE).endswith("(Not a directory)")
    assert {item.name for item in tmp_path.iterdir()} == {"a.wav", "file", "made"}
    assert "audio of shape (1, 3), expected (samples,)" in failure(save_audio, path, torch.zeros(1, 3), RATE)
    assert "samples that are NaN or infinite" in failure(save_audio, path, torch.tensor([0.0, torch.inf]), RATE)
    assert len(load_audio(path, RATE)) == 3  # the old file stays


@pytest.fixture(scope="module")
def stft() -> TacotronSTFT:
    return TacotronSTFT()


def voice_mels(stft: TacotronSTFT) -> torch.Tensor:
    return stft.mel_spectrogram(torch.from_numpy(voice()).float()[None])


def test_magnitudes_have_the_mels_they_came_from_and_are_nearer_than_the_pseudo_inverse(stft: TacotronSTFT) -> None:
    mels = voice_mels(stft)
    magnitude = mel_to_magnitude(mels, stft)
    assert magnitude.shape == (1, 513, mels.shape[2])
    again, want = stft.mel_basis.double() @ magnitude.double(), mels.double().exp()
    assert (again - want).norm() < 2e-3 * want.norm()
    want = np.abs(librosa.stft(voice(), n_fft=1024, hop_length=256, pad_mode="reflect"))
    pseudo = np.maximum(0, np.linalg.pinv(stft.mel_basis.numpy()) @ mels[0].exp().numpy())
    ours = np.linalg.norm(magnitude[0].numpy() - want)
    assert ours < min(0.8 * np.linalg.norm(pseudo - want), 0.2 * np.linalg.norm(want))


@pytest.mark.parametrize("frames", [8, 33, 700])
def test_parts_of_griffin_lim_are_its_audio(frames: int) -> None:
    stft = TacotronSTFT(filter_length=128, hop_length=32, win_length=128, n_mel_channels=20)
    mels = stft.mel_spectrogram(torch.from_numpy(voice(frames * 32)).float()[None])
    whole = griffin_lim(mels, stft, generator=torch.Generator().manual_seed(3))
    parts = list(griffin_lim_in_parts(mels, stft, torch.Generator().manual_seed(3)))
    starts = [start for start in (0, 32, 288, 544) if start < frames]
    assert [part.shape[1] // 32 for part in parts] == [b - a for a, b in pairwise([*starts, frames])]
    assert (torch.cat(parts, dim=1) - whole).abs().max() < 1e-3 * whole.abs().max()


def test_the_peak_follows_from_the_mels(stft: TacotronSTFT) -> None:
    """Of noise below 8 kHz, where the filters end; its loudest frame is a little above the mean."""
    noise = scipy.signal.lfilter(
        scipy.signal.firwin(401, 7800, fs=RATE), 1, np.random.default_rng(1).normal(size=40_000)
    )
    for level in (0.02, 0.2):
        mels = stft.mel_spectrogram(torch.from_numpy(level * noise).float()[None])
        assert predict_peak(mels, stft) == pytest.approx(3 * level * noise.std(), rel=0.25)


def test_iterations_are_the_papers(stft: TacotronSTFT) -> None:
    """Perraudin et al. 2013, algorithm 2, in float64 on scipy's transforms, from the same first phases."""
    mels = voice_mels(stft)[:, :, :12]
    magnitude = mel_to_magnitude(mels, stft)[0].double().numpy()
    draws = torch.rand((1, 513, 12), generator=torch.Generator().manual_seed(5))[0].double().numpy()
    framing = {"window": "hann", "nperseg": 1024, "noverlap": 768}

    def audio_of(spectrum: np.ndarray) -> np.ndarray:
        return scipy.signal.istft(spectrum, **framing)[1]

    c = magnitude * np.exp(2j * np.pi * draws)
    t_previous = np.zeros_like(c)
    for _ in range(5):
        t = scipy.signal.stft(audio_of(c), **framing, boundary="even", padded=False)[2]
        c = t + 0.99 * (t - t_previous)
        c = magnitude * np.exp(1j * np.angle(c))
        t_previous = t
    want = audio_of(c) / scipy.signal.get_window("hann", 1024).sum()  # scipy's inverse multiplies by the window's sum
    got = griffin_lim(mels, stft, n_iters=5, generator=torch.Generator().manual_seed(5))[0].numpy()
    assert got.shape == want.shape == (11 * 256,)
    assert np.abs(got - want).max() < 1e-3 * np.abs(want).max()


def test_speaks_the_mels_it_was_given_each_item_alone(stft: TacotronSTFT) -> None:
    mels = voice_mels(stft)
    audio = griffin_lim(mels, stft, generator=torch.Generator().manual_seed(0))
    again = stft.mel_spectrogram(audio.clamp(-1, 1))
    assert again.shape == mels.shape
    assert float((again - mels).abs().mean()) < 0.15  # nepers, over a range of about eleven
    mels = torch.cat([mels[:, :, :16], torch.rand(1, 80, 16) * 5 - 8])
    both = griffin_lim(mels, stft, 4, generator=torch.Generator().manual_seed(1))
    alone = griffin_lim(mels[:1], stft, 4, generator=torch.Generator().manual_seed(1))
    other = griffin_lim(mels[:1], stft, 4, generator=torch.Generator().manual_seed(2))
    assert both.shape == (2, 15 * 256)
    assert torch.allclose(both[:1], alone, atol=1e-5)
    assert not torch.allclose(other, alone, atol=1e-2)


def test_mels_that_cannot_become_audio(stft: TacotronSTFT) -> None:
    assert "expected (batch, 80, frames)" in failure(griffin_lim, torch.zeros(1, 40, 9), stft)
    assert failure(griffin_lim, torch.zeros(1, 80, 3), stft) == "log-mels of 3 frames, expected at least 4"
    assert griffin_lim(torch.zeros(1, 80, 4), stft, 2).shape == (1, 768)
    assert failure(griffin_lim, torch.full((1, 80, 9), float("nan")), stft).endswith("NaN or infinite")


@pytest.mark.gpu
def test_gpu_agrees_with_cpu(stft: TacotronSTFT) -> None:
    mels = voice_mels(stft)[:, :, :20]
    want = griffin_lim(mels, stft, 3, generator=torch.Generator().manual_seed(0))
    got = griffin_lim(mels.cuda(), TacotronSTFT().cuda(), 3, generator=torch.Generator().manual_seed(0))
    assert got.is_cuda
    assert float((got.cpu() - want).norm() / want.norm()) < 1e-2


@pytest.fixture(scope="module")
def mp3(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Ten seconds of noise, with a Xing or Info header."""
    path = tmp_path_factory.mktemp("mp3") / "a.mp3"
    soundfile.write(path, 0.1 * np.random.default_rng(0).standard_normal(220500), 22050)
    return path.read_bytes()


def test_damage_is_one_error_without_the_decoder_s_own_messages(tmp_path: Path, mp3: bytes, capfd) -> None:
    noise = np.random.default_rng(1).bytes(3000)
    for name in ("a.mp3", "a.wav"):  # by its name, or by its content
        (tmp_path / name).write_bytes(mp3[:20000] + noise + mp3[20000:])
        assert failure(read_audio, tmp_path / name, None).startswith(
            f"{tmp_path / name}: not an audio file, or damaged"
        )
    (tmp_path / "a.mp3").write_bytes(mp3[: len(mp3) // 2])
    assert "cut short or damaged" in failure(read_audio, tmp_path / "a.mp3", None)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("tag", [b"", b"ID3\x04\x00\x00\x00\x00\x02\x00" + bytes(256)])
def test_a_file_that_does_not_state_its_length_is_whole_or_refused(tmp_path: Path, mp3: bytes, tag: bytes) -> None:
    """libsndfile stops at its guess, here after 6.5 of 10 s."""
    path = tmp_path / "a.mp3"
    path.write_bytes(tag + mp3)
    assert not estimates_length(path) and count_samples(path, 22050) == 220500
    place = next(mp3.find(name) for name in (b"Xing", b"Info") if name in mp3[:256])
    path.write_bytes(tag + mp3[:place] + b"none" + mp3[place + 4 :])
    assert estimates_length(path)
    for read in (count_samples, read_audio):
        assert "does not state its length, so that only a part may be read" in failure(read, path, 22050)
    if find_spec("av"):
        with open_sound(path) as sound:
            assert sum(map(len, sound.blocks)) == pytest.approx(220500, abs=2000)


@pytest.mark.usefixtures("quick_switches")
def test_threads_that_read_at_once_give_standard_error_back() -> None:
    together, stderr, count = threading.Barrier(8), os.fstat(2), len(os.listdir("/dev/fd"))

    def read(_: int) -> None:
        for _ in range(100):
            together.wait()
            with quiet_decoder("a.mp3"):
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))
    assert os.path.samestat(os.fstat(2), stderr) and len(os.listdir("/dev/fd")) == count
