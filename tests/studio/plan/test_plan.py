"""Decisions of a plan for several machines and amounts of data."""

import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch

from common.errors import DataError, UsageError
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from studio.plan import proposal
from studio.plan.__main__ import trainable_models
from studio.plan.commands import Figures, environment, option_argv, train_argv, usable_threads
from studio.plan.file import Plan, read_plan, write_plan
from studio.plan.inputs import Material, count_weights, find_starts, read_material
from studio.plan.proposal import PlanRequest
from studio.project import Project
from studio.train.__main__ import limited_argv
from studio.train.progress import ModelProgress, digest
from synthesizer import EMBEDDED
from tests.recipe import train_tiny_model
from tests.studio.projects import SETTINGS

ACOUSTIC, VOCODER, QUICK = (REGISTRY[name] for name in ("Tacotron2", "WaveGlow", "PulseNoise"))
GB = 10**9
GERMAN = {"text_cleaners": "basic_cleaners", "symbols_file": "symbols.txt"}
PUBLISHED, SMALL = 28_193_153, 7_203_681  # weights of a warm start


def material(minutes: float = 30, clips: int = 400) -> Material:
    texts = {"validation_clips": 20, "longest_seconds": 12, "characters": 50, "sampling_rate": 22050}
    return Material(minutes=minutes, clips=clips, **texts)


def figures(clips=400, available=16.0, seconds=2.0, report=0.0, start=0.0) -> Figures:
    """Measurements in GB and seconds: a batch takes 1 GB, and half of one for each clip."""
    sizes = {"always": GB, "clip": GB // 2, "available": int(available * GB), "batch_size": 16, "clips_per_step": 16}
    steps = {"steps_per_epoch": max(1, clips // 16), "step_seconds": [seconds] * 10}
    times = {"report_seconds": report, "start_seconds": start}
    return Figures(model="M", parameters=1, device="D", clips=clips, **sizes, **steps, **times)


@pytest.mark.parametrize(
    ("wanted", "available", "batch", "accumulation"),
    [
        (16, 10.1, 16, 1),  # 0.9 x 10.1 = 9.09 >= 1 + 16 x 0.5
        (16, 8, 8, 2),  # (7.2 - 1) / 0.5 = 12.4; 8 x 2 keeps the step
        (400, 300, 400, 1),
    ],
)
def test_the_batch_fits_into_90_per_cent_of_the_memory(wanted, available, batch, accumulation) -> None:
    chosen, steps = proposal.choose_batch(wanted, figures(available=available))
    assert (chosen.value, steps.value) == (batch, accumulation)
    with pytest.raises(DataError, match=r"M: not even one clip fits into memory \(1\.00 GB and 0\.50 GB"):
        proposal.choose_batch(wanted, figures(available=1.5))


@pytest.mark.parametrize(
    ("minutes", "weights", "expected"),
    [
        (8, PUBLISHED, {"batch_size": 8, "learning_rate": 1e-4, "freeze": ["^embedding", "^encoder"]}),
        (8, SMALL, {"batch_size": 8, "learning_rate": 5e-4, "freeze": ["^embedding", "^encoder"]}),
        (30, PUBLISHED, {"batch_size": 16, "learning_rate": 2e-4, "epochs": 150}),
        (30, SMALL, {"batch_size": 16, "learning_rate": 1e-3, "epochs": 150}),
        (30, 0, {"n_frames_per_step": 3, "guided_attention_weight": 100.0}),
        (1500, 0, {"batch_size": 48, "learning_rate": 1e-3}),
    ],
)
def test_data_and_start_decide_the_acoustic_model(minutes: float, weights: int, expected: dict) -> None:
    warm, gpu = weights > 0, minutes == 1500
    request = PlanRequest(warm_start="start.pt" if warm else None, weights=weights, gpu=gpu)
    advice = proposal.advise(ACOUSTIC, material(minutes), request)
    assert expected.items() <= advice.options.items()
    assert ("freeze" in advice.options) == (warm and minutes < 20)
    assert (advice.options.get("p_convolution_dropout") == 0.1) == (weights == SMALL or (not warm and not gpu))
    assert ("decoder_rnn_dim" in advice.options) == (not warm and not gpu)  # a start has its own sizes
    halved = proposal.advise(ACOUSTIC, material(minutes), replace(request, half=True))
    assert "amp" not in advice.options and halved.options == advice.options | {"amp": True}


def length_of(measured: Figures, hours: float | None, usual: int = 150) -> dict[str, proposal.Proposed]:
    return proposal.choose_length(usual, 12, measured, hours)


def test_a_budget_limits_the_epochs() -> None:
    measured = figures()  # 25 steps of 2 s: 50 s an epoch
    assert length_of(measured, None)["epochs"].value == 150
    assert length_of(measured, 1.0)["epochs"].value == int(0.9 * 3600 / 50) == 64
    slow = replace(measured, first_seconds=500)  # the first epoch measures the clips
    assert length_of(slow, 1.0)["epochs"].value == int((0.9 * 3600 - 500) / 50)
    assert proposal.expected_seconds(10, 3, slow) == proposal.expected_seconds(10, 3, measured) + 500
    speaks = replace(figures(report=30, start=20), validation_seconds=18)  # a report: 18 s and a second a line
    assert length_of(speaks, 5 / 60)["report_lines"].value == 7  # a fifth of 250 s: 25 s for each of two reports
    assert length_of(measured, 100.0, 10)["epochs"].value == 10


def test_a_budget_is_shared_and_what_a_model_leaves_goes_to_the_next() -> None:
    waiting = [QUICK, ACOUSTIC, VOCODER]
    assert proposal.hours_of(QUICK, waiting, 10, []) == 2.5
    assert proposal.needed_hours(2.5, expected=180) == 0.1  # 3 minutes, and as many to spare
    assert proposal.hours_of(ACOUSTIC, waiting[1:], 9.9, []) == pytest.approx(5.94)
    assert proposal.hours_of(VOCODER, waiting[2:], 9.9 - 5.94, []) == pytest.approx(3.96)
    assert proposal.hours_of(ACOUSTIC, waiting[1:], 9.9, ["PulseNoise"]) == 9.9
    assert proposal.hours_of(VOCODER, waiting[2:], 2.0, ["PulseNoise"]) == 2.0
    assert [spec.name for spec in trainable_models()][-2:] == ["Tacotron2", "WaveGlow"]  # the latter gets what is left
    assert proposal.hours_of(ACOUSTIC, waiting, None, []) is None and proposal.needed_hours(None, expected=9) is None


@pytest.mark.parametrize(
    ("spec", "hours", "minutes", "left"),
    [
        (ACOUSTIC, None, 20.0, None),
        (ACOUSTIC, 1.0, 12.0, 0.8),
        (ACOUSTIC, 10.0, 20.0, 10 - 1 / 3),
        (ACOUSTIC, 0.1, 0.0, 0.1),  # 72 s would be too few
        (VOCODER, 1.0, None, 1.0),
    ],
)
def test_sharpening_takes_a_fifth_of_an_acoustic_model_s_hours(spec, hours, minutes, left) -> None:
    setting, rest = proposal.choose_sharpening(spec, hours)
    assert [choice.value for choice in setting.values()] == ([] if minutes is None else [minutes])
    assert rest == (None if left is None else pytest.approx(left))


@pytest.mark.parametrize(
    ("spec", "epochs", "hours", "quick", "left_out"),
    [
        (VOCODER, 99, 0.05, ["PulseNoise"], True),
        (VOCODER, 100, 0.05, ["PulseNoise"], False),
        (VOCODER, 1, 0.05, [], False),  # without it there would be no vocoder
        (VOCODER, None, 0.05, ["PulseNoise"], True),  # not even measured
        (VOCODER, None, 0.1, ["PulseNoise"], False),
        (ACOUSTIC, None, 0.05, ["PulseNoise"], False),
    ],
)
def test_a_vocoder_that_cannot_win_is_left_out(spec, epochs, hours, quick, left_out) -> None:
    assert bool(proposal.describe_hopeless(spec, epochs and (epochs, 100), hours, quick)) is left_out


def test_a_budget_that_is_far_too_short_is_named() -> None:
    measured = {"A": figures(report=6, start=120), "B": figures(report=6, start=120)}  # 50 s an epoch
    words = proposal.describe_need({"A": 150, "B": 10}, {"A": 3, "B": 9}, measured, 0.1)
    # 160 epochs, 19 and 10 reports, two starts: 8,414 s, in 90 % of the time
    assert words == "6 min is far too little here: about 2.6 h are needed for the usual epochs, 150 of A (this plan: 3)"
    assert proposal.describe_need({"A": 150, "B": 10}, {"A": 75, "B": 9}, measured, 0.1) == ""
    tight = length_of(figures(report=30, start=30), 1 / 60)["epochs"]
    assert tight.value == 1 and tight.reason.startswith("60 s may be too short for one epoch")


@pytest.mark.parametrize(
    ("minutes", "report", "start", "epochs", "every", "lines"),
    [
        (60, 10, 40, 60, 4, 12),  # (3240 - 40 - 20 x 10) / 50; 16 reports
        (60, 100, 40, 52, 11, 12),  # a fifth of 3200 s has 6 reports: (3200 - 600) / 50
        (5, 30, 20, 4, 3, 10),  # a fifth of 250 s is less than two reports: of 10 lines, 25 s each
        (2, 30, 30, 1, 1, 3),  # 78 s: two reports of 3 lines, 7.5 s each, and one epoch, whose report is the only one
    ],
)
def test_the_start_and_the_reports_are_a_part_of_the_budget(minutes, report, start, epochs, every, lines) -> None:
    """A first report took half of a short budget, which the plan had given to steps; later a quarter."""
    length = length_of(figures(report=report, start=start), minutes / 60)
    assert [length[name].value for name in ("epochs", "report_every", "report_lines")] == [epochs, every, lines]
    reports = report * lines / 12 * proposal.count_reports(epochs, every)
    assert start + reports + 50 * epochs <= 60 * minutes and reports <= 0.2 * 60 * minutes


def test_the_rate_grows_in_a_tenth_of_a_short_run_and_the_median_step_counts() -> None:
    """A run of 70 steps that warms up for 100 would end before it has the planned rate."""
    measured = figures()  # 25 steps an epoch
    assert [proposal.choose_warmup(100, epochs, measured).value for epochs in (40, 3)] == [100, 7]  # of 75 steps
    assert proposal.step_seconds(replace(figures(), step_seconds=[1.0, 2.0, 30.0])) == 2.0
    with pytest.raises(DataError, match="no step was measured"):
        proposal.step_seconds(replace(figures(), step_seconds=[]))


@pytest.mark.parametrize(("epochs", "every", "reports"), [(1, 1, 1), (10, 1, 10), (200, 11, 20), (1000, 53, 20)])
def test_a_run_has_twenty_reports_at_most(epochs: int, every: int, reports: int) -> None:
    assert proposal.choose_reports(epochs, proposal.REPORTS).value == every
    due = {epoch for epoch in range(epochs) if epoch % every == 0 or epoch == epochs - 1}  # as train.py has them
    assert proposal.count_reports(epochs, every) == len(due) == reports


def test_other_languages_are_trained_as_a_whole() -> None:
    """A warm start of English has never read the other letters."""
    request = PlanRequest(warm_start="voice/tacotron2.safetensors", weights=SMALL)
    assert "freeze" in proposal.advise(ACOUSTIC, material(10), request).options
    advice = proposal.advise(ACOUSTIC, replace(material(10), text_options=GERMAN), request)
    assert "freeze" not in advice.options


@pytest.mark.parametrize(
    ("spec", "options", "counts_words", "measure"),
    [
        (ACOUSTIC, {}, True, "wer"),
        (QUICK, {}, True, "loss"),
        (ACOUSTIC, {}, False, "coverage"),
        (VOCODER, {}, False, "mel_distance"),
        (ACOUSTIC, GERMAN, True, "coverage"),  # the recogniser only knows English
    ],
)
def test_the_measure_that_selects_is_one_that_can_be_counted(spec, options, counts_words, measure) -> None:
    found = proposal.choose_measure(spec, replace(material(), text_options=options), counts_words)
    assert found.value == measure


CHANGES = {"warm_start": None, "epochs": 10, "hours": 1.5, "best_by": "loss", "reasons": {}, "options": {"dither": 0.1}}
PLAN = Plan(seed=1, threads=2, cpu=True, models={"WaveGlow": replace(SETTINGS, **CHANGES)})


def write_changed(path: Path, field: str, value: Any) -> None:
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
    for encoding in ("utf-8-sig", "utf-16"):  # as Windows' editors save it
        path.write_text(path.read_text(), encoding=encoding)
        assert read_plan(path) == PLAN
        write_plan(path, PLAN)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("batch_size", 0, "models.WaveGlow.batch_size: 0, expected a whole number of at least 1"),
        ("learning_rate", float("nan"), "models.WaveGlow.learning_rate: NaN, expected a number above 0"),
        ("lr_schedule", "sine", 'models.WaveGlow.lr_schedule: "sine", expected one of step, cosine, constant'),
        ("hours", -1, "models.WaveGlow.hours: -1, expected a number above 0, or null"),
        ("warm_start", 3, "models.WaveGlow.warm_start: 3, expected a path or null"),
        ("colour", "red", "models.WaveGlow.colour: no such field, expected some of warm_start"),
        ("predicted_mels", True, "models.WaveGlow.predicted_mels: no longer a setting of the studio"),
        ("sharpen_minutes", 3, "models.WaveGlow.sharpen_minutes: expected 0, since a vocoder makes no mels"),
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
    assert len(lines) == 5 and any("models.Hifi: no such model, expected some of PulseNoise" in line for line in lines)
    path.write_text("[]")
    with pytest.raises(DataError, match="a list, expected a JSON object"):
        read_plan(path)


def test_options_become_words() -> None:
    options = {"freeze": ["^a", "^b"], "mask_padding": False, "amp": True, "dither": 0.1, "none": None}
    assert option_argv(options) == ["--freeze", "^a", "^b", "--no-mask-padding", "--amp", "--dither", "0.1"]


def test_every_setting_reaches_its_flag_of_train_py(tmp_path: Path) -> None:
    """A measure other than the loss counts near the lowest loss alone."""
    values = {"batch_size": 3, "grad_accumulation_steps": 5, "epochs": 7, "learning_rate": 0.5, "patience": 19}
    values |= {"lr_schedule": "constant", "warmup_steps": 11, "report_every": 13, "report_lines": 17}
    settings = replace(PLAN.models["WaveGlow"], best_by="mel_distance", **values)
    project = Project(name="a", projects=tmp_path)
    argv = train_argv("WaveGlow", replace(PLAN, seed=23, models={"WaveGlow": settings}), project)
    found = parse_training_arguments(argv, REGISTRY, "")[0].flat
    wanted = {"early_stop_patience": values.pop("patience"), "evaluate_lines": values.pop("report_lines"), "seed": 23}
    every = values.pop("report_every")
    wanted |= dict.fromkeys(("epochs_per_validation", "evaluate_every", "epochs_per_checkpoint"), every)
    wanted |= values | {"best_by": "mel_distance", "best_slack": 0.1, "dither": 0.1, "resume_from_last": True}
    wanted |= {"training_files": project.training_list, "validation_files": project.validation_list}
    wanted |= {"output": project.run("WaveGlow")}
    assert {name: found[name] for name in wanted} == wanted
    assert "--best-slack" not in train_argv("WaveGlow", PLAN, project)


def test_train_py_ends_before_the_time_limit_and_has_the_planned_threads(tmp_path: Path, monkeypatch) -> None:
    """Its own limit of time begins after a start of ten seconds."""
    project = Project(name="a", projects=tmp_path)
    spent = ModelProgress(seconds=700.0, spent=400.0)  # 300 of them under an earlier plan, which train.py counts
    for seconds, minutes in ((610.0, 15.0), (3.0, 293 / 60), (None, None)):
        hours = None if seconds is None else seconds / 3600
        plan = replace(PLAN, models={"WaveGlow": replace(PLAN.models["WaveGlow"], hours=hours)})
        argv = limited_argv("WaveGlow", plan, project, spent)
        assert ("--max-minutes" in argv) == (minutes is not None)
        assert minutes is None or float(argv[-1]) == pytest.approx(minutes)
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
    weights = torch.load(tiny, weights_only=True)["state_dict"]
    assert count_weights(tiny) == sum(math.prod(tensor.shape) for tensor in weights.values()) > 1000


def test_the_digest_of_a_plan_is_the_same_for_each_spelling_of_its_folder(tmp_path: Path, monkeypatch) -> None:
    """The page names the folder of projects absolutely, a terminal from the current folder."""
    monkeypatch.chdir(tmp_path)
    places = [Path("projects"), tmp_path / "projects"]
    digests = {digest("WaveGlow", PLAN, Project(name="mine", projects=place)) for place in places}
    assert len(digests) == 1
    for change in ({"learning_rate": 1e-5}, {"hours": 7.25}):
        other = replace(PLAN, models={"WaveGlow": replace(PLAN.models["WaveGlow"], **change)})
        assert digest("WaveGlow", other, Project(name="mine", projects=places[0])) not in digests


def test_the_figures_are_those_of_the_clips_for_training(prepared: Project) -> None:
    project = prepared
    clips = [line.split("|") for line in project.training_list.read_text().splitlines()]
    seconds = [soundfile.info(project.root / path).duration for path, _ in clips]
    found = read_material(project)
    assert (found.clips, found.validation_clips, found.sampling_rate) == (5, 2, 22050)
    assert (60 * found.minutes, found.longest_seconds) == pytest.approx((sum(seconds), max(seconds)))
    assert found.characters == len({character for _, text in clips for character in text})


def test_texts_bring_their_cleaner_and_their_alphabet_unless_they_are_english(prepared: Project) -> None:
    def options(**settings: object) -> dict[str, Any]:
        prepared.settings.write_text(json.dumps(settings))
        return read_material(prepared).text_options

    assert read_material(prepared).text_options == options(text_cleaners=["english_cleaners"], symbols_file=None) == {}
    earlier = options(text_cleaners="transliteration_cleaners", symbols_file=None)  # of one alone, up to 0.10
    assert earlier == {"text_cleaners": ["transliteration_cleaners"]}
    german = {"text_cleaners": ["numbers_de", "basic_cleaners"], "symbols_file": "symbols.txt"}
    command = r"run python -m studio\.prepare FOLDER --name mine --projects \S+ first"
    with pytest.raises(DataError, match=rf"symbols\.txt: no such file; {command}"):
        options(**german)
    prepared.symbols.write_text("_\n \nä\n")
    assert options(**german) == german | {"symbols_file": str(prepared.symbols)}
    with pytest.raises(DataError, match=r"project\.json: text_cleaners: 3, expected names"):
        options(text_cleaners=3)
