"""The Asterisk prompts: a stand-in made with ffmpeg, and the real ones, with a short training of Tacotron 2."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy import signal

from benchmarks.studio import asterisk
from common.data.filelist import read_filelist
from common.errors import DataError
from scripts import prepare_recordings
from tests.recipe import MODELS, SHARED, read_steps, succeed

pytestmark = pytest.mark.slow

TRANSCRIPTS = """; Remarks: these are not prompts

activated: Activated.
beep: [this is a simple beep tone]
digits/1: One.
digits/2: two: the second
letters/at: at [@]
silence/1: (1 second of silence)
tones: <beep ascending>
nothing:
absent: Said, but not there.
"""
PROMPTS = {"activated": "Activated.", "digits_1": "One.", "digits_2": "two: the second"}
RATE = 16000


def needs_ffmpeg() -> str:
    try:
        return asterisk.find_ffmpeg()
    except DataError as error:
        pytest.skip(str(error))


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """A folder as asterisk.org's archive has it: tones of 0.5, 1 and 1.5 s instead of prompts."""
    ffmpeg, folder = needs_ffmpeg(), tmp_path / "sounds"
    (folder / "digits").mkdir(parents=True)
    (folder / "core-sounds-en.txt").write_text(TRANSCRIPTS)
    for number, name in enumerate(["activated", "digits/1", "digits/2", "beep"], 1):
        wav = tmp_path / f"{number}.wav"
        soundfile.write(wav, 0.5 * np.sin(2 * np.pi * 300 * number * np.arange(number * RATE // 2) / RATE), RATE)
        command = [ffmpeg, "-v", "error", "-i", str(wav), "-f", "g722", str(folder / f"{name}.g722")]
        subprocess.run(command, check=True)
    return folder


def prepare(folder: Path, *words: object) -> None:
    flags = ["--dataset", "asterisk", "--relative-to", folder, "--filelists", "lists", "--num-workers", 2, "data"]
    prepare_recordings.main([str(word) for word in [*flags, *words]])


def rows(folder: Path, part: str, kind: str = "audio") -> dict[str, str]:
    return {item.path: item.text for item in read_filelist(folder / f"lists/asterisk_{kind}_text_{part}_filelist.txt")}


@pytest.mark.parametrize("packed", [False, True])
def test_speech_is_decoded_resampled_and_listed(tmp_path: Path, sounds: Path, monkeypatch, packed, capsys) -> None:
    if packed:
        content = (sounds / "core-sounds-en.txt").read_bytes()
        (sounds / "core-sounds-en.txt").unlink()
        (sounds / "core-sounds-en.txt.gz").write_bytes(gzip.compress(content))
    monkeypatch.setenv("ASTERISK_SOUNDS", str(sounds))
    prepare(tmp_path)
    assert rows(tmp_path, "train") | rows(tmp_path, "val") == {
        f"asterisk/wavs/{name}.wav": text for name, text in PROMPTS.items()
    }
    for number, name in enumerate(PROMPTS, 1):
        samples, rate = soundfile.read(tmp_path / "data/asterisk/wavs" / f"{name}.wav")
        assert rate == 22050
        assert len(samples) / rate == pytest.approx(number / 2, abs=1e-3)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert np.argmax(spectrum) * rate / len(samples) == pytest.approx(300 * number, abs=2)
        assert np.abs(samples[1000:-1000]).max() == pytest.approx(0.5, abs=0.02)  # the precision of four bits a sample
    out = capsys.readouterr().out
    assert "Allison Smith, CC-BY-SA 3.0: not part of this project and not shipped with it" in out
    assert "3 resampled from 16000 Hz; 3 made, 0 there already" in out
    prepare(tmp_path)
    assert "0 made, 3 there already" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "data/asterisk").iterdir()} == {"decoded", "wavs"}


def test_damaged_prompts_leave_no_files(tmp_path: Path, sounds: Path, monkeypatch) -> None:
    (sounds / "digits/1.g722").write_bytes(b"")
    monkeypatch.setenv("ASTERISK_SOUNDS", str(sounds))
    with pytest.raises(DataError, match=r"ffmpeg: |no samples in it"):
        prepare(tmp_path)
    assert not (tmp_path / "lists").exists()
    assert not (tmp_path / "data/asterisk/wavs").exists()


def test_one_line_names_the_missing_tool_or_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)  # as if it were not installed
    with pytest.raises(
        DataError, match=r"^ffmpeg: not installed, .*apt-get install ffmpeg.*pip install imageio-ffmpeg"
    ):
        prepare(tmp_path)
    with pytest.raises(DataError, match=r"without apt-get and dpkg they cannot be fetched; .* in ASTERISK_SOUNDS$"):
        asterisk.fetch(tmp_path / "data/asterisk/packages")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DataError, match=r"ASTERISK_SOUNDS=.*: no core-sounds-en.txt or core-sounds-en.txt.gz in it"):
        asterisk.find_sounds(tmp_path, str(tmp_path))


def test_notes_about_sounds_are_no_transcripts(tmp_path: Path) -> None:
    (tmp_path / "core-sounds-en.txt").write_text(TRANSCRIPTS)
    texts = asterisk.read_transcripts(tmp_path / "core-sounds-en.txt")
    assert len(texts) == 9
    transcripts = {prompt: text for prompt, text in texts.items() if asterisk.is_speech(text)}
    assert transcripts == {
        "activated": "Activated.",
        "digits/1": "One.",
        "digits/2": "two: the second",
        "absent": "Said, but not there.",
    }


@pytest.fixture(scope="module")
def prompts(tmp_path_factory) -> Iterator[Path]:
    """The real prompts of 1 to 2.5 seconds, where they are installed or can be fetched."""
    needs_ffmpeg()
    folder = tmp_path_factory.mktemp("asterisk")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("ASTERISK_SOUNDS", raising=False)
        try:
            asterisk.find_sounds(folder / "data/asterisk", None)
        except DataError as error:
            pytest.skip(f"no Asterisk prompts here: {error}")
        prepare(folder, "--min-duration", 1, "--max-duration", 2.5)
    yield folder
    shutil.rmtree(folder)  # else pytest keeps some hundred megabytes


def test_the_real_prompts_are_prepared(prompts: Path) -> None:
    decoded = list((prompts / "data/asterisk/decoded").glob("*.wav"))
    assert 500 <= len(decoded) <= 568  # of all prompts, those that are speech
    assert 22 * 60 < sum(soundfile.info(path).duration for path in decoded) < 25 * 60
    lists = {part: rows(prompts, part) for part in ("train", "val")}
    assert len(lists["val"]) == round(0.05 * (len(lists["train"]) + len(lists["val"])))
    assert (lists["train"] | lists["val"])["asterisk/wavs/check-number-dial-again.wav"] == (
        "Please check the number and dial again."
    )
    assert not any(mark in text for part in lists.values() for text in part.values() for mark in "[(<")
    for path in list(lists["train"])[::20]:
        samples, rate = soundfile.read(prompts / "data" / path)
        source, source_rate = soundfile.read(prompts / "data/asterisk/decoded" / Path(path).name)
        assert (rate, source_rate) == (22050, 16000)
        expected = signal.resample_poly(source, 441, 320)[: len(samples)]
        error = np.sqrt(np.mean((samples - expected) ** 2) / np.mean(expected**2))
        assert error < 0.03  # two filters differ at the edge of the band, where speech has little


def test_tacotron_2_trains_on_the_real_prompts(prompts: Path, tmp_path: Path) -> None:
    lists = {}
    for part, number in (("train", 12), ("val", 2)):
        lists[part] = tmp_path / f"{part}.txt"
        lists[part].write_text("".join(f"{p}|{t}\n" for p, t in list(rows(prompts, part).items())[:number]))
    words = ["-m", "Tacotron2", "-o", tmp_path, "--dataset-path", prompts / "data", *SHARED.split(), "-bs", 4]
    words += [*MODELS["Tacotron2"].split(), "--training-files", lists["train"], "--validation-files", lists["val"]]
    succeed("train.py", *words, "--epochs", 4, "-lr", "1e-2")
    losses = [
        data["train_loss"]
        for step, data in read_steps(tmp_path / "nvlog.json")
        if len(step) == 1 and "train_loss" in data
    ]
    assert len(losses) == 4
    assert losses[-1] < 0.9 * losses[0]


def test_each_language_has_its_own_packages(tmp_path: Path) -> None:
    sounds, transcripts = (tmp_path / "packages" / place for place in asterisk.places("fr"))
    sounds.mkdir(parents=True)
    transcripts.parent.mkdir(parents=True)
    transcripts.touch()
    assert asterisk.packages("fr") == ("asterisk-core-sounds-fr", "asterisk-core-sounds-fr-g722")
    assert asterisk.find_sounds(tmp_path, None, "fr") == (sounds, transcripts)
    assert transcripts.name == "core-sounds-fr.txt.gz" and sounds.name == "fr_CA_f_June"
