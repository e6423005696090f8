"""What the report says of speech before any judge listens, and what it says where nothing was made."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from common.audio.audio_processing import load_audio
from common.audio.stft import AudioConfig
from common.data.filelist import Utterance
from common.errors import DataError
from common.inference.evaluation import HeldOut, Judges, Made, describe, fewest, from_true_mels, judged, recordings
from common.inference.stages import Spoken, griffin_lim_vocoder
from common.quality.words import word_errors
from common.training.checkup import held_out, spread
from tests.recipe import ROOT

RATE = 22050
CPU = torch.device("cpu")


def spoken(*rows: tuple[list[int], int, bool]) -> Spoken:
    """Items whose attention is on one symbol a step: its places, the number of symbols, whether it stopped by itself."""
    steps, symbols = max(len(places) for places, _, _ in rows), max(count for _, count, _ in rows)
    alignments = torch.zeros(len(rows), steps, symbols)
    for i, (places, _, _) in enumerate(rows):
        alignments[i, range(len(places)), places] = 1
    lengths = torch.tensor([2 * len(places) for places, _, _ in rows])
    mels = torch.arange(float(lengths.max())).expand(len(rows), 3, -1)
    counts = torch.tensor([count for _, count, _ in rows])
    return Spoken(mels, lengths, alignments, lengths // 2, counts, [finished for _, _, finished in rows])


def test_how_a_text_was_read_is_told_item_by_item() -> None:
    read = list(range(10))
    whole, cut, lost = describe(spoken((read, 10, True), (read[:5], 10, True), ([*read, 9, 9, 9], 10, False)))
    assert (whole[0]["ran_to_limit"], whole[0]["stopped_early"]) == (0, 0)
    assert (cut[0]["ran_to_limit"], cut[0]["stopped_early"]) == (0, 1)  # 5 of 10 symbols
    assert (lost[0]["ran_to_limit"], lost[0]["stopped_early"]) == (1, 0)
    assert whole[0]["coverage"] == 1 and cut[0]["coverage"] == 0.5 and whole[0]["focus"] == 1
    assert whole[1]["mel"].shape == (3, 20) and cut[1]["mel"].shape == (3, 10)
    assert cut[1]["alignment"].shape == (10, 5)  # symbols upwards, steps to the right


def test_final_points_need_not_be_looked_at() -> None:
    (values, _), *_ = describe(spoken((list(range(7)), 10, True), (list(range(6)), 10, True)))
    assert values["stopped_early"] == 0  # the 7th of 10: the last three are a letter and points, say
    assert next(describe(spoken((list(range(6)), 10, True))))[0]["stopped_early"] == 1


def test_copy_synthesis_is_as_long_as_the_recordings_and_sounds_like_them() -> None:
    audio = AudioConfig()
    items = [HeldOut("", load_audio(ROOT / f"corpus/clock/clock_{number:04d}.ogg", RATE)) for number in (22, 50, 75)]
    made, speed = from_true_mels(items, griffin_lim_vocoder(audio, CPU, seed=0), audio, CPU, seed=0)
    assert speed > 0
    for one, item in zip(made, items):
        assert item.recording is not None
        assert abs(len(one.sound) - len(item.recording)) < 2 * audio.hop_length
        size = min(len(one.sound), len(item.recording)) // 2048 * 2048
        levels = [clip[:size].view(-1, 2048).square().mean(1).log10() for clip in (one.sound, item.recording)]
        assert torch.corrcoef(torch.stack(levels))[0, 1] > 0.95  # loud where the recording is loud


def test_lines_without_judges_keep_what_is_known_of_them() -> None:
    sound = torch.zeros(RATE)
    items = [HeldOut("One.", sound), HeldOut("Two.", None)]
    system = judged(
        "ours", items, [Made(sound[:11025], {"focus": 0.5}, {}), Made(sound, {}, {})], 2.0, Judges([]), RATE
    )
    assert [line.values for line in system.lines] == [{"focus": 0.5, "duration_ratio": 0.5}, {}]
    assert [line.text for line in system.lines] == ["One.", "Two."] and system.real_time_factor == 2.0


def test_recordings_are_asked_for_where_there_are_none() -> None:
    with pytest.raises(DataError, match=r"no recording of 'Two\.'"):
        recordings([HeldOut("Two.", None)])


def test_lines_are_spread_over_the_list() -> None:
    rows = [Utterance(str(number), "") for number in range(10)]
    assert [row.path for row in spread(rows, 3)] == ["0", "3", "6"]
    assert spread(rows, 30) == rows


def test_cached_mels_are_no_recordings() -> None:
    assert held_out(Utterance("corpus/mels/a.pt", "One."), str(ROOT), AudioConfig()) == HeldOut("One.", None)
    item = held_out(Utterance("corpus/clock/clock_0022.ogg", "One."), str(ROOT), AudioConfig())
    assert item.recording is not None and 1 < len(item.recording) / RATE < 4


def test_errors_are_counted_against_the_nearer_spelling() -> None:
    pytest.importorskip("jiwer", reason="the edit distance of requirements-eval.txt")
    item = HeldOut("5 + 7 = 12", None, "five plus seven equals twelve")
    assert fewest(word_errors, item, "Five plus seven equals twelve.").errors == 0
    assert fewest(word_errors, item, "five seven twelve") == word_errors("5 + 7 = 12", "five seven twelve")


def test_what_is_no_number_is_no_sound() -> None:
    made = Made(torch.full((RATE,), math.nan), {}, {})
    (line,) = judged("ours", [HeldOut("One.", torch.zeros(RATE))], [made], 1.0, Judges([]), RATE).lines
    assert len(line.sound) == 0 and line.values["duration_ratio"] == 0


def test_a_system_that_made_nothing_is_wrong_in_every_word() -> None:
    pytest.importorskip("moonshine_onnx", reason="the recogniser of requirements-eval.txt")
    nothing = Made(torch.zeros(0), {}, {})
    clip = HeldOut("It is noon.", load_audio(Path(ROOT, "corpus/clock/clock_0022.ogg"), RATE))
    (line,) = judged("ours", [clip], [nothing], math.nan, Judges(), RATE).lines
    assert (
        line.transcript == "" and line.counts["wer"].rate == 1 and line.values["mos"] < 2.5 and line.values["mcd"] > 5
    )
