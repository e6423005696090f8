"""Recordings of a folder: names of clips, formats, rates, channels, and files that cannot be read."""

import os
import random
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import at_rate
from common.data.sources import drop_copies, find_sources
from common.errors import DataError
from studio.prepare.arguments import FaultLimits
from studio.prepare.clips import CutRecording
from studio.prepare.levels import open_sound
from tests.sounds import RATE, save, tone
from tests.studio.projects import cut


def test_names_of_clips_are_unique_and_ascii_and_unreadable_files_are_named(tmp_path: Path, monkeypatch) -> None:
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
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "c.wav" and mode == os.R_OK)
    assert find_sources(tmp_path).problems == [f"{tmp_path}/c.wav: cannot be read (Permission denied)"]


def rising_tone(rate: int) -> np.ndarray:
    """A second whose loudness rises, so that an offset in time shows."""
    return np.linspace(0, 1, rate, endpoint=False) * tone(1.0, rate)


def read(path: Path) -> tuple[np.ndarray, int]:
    with open_sound(path) as sound:
        return np.concatenate(list(sound.blocks)), sound.rate


@pytest.mark.parametrize(
    ("name", "subtype", "tolerance"),
    [("a.wav", "PCM_24", 1e-6), ("a.flac", None, 1e-4), ("a.aiff", "PCM_32", 1e-6), ("a.mp3", None, 0.03)],
)
def test_formats(tmp_path: Path, name: str, subtype: str | None, tolerance: float) -> None:
    samples, rate = read(save(tmp_path / name, rising_tone(44100), 44100, subtype))
    assert rate == 44100 and samples.shape == (44100, 1)
    np.testing.assert_allclose(samples[:, 0], rising_tone(44100), atol=tolerance)


@pytest.mark.parametrize(("name", "codec"), [("a.m4a", "aac"), ("a.wv", "wavpack"), ("a.tta", "tta")])
def test_formats_that_av_reads(tmp_path: Path, name: str, codec: str) -> None:
    av = pytest.importorskip("av", reason="av, of requirements/studio.txt, is not installed")
    save(tmp_path / "a.wav", rising_tone(44100), 44100)
    with av.open(str(tmp_path / "a.wav")) as source, av.open(str(tmp_path / name), "w") as target:
        stream = target.add_stream(codec, rate=44100, layout="mono")
        for frame in source.decode(audio=0):
            target.mux(stream.encode(frame))
        target.mux(stream.encode(None))
    samples, rate = read(tmp_path / name)
    assert rate == 44100 and samples.shape[1] == 1 and abs(len(samples) - 44100) <= 2048  # whole frames of a codec
    expected = rising_tone(44100)[:40000]  # AAC ends with an edge of its own
    np.testing.assert_allclose(samples[:40000, 0], expected, atol=0.03)


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
    square = 0.99 * np.sign(rising_tone(RATE) + 1e-9)
    save(tmp_path / "a.ogg", square)
    assert np.abs(soundfile.read(tmp_path / "a.ogg", dtype="float32")[0]).max() > 1.01
    assert np.abs(read(tmp_path / "a.ogg")[0]).max() == 1.0
    with pytest.raises(DataError, match=r"a\.wav: samples up to 1\.0098, expected -1 to 1"):
        read(save(tmp_path / "a.wav", 1.02 * square, subtype="FLOAT"))


@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (48000, 6)])
def test_rates_and_channels_become_mono_at_one_rate(tmp_path: Path, rate: int, channels: int) -> None:
    noise = 0.1 * np.random.default_rng(0).standard_normal(2 * RATE)
    audio = at_rate(np.pad(noise, 11025), RATE, rate)
    path = save(tmp_path / "a.wav", np.stack([audio] * channels, axis=1), rate)
    record = cut(path, tmp_path)
    assert isinstance(record, CutRecording) and (record.rate, record.channels) == (rate, channels)
    (clip,) = record.clips
    assert clip.seconds == pytest.approx(2.2, abs=0.03)  # with a margin at either end
    assert (clip.measures.bandwidth < FaultLimits.min_bandwidth) == (rate == 8000)
    samples, written = soundfile.read(tmp_path / "clips" / f"{clip.name}.wav", always_2d=True)
    assert written == RATE and samples.shape == (pytest.approx(clip.seconds * RATE, abs=30), 1)
    bare = cut(path, tmp_path, margin=0.0)
    assert bare.clips[0].measures.snr == clip.measures.snr  # the noise is that of the pauses around a clip, too
