"""The Asterisk prompts: a stand-in of tones, from notes to filelists, and the messages where something is missing."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.filelist import read_filelist
from common.errors import DataError
from scripts import asterisk, prepare_recordings

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


@pytest.fixture
def sounds(tmp_path: Path) -> Path:
    """A folder as asterisk.org's archive has it: tones of 0.5, 1 and 1.5 s instead of prompts."""
    av = pytest.importorskip("av", reason="av, of requirements/studio.txt, is not installed")
    folder = tmp_path / "sounds"
    (folder / "digits").mkdir(parents=True)
    (folder / "core-sounds-en.txt").write_text(TRANSCRIPTS)
    for number, name in enumerate(["activated", "digits/1", "digits/2", "beep"], 1):
        tone = 16384 * np.sin(2 * np.pi * 300 * number * np.arange(number * RATE // 2) / RATE)
        with av.open(str(folder / f"{name}.g722"), "w", format="g722") as container:
            stream = container.add_stream("g722", rate=RATE, layout="mono")
            frame = av.AudioFrame.from_ndarray(tone.astype(np.int16)[None], "s16", "mono")
            frame.rate = RATE
            container.mux(stream.encode(frame))
            container.mux(stream.encode(None))
    return folder


def prepare(folder: Path, *words: object) -> None:
    flags = ["--dataset", "asterisk", "--relative-to", folder, "--filelists", "lists", "--num-workers", 2, "data"]
    prepare_recordings.main([str(word) for word in [*flags, *words]])


def rows(folder: Path, part: str) -> dict[str, str]:
    return {item.path: item.text for item in read_filelist(folder / f"lists/asterisk_audio_text_{part}_filelist.txt")}


@pytest.mark.slow
def test_speech_is_decoded_resampled_and_listed(tmp_path: Path, sounds: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("ASTERISK_SOUNDS", str(sounds))
    prepare(tmp_path)
    expected = {f"asterisk/wavs/{name}.wav": text for name, text in PROMPTS.items()}
    assert rows(tmp_path, "train") | rows(tmp_path, "val") == expected
    texts = asterisk.read_transcripts(sounds / "core-sounds-en.txt")  # notes about sounds are none
    assert {prompt.replace("/", "_"): text for prompt, text in texts.items()} == PROMPTS | {
        "absent": "Said, but not there."
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
    assert "3 resampled from 16000 Hz; 3 made, 0 up to date" in out
    content = (sounds / "core-sounds-en.txt").read_bytes()  # a second time, with packed transcripts
    (sounds / "core-sounds-en.txt").unlink()
    (sounds / "core-sounds-en.txt.gz").write_bytes(gzip.compress(content))
    prepare(tmp_path)
    out = capsys.readouterr().out
    assert "0 made, 3 up to date" in out and out.count(", unchanged\n") == 4
    assert {path.name for path in (tmp_path / "data/asterisk").iterdir()} == {"decoded", "records", "wavs"}


def test_damaged_or_absent_prompts_leave_no_files(tmp_path: Path, sounds: Path, monkeypatch) -> None:
    (sounds / "digits/1.g722").write_bytes(b"")
    monkeypatch.setenv("ASTERISK_SOUNDS", str(sounds))
    with pytest.raises(DataError, match=r"digits/1.g722: no samples in it"):
        prepare(tmp_path)
    for path in sounds.rglob("*.g722"):
        path.unlink()
    with pytest.raises(DataError, match=r"none of the \.g722 files that .*core-sounds-en\.txt lists"):
        prepare(tmp_path)
    assert not (tmp_path / "lists").exists() and not (tmp_path / "data/asterisk/wavs").exists()


def test_one_line_names_the_missing_tool_or_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(DataError, match=r"without apt-get and dpkg they cannot be fetched; .* in ASTERISK_SOUNDS$"):
        asterisk.fetch(tmp_path / "data/asterisk/packages")
    assert list(tmp_path.iterdir()) == []
