"""Recordings of any name, format, rate and channels, and where they are cut, against sounds and pauses of known times."""

import os
import random
from collections.abc import Sequence
from itertools import accumulate, combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile

from common.audio.audio_processing import at_rate
from common.data.sources import drop_copies, find_sources
from studio.prepare import cutting
from studio.prepare.alignment import find_longest_pauses
from studio.prepare.arguments import CuttingConfig, FaultLimits
from studio.prepare.clips import CutRecording, UnwritableError, read_spans
from studio.prepare.cutting import Span, Unit, join_sentences, parts_of, share_texts, units_of, units_of_cues
from studio.prepare.levels import SoundLevels, TimeSpan, find_sounds, measure_levels, open_sound, sounds_of_mask
from studio.prepare.transcripts import Cue
from tests.recipe import largest_file
from tests.sounds import RATE, save, tone
from tests.studio.projects import cut

FRAME = 0.0101  # seconds; times are known to a frame


def talk(path: Path, parts: Sequence[tuple[float, float]], rate: int = 16000, noise: float = 1e-4) -> list[TimeSpan]:
    """Write bursts of noise, syllables of 4 Hz, as (seconds of sound, seconds of pause after it); return their times."""
    generator = np.random.default_rng(1)
    lengths = [round(seconds * rate) for pair in ((0.5, 0.0), *parts) for seconds in pair]
    edges = [0, *accumulate(lengths)]
    audio = noise * generator.standard_normal(edges[-1])
    times = []
    for start, end in zip(edges[2::2], edges[3::2], strict=False):
        sound = np.arange(end - start) / rate
        audio[start:end] += 0.2 * generator.standard_normal(end - start) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * sound))
        times.append(TimeSpan(start / rate, end / rate))
    soundfile.write(path, audio.clip(-1, 1), rate)
    return times


def spans_of(
    levels: SoundLevels, config: CuttingConfig, cues: Sequence[Cue] = (), is_one_clip: bool = False
) -> list[Span]:
    return cutting.spans_of(units_of(levels, config, cues, is_one_clip), levels.seconds, config)


@pytest.mark.parametrize(("rate", "noise"), [(22050, 1e-4), (8000, 0.0), (16000, 2e-2)])
def test_sounds_have_their_times_at_every_rate_and_in_noise(tmp_path: Path, rate: int, noise: float) -> None:
    """22,050 Hz has no whole number of samples in a hundredth of a second: times must not drift."""
    parts = [(1.0 + number % 3, 0.3 + 0.1 * (number % 4)) for number in range(40)]
    times = talk(tmp_path / "talk.wav", parts, rate, noise)
    levels = measure_levels(tmp_path / "talk.wav")
    sounds = find_sounds(levels, 0.2)
    assert len(sounds) == len(times)
    np.testing.assert_allclose(np.array(sounds), np.array(times), atol=(2 if noise == 1e-4 else 4) * FRAME)


def test_clicks_are_no_sounds_and_short_pauses_divide_none() -> None:
    """At frames of 10 ms: sounds of more than 50 ms, between pauses of at least 200 ms."""

    def sounds(*lengths: int) -> list[tuple[int, int]]:
        mask = np.concatenate([np.full(length, bool(place % 2)) for place, length in enumerate(lengths)])
        return [(round(100 * start), round(100 * end)) for start, end in sounds_of_mask(mask, 0.01, 0.2)]

    assert sounds(30, 4, 30) == [] and sounds(30, 6, 30) == [(30, 36)]
    assert sounds(10, 50, 20, 50) == [(10, 60), (80, 130)]
    assert sounds(10, 50, 19, 50, 10) == [(10, 129)]
    assert sounds(10, 50, 15, 3, 15, 50) == [(10, 143)]  # pauses around a click are too short here


def test_clips_have_allowed_lengths_and_all_of_the_speech(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    parts = [(float(a), float(b)) for a, b in generator.uniform([0.4, 0.25], [5.0, 1.2], (100, 2))]
    times = talk(tmp_path / "talk.wav", parts, 8000)
    config = CuttingConfig()
    spans = spans_of(measure_levels(tmp_path / "talk.wav"), config)
    assert all(one.end <= other.start for one, other in pairwise(spans))
    assert max(span.length for span in spans) <= config.max_duration
    assert not any(span.in_speech for span in spans)
    for start, end in times:  # no sound is divided, none is lost
        assert any(span.start - FRAME <= start and end <= span.end + FRAME for span in spans)


def test_a_clip_keeps_the_margin_or_what_silence_there_is() -> None:
    """At the ends of a recording all of a shorter silence, between two clips half of a shorter pause each."""
    units = [Unit(0.06, 2.0), Unit(2.15, 4.0), Unit(5.0, 7.0)]
    spans = parts_of(units, 7.05, CuttingConfig(margin=0.1))
    assert [span.start for span in spans] == pytest.approx([0.0, 2.075, 4.9])
    assert [span.end for span in spans] == pytest.approx([2.075, 4.1, 7.05])


def test_speech_without_a_pause_is_divided_and_marked(tmp_path: Path) -> None:
    ((start, end),) = talk(tmp_path / "talk.wav", [(30.0, 1.0)])
    spans = spans_of(measure_levels(tmp_path / "talk.wav"), CuttingConfig())
    assert len(spans) >= 3
    assert all(span.in_speech and span.length <= 11.0 for span in spans)
    assert sum(span.length for span in spans) == pytest.approx(end - start + 0.2, abs=4 * FRAME)


def test_a_recording_with_one_text_stays_whole_and_silence_has_no_sounds(tmp_path: Path) -> None:
    talk(tmp_path / "talk.wav", [(1.0, 1.5), (1.0, 0.15), (0.8, 1.5), (1.0, 1.0)])
    levels = measure_levels(tmp_path / "talk.wav")
    assert [len(spans_of(levels, CuttingConfig(), is_one_clip=is_one)) for is_one in (True, False)] == [1, 3]
    for shortest, margin, parts in ((0.2, 0.1, 3), (0.12, 0.3, 4)):  # the pause of 0.15 s lies between both settings
        assert len(units_of(levels, CuttingConfig(min_pause=shortest, margin=margin))) == parts
    levels = SoundLevels(16000, 1, 160000, np.full(1000, -100.0, np.float32))
    assert spans_of(levels, CuttingConfig()) == []


def clips_of_text(lengths: list[float], pauses: list[float], transcript: str, words: list[str]) -> list[str]:
    """Return the recognised words of the clips for units of speech with these lengths, pauses after them and words."""
    pytest.importorskip("rapidfuzz", reason="RapidFuzz, of requirements/eval.txt, is not installed")
    config, position, units = CuttingConfig(), 0.5, []
    for length, pause, text in zip(lengths, pauses, words, strict=True):
        units.append(Unit(position, position + length, text))
        position += length + pause
    units = join_sentences(units, find_longest_pauses(transcript, words), config)
    spans = cutting.spans_of(units, position, config)
    assert all(config.min_duration <= span.length <= config.max_duration for span in spans)
    return [span.text for span in spans]


def test_cuts_go_to_sentence_ends_though_pauses_at_commas_are_longer() -> None:
    transcript = "When the rain stopped, the children ran out. They found, in the barn, a very old cart. Whose was it?"
    words = ["when the rain stopped", "the children ran out", "they found", "in the born", "a very old card"]
    words.append("whose was it")
    clips = clips_of_text([3.5, 3.5, 2.0, 2.0, 4.0, 2.0], [0.55, 0.3, 0.55, 0.55, 0.3, 0.3], transcript, words)
    assert clips == [" ".join(words[:2]), " ".join(words[2:5]), words[5]]


def test_a_long_sentence_is_cut_once_at_its_largest_pause_or_an_interruption() -> None:
    transcript = "We went up the hill, past the mill, over the bridge, through the wood, and down to the sea. We ate."
    words = ["we went up the hill", "past the mill", "over the bridge", "through the wood", "and down to the sea"]
    clips = clips_of_text([2.4] * 5 + [6.0], [0.3, 0.3, 0.7, 0.3, 0.3, 0.3], transcript, [*words, "we ate"])
    assert clips == [" ".join(words[:3]), " ".join(words[3:]), "we ate"]
    words = ["we went up the hill", "past the old mill", "sorry again once more", "past the old mill", "there we ate"]
    transcript = "We went up the hill, past the old mill. There we ate."
    assert clips_of_text([3.0] * 5, [4.0, 0.3, 0.7, 0.3, 0.3], transcript, words)[0] == words[0]  # a pause of 4 s


def test_subtitles_decide_the_cuts_and_pauses_their_times(tmp_path: Path) -> None:
    """Subtitles are 0.3 s off; sentence ends are preferred to longer pauses."""
    times = talk(tmp_path / "talk.wav", [(5.0, 0.4), (3.0, 0.9), (3.0, 0.4), (5.0, 0.9)])
    texts = ["The first sentence.", "The second begins", "and ends here.", "The third."]
    cues = [Cue(start + 0.3, end - 0.2, text) for (start, end), text in zip(times, texts, strict=True)]
    spans = spans_of(measure_levels(tmp_path / "talk.wav"), CuttingConfig(), cues)
    assert [span.text for span in spans] == ["The first sentence.", "The second begins and ends here.", "The third."]
    assert spans[1].start == pytest.approx(times[1][0] - 0.1, abs=2 * FRAME)
    assert spans[1].end == pytest.approx(times[2][1] + 0.1, abs=2 * FRAME)


@pytest.mark.parametrize(("late", "past"), [(0.0, 0.0), (0.3, 0.4), (-0.3, 0.0)])
def test_subtitles_that_touch_or_overlap_are_cut_at_the_pause_before_the_next(tmp_path: Path, late, past) -> None:
    """Each ends where the next begins, or later, and there is a pause of up to 1.5 s in between."""
    times = talk(tmp_path / "talk.wav", [(3.0, 0.7), (4.0, 1.5), (3.5, 0.3), (5.0, 0.9)] * 3)
    starts = [max(0.0, start + late) for start, _ in times]
    ends = [start + past for start in [*starts[1:], times[-1][1]]]
    cues = [Cue(start, end, f"Sentence {n}.") for n, (start, end) in enumerate(zip(starts, ends, strict=True))]
    units = units_of_cues(cues, times, times[-1].end + 0.9)
    assert [(unit.start, unit.end) for unit in units] == times
    assert [unit.text for unit in units] == [cue.text for cue in cues]
    spans = spans_of(measure_levels(tmp_path / "talk.wav"), CuttingConfig(), cues)
    assert all(span.length <= 11.0 and not span.in_speech for span in spans)
    assert " ".join(span.text for span in spans) == " ".join(cue.text for cue in cues)


def test_speech_without_a_subtitle_is_in_no_clip() -> None:
    sounds = [TimeSpan(0.5, 3.0), TimeSpan(3.4, 6.0), TimeSpan(6.4, 9.0), TimeSpan(9.4, 12.0)]
    cues = [Cue(0.5, 3.0, "One."), Cue(6.4, 7.0, "Three,"), Cue(7.0, 9.2, "going on."), Cue(9.4, 9.9, "Four")]
    cues.append(Cue(40, 41, "x"))
    units = units_of_cues(cues, sounds, 12.5)
    assert [(u.start, u.end, u.text, u.is_last, u.is_forced) for u in units] == [
        (0.5, 3.0, "One.", True, False),  # what follows has no text
        (6.4, 9.0, "Three, going on.", False, False),  # no pause within the sentence
        (9.4, 9.9, "Four", False, True),  # speech goes on for 2 s
    ]
    spans = cutting.spans_of(units, 12.5, CuttingConfig())
    assert not any(span.start < 5 < span.end for span in spans)


def test_a_subtitle_too_long_for_a_clip_is_divided_by_the_words_of_its_parts(tmp_path: Path) -> None:
    pytest.importorskip("rapidfuzz", reason="RapidFuzz, of requirements/eval.txt, is not installed")
    times = talk(tmp_path / "talk.wav", [(3.0, 0.5)] * 5)
    words = ["we went up the hill", "passed the old mill", "noise", "there we ate", "and slept well"]
    text = "We went up the hill, past the old mill. There we ate. And slept well."
    levels = measure_levels(tmp_path / "talk.wav")
    cues = [Cue(times[0][0], times[-1][1], text)]
    (whole,) = units_of(levels, CuttingConfig(), cues)
    assert whole.text == text  # without words
    parts = units_of(levels, CuttingConfig(), cues, has_words=True)
    assert len(parts) == 5 and {part.shared for part in parts} == {0}
    units = share_texts(parts, words)
    sentences = "We went up the hill, | past the old mill. | There we ate. | And slept well."
    assert " | ".join(unit.text for unit in units) == sentences
    assert [unit.is_last for unit in units] == [False, True, False, False]  # "noise" has no text
    spans = cutting.spans_of(units, levels.seconds, CuttingConfig())
    assert [span.text for span in spans] == ["We went up the hill, past the old mill.", "There we ate. And slept well."]


def test_the_division_has_the_lowest_cost_of_all() -> None:
    """Dynamic programming against every possible division."""
    generator = np.random.default_rng(3)
    config = CuttingConfig()
    for _ in range(20):
        edges = np.cumsum(generator.uniform(0.2, 3.0, 16))
        units = [Unit(float(start), float(end)) for start, end in edges.reshape(-1, 2)]
        n = len(units)
        divisions = [(0, *cuts, n) for k in range(n) for cuts in combinations(range(1, n), k)]
        costs = [sum(cutting.clip_cost(units, *clip, config) for clip in pairwise(clips)) for clips in divisions]
        found = sum(cutting.clip_cost(units, *clip, config) for clip in cutting.group(units, config))
        assert found == pytest.approx(min(costs))


def test_spans_are_the_samples_of_the_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("studio.prepare.levels.BLOCK", 1000)
    audio = np.random.default_rng(4).uniform(-0.5, 0.5, (50000, 2)).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", audio, 8000, subtype="FLOAT")
    spans = [Span(0.0, 0.5, "", False), Span(0.5, 2.0, "", False), Span(5.0, 6.25, "", False)]
    for span, samples in zip(spans, read_spans(tmp_path / "a.wav", 8000, spans), strict=True):
        np.testing.assert_array_equal(samples, audio[round(span.start * 8000) : round(span.end * 8000)])


def test_a_clip_that_cannot_be_written_is_no_fault_of_its_recording(tmp_path: Path) -> None:
    """A full disk would else leave recordings out, and a run with the others would go on."""
    talk(tmp_path / "talk.wav", [(2.0, 0.5)])
    (tmp_path / "broken.wav").write_text("no audio")
    problem = cut(tmp_path / "broken.wav", tmp_path)
    assert isinstance(problem, str) and problem.startswith(f"{tmp_path}/broken.wav: ")
    with largest_file(1000), pytest.raises(UnwritableError, match=r"talk\.wav: cannot be written \(File too large"):
        cut(tmp_path / "talk.wav", tmp_path)


def test_names_of_clips_are_unique_and_ascii_and_unreadable_files_are_named(tmp_path: Path, monkeypatch) -> None:
    names = ["a b.wav", "a_b.wav", "A-B.flac", "über/日本.wav", "日本.mp3", "c.wav", "c.ogg"]
    names += [".hidden.wav", "notes.txt", *(f"{'long' * 25}{end}.wav" for end in "ab")]
    random.Random(0).shuffle(names)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    listing = find_sources(tmp_path)
    slugs = [source.slug.lower() for source in listing.sources]
    assert len(slugs) == len(set(slugs)) == 9
    assert all(slug.isascii() and "/" not in slug for slug in slugs)
    assert [file.name for file in listing.others] == ["notes.txt"]
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "c.wav" and mode == os.R_OK)
    assert find_sources(tmp_path).problems == [f"{tmp_path}/c.wav: cannot be read (Permission denied)"]


def rising_tone(rate: int) -> np.ndarray:
    """A second whose loudness rises, so that an offset in time shows."""
    return np.linspace(0, 1, rate, endpoint=False) * tone(1.0, rate)


def read(path: Path) -> tuple[np.ndarray, int]:
    with open_sound(path) as sound:
        return np.concatenate(list(sound.blocks)), sound.rate


@pytest.mark.parametrize(
    ("name", "subtype", "tolerance"), [("a.wav", "PCM_24", 1e-6), ("a.aiff", "PCM_32", 1e-6), ("a.mp3", None, 0.03)]
)
def test_formats(tmp_path: Path, name: str, subtype: str | None, tolerance: float) -> None:
    samples, rate = read(save(tmp_path / name, rising_tone(44100), 44100, subtype))
    assert rate == 44100 and samples.shape == (44100, 1)
    np.testing.assert_allclose(samples[:, 0], rising_tone(44100), atol=tolerance)


@pytest.mark.parametrize(("name", "codec"), [("a.m4a", "aac"), ("a.tta", "tta")])
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
