"""What a synthesis leaves: a live stream and its readers, the record of lines, times of words, subtitles."""

import os
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from common.errors import DataError
from common.inference.outputs import (
    SUBTITLES,
    Live,
    Manifest,
    cut_cues,
    is_finished,
    read_finished,
    remove_manifests,
    timestamp,
    write_subtitles,
)
from common.inference.stages import Line, Part
from common.inference.words import Timetable, Word, word_spans
from common.spec import WordSpan
from tacotron2.spec import SPEC
from tests.recipe import succeed


def test_samples_are_written_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "sound"
    with Live(path) as live:
        live(torch.zeros(0))
        assert live.first is None
        live(torch.tensor([0.5, -1.0, 2.0]))
        assert path.read_bytes() == bytes.fromhex("00400080ff7f") and live.first is not None
        live(torch.tensor([-(2.0**-15)]))
    assert np.frombuffer(path.read_bytes(), "<i2").tolist() == [16384, -32768, 32767, -1] and not live.left
    with pytest.raises(DataError, match=f"--stream {tmp_path}: cannot be written to"):
        Live(tmp_path)
    with Live(path) as live, pytest.raises(DataError, match=r"--stream .*/sound: .* NaN or infinite"):
        live(torch.tensor([0.0, float("nan")]))


def test_a_signal_during_a_write_loses_no_samples(tmp_path: Path) -> None:
    """A write to a full pipe returns at a signal, with a part of the samples written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    interrupted = threading.Event()

    def read_after_a_signal() -> None:
        with pipe.open("rb") as file:
            interrupted.wait(60)
            received.append(file.read())

    before = signal.signal(signal.SIGALRM, lambda *_: interrupted.set())
    reader = threading.Thread(target=read_after_a_signal)
    reader.start()
    sound = torch.linspace(-1, 1, 300_000)
    try:
        with Live(pipe) as live:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            live(sound)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        reader.join()
    assert len(received[0]) == 2 * 300_000
    assert np.abs(np.frombuffer(received[0], "<i2") / 32768 - sound.numpy()).max() <= 2.0**-15


def test_a_listener_may_leave(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: pipe.open("rb").close())
    reader.start()
    with Live(pipe) as live:
        reader.join()
        live(torch.zeros(10))
        assert live.left
        live(torch.zeros(10))


def test_the_record_survives_a_torn_end_and_knows_its_files(tmp_path: Path) -> None:
    line, path = Line("Two.", 3, 0), tmp_path / "audio_0.wav"
    path.write_bytes(b"12345678")
    with Manifest(tmp_path, "", "settings", 3) as manifest:
        manifest.add(line, path)
    with (tmp_path / "inference.jsonl").open("ab") as file:
        file.write(b'{"line": 1, "fi\xff')
    with Manifest(tmp_path, "", "settings", 3) as manifest:
        manifest.add(Line("Three.", 3, 2), path)
    finished = read_finished(tmp_path, "")
    assert finished.seed == 3 and set(finished.files) == {0, 2}
    whole = (line, "audio_0.wav", "settings")
    others = [
        (line._replace(**{key: value}), *whole[1:]) for key, value in (("text", "Two"), ("seed", 4), ("number", 1))
    ]
    others += [(line, "audio_0.flac", "settings"), (line, "audio_0.wav", "others")]
    assert [is_finished(*one, finished) for one in (whole, *others)] == [True] + 5 * [False]
    assert read_finished(tmp_path, "_b") == (None, {})
    path.write_bytes(b"1234")
    assert not read_finished(tmp_path, "").files
    remove_manifests(tmp_path, "")
    assert read_finished(tmp_path, "") == (None, {})


def test_cues_fit_the_screen_and_end_with_sentences() -> None:
    words, time = [], 0.0
    for number, text in enumerate(["word"] * 40 + ["Dr.", "Who", "ends.”", "New"] + ["late"]):
        time += {42: 0.0, 43: 0.2, 44: 1.5}.get(number, 0.0)
        words.append(Word(text, time, time + 0.1))
        time += 0.1
    cues = [" ".join(word.text for word in cue) for cue in cut_cues(words)]
    assert " ".join(cues) == " ".join(word.text for word in words)
    assert cues[-3].endswith("Dr. Who ends.”") and cues[-2:] == ["New", "late"]
    assert all(len(cue) <= 85 for cue in cues) and len(cues) == 5
    assert [len(cue) for cue in cut_cues([Word("a", i, i + 1) for i in range(15)])] == [7, 7, 1]


def read(path: Path) -> list[tuple[str, float, float]]:
    av = pytest.importorskip("av", reason="av, of requirements/serving.txt, is not installed")
    with av.open(str(path)) as file:
        packets = [packet for packet in file.demux() if packet.size]
        scale = float(packets[0].time_base)
        return [(bytes(one).decode(), one.pts * scale, (one.pts + one.duration) * scale) for one in packets]


@pytest.mark.parametrize("kind", SUBTITLES)
def test_other_programs_read_the_subtitles(tmp_path: Path, kind: str) -> None:
    words = [Word("Fish", 0.0, 0.5), Word("&", 0.5, 0.6), Word("<chips>.", 0.75, 1.0), Word("Yes", 3723.5, 3724.0)]
    path = tmp_path / f"a.{kind[:3]}"
    write_subtitles(path, words, kind)
    sign = "." if kind.startswith("vtt") else ","
    assert timestamp(1.001, sign == ".") == f"00:00:01{sign}001"  # a product of 1000.99… ms
    assert timestamp(59.9999, sign == ".") == f"00:00:59{sign}999"
    cues = [[word] for word in words] if kind.endswith("-words") else [words[:3], words[3:]]
    texts = [" ".join(word.text for word in cue) for cue in cues]
    if kind.startswith("vtt"):
        texts = [text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;") for text in texts]
    assert read(path) == [(text, cue[0].start, cue[-1].end) for text, cue in zip(texts, cues, strict=True)]


@pytest.mark.slow
def test_subtitles_of_the_command_are_those_of_its_sound(tmp_path: Path) -> None:
    text = "It is half past 9, Dr. Who! Is it late?"
    (tmp_path / "phrases.txt").write_text(f"{text}\nTwo.\n")
    flags = ["-i", tmp_path / "phrases.txt", "--cpu", "--seed", 0, "--longest-piece", 30, "--no-alignments"]
    for name, more in (("whole", []), ("live", ["--stream", tmp_path / "sound"])):
        succeed("inference.py", *flags, "-o", tmp_path / name, "--subtitles", "srt-words", *more)
    cues = read(tmp_path / "whole" / "audio_0.srt")
    assert [cue[0] for cue in cues] == text.split() and read(tmp_path / "live" / "audio_0.srt") == cues
    rate, samples = wavfile.read(tmp_path / "whole" / "audio_0.wav")
    edges = np.array([time for _, *times in cues for time in times])
    assert (np.diff(edges) >= 0).all() and edges[0] >= 0 and edges[-1] <= len(samples) / rate
    loud = [np.abs(samples[int(start * rate) : int(end * rate)]).max() for _, start, end in cues]
    assert min(loud) > 0.05 * np.abs(samples).max()
    zeros = np.flatnonzero(np.diff(np.pad((samples == 0).astype(int), 1))).reshape(-1, 2)
    begin, end = max(zeros.tolist(), key=lambda run: run[1] - run[0])
    assert end - begin >= rate // 4
    before, after = edges < begin / rate + 1e-3, edges > end / rate - 1e-3  # in whole milliseconds
    assert (before | after).all() and before.sum() == 2 * 7
    assert [text for text, *_ in read(tmp_path / "whole" / "audio_1.srt")] == ["Two."]


OPTIONS = {"text_cleaners": ["english_cleaners"]}


def spell(text: str) -> list[str]:
    return SPEC.inference.spell(text, OPTIONS)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("attended", "finished", "spans"),
    [
        ([0, 0, 1, 2, 3, 3, 4, 5, 5, 6, 6, 7, 7], True, [("go", 0, 3), ("on", 4, 7), ("@HH", 11, 13)]),
        ([0, 1, 7, 2, 3, 4, 5, 6, 7], True, [("go", 0, 3), ("on", 4, 6), ("@HH", 8, 9)]),  # a glance ahead
        ([0, 0, 1, 2, 3, 4, 4, 4], True, [("go", 0, 3), ("on", 4, 7), ("@HH", 7, 8)]),  # no step for the last word
        ([0, 0, 1, 2, 3, 4, 4, 4], False, [("go", 0, 3), ("on", 4, 8)]),  # cut off before it
    ],
)
def test_words_are_in_order_and_between_them_is_silence(attended: list[int], finished: bool, spans: list) -> None:
    symbols = [*"go on, ", "@HH", "."]
    alignment = torch.full((len(attended), len(symbols)), 0.01)
    alignment[range(len(attended)), attended] = 0.9
    wanted = [WordSpan(word.removeprefix("@"), *span) for word, *span in spans]
    assert word_spans(alignment, symbols, finished) == wanted
    assert word_spans(alignment[:0], symbols) == word_spans(alignment, [" ", "."]) == []


# Written, pieces as read, and the place in the text of each written word with the number of words it is read as.
READINGS = [
    ("Dr. Smith paid $5 - now.", ["doctor smith paid five dollars", "now."], "Dr. Smith paid $5 $5 now."),
    ("$5 million?", ["five million dollars?"], "$5 million? million?"),
    ("In 1995, No. 7", ["in nineteen ninety-five, number seven"], "In 1995, 1995, No. 7"),
    ("say {HH AH0 L OW1} {", ["say {HH AH0 L OW1}"], "say {HH AH0 L OW1}"),
    ("a 1,200 b", ["a one thousand", "two hundred b"], "a 1,200 1,200 1,200 1,200 b"),
    ("a 1,200 b", ["a one thousand two", "hundred b"], "a 1,200 1,200 1,200 1,200 b"),
    ("...", ["..."], ""),
]


@pytest.mark.parametrize(("text", "pieces", "owners"), READINGS)
def test_times_are_those_of_written_words(text: str, pieces: list[str], owners: str) -> None:
    symbols = [spell(piece) for piece in pieces]
    table, found, start = Timetable(text, pieces, spell), [], 0.0
    for own in symbols:
        words = table.add(Part("", len(own), len(own), start, len(own), True), torch.eye(len(own)))
        assert all(start < word.end <= start + len(own) for word in words)
        found += words
        start += len(own) + 0.5
    texts = list(dict.fromkeys(owners.replace("{HH AH0 L OW1}", "{HH_AH0_L_OW1}").split()))
    assert [word.text for word in found] == [text.replace("_", " ") for text in texts]
    times = [time for word in found for time in word[1:]]
    assert times == sorted(times)
    if len(pieces) == 2 and text.startswith("a"):  # the number is said in both pieces
        first = len(spell(pieces[0]))
        assert found[1].start == 2.0 and found[1].end > first + 0.5
    cut_off = Timetable("go on", ["go on"], spell).add(Part("", 2, 2, 0.0, 2.0, False), torch.eye(5)[:2])
    assert [word.text for word in cut_off] == ["go"]
