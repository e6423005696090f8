"""plan.json: a plan that is written reads back equal, and bad values are named by file and field."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from common.errors import DataError, UsageError
from studio.plan.commands import option_argv, train_argv
from studio.plan.file import Plan, read_plan, write_plan
from studio.plan.machine import environment, usable_threads
from studio.plan.warm_starts import count_weights, find_starts
from studio.project import Project
from studio.train.__main__ import limited_argv
from studio.train.progress import digest
from synthesizer import EMBEDDED
from tests.recipe import train_tiny_model
from tests.studio.projects import SETTINGS

CHANGES = {"warm_start": None, "epochs": 10, "hours": 1.5, "best_by": "loss", "reasons": {}, "options": {"dither": 0.1}}
PLAN = Plan(seed=1, threads=2, cpu=True, models={"WaveGlow": replace(SETTINGS, **CHANGES)})


def write_changed(path: Path, field: str, value: Any) -> None:
    """Write the plan with another value of a field of its model."""
    write_plan(path, PLAN)
    content = json.loads(path.read_text())
    content["models"]["WaveGlow"][field] = value
    path.write_text(json.dumps(content))


def test_a_plan_is_read_as_it_was_written_and_as_by_earlier_versions(tmp_path: Path) -> None:
    """Those had a switch of predicted mels, which was off but for those who set it."""
    path = tmp_path / "plan.json"
    write_plan(path, PLAN)
    assert read_plan(path) == PLAN
    write_changed(path, "predicted_mels", False)
    assert read_plan(path) == PLAN


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 0, "models.WaveGlow.batch_size: 0, expected a whole number of at least 1"),
        ("batch_size", True, "models.WaveGlow.batch_size: true, expected a whole number"),
        ("epochs", 2.5, "models.WaveGlow.epochs: 2.5, expected a whole number"),
        ("learning_rate", "fast", 'models.WaveGlow.learning_rate: "fast", expected a number above 0'),
        ("learning_rate", float("nan"), "models.WaveGlow.learning_rate: NaN, expected a number above 0"),
        ("lr_schedule", "sine", 'models.WaveGlow.lr_schedule: "sine", expected one of step, cosine, constant'),
        ("best_by", ["wer"], 'models.WaveGlow.best_by: ["wer"], expected one of loss, wer'),
        ("hours", -1, "models.WaveGlow.hours: -1, expected a number above 0, or null"),
        ("warm_start", 3, "models.WaveGlow.warm_start: 3, expected a path or null"),
        ("colour", "red", "models.WaveGlow.colour: no such field, expected some of warm_start"),
        ("predicted_mels", True, "models.WaveGlow.predicted_mels: no longer a setting of the studio"),
        ("options", [], "models.WaveGlow.options: [], expected a JSON object"),
    ],
)
def test_a_bad_value_is_named_by_file_and_field(tmp_path: Path, field: str, value: Any, message: str) -> None:
    path = tmp_path / "plan.json"
    write_changed(path, field, value)
    with pytest.raises(DataError) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_all_mistakes_are_in_one_message(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"seed": -1, "threads": 1, "cpu": 0, "models": {"Hifi": {}, "WaveGlow": 3}, "version": 2}')
    with pytest.raises(DataError) as caught:
        read_plan(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 5 and all(line.startswith(f"{path}: ") for line in lines)
    assert f"{path}: models.Hifi: no such model, expected some of PulseNoise, Tacotron2, WaveGlow" in lines
    for text, message in (("[", "cannot be read as JSON"), ("[]", "a list, expected a JSON object")):
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_plan(path)


def test_options_become_words() -> None:
    options = {"freeze": ["^a", "^b"], "mask_padding": False, "amp": True, "dither": 0.1, "none": None}
    assert option_argv(options) == ["--freeze", "^a", "^b", "--no-mask-padding", "--amp", "--dither", "0.1"]


@pytest.mark.parametrize(("measure", "expected"), [("loss", []), ("wer", ["--best-slack", "0.1"])])
def test_a_measure_other_than_the_loss_counts_near_the_lowest_loss_alone(tmp_path: Path, measure, expected) -> None:
    settings = replace(PLAN.models["WaveGlow"], best_by=measure)
    words = train_argv("WaveGlow", replace(PLAN, models={"WaveGlow": settings}), Project(name="a", projects=tmp_path))
    place = words.index("--best-by")
    assert words[place : place + 2 + len(expected)] == ["--best-by", measure, *expected]
    assert ("--best-slack" in words) == bool(expected)


def test_train_py_ends_before_the_time_limit_and_has_the_planned_threads(tmp_path: Path, monkeypatch) -> None:
    """Its own limit of time begins after a start of ten seconds."""
    project = Project(name="a", projects=tmp_path)
    for left, minutes in ((610.0, 10.0), (3.0, 1 / 60)):
        argv = limited_argv("WaveGlow", PLAN, project, left)
        assert argv[-2] == "--max-minutes" and float(argv[-1]) == pytest.approx(minutes)
    assert "--max-minutes" not in limited_argv("WaveGlow", PLAN, project, math.inf)
    assert environment(3)["OMP_NUM_THREADS"] == "3"
    for value, expected in (("5", 5), ("0", len(os.sched_getaffinity(0))), ("", len(os.sched_getaffinity(0)))):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert usable_threads() == expected


def test_starts_of_from_and_their_weights() -> None:
    files = {"PulseNoise": "pitch", "Tacotron2": "tacotron2", "WaveGlow": "waveglow"}  # what takes minutes trains first
    embedded = {name: EMBEDDED / f"{stem}.safetensors" for name, stem in files.items()}
    assert list(find_starts(["embedded"]).items()) == list(embedded.items())
    assert find_starts(["none"]) == dict.fromkeys(files)
    tiny = train_tiny_model("Tacotron2")  # ten mel channels, unlike the embedded vocoders
    assert find_starts([str(tiny)]) == dict.fromkeys(files) | {"Tacotron2": tiny}
    with pytest.raises(UsageError, match="none cannot be combined"):
        find_starts(["none", "embedded"])
    with pytest.raises(UsageError, match="different audio settings"):
        find_starts([str(tiny), str(embedded["WaveGlow"])])
    path = train_tiny_model("WaveGlow")
    weights = torch.load(path, weights_only=True)["state_dict"]
    assert count_weights(path) == sum(math.prod(tensor.shape) for tensor in weights.values()) > 1000


def test_the_digest_of_a_plan_is_the_same_for_each_spelling_of_its_folder(tmp_path: Path, monkeypatch) -> None:
    """The page names the folder of projects absolutely, a terminal from the current folder."""
    monkeypatch.chdir(tmp_path)
    places = [Path("projects"), tmp_path / "projects"]
    digests = {digest("WaveGlow", PLAN, Project(name="mine", projects=place)) for place in places}
    assert len(digests) == 1
    for change in ({"learning_rate": 1e-5}, {"hours": 7.25}):
        other = replace(PLAN, models={"WaveGlow": replace(PLAN.models["WaveGlow"], **change)})
        assert digest("WaveGlow", other, Project(name="mine", projects=places[0])) not in digests
