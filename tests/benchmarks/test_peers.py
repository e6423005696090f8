"""The comparison with other voices: the figures of the one that is always there."""

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.peers import SENTENCES, measure
from synthesizer import EMBEDDED


@pytest.mark.slow
def test_the_figures_are_those_of_the_sounds(tmp_path: Path, capsys) -> None:
    measure("embedded voice", 1, str(tmp_path))
    speed, first, memory, size, rate = json.loads(capsys.readouterr().out)
    samples = [len(np.load(tmp_path / f"embedded voice-{number}.npy")) for number in range(len(SENTENCES))]
    assert rate == 22050 and all(2 * rate < count < 8 * rate for count in samples)
    assert size == sum((EMBEDDED / f"{name}.safetensors").stat().st_size for name in ("tacotron2", "pitch")) / 1e6
    assert 0 < first < sum(samples) / rate / speed and memory > 200
