"""Values handed from one layer to the next arrive unchanged; each case has two values that differ, so that a swap is seen too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

import evaluate
from common.quality.report import ReportLine, System
from common.quality.words import Errors
from common.run.distributed import Dist
from common.training.arguments import parse_training_arguments
from data_functions import get_loaders
from exports import triton
from models import REGISTRY
from scripts import dataset_report
from studio.prepare.ledger import Ledger
from studio.prepare.lists import select_usable
from studio.prepare.review import ClipRow
from synthesizer import Synthesizer
from tests.recipe import flags

RATE = 22050
CPU = Dist(0, 0, 1, torch.device("cpu"))


@pytest.mark.parametrize(
    ("model", "words", "usual"),
    [("Tacotron2", [], 48), ("Tacotron2", ["--amp"], 104), ("WaveGlow", [], 4), ("WaveGlow", ["--amp"], 10)],
)
def test_learning_rates_scale_from_the_published_batch_of_the_precision(
    model: str, words: list[str], usual: int, tmp_path: Path
) -> None:
    options, spec = parse_training_arguments([*flags(model, tmp_path), *words], REGISTRY, "")
    pace = get_loaders(spec, options, CPU).pace
    assert (pace.steps_per_epoch, pace.global_batch, pace.usual_batch) == (2, 2, usual)


def test_silence_at_the_beginning_and_at_the_end_keep_their_places_in_the_report(tmp_path: Path, capsys) -> None:
    tone = 0.5 * np.sin(2 * np.pi * 300 * np.arange(RATE) / RATE)
    soundfile.write(tmp_path / "a.wav", np.concatenate([np.zeros(RATE // 2), tone, np.zeros(RATE // 5)]), RATE)
    (tmp_path / "list.txt").write_text("a.wav|A tone.\n")
    dataset_report.main([str(tmp_path / "list.txt"), "-d", str(tmp_path), "-o", str(tmp_path / "picture.png")])
    rows = dict(re.findall(r"^ *silence at the (beginning|end) \(s\) +(\S+)", capsys.readouterr().out, re.MULTILINE))
    assert float(rows["beginning"]) == pytest.approx(0.5, abs=0.03)
    assert float(rows["end"]) == pytest.approx(0.2, abs=0.03)


def test_requests_to_triton_wait_ten_milliseconds_for_each_other() -> None:
    files = dict(triton.onnx_files(b"", 80))
    assert b"max_queue_delay_microseconds: 10000 }" in files["tts_onnx/config.pbtxt"]


def test_a_result_is_in_the_ledger_before_it_is_closed(tmp_path: Path) -> None:
    with Ledger(tmp_path / "words") as ledger:
        ledger.add("a", "One.")
        ledger.add("b", "Two.")
        lines = (tmp_path / "words").read_text().splitlines()
        assert list(map(json.loads, lines)) == [["a", "One."], ["b", "Two."]]


def test_clips_are_in_order_of_time_and_not_of_digits() -> None:
    rows = [ClipRow("yes", start, "talk.wav", start, "99", "x", "", "", "", "") for start in ("10.25", "9.5", "100.0")]
    assert [row.clip for row in select_usable(rows)] == ["9.5", "10.25", "100.0"]


def test_the_quality_report_shows_the_worst_lines_of_the_voice_and_not_of_the_recordings(tmp_path: Path) -> None:
    def system(name: str, *wrong: int) -> System:
        lines = [
            ReportLine(text, np.zeros(99), "", {}, {"wer": Errors(n, 2)}, {})
            for text, n in zip(("First.", "Second."), wrong)
        ]
        return System(name, lines, 1.0)

    options = evaluate.parse_args(["-o", str(tmp_path), "-i", "filelists/clock_audio_text_val_filelist.txt"])
    systems = [system("recordings", 2, 1), system("Tacotron2, pulse-noise", 1, 2)]
    evaluate.write(systems, {}, Synthesizer.embedded(device="cpu"), options)
    page = (tmp_path / "report.html").read_text()
    assert page.index("Second.") < page.index("First.")
