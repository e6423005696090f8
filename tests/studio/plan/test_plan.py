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
from common.quality import recogniser
from common.quality.recogniser import RecogniserConfig
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from studio.plan import __main__ as planning
from studio.plan import proposal
from studio.plan.__main__ import group_of, trainable_models
from studio.plan.commands import Figures, environment, usable_threads
from studio.plan.file import read_plan, write_plan
from studio.plan.inputs import Material, Start, find_starts, read_material
from studio.plan.proposal import PlanRequest, Proposal, Proposed
from studio.project import Project
from synthesizer import EMBEDDED
from tests.recipe import train_tiny_model
from tests.studio.projects import FLAGS, store_plan

ACOUSTIC, VOCODER, QUICK = (REGISTRY[name] for name in ("Tacotron2", "WaveGlow", "PulseNoise"))
GB = 10**9
GERMAN = {"text_cleaners": "basic_cleaners", "symbols_file": "symbols.txt"}
PUBLISHED, SMALL = 28_193_153, 7_203_681  # weights of a warm start


def material(minutes: float = 30, clips: int = 400) -> Material:
    texts = {"validation_clips": 20, "longest_seconds": 12, "characters": 50, "sampling_rate": 22050}
    return Material(minutes=minutes, clips=clips, **texts)


def figures(clips=400, available=16.0, seconds=2.0, report=0.0, start=0.0) -> Figures:
    """Measurements in GB and seconds: a batch takes 1 GB, and half of one for each clip."""
    sizes = {"always": GB, "clip": GB // 2, "available": int(available * GB)}
    steps = {"steps_per_epoch": max(1, clips // 16), "step_seconds": [seconds] * 10}
    times = {"report_seconds": report, "start_seconds": start}
    return Figures(model="M", parameters=1, device="D", clips=clips, **sizes, **steps, **times)


@pytest.mark.parametrize(
    ("wanted", "available", "batch", "accumulation"),
    [
        (16, 10.1, 16, 1),  # 0.9 x 10.1 = 9.09 >= 1 + 16 x 0.5
        (16, 8, 8, 2),  # (7.2 - 1) / 0.5 = 12.4; 8 x 2 keeps the step
        (400, 300, 400, 1),
        (2, 1.7, 1, 2),  # (1.53 - 1) / 0.5 = 1.06
    ],
)
def test_the_batch_fits_into_90_per_cent_of_the_memory(wanted, available, batch, accumulation) -> None:
    chosen = proposal.choose_batch(wanted, figures(available=available))
    assert [choice.value for choice in chosen.values()] == [batch, accumulation]
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
    request = PlanRequest(start=Start(Path("start.pt"), "Tacotron2", {}, weights) if warm else None, gpu=gpu)
    advice = proposal.advise(ACOUSTIC, material(minutes), request)
    assert expected.items() <= advice.options.items()
    assert ("freeze" in advice.options) == (warm and minutes < 20)
    assert (advice.options.get("p_convolution_dropout") == 0.1) == (weights == SMALL or (not warm and not gpu))
    assert ("decoder_rnn_dim" in advice.options) == (not warm and not gpu)  # a start has its own sizes
    reasons = [proposal.advise(ACOUSTIC, material(number), request).reason for number in (5, 4.9)]
    assert ["rough voice" in reason for reason in reasons] == [False, True]
    halved = proposal.advise(ACOUSTIC, material(minutes), replace(request, half=True))
    assert "amp" not in advice.options and halved.options == advice.options | {"amp": True}


def test_a_time_limit_is_fitted_as_train_py_fits_it() -> None:
    measured = figures(report=10, start=40)  # 25 steps of 2 s: 50 s an epoch
    assert proposal.minutes_of_steps(measured, 1.0) == pytest.approx(60 - 40 / 60)
    assert proposal.minutes_of_steps(measured, None) is None and proposal.minutes_of_steps(measured, 1e-6) == 1 / 60
    run = measured.expect(epochs=150, every=8, minutes=60.0)
    assert run.last == (0.98 * 3600 - 19 * 10) // 50  # 66: the interval shrinks to 4, 18 reports
    assert measured.seconds(150, 8, 60.0) == 40 + 66 * 50 + 18 * 10
    slow = replace(measured, first_seconds=500)  # the first epoch measures the clips
    assert slow.expect(150, 8, 60.0).last == 56  # (0.98 x 3600 - 500 - 20 x 10) / 50
    for every, reports in ((1, 10), (3, 4), (9, 2)):  # after epochs 0, 3, 6 and 9
        assert slow.seconds(10, every) == 40 + 500 + 10 * 50 + reports * 10
    assert replace(figures(), step_seconds=[1.0, 2.0, 30.0]).seconds(4, 4) == 4 * 25 * 2  # the median step
    with pytest.raises(DataError, match="no step was measured"):
        replace(figures(), step_seconds=[]).expect(1, 1)


def test_a_budget_is_shared_and_what_a_model_leaves_goes_to_the_next() -> None:
    waiting = [QUICK, ACOUSTIC, VOCODER]
    assert proposal.hours_of(QUICK, waiting, 10, []) == 2.5
    assert proposal.needed_hours(2.5, expected=180) == 0.1  # 3 minutes, and as many to spare
    assert proposal.hours_of(ACOUSTIC, waiting[1:], 9.9, []) == pytest.approx(5.94)
    assert proposal.hours_of(VOCODER, waiting[2:], 9.9 - 5.94, []) == pytest.approx(3.96)
    assert proposal.hours_of(ACOUSTIC, waiting[1:], 9.9, ["PulseNoise"]) == 9.9
    assert proposal.hours_of(VOCODER, waiting[2:], 2.0, ["PulseNoise"]) == 2.0
    assert [spec.name for spec in trainable_models()][-2:] == ["Tacotron2", "WaveGlow"]  # the latter gets what is left
    assert proposal.hours_of(ACOUSTIC, waiting, None, []) is None


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


def test_a_model_that_needs_less_than_its_share_is_limited_to_twice_its_time(prepared: Project, monkeypatch) -> None:
    """Else it might take the time that those after it were given."""
    monkeypatch.setattr(planning, "measure", lambda *words: figures(report=10, start=40))
    request = PlanRequest(start=None, hours=1000.0)
    model = planning.propose(QUICK, read_material(prepared), request, {}, prepared)
    assert model.fitting == model.usual and 1000 > model.hours == pytest.approx(2 * model.seconds / 3600)
    assert model.group["max_minutes"] == pytest.approx(60 * model.hours - 40 / 60, abs=0.01)


def test_a_budget_that_is_far_too_short_is_named() -> None:
    measured = figures(report=6, start=120)  # 50 s an epoch
    short = Proposal({}, {}, measured, usual=150, fitting=3, seconds=0.0, hours=0.0, sharpen_minutes=0.0)
    found = {"A": short, "B": short._replace(usual=10, fitting=9)}
    words = proposal.describe_need(found, 0.1)
    # 160 epochs, 19 and 10 reports, two starts: 8,414 s
    assert words == "6 min is far too little here: about 2.3 h are needed for the usual epochs, 150 of A (this plan: 3)"
    assert proposal.describe_need({"A": short._replace(fitting=75)}, 0.1) == ""


@pytest.mark.parametrize(
    ("minutes", "report", "every", "lines"),
    [
        (None, 100, 8, 12),
        (60, 10, 8, 12),  # 20 reports
        (60, 100, 25, 12),  # a fifth of 3600 s has 7 reports
        (5, 40, 149, 9),  # a fifth of 300 s is less than two reports: of 9 lines, 30 s each
    ],
)
def test_reports_take_a_fifth_of_the_time(minutes, report, every, lines) -> None:
    """A first report took half of a short budget, which the plan had given to steps; later a quarter."""
    chosen = proposal.choose_reports(150, 12, figures(report=report), minutes and minutes / 60)
    assert [choice.value for choice in chosen.values()] == [every, lines]
    assert figures(report=40).with_lines(12, 9).report_seconds == 30


def test_the_rate_grows_in_a_tenth_of_a_short_run() -> None:
    """A run of 70 steps that warms up for 100 would end before it has the planned rate."""
    assert [proposal.choose_warmup(100, steps).value for steps in (1000, 75)] == [100, 7]


@pytest.mark.parametrize(("epochs", "every"), [(1, 1), (10, 1), (200, 11), (1000, 53)])
def test_a_run_has_twenty_reports_at_most(epochs: int, every: int) -> None:
    assert proposal.interval(epochs) == every


def test_other_languages_are_trained_as_a_whole() -> None:
    """A warm start of English has never read the other letters."""
    request = PlanRequest(start=Start(Path("voice/tacotron2.safetensors"), "Tacotron2", {}, SMALL))
    assert "freeze" in proposal.advise(ACOUSTIC, material(10), request).options
    advice = proposal.advise(ACOUSTIC, replace(material(10), text_options=GERMAN), request)
    assert "freeze" not in advice.options


@pytest.mark.parametrize(
    ("spec", "language", "missing", "measure", "reason"),
    [
        (ACOUSTIC, "en", "faster_whisper", "wer", "the fewest wrong words win"),
        (ACOUSTIC, "de", "moonshine_onnx", "wer", "the fewest wrong words win"),
        (QUICK, "en", "", "loss", "a small model"),
        (
            ACOUSTIC,
            "en",
            "moonshine_onnx",
            "coverage",
            "no recogniser of English (en) is installed (`bash scripts/evaluation.sh`",
        ),
        (
            VOCODER,
            "de",
            "faster_whisper",
            "mel_distance",
            "of German (de) is installed (`bash scripts/whisper.sh` installs it)",
        ),
    ],
)
def test_the_measure_that_selects_is_one_that_can_be_counted(
    monkeypatch, spec, language, missing, measure, reason
) -> None:
    monkeypatch.setattr(recogniser, "find_spec", lambda name: None if name == missing else "there")
    chosen = proposal.choose_ending(spec, replace(material(), hearing=RecogniserConfig(language=language)))
    assert chosen["best_by"].value == measure and reason in chosen["best_by"].reason
    assert chosen["language"].value == language


WAVEGLOW = FLAGS | {"warm_start": None, "best_by": "loss", "max_minutes": 90.0, "dither": 0.1}


def test_a_plan_is_the_config_file_of_train_py(prepared: Project) -> None:
    """Each model has its own flags and those of all; what is for studio.train and for people is passed over."""
    quick = {"epochs": 7, "batch_size": 3}
    plan = store_plan(
        prepared,
        {"WaveGlow": WAVEGLOW, "PulseNoise": quick},
        {"reasons": {}},
        sharpen_minutes=4.5,
        verdict_minutes=None,
    )
    assert list(plan.models) == ["PulseNoise", "WaveGlow"] and plan.cpu
    assert (plan.studio.sharpen_minutes, plan.studio.threads, plan.studio.verdict_minutes) == (4.5, 1, None)
    for name, flags in (("WaveGlow", WAVEGLOW), ("PulseNoise", quick)):
        options, _ = parse_training_arguments(["-m", name, "--config-file", str(prepared.plan)], REGISTRY, "")
        found = plan.models[name].flat
        assert found == options.flat | {"config_file": None}
        wanted = flags | {"seed": 1, "output": prepared.run(name), "training_files": prepared.training_list}
        assert {flag: found[flag] for flag in wanted} == wanted
    for encoding in ("utf-8-sig", "utf-16"):  # as Windows' editors save it
        prepared.plan.write_text(prepared.plan.read_text(), encoding=encoding)
        assert read_plan(prepared.plan) == plan
        write_plan(prepared.plan, plan.groups)


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("batch_size", 0, "WaveGlow.batch_size: 0, expected at least 1"),
        ("learning_rate", float("nan"), "WaveGlow: --learning-rate: nan, expected "),
        ("lr_schedule", "sine", "WaveGlow.lr_schedule: invalid choice: 'sine'"),
        ("max_minutes", -1, "WaveGlow: --max-minutes: -1.0, expected more than 0"),
        ("colour", "red", "WaveGlow.colour: no such flag, --colour"),
        ("evaluate_every", 3, "WaveGlow: --evaluate-every 3: happens at validations, expected a multiple of"),
    ],
)
def test_a_bad_value_is_named_by_file_and_flag(prepared: Project, flag: str, value: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        store_plan(prepared, {"WaveGlow": WAVEGLOW | {flag: value}})
    assert str(caught.value).startswith(f"{prepared.plan}: {message}")


def test_all_mistakes_are_in_one_message(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_text('{"Hifi": {}, "studio": {"threads": 2.5, "sharpen_minutes": "x", "speed": 1}}')
    with pytest.raises(DataError) as caught:
        read_plan(path)
    lines = str(caught.value).splitlines()
    assert len(lines) == 5 and "Hifi: no such model, expected some of all models, PulseNoise" in lines[0]
    assert lines[2:4] == [
        f"{path}: studio.threads: invalid int value: '2.5'",
        f"{path}: studio.sharpen_minutes: invalid float value: 'x'",
    ]
    path.write_text('{"PulseNoise": {}, "studio": {"threads": 0}}')
    with pytest.raises(DataError, match=f"{path}: studio: --threads: 0, expected a whole number of at least 1"):
        read_plan(path)
    for content, words in (
        ("[]", "expected {group: {flag: value}}"),
        ('{"models": {}, "version": 1}', "0.12 or before"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=words):
            read_plan(path)


def test_a_measure_other_than_the_loss_counts_near_the_lowest_loss_alone() -> None:
    chosen = {"best_by": Proposed("wer", ""), "epochs_per_validation": Proposed(13, ""), "seed": Proposed(3, "")}
    group = group_of(chosen)
    every = dict.fromkeys(("epochs_per_validation", "evaluate_every", "epochs_per_checkpoint"), 13)
    assert group == {**every, "best_by": "wer", "seed": 3, "evaluate_without": ["mos", "likeness"], "best_slack": 0.1}
    assert group_of(chosen | {"best_by": Proposed("loss", "")})["best_slack"] is None


def test_train_py_has_the_planned_threads(monkeypatch) -> None:
    assert environment(3)["OMP_NUM_THREADS"] == "3"
    for value, expected in (("5", 5), ("0", len(os.sched_getaffinity(0))), ("", len(os.sched_getaffinity(0)))):
        monkeypatch.setenv("OMP_NUM_THREADS", value)
        assert usable_threads() == expected


def test_starts_of_from_and_their_weights() -> None:
    files = {"PulseNoise": "pitch", "Tacotron2": "tacotron2", "WaveGlow": "waveglow"}  # what takes minutes trains first
    embedded = {name: EMBEDDED / f"{stem}.safetensors" for name, stem in files.items()}

    def paths(*words: str) -> dict[str, Path | None]:
        return {name: start and start.path for name, start in find_starts(words).items()}

    assert list(paths("embedded").items()) == list(embedded.items())
    assert paths("none") == dict.fromkeys(files)
    tiny = train_tiny_model("Tacotron2")  # ten mel channels, unlike the embedded vocoders
    assert paths(str(tiny)) == dict.fromkeys(files) | {"Tacotron2": tiny}
    with pytest.raises(UsageError, match="none cannot be combined"):
        paths("none", "embedded")
    with pytest.raises(UsageError, match="different audio settings"):
        paths(str(tiny), str(embedded["WaveGlow"]))
    weights = torch.load(tiny, weights_only=True)["state_dict"]
    found = find_starts([str(tiny)])["Tacotron2"]
    assert found.weights == sum(math.prod(tensor.shape) for tensor in weights.values()) > 1000
    assert found.audio["n_mel_channels"] == 10


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
