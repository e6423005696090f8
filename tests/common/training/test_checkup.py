"""Measures that select checkpoints, and the best validation so far: the lowest value; of equal ones, the lowest loss."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from common.audio.stft import AudioConfig, TacotronSTFT
from common.inference.config import DENOISING_STRENGTH, SIGMA
from common.inference.evaluation import Rendition
from common.quality.report import ReportLine, System, capped_error_rate
from common.quality.words import Errors
from common.run.interrupt import StopRequest
from common.spec import VocoderInference
from common.training.checkup import Checkup, measures_of, mel_distance, selecting_measures
from common.training.options import DataConfig, EvaluationConfig
from common.training.state import Best, Progress
from common.training.validation import update_best
from tests.common.training.points import Notes, change, make_state
from train import update_best_checkpoint


def system(counts: list[Errors]) -> System:
    return System("checkup", [ReportLine("", np.zeros(0), "", {}, {"wer": count}, {}) for count in counts], 1.0)


def test_a_line_that_does_not_stop_weighs_as_much_as_a_line_without_a_right_word() -> None:
    """Ten lines of ten words: half of them wrong, or nine lines that are right and one that does not stop."""
    lines = [Errors(5, 10)] * 10, [Errors(0, 10)] * 9 + [Errors(310, 10)]
    early, adapted = (measures_of(system(counts)) for counts in lines)
    assert (early["wer"], adapted["wer"]) == pytest.approx((0.5, 3.1))  # the usual rate, in the log and in reports
    assert (early["wer_capped"], adapted["wer_capped"]) == pytest.approx((0.5, 0.1))
    assert [selecting_measures(found)["wer"] for found in (early, adapted)] == pytest.approx([0.5, 0.1])
    some = system([Errors(1, 4), Errors(3, 3), Errors(0, 0)])
    assert measures_of(some)["wer"] == measures_of(some)["wer_capped"] == pytest.approx(4 / 7)
    nothing = System("checkup", [ReportLine("One.", np.zeros(0), "", {"focus": 0.5}, {}, {})], 1.0)
    assert math.isnan(capped_error_rate(nothing))
    assert selecting_measures(measures_of(nothing)) == {"focus": 0.5}


SLACK = {"slack": 0.1}


@pytest.mark.parametrize(
    ("slack", "validations", "best", "since"),
    [
        ({}, [(0.2, 1.0), (0.1, 2.0), (0.3, 0.5)], 1, 1),
        ({}, [(0.2, 1.0), (0.2, 0.9), (0.2, 0.95)], 1, 1),  # few words: the loss decides
        ({}, [(0.2, 1.0), (0.2, 1.0)], 0, 1),
        ({}, [(math.nan, 0.1), (0.5, 1.0), (math.nan, 0.1)], 1, 1),
        ({}, [(0.0, -5.0), (0.0, -6.0)], 1, 0),
        # words wrong rise while a model leaves its old voice, then fall
        (SLACK, [(0.1, 3.0), (0.4, 2.0), (0.8, 1.2), (0.6, 1.15), (0.5, 1.14)], 4, 0),
        (SLACK, [(0.1, 3.0), (0.4, 2.0), (0.8, 1.2), (0.9, 1.15), (0.9, 1.14)], 2, 2),
        (SLACK, [(0.5, 1.0), (0.2, 1.05), (0.1, 1.11)], 1, 1),  # too far from the lowest
        (SLACK, [(0.5, 0.0), (0.4, 0.1)], 1, 0),  # just as far as it may be
        (SLACK, [(0.2, 1.0), (0.5, 0.95), (0.1, 1.06)], 0, 2),  # from that of a validation that was not the best
        (SLACK, [(0.2, -5.0), (0.3, -5.05), (0.1, -5.2), (0.1, -5.19)], 2, 1),
        (SLACK, [(0.5, 1.0), (math.nan, 0.1), (0.4, 1.05)], 2, 0),  # without a value, its loss does not count
    ],
)
def test_the_lowest_value_wins_then_the_loss_near_the_lowest(slack, validations, best: int, since: int) -> None:
    progress = Progress(best=Best(by="wer"))
    for progress.epoch, (value, loss) in enumerate(validations):
        update_best(progress, value, loss, **slack)
    assert (progress.best.epoch, progress.best.since, progress.best.by) == (best, since, "wer")


def test_the_flag_decides_how_far_from_the_lowest_loss_the_best_may_be() -> None:
    for slack, best in ((None, 0), (0.1, 2)):
        state = make_state(best_by="wer", best_slack=slack, bench_class="perf-train")  # saves nothing
        for state.progress.epoch, (wer, loss) in enumerate([(0.1, 3.0), (0.8, 1.2), (0.6, 1.15)]):
            assert update_best_checkpoint(state, {"wer": wer, "loss": loss}, Notes())
        assert state.progress.best.epoch == best


def test_a_vocoder_is_checked_as_inference_speaks_and_its_distance_is_the_mean_over_all_frames(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", 0.1 * np.ones(3000), 22050)
    (tmp_path / "list.txt").write_text("a.wav|One.\n")
    data = DataConfig(validation_files=tmp_path / "list.txt", dataset_path=str(tmp_path))
    evaluation = EvaluationConfig(evaluate_every=1, evaluate_lines=1, evaluate_without=["asr", "mos", "likeness"])
    seen = []

    def vocode(model, mels, sigma, draws):
        seen.append(sigma)
        return torch.zeros(len(mels), 256 * mels.shape[2])

    stages = VocoderInference(denoiser=lambda *_: lambda sound, strength: seen.append(strength) or sound, vocode=vocode)
    state = make_state()
    change(state, spec=dataclasses.replace(state.setup.spec, inference=stages))
    assert Checkup(evaluation, data, AudioConfig(), is_main=True)(state, Notes(), StopRequest())["mel_distance"] > 0
    assert seen == [SIGMA, DENOISING_STRENGTH] and seen[0] != seen[1]
    stft, renditions = TacotronSTFT(), []
    for frames, shift in ((5, 0.25), (20, 1.0)):
        audio = 0.1 * torch.randn(256 * (frames - 1))
        mel = stft.mel_spectrogram(audio[None])[0]
        renditions.append(Rendition(audio, {}, {"mel": mel + shift}))
    assert mel_distance(renditions, AudioConfig()) == pytest.approx((5 * 0.25 + 20 * 1.0) / 25, rel=1e-4)
