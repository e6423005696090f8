"""Measurements of clips against signals of known levels, and surveys of filelists."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import soundfile
from scipy import signal, stats

from common.data import clip_report
from common.data.clip_report import Clip, Header, ListedClip, Place
from common.data.corpus_report import plot_clips
from common.errors import DataError

RATE = 22050


def tone(seconds: float, amplitude: float = 0.5, rate: int = RATE) -> np.ndarray:
    """A whole number of periods, so that its mean square is exactly half of its amplitude's."""
    time = np.arange(round(seconds * rate)) / rate
    return (amplitude * np.sin(2 * np.pi * 490 * time)).astype(np.float32)


def clip(path: str, text: str, seconds: float, amplitude: float = 0.5, filelist: str = "a.txt") -> Clip:
    return Clip(ListedClip(Place(filelist, 1), path, text, path), clip_report.measure(tone(seconds, amplitude), RATE))


@pytest.mark.parametrize("amplitude", [0.5, 0.01])
def test_levels_of_a_sine_a_full_square_wave_and_zeros(amplitude: float) -> None:
    sound = clip_report.measure(tone(1.0, amplitude), RATE)
    assert sound.duration == 1.0
    assert sound.rms == pytest.approx(20 * np.log10(amplitude) - 10 * np.log10(2), abs=1e-4)
    assert sound.peak == pytest.approx(20 * np.log10(amplitude), abs=0.01)
    square = signal.square(2 * np.pi * 50 * np.arange(RATE) / RATE).astype(np.float32)
    assert clip_report.measure(square, RATE)[1:3] == pytest.approx((0.0, 0.0), abs=0.1)  # periods are cut
    for offset in (0, 0.005):
        nothing = clip_report.measure(np.full(RATE, offset, np.float32), RATE)
        assert (nothing.rms, nothing.peak, nothing.clipped_runs) == (-np.inf, -np.inf, 0)
        assert (nothing.leading_silence, nothing.trailing_silence) == (1.0, 1.0)
        moved = clip_report.measure(0.5 * square + np.float32(offset), RATE)
        assert (moved.rms, moved.peak) == pytest.approx((clip_report.measure(0.5 * square, RATE)[1:3]), abs=1e-4)


@pytest.mark.parametrize(
    ("floor_db", "leading", "trailing"),
    [(-np.inf, 0.25, 0.4), (-46.0, 0.25, 0.4), (-34.0, 0.0, 0.0)],
    ids=["zeros", "noise below", "noise above"],
)
@pytest.mark.parametrize("level", [1.0, 0.01])
def test_silence_at_the_ends(floor_db: float, leading: float, trailing: float, level: float) -> None:
    """Noise of a known level, relative to the tone's RMS, around a tone: at 40 dB below it becomes silence."""
    noise = np.random.default_rng(0).normal(0, 0.5 / np.sqrt(2) * 10 ** (floor_db / 20), round(1.65 * RATE))
    noise[round(0.25 * RATE) : round(1.25 * RATE)] = tone(1.0)[: round(1.25 * RATE) - round(0.25 * RATE)]
    found = clip_report.end_silences((level * noise).astype(np.float32), RATE)
    assert found == pytest.approx((leading, trailing), abs=0.011)  # a frame of 10 ms


def test_runs_at_full_scale() -> None:
    samples = (np.random.default_rng(1).choice([0.2, 32767 / 32768, 32766 / 32768, -1.0], 5000)).astype(np.float32)
    at_limit = [abs(sample) >= 32767 / 32768 for sample in samples.tolist()]
    lengths = [len(list(run)) for value, run in itertools.groupby(at_limit) if value]
    wanted = [length for length in lengths if length >= 3]
    assert len(wanted) > 100
    assert clip_report.clipped_runs(samples).tolist() == wanted
    sound = clip_report.measure(samples, RATE)
    assert (sound.clipped_runs, sound.longest_run) == (len(wanted), max(wanted))
    assert clip_report.clipped_runs(np.ones(7, np.float32)).tolist() == [7]
    assert clip_report.clipped_runs(tone(0.1, 0.999)).tolist() == []
    assert clip_report.end_silences(np.array([0.5, -0.5], np.float32), RATE) == (0.0, 0.0)  # shorter than a frame


def test_an_overdriven_sine_in_a_file(tmp_path: Path) -> None:
    """490 Hz at twice full scale is over it for two thirds of each half period: two runs of 15 samples a period."""
    soundfile.write(tmp_path / "a.wav", tone(0.1, 2.0).clip(-1, 1), RATE, subtype="PCM_16")
    header, sound = clip_report.measure_file(str(tmp_path / "a.wav"), RATE)
    assert header == Header(RATE, 1, "WAV PCM_16")
    assert not isinstance(sound, str)
    assert (sound.clipped_runs, sound.longest_run, sound.peak) == (98, 15, pytest.approx(0, abs=3e-4))


def test_the_same_samples_in_other_files(tmp_path: Path) -> None:
    samples = np.round(tone(0.2) * 32768).astype(np.int16)
    names = ["a.wav", "b.flac", "c.wav", "a.wav"]
    for name, data in (("a.wav", samples), ("b.flac", samples), ("c.wav", samples[::-1])):
        soundfile.write(tmp_path / name, data, RATE, subtype="PCM_16")
    clips = []
    for line, name in enumerate(names, 1):
        _, sound = clip_report.measure_file(str(tmp_path / name), RATE)
        assert not isinstance(sound, str)
        clips.append(Clip(ListedClip(Place("x", line), name, "One." if name == "c.wav" else name, name), sound))
    assert [[c.row.place.line for c in group] for group in clip_report.group_same_audio(clips)] == [[1, 2, 4]]
    assert [[c.row.place.line for c in group] for group in clip_report.group_by(clips, lambda c: c.row.file)] == [
        [1, 4]
    ]
    assert clip_report.group_same_audio([clips[0], clips[3]]) == []  # one file named twice is a repetition of its path


@pytest.mark.parametrize("name", ["gone.wav", "junk.wav", "headerless.raw", "stereo.wav", "rate.wav", "cut.wav"])
def test_files_that_cannot_be_used(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name in ("junk.wav", "headerless.raw"):
        path.write_bytes(b"nope" * 50)
    elif name != "gone.wav":
        data = np.stack([tone(0.2)] * 2, 1) if name == "stereo.wav" else tone(0.2)
        soundfile.write(path, data, 16000 if name == "rate.wav" else RATE)
    if name == "cut.wav":
        path.write_bytes(path.read_bytes()[:4000])
    header, problem = clip_report.measure_file(str(path), RATE)
    wanted = {
        "gone.wav": (None, "no such audio file"),
        "junk.wav": (None, "not an audio file"),
        "headerless.raw": (None, "one without a header"),
        "stereo.wav": (Header(RATE, 2, "WAV PCM_16"), "2 channels, expected mono"),
        "rate.wav": (Header(16000, 1, "WAV PCM_16"), "16000 Hz, expected 22050 Hz"),
    }
    expected, words = wanted.get(name, (header, "cut short"))
    assert header == expected
    assert isinstance(problem, str)
    assert problem.startswith(f"{path}: ")
    assert words in problem


def test_outliers_are_those_beyond_5_deviations() -> None:
    values = np.random.default_rng(2).standard_t(2, 500) + 7
    found = clip_report.outliers(values)
    distances = np.abs(values - np.median(values)) / stats.median_abs_deviation(values)
    np.testing.assert_allclose(found.deviations, distances)
    wanted = np.flatnonzero(distances > 5)
    assert 5 < len(wanted) < 100
    assert found.indices == sorted(wanted, key=lambda i: -distances[i])
    without_deviation = np.array([2.0, 2.0, 2.0, 9.0, 1.0])
    assert clip_report.outliers(without_deviation).indices == [3, 4]  # all that differs, worst first
    assert clip_report.outliers(np.array([3.0])).indices == []


def test_far_values_are_moved_into_view() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 100.0, -np.inf])
    values_in_view, moved = clip_report.move_into_view(values)  # of the finite ones: median 3.5, deviation 1.5
    np.testing.assert_allclose(values_in_view, [1, 2, 3, 4, 5, 3.5 + 8 * 1.5])
    assert moved == 1
    equal_but_one = np.array([2.0] * 9 + [7.0])  # a deviation of 0 says nothing of what is far
    values_in_view, moved = clip_report.move_into_view(equal_but_one)
    assert (values_in_view.tolist(), moved) == (equal_but_one.tolist(), 0)
    values_in_view, moved = clip_report.move_into_view(np.array([1.0, 2.0, 3.0, 16.0]))
    assert (values_in_view.tolist(), moved) == ([1, 2, 3, 16], 0)  # cutting at 10.5 would not halve the range


def test_rows_and_problems_of_a_list_and_a_list_of_mels(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_bytes(b"w/../a.wav|One.\nno bar\nb.wav|\nc.wav|caf\xe9\nd.wav|Two\n")
    rows, problems = clip_report.read_rows(path, tmp_path)
    assert [(row.place.line, row.path, row.text, row.file) for row in rows] == [
        (1, "w/../a.wav", "One.", f"{tmp_path}/a.wav"),
        (5, "d.wav", "Two", f"{tmp_path}/d.wav"),
    ]
    assert [str(place) for place, _ in problems] == [f"{path}:2", f"{path}:3", f"{path}:4"]
    assert ["0 '|'" in problems[0][1], "no text" in problems[1][1], "UTF-8" in problems[2][1]] == [True] * 3
    with pytest.raises(DataError, match="no such file"):
        clip_report.read_rows(tmp_path / "gone.txt", tmp_path)
    mels, audio = tmp_path / "x_mel_text.txt", tmp_path / "x_audio_text.txt"
    mels.write_text("a.pt|One.\nb.pt|Two.\n")
    with pytest.raises(DataError) as error:
        clip_report.read_rows(mels, tmp_path)
    assert str(error.value) == f"{mels}: its rows name mels (.pt), expected audio files: pass the audio list"
    audio.write_text("a.wav|One.\n")
    with pytest.raises(DataError, match=rf"pass the audio list, here {audio}$"):
        clip_report.read_rows(mels, tmp_path)


def no_dashes(rows: Sequence[ListedClip], samples: Sequence[int | None]) -> dict[int, str]:
    assert [known for known in samples if known] == [RATE // 2] * 4  # of the readable clips
    return {number: "a dash" for number, row in enumerate(rows) if row.text == "—"}


def test_problems_are_in_the_lists_order(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(0.5), RATE)
    for name in ("z.txt", "y.txt"):
        (tmp_path / name).write_text("gone.wav|One.\na.wav|Two words.\nno bar\na.wav|—\ngone.wav|—\n")
    found = clip_report.survey([tmp_path / "z.txt", tmp_path / "y.txt"], tmp_path, RATE, no_dashes, workers=1)
    assert [str(place) for place, _ in found.problems] == [
        f"{tmp_path}/{name}:{line}" for name in ("z.txt", "y.txt") for line in (1, 3, 4, 5)
    ]
    assert [(c.row.place.line, c.characters, c.words, c.pace) for c in found.clips] == [(2, 10, 2, 20.0)] * 2
    assert found.headers == [Header(RATE, 1, "WAV PCM_16")] * 4


def test_the_picture_shows_every_clip() -> None:
    clips = [clip(f"{i}.wav", "x" * (10 + i % 7), 0.5 + 0.02 * (i % 11), 0.1 + 0.01 * i) for i in range(40)]
    clips += [clip("far.wav", "x" * 12, 9.0), clip("silent.wav", "x" * 12, 0.6, amplitude=0.0)]
    figure = plot_clips(clips, "costs $5 and $6")
    panels = {axes.get_title(): axes for axes in figure.axes}
    for title in ("duration (s)", "characters a second"):
        assert sum(bar.get_height() for bar in panels[title].patches) == 42
    assert sum(bar.get_height() for bar in panels["level (dBFS)"].patches if hasattr(bar, "get_height")) == 41
    dots, of_duration, of_pace = panels["duration against characters"].collections[-3:]
    np.testing.assert_allclose(dots.get_offsets()[:, 0], [c.sound.duration for c in clips])
    np.testing.assert_allclose(dots.get_offsets()[:, 1], [c.characters for c in clips])
    np.testing.assert_allclose(of_duration.get_offsets(), [[9.0, 12]])
    assert [9.0, 12.0] in of_pace.get_offsets().tolist()


def test_lines_of_the_picture_are_at_the_median_and_5_deviations_from_it() -> None:
    seconds = [*(1.0 + 0.1 * number for number in range(11)), 4.0]
    figure = plot_clips([clip(f"{i}.wav", "x" * 12, duration) for i, duration in enumerate(seconds)], "far")
    panel = next(axes for axes in figure.axes if axes.get_title() == "duration (s)")
    found = np.array([clip("", "", duration).sound.duration for duration in seconds])
    middle, deviation = np.median(found), stats.median_abs_deviation(found)
    lines = [line.get_xdata()[0] for line in panel.get_lines()]
    np.testing.assert_allclose(lines, [middle, middle + 5 * deviation])
    for amplitude in (0.5, 0.0):
        figure = plot_clips([clip("a.wav", "One.", 0.5, amplitude)], "one")
        (bar,) = [bar for bar in figure.axes[0].patches if bar.get_height()]
        assert bar.get_x() <= 0.5 <= bar.get_x() + bar.get_width()
