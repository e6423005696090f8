"""Recordings of a folder: names of clips, formats, rates, channels, and files that cannot be read."""

import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import at_rate
from common.data.sources import drop_copies, find_sources
from common.errors import DataError
from studio.prepare.arguments import CuttingConfig, FaultLimits
from studio.prepare.clips import CutRecording, CuttingJob, cut_recording
from studio.prepare.levels import open_sound
from studio.prepare.matching import find_transcripts
from tests.recipe import ROOT


def test_names_of_clips_are_unique_and_ascii(tmp_path: Path) -> None:
    names = ["a b.wav", "a_b.wav", "A-B.flac", "über/日本.wav", "日本.mp3", "c.wav", "c.ogg"]
    names += [".hidden.wav", "notes.txt", "A.wav", "A.flac", *(f"{'long' * 25}{end}.wav" for end in "ab")]
    random.Random(0).shuffle(names)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    listing = find_sources(tmp_path)
    slugs = [source.slug.lower() for source in listing.sources]
    assert len(slugs) == len(set(slugs)) == 11
    assert all(slug.isascii() and "/" not in slug for slug in slugs)
    assert [path.name for path in listing.others] == ["notes.txt"]


def test_recordings_with_one_stem_are_two(tmp_path: Path) -> None:
    """A.wav and A.flac share A.txt; in a table, A alone means neither of them."""
    for name, level in (("A.wav", 0.1), ("A.flac", 0.2)):
        audio = level * np.random.default_rng(0).standard_normal(44100)
        soundfile.write(tmp_path / name, np.pad(audio, 8000), 22050)
    sources = find_sources(tmp_path).sources
    (tmp_path / "clips").mkdir()
    jobs = [CuttingJob(source, None, CuttingConfig(), tmp_path / "state", tmp_path / "clips") for source in sources]
    cut = [cut_recording(job) for job in jobs]
    assert all(isinstance(recording, CutRecording) for recording in cut)
    assert len({recording.clips[0].digest for recording in cut}) == len(list((tmp_path / "clips").iterdir())) == 2

    def texts(name: str, content: str) -> dict[str, str]:
        (tmp_path / name).write_text(content)
        found = find_transcripts(tmp_path, sources, [tmp_path / name])
        return {name: transcript.text for name, transcript in found.transcripts.items()}

    assert texts("metadata.csv", "A.flac|Of the second.\n") == {"A.flac": "Of the second."}
    with pytest.raises(DataError, match=r"names several recordings: A\.flac, A\.wav"):
        texts("metadata.csv", "A|Of which?\n")
    assert texts("A.txt", "Of both.") == {"A.flac": "Of both.", "A.wav": "Of both."}


def tone(rate: int, seconds: float = 1.0) -> np.ndarray:
    """A tone whose loudness rises, so that an offset in time shows."""
    times = np.arange(round(seconds * rate)) / rate
    return 0.5 * times / seconds * np.sin(2 * np.pi * 440 * times)


def read(path: Path) -> tuple[np.ndarray, int]:
    with open_sound(path) as sound:
        return np.concatenate(list(sound.blocks)), sound.rate


@pytest.mark.parametrize(
    ("name", "subtype", "tolerance"),
    [("a.wav", "PCM_24", 1e-6), ("a.flac", None, 1e-4), ("a.aiff", "PCM_32", 1e-6), ("a.mp3", None, 0.03)],
)
def test_formats(tmp_path: Path, name: str, subtype: str | None, tolerance: float) -> None:
    soundfile.write(tmp_path / name, tone(44100), 44100, subtype)
    samples, rate = read(tmp_path / name)
    assert rate == 44100 and samples.shape == (44100, 1)
    np.testing.assert_allclose(samples[:, 0], tone(44100), atol=tolerance)


@pytest.mark.parametrize(("name", "codec"), [("a.m4a", "aac"), ("a.wv", "wavpack"), ("a.tta", "tta")])
def test_formats_that_av_reads(tmp_path: Path, name: str, codec: str) -> None:
    av = pytest.importorskip("av", reason="av, of requirements/studio.txt, is not installed")
    soundfile.write(tmp_path / "a.wav", tone(44100), 44100)
    with av.open(str(tmp_path / "a.wav")) as source, av.open(str(tmp_path / name), "w") as target:
        stream = target.add_stream(codec, rate=44100, layout="mono")
        for frame in source.decode(audio=0):
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    samples, rate = read(tmp_path / name)
    assert rate == 44100 and samples.shape[1] == 1 and abs(len(samples) - 44100) <= 2048  # whole frames of a codec
    np.testing.assert_allclose(samples[:40000, 0], tone(44100)[:40000], atol=0.03)  # AAC ends with an edge of its own


def test_a_copy_with_a_transcript_is_taken(tmp_path: Path) -> None:
    for name, content in (("a.wav", b"one"), ("b.wav", b"one"), ("c.wav", b"two"), ("sub/d.wav", b"one")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    sources = find_sources(tmp_path).sources
    left, messages = drop_copies(sources, {"sub/d.wav", "c.wav"})
    assert [source.name for source in left] == ["c.wav", "sub/d.wav"]
    assert messages == [f"{tmp_path}/{name}.wav: a copy of sub/d.wav, which has a transcript" for name in "ab"]


def test_only_lossy_formats_may_exceed_full_scale(tmp_path: Path) -> None:
    """Their decoders overshoot; in other formats such samples are a mistake."""
    square = 0.99 * np.sign(tone(22050) + 1e-9)
    soundfile.write(tmp_path / "a.ogg", square, 22050)
    assert np.abs(soundfile.read(tmp_path / "a.ogg", dtype="float32")[0]).max() > 1.01
    assert np.abs(read(tmp_path / "a.ogg")[0]).max() == 1.0
    soundfile.write(tmp_path / "a.wav", 1.02 * square, 22050, subtype="FLOAT")
    with pytest.raises(DataError, match=r"a\.wav: samples up to 1\.0098, expected -1 to 1"):
        read(tmp_path / "a.wav")


@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (48000, 2), (96000, 6)])
def test_rates_and_channels_become_mono_at_one_rate(tmp_path: Path, rate: int, channels: int) -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(2 * 22050)
    audio = at_rate(np.pad(noise, 11025), 22050, rate)
    soundfile.write(tmp_path / "a.wav", np.stack([audio] * channels, axis=1), rate)
    (tmp_path / "clips").mkdir()
    (source,) = find_sources(tmp_path).sources
    record = cut_recording(CuttingJob(source, None, CuttingConfig(), tmp_path / "state", tmp_path / "clips"))
    assert isinstance(record, CutRecording) and (record.rate, record.channels) == (rate, channels)
    (clip,) = record.clips
    assert clip.seconds == pytest.approx(2.2, abs=0.03)  # with a margin at either end
    assert (clip.measures.bandwidth < FaultLimits.min_bandwidth) == (rate == 8000)
    samples, written = soundfile.read(tmp_path / "clips" / f"{clip.name}.wav", always_2d=True)
    assert written == 22050 and samples.shape == (pytest.approx(clip.seconds * 22050, abs=30), 1)
    bare = cut_recording(CuttingJob(source, None, CuttingConfig(margin=0.0), tmp_path / "state", tmp_path / "clips"))
    assert bare.clips[0].measures.snr == clip.measures.snr  # the noise is that of the pauses around a clip, too


def test_recordings_without_permission(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        soundfile.write(tmp_path / "a.wav", tone(22050), 22050)
        (tmp_path / "a.wav").chmod(0)
        assert "Permission denied" in find_sources(tmp_path).problems[0]
        return
    command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("root reads every file, and setpriv cannot become another user here")
    code = "import sys; from pathlib import Path; from common.data.sources import find_sources as find;"
    code += "print(find(Path(sys.argv[1])).problems)"
    with tempfile.TemporaryDirectory() as folder:  # the other user may not enter pytest's
        soundfile.write(Path(folder, "a.wav"), tone(22050), 22050)
        Path(folder, "a.wav").chmod(0)
        Path(folder).chmod(0o755)
        done = subprocess.run([*command, sys.executable, "-c", code, folder], cwd=ROOT, capture_output=True, text=True)
    assert "Permission denied" in done.stdout, done.stderr
