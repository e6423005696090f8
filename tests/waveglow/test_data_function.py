"""WaveGlow's segments: drawn, cut and padded, with mels computed or cached."""

from pathlib import Path

import librosa
import numpy as np
import pytest
import soundfile
import torch

from common.audio.stft import AudioConfig, TacotronSTFT
from common.data.filelist import BadRows, Utterance
from common.data.mels import save_mel, write_settings
from common.errors import DataError, UsageError
from common.spec import Key
from waveglow.data_function import MelAudioDataset

SECOND = 22050


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two clips, one shorter than a segment, and their mels."""
    random, stft = np.random.default_rng(0), TacotronSTFT()
    (tmp_path / "wavs").mkdir()
    for name, samples in (("long", SECOND), ("short", 5000)):
        path = tmp_path / "wavs" / f"{name}.wav"
        soundfile.write(path, 0.1 * random.standard_normal(samples), SECOND, subtype="FLOAT")
        audio, _ = soundfile.read(path, dtype="float32")
        save_mel(tmp_path / "mels" / f"{name}.pt", stft.mel_spectrogram(torch.from_numpy(audio)[None])[0])
    return tmp_path


def dataset(folder: Path, **options: object) -> MelAudioDataset:
    rows = [Utterance(f"wavs/{name}.wav", "words") for name in ("long", "short")]
    return MelAudioDataset({"dataset_path": str(folder), "segment_length": 8000, "seed": 3} | options, rows)


def test_segments_depend_on_seed_epoch_and_clip_alone(folder: Path) -> None:
    data = dataset(folder)
    first, again, later = data[Key(0, 0)], data[Key(0, 0)], data[Key(1, 0)]
    assert torch.equal(first.audio, again.audio) and not torch.equal(first.audio, later.audio)
    assert not torch.equal(first.audio, dataset(folder, seed=4)[Key(0, 0)].audio)
    whole, _ = soundfile.read(folder / "wavs" / "long.wav", dtype="float32")
    windows = np.lib.stride_tricks.sliding_window_view(whole, 8000)
    assert (windows == first.audio.numpy()).all(1).any()


@pytest.mark.parametrize("stored", [False, True])
def test_a_segment_may_begin_at_every_place_up_to_the_last(folder: Path, stored: bool) -> None:
    hop = AudioConfig().hop_length if stored else 1
    length = SECOND - 2 - SECOND % 2 if not stored else (SECOND // hop - 2) * hop
    length -= length % 8
    data = dataset(folder, segment_length=length, load_mel_from_disk=stored)
    whole, _ = soundfile.read(folder / "wavs" / "long.wav", dtype="float32")
    places = range(0, SECOND - length + 1, hop)
    segments = [data[Key(epoch, 0)].audio.numpy() for epoch in range(60)]
    found = [[start for start in places if (whole[start : start + length] == audio).all()] for audio in segments]
    assert all(found) and {start for starts in found for start in starts} == set(places)


def test_dither_is_white_noise_without_effect_on_mels(folder: Path) -> None:
    quiet, noisy = dataset(folder), dataset(folder, dither=0.02)
    noises = []
    for key in (Key(0, 0), Key(1, 0), Key(0, 1)):
        assert torch.equal(noisy[key].mel, quiet[key].mel) and torch.equal(noisy[key].audio, noisy[key].audio)
        noises.append(noisy[key].audio - quiet[key].audio)
        assert noises[-1].std().item() == pytest.approx(0.02, rel=0.04)  # five standard errors of 8,000 samples
    assert torch.corrcoef(torch.stack(noises)).fill_diagonal_(0).abs().max() < 0.06
    assert abs(noises[0][1:] @ noises[0][:-1]) / (noises[0] @ noises[0]) < 0.06
    with pytest.raises(UsageError, match=r"--dither: -0\.1, expected"):
        dataset(folder, dither=-0.1)


@pytest.mark.parametrize("cached", [False, True])
def test_mels_belong_to_their_segments(folder: Path, cached: bool) -> None:
    data = dataset(folder, load_mel_from_disk=cached)
    for epoch in range(5):
        item = data[Key(epoch, 0)]
        assert (item.mel.shape, item.audio.shape, item.samples) == ((80, 8000 // 256 + 1), (8000,), 8000)
        sizes = {"sr": SECOND, "n_fft": 1024, "hop_length": 256, "n_mels": 80, "fmax": 8000.0}
        wanted = librosa.feature.melspectrogram(y=item.audio.numpy(), **sizes, power=1.0, pad_mode="reflect")
        inner = slice(2, -2)  # at the ends a cached mel's windows reach beyond the segment
        np.testing.assert_allclose(item.mel[:, inner].exp(), wanted[:, inner], rtol=2e-3)


@pytest.mark.parametrize("cached", [False, True])
def test_a_short_clip_is_followed_by_silence(folder: Path, cached: bool) -> None:
    item = dataset(folder, load_mel_from_disk=cached)[Key(0, 1)]
    assert item.samples == 5000 and item.audio[5000:].abs().max() == 0
    assert item.mel.shape == (80, 32)
    np.testing.assert_allclose(item.mel[:, 24:], np.log(1e-5), rtol=1e-6)
    batch = dataset(folder).collate([item, item])
    assert batch.num_items == 10000 and batch.inputs[0].shape == (2, 80, 32)


def test_cached_mels_that_do_not_fit(folder: Path) -> None:
    save_mel(folder / "mels" / "long.pt", torch.zeros(80, 70))
    with pytest.raises(DataError, match=r"long.pt: 70 frames, expected 87 for .*long.wav: it is of other audio"):
        dataset(folder, load_mel_from_disk=True)[Key(0, 0)]
    write_settings(folder / "mels", AudioConfig(hop_length=128))
    with pytest.raises(DataError, match="--hop-length 128, now 256"):
        dataset(folder, load_mel_from_disk=True)
    for path in (folder / "mels").iterdir():
        path.unlink()
    with pytest.raises(BadRows) as error:
        dataset(folder, load_mel_from_disk=True)
    assert set(error.value.problems) == {0, 1} and "no file" in error.value.problems[1]


def test_segments_are_whole_groups_of_a_frame_at_least() -> None:
    with pytest.raises(UsageError, match="--segment-length: 8001, expected a multiple of --groups 8"):
        MelAudioDataset({"segment_length": 8001}, [])
    with pytest.raises(UsageError, match=r"--segment-length: 512, expected at least 513 .* --filter-length 1024"):
        MelAudioDataset({"segment_length": 512}, [])
