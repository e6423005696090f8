"""Cached mels: the command that makes them, and what loading refuses."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import librosa
import numpy as np
import pytest
import torch

from common.audio.audio_processing import load_audio
from common.audio.stft import AudioConfig, TacotronSTFT
from common.data import mels
from common.data.mels import check_settings, load_mel, mel_path_of, save_mel, settings_of
from common.errors import DataError, UsageError
from tests import sounds


def write(path: Path, rate: int = sounds.RATE) -> np.ndarray:
    samples = np.round(32768 * sounds.tone(0.2, rate, amplitude=0.3)) / 32768  # values that 16 bits represent
    sounds.save(path, samples, rate, "PCM_16")
    return samples


@pytest.fixture
def lists(tmp_path: Path) -> list[str]:
    """Flags for three clips, whose second is at another rate."""
    for name, rate in (("a", 22050), ("b", 16000), ("c", 22050)):
        write(tmp_path / "wavs" / f"{name}.wav", rate=rate)
    words = ["--dataset-path", str(tmp_path), "--num-workers", "1"]
    for kind, folder, ending in (("audio", "wavs", "wav"), ("mel", "mels", "pt")):
        path = tmp_path / f"{kind}.txt"
        path.write_text("".join(f"{folder}/{name}.{ending}|text {name}\n" for name in "abc"))
        words += [f"--{kind}-filelist", str(path)]
    return words


def test_good_clips_get_their_mels_and_bad_ones_are_named(tmp_path: Path, lists: list[str], capsys) -> None:
    with pytest.raises(DataError) as error:
        mels.main(lists)
    bad, count = str(error.value).splitlines()
    assert bad.startswith(f"{tmp_path / 'wavs/b.wav'}: 16000 Hz, expected 22050 Hz")
    assert count == "no mel of 1 clip; mend or drop them and run again"
    samples = write(tmp_path / "wavs" / "same as c.wav")
    wanted = librosa.feature.melspectrogram(
        y=samples, sr=22050, n_fft=1024, hop_length=256, n_mels=80, fmax=8000.0, power=1.0, pad_mode="reflect"
    )
    mel = load_mel(tmp_path / "mels" / "c.pt", 80)
    np.testing.assert_allclose(mel.numpy(), np.log(np.maximum(wanted, 1e-5)), atol=2e-3)
    # mended, the rest is made and what is there is left alone
    write(tmp_path / "wavs" / "b.wav")
    mels.main(lists)
    assert "mels: 2 of 3 are there, making 1" in capsys.readouterr().out
    assert torch.equal(load_mel(tmp_path / "mels" / "b.pt", 80), mel)
    # recorded anew, a clip gets a new mel
    write(tmp_path / "wavs" / "c.wav")
    (tmp_path / "mels" / ".0123456789abcdef.tmp").touch()  # of a killed run
    mels.main(lists)
    assert "mels: 2 of 3 are there, making 1" in capsys.readouterr().out
    names = sorted(path.name for path in (tmp_path / "mels").iterdir())
    assert names == ["a.pt", "audio_settings.json", "b.pt", "c.pt"]


def test_lists_and_flags_that_cannot_work(tmp_path: Path, lists: list[str]) -> None:
    for words, message in (
        (["--audio-filelist", *[str(tmp_path / "audio.txt")] * 2], "as many lists as --audio-filelist"),
        (["--mel-fmax", "12000"], r"--mel-fmax 12000\.0: expected at most half"),
    ):
        with pytest.raises(UsageError, match=message):
            mels.main([*lists, *words])
    texts = {name: (tmp_path / f"{name}.txt").read_text() for name in ("audio", "mel")}
    (tmp_path / "mel.txt").write_text(texts["mel"].replace("text b", "text x"))
    with pytest.raises(DataError, match="its texts are not those of"):
        mels.main(lists)
    write(tmp_path / "wavs" / "a.flac")
    for name, row in (("audio", "wavs/a.flac|text a\n"), ("mel", "mels/a.pt|text a\n")):
        (tmp_path / f"{name}.txt").write_text(texts[name] + row)
    with pytest.raises(DataError, match=r"a\.flac: its mel .*/mels/a\.pt is that of .*/a\.wav, too"):
        mels.main(lists)
    assert not (tmp_path / "mels").exists()


def test_mels_of_other_settings_are_refused(tmp_path: Path, lists: list[str]) -> None:
    write(tmp_path / "wavs" / "b.wav")
    mels.main(lists)
    settings = json.loads((tmp_path / "mels" / "audio_settings.json").read_text())
    assert settings["hop_length"] == 256 and settings["mel_fmax"] == 8000.0 and "max_wav_value" not in settings
    before = load_mel(tmp_path / "mels" / "a.pt", 80)
    message = r"mels: its mels were made with .*: --hop-length 256, now 200; --mel-fmax 8000.0, now 7000"
    with pytest.raises(DataError, match=message):
        mels.main([*lists, "--hop-length", "200", "--mel-fmax", "7000"])
    assert torch.equal(load_mel(tmp_path / "mels" / "a.pt", 80), before)
    mels.main([*lists, "--max-wav-value", "1"])  # of no effect


def test_a_label_without_one_of_the_settings_or_that_cannot_be_read(tmp_path: Path) -> None:
    settings = settings_of(AudioConfig())
    del settings["mel_fmax"]
    without = json.dumps(settings), r"other audio settings: --mel-fmax None, now 8000\.0"
    for content, message in (without, ("{", "cannot be read"), ("[]", "a list")):
        (tmp_path / "audio_settings.json").write_text(content)
        with pytest.raises(DataError, match=message):
            check_settings([tmp_path], AudioConfig())
    check_settings([tmp_path / "unlabelled"], AudioConfig())


def test_mels_that_do_not_say_their_settings_are_compared(tmp_path: Path, lists: list[str]) -> None:
    write(tmp_path / "wavs" / "b.wav")
    mels.main(lists)
    label = tmp_path / "mels" / "audio_settings.json"
    label.unlink()
    (tmp_path / "mels" / "c.pt").unlink()
    for words in (["--hop-length", "200"], ["--mel-fmax", "7000"], ["--filter-length", "2048"]):
        with pytest.raises(DataError, match=r"a\.pt: made with other audio settings; delete"):
            mels.main([*lists, *words])
        assert not label.exists() and not (tmp_path / "mels" / "c.pt").exists()
    mels.main(lists)
    assert label.exists() and (tmp_path / "mels" / "c.pt").exists()


@pytest.mark.parametrize(
    "change",
    [lambda mel: mel / np.log(10), lambda mel: 20 * mel / np.log(10), torch.exp, lambda mel: (mel + 11.6) / 14],
    ids=["log10", "dB", "linear", "0 to 1"],
)
def test_stored_mels_that_are_no_natural_logarithms_are_refused(tmp_path: Path, change) -> None:
    config = AudioConfig()
    mel = TacotronSTFT.from_config(config).mel_spectrogram(torch.from_numpy(sounds.tone(1.0, 22050)).float()[None])[0]
    for number in range(3):
        save_mel(tmp_path / "mels" / f"{number}.pt", mel)
    paths = sorted((tmp_path / "mels").iterdir())
    mels.check_values(paths, config)
    mels.check_values([], config)
    save_mel(paths[1], change(mel))
    for path in (paths[0], paths[2]):
        save_mel(path, change(mel))
    with pytest.raises(DataError, match=r"mels: mels with values from .* expected natural logarithms of amplitudes"):
        mels.check_values(paths, config)


def test_stored_mels_are_compared_with_their_recordings(tmp_path: Path) -> None:
    """Other frames, or bands up to another frequency; predicted mels have a label, and the right length."""
    config, recording = AudioConfig(), tmp_path / "wavs" / "a.wav"
    samples = np.random.default_rng(1).normal(0, 0.1, 22050).clip(-1, 1) * np.linspace(1, 0, 22050)
    sounds.save(recording, samples, 22050, "PCM_16")
    audio, path = load_audio(recording, 22050)[None], tmp_path / "mels" / "a.pt"
    for other, message in ((None, ""), ("hop_length", "74 frames, expected 87"), ("mel_fmax", "apart on average")):
        made = replace(config, **({other: {"hop_length": 300, "mel_fmax": 11025.0}[other]} if other else {}))
        save_mel(path, TacotronSTFT.from_config(made).mel_spectrogram(audio)[0])
        with pytest.raises(DataError, match=message) if other else nullcontext():
            mels.check_values([path], config)
    mels.write_settings(path.parent, config)
    mels.check_values([path], config)  # as if predicted
    save_mel(path, torch.zeros(80, 86))
    with pytest.raises(DataError, match="86 frames, expected 87"):
        mels.check_values([path], config)


def test_a_mel_comes_back_as_it_was_saved_half_mels_are_widened_and_none_is_a_recording(tmp_path: Path) -> None:
    assert mel_path_of(Path("data/corpus/clock/a.b.ogg")) == Path("data/corpus/mels/a.b.pt")
    mel = torch.randn(10, 7)
    save_mel(tmp_path / "new" / "a.pt", mel.double())
    assert torch.equal(load_mel(tmp_path / "new" / "a.pt", 10), mel)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["a.pt"]
    with pytest.raises(DataError, match="cannot be written"):
        save_mel(tmp_path / "new" / "a.pt" / "b.pt", mel)
    torch.save(torch.full((10, 2), 0.5, dtype=torch.float16), tmp_path / "a.pt")
    mel = load_mel(tmp_path / "a.pt", 10)
    assert (mel.dtype, mel.unique().tolist()) == (torch.float32, [0.5])
    with pytest.raises(DataError, match=r"a stored mel, expected a recording$"):
        mels.audio_seconds(tmp_path / "a.pt", AudioConfig(), 1)
    assert mels.audio_seconds(tmp_path / "a.wav", AudioConfig(), 513, 513) == 513 / 22050


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (torch.zeros(9, 7), r"\(9, 7\), expected a mel of shape \(10, frames\)"),
        (torch.zeros(10, 0), r"\(10, 0\), expected a mel"),
        ({"mel": 1}, "dict, expected a mel"),
        (torch.zeros(10, 2, dtype=torch.int64), "values of int64, expected float32"),
        (torch.zeros(10, 2).to(torch.float8_e4m3fn), "values of float8_e4m3fn, expected float32"),
        (torch.full((10, 2), torch.nan), "NaN or infinite; delete it"),
        (torch.tensor([[0.0, -torch.inf]] * 10), "NaN or infinite; delete it"),
        (b"not a pickle", "not a mel, or damaged"),
        (b"RIFF....WAVE", "a recording, expected a mel: --load-mel-from-disk reads filelists of mels"),
        (None, "no such mel; `bash scripts/prepare_mels.sh` makes them"),
    ],
)
def test_files_that_are_no_mels(tmp_path: Path, content: object, message: str) -> None:
    path = tmp_path / "a.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        torch.save(content, path)
    with pytest.raises(DataError, match=message) as error:
        load_mel(path, 10)
    assert str(error.value).startswith(f"{path}: ")
