"""The Asterisk prompts: a stand-in of tones, from notes to filelists, and the messages where something is missing."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.data.filelist import read_filelist
from common.errors import DataError
from scripts import prepare_recordings
from tests.recipe import ROOT, folder_of_tools
from tests.scripts.shell import bash, program

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
def test_speech_is_decoded_resampled_and_listed(tmp_path: Path, sounds: Path, monkeypatch, capfd) -> None:
    monkeypatch.setenv("ASTERISK_SOUNDS", str(sounds))
    prepare(tmp_path)
    expected = {f"asterisk/wavs/{name}.wav": text for name, text in PROMPTS.items()}
    assert rows(tmp_path, "train") | rows(tmp_path, "val") == expected
    for number, name in enumerate(PROMPTS, 1):
        samples, rate = soundfile.read(tmp_path / "data/asterisk/wavs" / f"{name}.wav")
        assert rate == 22050
        assert len(samples) / rate == pytest.approx(number / 2, abs=1e-3)
        spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
        assert np.argmax(spectrum) * rate / len(samples) == pytest.approx(300 * number, abs=2)
        assert np.abs(samples[1000:-1000]).max() == pytest.approx(0.5, abs=0.02)  # the precision of four bits a sample
    out = capfd.readouterr().out
    assert "Allison Smith, CC-BY-SA 3.0: not part of this project and not shipped with it" in out
    assert "3 converted from .g722, 3 resampled from 16000 Hz; 3 made, 0 up to date" in out
    content = (sounds / "core-sounds-en.txt").read_bytes()  # a second time, with packed transcripts
    (sounds / "core-sounds-en.txt").unlink()
    (sounds / "core-sounds-en.txt.gz").write_bytes(gzip.compress(content))
    prepare(tmp_path)
    out = capfd.readouterr().out
    assert "0 made, 3 up to date" in out and out.count(", unchanged\n") == 4
    assert {path.name for path in (tmp_path / "data/asterisk").iterdir()} == {"prompts", "records", "wavs"}
    prepare(tmp_path, "--longest-clip", 1.2, "--name", "short")  # training's limit; one of the prompts takes 73 s
    assert "left out, longer than 1.2 s: 1 clip: digits_2 (1.50 s)" in capfd.readouterr().out


def test_damaged_or_absent_prompts_leave_no_files(tmp_path: Path, sounds: Path, monkeypatch, capfd) -> None:
    (sounds / "digits/1.g722").write_bytes(b"")
    monkeypatch.setenv("ASTERISK_SOUNDS", str(sounds))
    with pytest.raises(DataError, match=r"digits_1\.g722: no samples in it"):
        prepare(tmp_path)
    for path in sounds.rglob("*.g722"):
        path.unlink()
    with pytest.raises(DataError, match=r"asterisk\.sh: failed, see above"):
        prepare(tmp_path)
    assert f"error: {sounds}: none of the .g722 files that {sounds}/core-sounds-en.txt lists" in capfd.readouterr().err
    assert not (tmp_path / "lists").exists() and not (tmp_path / "data/asterisk/wavs").exists()


APT = """case $* in
  *update*) touch lists/new ;;
  *) [ -e lists/$NEW ] && touch one.deb || { echo "E: Unable to locate package" >&2; exit 100; } ;;
esac
"""
DPKG = """mkdir -p "$3/usr/share/doc/asterisk-core-sounds-en" "$3/usr/share/asterisk/sounds"
cp -r "$SOUNDS" "$3/usr/share/asterisk/sounds/en_US_f_Allison"
gzip -c "$SOUNDS/core-sounds-en.txt" >"$3/usr/share/doc/asterisk-core-sounds-en/core-sounds-en.txt.gz"
"""


@pytest.mark.skipif(Path("/usr/share/asterisk/sounds/en_US_f_Allison").is_dir(), reason="the prompts are installed")
def test_packages_are_fetched_without_root_or_one_line_names_what_is_missing(tmp_path: Path, sounds: Path) -> None:
    """Stand-ins for apt, which knows the packages only with lists of its own, and for dpkg."""
    tools, data = folder_of_tools(tmp_path / "bin", "apt-get", "dpkg"), tmp_path / "data"

    def fetch(new: str = "new") -> tuple[int, str]:
        done = bash(ROOT / "scripts/asterisk.sh", data, cwd=tmp_path, path=tools, SOUNDS=str(sounds), NEW=new)
        return done.returncode, done.stderr

    code, err = fetch()
    assert code == 1 and err.endswith("(asterisk.org has them as an archive) in ASTERISK_SOUNDS\n")
    for name, content in (("apt-get", APT), ("dpkg", DPKG)):
        program(tools / name, content)
    assert fetch("none") == (1, "error: apt-get: E: Unable to locate package\n")
    assert list(data.iterdir()) == []
    assert [fetch(), fetch("none")] == [(0, ""), (0, "")]  # the second time there is nothing to fetch
    rows = (data / "prompts/metadata.csv").read_text().splitlines()
    assert dict(row.split("|") for row in rows) == PROMPTS
    assert {path.stem for path in (data / "prompts").glob("*.g722")} == set(PROMPTS)
