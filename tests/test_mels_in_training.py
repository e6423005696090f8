"""Training on cached mels: mels with other audio settings are an error for both models, before any file is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from common.data import mels
from tests.recipe import ROOT, Result, clips, flags, run

pytestmark = pytest.mark.slow

BOTH = pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])
PARTS = ("training", "validation")


@pytest.fixture(scope="module")
def voice(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven clips in wavs/, their mels of ten channels in mels/, and filelists of both."""
    folder = tmp_path_factory.mktemp("voice")
    (folder / "wavs").mkdir()
    clips(folder)
    words = ["-d", str(folder), "--num-workers", "1", "--n-mel-channels", "10"]
    lists: dict[str, list[str]] = {"audio": [], "mel": []}
    for part in PARTS:
        rows = (folder / f"{part}.txt").read_text().replace("corpus/clock/", "wavs/")
        for row in rows.splitlines():
            clip = row.split("|")[0].removeprefix("wavs/")
            shutil.copy(ROOT / "corpus/clock" / clip, folder / "wavs")
        listed = {"audio": rows, "mel": rows.replace("wavs/", "mels/").replace(".ogg|", ".pt|")}
        for kind, content in listed.items():
            (folder / f"{part}_{kind}.txt").write_text(content)
            lists[kind].append(str(folder / f"{part}_{kind}.txt"))
    mels.main([*words, "--audio-filelist", *lists["audio"], "--mel-filelist", *lists["mel"]])
    return folder


def train(voice: Path, output: Path, model: str, *words: object) -> Result:
    """Train one epoch on cached mels. Tacotron 2's filelists name the mels, WaveGlow's the clips."""
    kind = "mel" if model == "Tacotron2" else "audio"
    data = ["--dataset-path", voice, "--load-mel-from-disk", "--epochs", 1]
    for part in PARTS:
        data += [f"--{part}-files", voice / f"{part}_{kind}.txt"]
    return run("train.py", *flags(model, output.parent / "flags"), "-o", output, *data, *words)


@BOTH
@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (["--mel-fmax", 7000], "mel_fmax 8000.0, now 7000.0"),
        (["--mel-fmin", 50], "mel_fmin 0.0, now 50.0"),
        (["--hop-length", 200], "hop_length 256, now 200"),
        (["--win-length", 800, "--filter-length", 2048], "filter_length 1024, now 2048; win_length 1024, now 800"),
        (["--n-mel-channels", 12], "n_mel_channels 10, now 12"),
    ],
)
def test_mels_of_other_settings_are_an_error(
    tmp_path: Path, voice: Path, model: str, words: list[object], difference: str
) -> None:
    result = train(voice, tmp_path / "output", model, *words)
    assert (result.code, result.out) == (1, "")
    assert result.err == (
        f"error: {voice}/mels: its mels were made with other audio settings: {difference}\n"
        "set the flags as they were, or delete the folder and prepare its mels again\n"
    )
    assert not (tmp_path / "output").exists()


@BOTH
def test_mels_of_the_same_settings_are_accepted(tmp_path: Path, voice: Path, model: str) -> None:
    result = train(voice, tmp_path / "output", model, "--max-wav-value", 1)  # which is of no effect
    assert result.code == 0, result.err
    assert (tmp_path / "output" / f"checkpoint_{model}_last.pt").exists()


@BOTH
def test_mels_without_recorded_settings_are_accepted(tmp_path: Path, voice: Path, model: str) -> None:
    """Mels of the published recipe have no recorded settings."""
    unlabelled = tmp_path / "voice"
    shutil.copytree(voice, unlabelled)
    (unlabelled / "mels" / "audio_settings.json").unlink()
    result = train(unlabelled, tmp_path / "output", model, "--mel-fmax", 7000)
    assert result.code == 0, result.err
