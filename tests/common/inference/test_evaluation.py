"""Measures of a report, and the renditions that it measures."""

import math
import time

import pytest
import torch
from torch import Tensor

from common.audio.audio_processing import load_audio
from common.audio.stft import AudioConfig
from common.data.filelist import Utterance
from common.draws import Draws
from common.errors import DataError
from common.inference.evaluation import (
    BATCH,
    Evaluators,
    HeldOutLine,
    Rendition,
    describe_items,
    evaluate_system,
    fewest_errors,
    recordings,
    renditions_from_texts,
    renditions_from_true_mels,
)
from common.inference.stages import MelBatch
from common.inference.vocoders import LoadedModel, Vocoder, griffin_lim_of
from common.quality.words import word_errors
from common.training.checkup import make_held_out_line, spread
from models import REGISTRY
from tests.common.inference.test_stages import Outputs, Reader, acoustic
from tests.recipe import ROOT, skip_without_evaluators

RATE = 22050
CPU = torch.device("cpu")


def mel_batch(*rows: tuple[list[int], int, bool]) -> MelBatch:
    """Items whose attention is on one symbol a step: its places, the number of symbols, whether it stopped by itself."""
    steps, symbols = max(len(places) for places, _, _ in rows), max(count for _, count, _ in rows)
    alignments = torch.zeros(len(rows), steps, symbols)
    for i, (places, _, _) in enumerate(rows):
        alignments[i, range(len(places)), places] = 1
    lengths = torch.tensor([2 * len(places) for places, _, _ in rows])
    mels = torch.arange(float(lengths.max())).expand(len(rows), 3, -1)
    counts = torch.tensor([count for _, count, _ in rows])
    return MelBatch(mels, lengths, alignments, lengths // 2, counts, [finished for _, _, finished in rows])


def test_attention_is_described_item_by_item_and_may_stop_before_final_points() -> None:
    read = list(range(10))
    ends = {
        "whole": (read, 10, True), "6 of 10 symbols": (read[:6], 10, True), "7 of 10": (read[:7], 10, True),
        "lost at the end": ([*read, 9, 9, 9], 10, False), "lost half-way": (read[:5], 10, False),
    }  # fmt: skip
    found = dict(zip(ends, describe_items(mel_batch(*ends.values())), strict=True))
    flags = {name: (values["ran_to_limit"], values["stopped_early"]) for name, (values, _) in found.items()}
    # of 10 symbols the last three are a letter and points, say
    early = {"whole": (0, 0), "6 of 10 symbols": (0, 1), "7 of 10": (0, 0)}
    assert flags == early | {"lost at the end": (1, 0), "lost half-way": (1, 0)}
    assert found["whole"][0]["coverage"] == found["whole"][0]["focus"] == 1
    values, pictures = found["lost half-way"]
    assert values["coverage"] == 0.5 and pictures["mel"].shape == (3, 10)
    assert pictures["alignment"].shape == (10, 5)  # symbols upwards, steps to the right


def test_copy_synthesis_has_the_length_and_levels_of_the_recordings() -> None:
    audio = AudioConfig()
    items = [HeldOutLine("", load_audio(ROOT / f"corpus/clock/clock_00{number}.ogg", RATE)) for number in (22, 50)]
    vocoder = Vocoder(griffin_lim_of(LoadedModel(REGISTRY["Tacotron2"], None, {}), CPU), audio, CPU)
    renditions, speed = renditions_from_true_mels(items, vocoder, audio, CPU, seed=0)
    assert speed > 0
    for one, item in zip(renditions, items):
        assert item.recording is not None
        assert abs(len(one.audio) - len(item.recording)) < 2 * audio.hop_length
        size = min(len(one.audio), len(item.recording)) // 2048 * 2048
        levels = [clip[:size].view(-1, 2048).square().mean(1).log10() for clip in (one.audio, item.recording)]
        assert torch.corrcoef(torch.stack(levels))[0, 1] > 0.95  # loud where the recording is loud


class Noise:
    """A vocoder whose audio is the noise of each item, four samples a frame; a full batch takes it a while."""

    def __call__(self, mels: Tensor, lengths: Tensor, draws: Draws | None = None) -> tuple[Tensor, dict[str, float]]:
        assert draws is not None and len(draws.generators) == len(mels)
        time.sleep(0.1 if len(mels) == BATCH else 0.0)
        return draws.uniform(4 * mels.shape[2]), {}


class SlowReader(Reader):
    def infer(self, ids: Tensor, lengths: Tensor) -> Outputs:
        time.sleep(0.1 if len(ids) == BATCH else 0.0)
        return super().infer(ids, lengths)


def test_noise_depends_on_seed_and_place_of_a_line_alone_and_the_speed_counts_all_batches_and_both_models() -> None:
    texts, audio = ["abcdefgh"[: 2 + number % 7] for number in range(11)], AudioConfig()  # more than a batch
    items = [HeldOutLine(text, torch.linspace(-0.5, 0.5, 4096)) for text in texts]

    def noise(number: int, samples: int) -> list[float]:
        return Draws.of([(5, number)], "vocoder", CPU).uniform(samples)[0].tolist()

    voice = {"noise": Noise()}
    config = AudioConfig(sampling_rate=8, hop_length=4, mel_fmax=4.0)
    slow = acoustic()._replace(model=SlowReader())
    spoken, speed = renditions_from_texts(items, slow, voice, config, CPU, False, 5)["noise"]  # type: ignore[arg-type]
    assert [len(one.audio) for one in spoken] == [2 * 4 * len(text) for text in texts]
    assert [one.audio.tolist() for one in spoken] == [noise(i, 8 * len(text)) for i, text in enumerate(texts)]
    assert 0 < speed <= sum(len(one.audio) for one in spoken) / 8 / 0.2
    copied, speed = renditions_from_true_mels(items, Noise(), audio, CPU, seed=5)  # type: ignore[arg-type]
    assert [one.audio.tolist()[:20] for one in copied] == [noise(i, 20) for i in range(11)]
    assert 0 < speed <= sum(len(one.audio) for one in copied) / RATE / 0.1


def test_lines_without_evaluators_keep_their_values_and_audio_that_is_not_finite_counts_as_silence() -> None:
    sound = torch.zeros(RATE)
    items = [HeldOutLine("One.", sound), HeldOutLine("Two.", None)]
    renditions = [Rendition(sound[:11025], {"focus": 0.5}, {}), Rendition(sound, {}, {})]
    system = evaluate_system("ours", items, renditions, 2.0, Evaluators([]), RATE)
    assert [line.values for line in system.lines] == [{"focus": 0.5, "duration_ratio": 0.5}, {}]
    rendition = Rendition(torch.full((RATE,), math.nan), {}, {})
    (line,) = evaluate_system("ours", items[:1], [rendition], 1.0, Evaluators([]), RATE).lines
    assert len(line.sound) == 0 and line.values["duration_ratio"] == 0


def test_lines_are_spread_over_the_list_and_cached_mels_are_no_recordings() -> None:
    rows = [Utterance(str(number), "") for number in range(10)]
    assert [row.path for row in spread(rows, 4)] == ["0", "2", "5", "7"]
    assert spread(rows, 30) == rows
    mel, sound = (Utterance(f"corpus/{path}", "One.") for path in ("mels/a.pt", "clock/clock_0022.ogg"))
    assert make_held_out_line(mel, str(ROOT), AudioConfig()) == HeldOutLine("One.", None)
    item = make_held_out_line(sound, str(ROOT), AudioConfig())
    assert item.recording is not None and 1 < len(item.recording) / RATE < 4
    with pytest.raises(DataError, match=r"no recording of 'Two\.'"):
        recordings([HeldOutLine("Two.", None)])


def test_errors_are_counted_against_the_nearer_spelling() -> None:
    pytest.importorskip("jiwer", reason="the edit distance of requirements/eval.txt")
    item = HeldOutLine("5 + 7 = 12", None, "five plus seven equals twelve")
    assert fewest_errors(word_errors, item, "Five plus seven equals twelve.").errors == 0
    assert fewest_errors(word_errors, item, "five seven twelve") == word_errors("5 + 7 = 12", "five seven twelve")


def test_a_measure_that_is_no_number_is_left_out() -> None:
    skip_without_evaluators()
    clip = HeldOutLine("It is noon.", load_audio(ROOT / "corpus/clock/clock_0022.ogg", RATE))
    rendition = Rendition(torch.zeros(0), {}, {})
    (line,) = evaluate_system("ours", [clip], [rendition], math.nan, Evaluators(["likeness"]), RATE).lines
    assert line.values["mcd"] > 5 and line.values.keys() == {"duration_ratio", "mcd", "voicing_error"}
