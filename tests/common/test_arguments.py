"""train.py's command line: defaults, refusals, retired flags, config files."""

import argparse
import json
import math
import re
from pathlib import Path

import pytest

from common.arguments import log_path
from common.errors import UsageError
from common.training.arguments import parse_training_arguments
from models import REGISTRY
from tests.recipe import fresh_state

# The published defaults: of both models, and where they differ.
PUBLISHED = {
    "output": Path("output"), "dataset_path": "./", "log_file": "nvlog.json", "epochs_per_checkpoint": 50,
    "checkpoint_path": None, "resume_from_last": False, "disable_uniform_initialize_bn_weight": False,
    "training_files": Path("filelists/ljs_audio_text_train_filelist.txt"),
    "validation_files": Path("filelists/ljs_audio_text_val_filelist.txt"),
    "max_wav_value": 32768.0, "sampling_rate": 22050, "filter_length": 1024, "hop_length": 256, "win_length": 1024,
    "mel_fmin": 0.0, "mel_fmax": 8000.0, "n_mel_channels": 80, "amp": False, "cudnn_benchmark": False, "seed": None,
    "config_file": None, "bench_class": "",
}  # fmt: skip
# tests/tacotron2/test_config.py has those of Tacotron 2.
PUBLISHED_BY_MODEL = {
    "Tacotron2": {
        "epochs": 1501, "learning_rate": 1e-3, "weight_decay": 1e-6, "grad_clip_thresh": 1.0,
        "anneal_steps": [500, 1000, 1500], "load_mel_from_disk": False, "text_cleaners": ["english_cleaners"],
    },
    "WaveGlow": {
        "epochs": 1001, "learning_rate": 1e-4, "weight_decay": 0.0, "grad_clip_thresh": None, "anneal_steps": [],
        "flows": 12, "groups": 8, "early_every": 4, "early_size": 2, "sigma": 1.0, "segment_length": 8000,
        "wn_kernel_size": 3, "wn_channels": 512, "wn_layers": 8,
    },
}  # fmt: skip
BOTH = pytest.mark.parametrize("model", ["Tacotron2", "WaveGlow"])


def parse(*words: str, model: str = "Tacotron2") -> argparse.Namespace:
    return argparse.Namespace(**parse_training_arguments(["-m", model, *words], REGISTRY, "")[0].flat)


def refusal(capsys, *words: str, model: str = "Tacotron2") -> str:
    """The last line that argparse prints before it exits with code 2."""
    with pytest.raises(SystemExit) as leaving:
        parse(*words, model=model)
    assert leaving.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def config(tmp_path: Path, content: object) -> str:
    path = tmp_path / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


@BOTH
def test_published_defaults(model: str) -> None:
    args = vars(parse(model=model))
    wanted = PUBLISHED | PUBLISHED_BY_MODEL[model]
    assert {name: args[name] for name in wanted} == wanted


@pytest.mark.parametrize(("model", "sizes"), [("Tacotron2", (48, 104)), ("WaveGlow", (4, 10))])
def test_defaults_that_depend_on_amp(model: str, sizes: tuple[int, int]) -> None:
    """scripts/train_*.sh turn it on; batch size and annealing follow the last word."""
    for words, wanted in (
        ("", (False, sizes[0], 0.1)),
        ("--amp", (True, sizes[1], 0.3)),
        ("--amp --no-amp", (False, sizes[0], 0.1)),
        ("--amp -bs 7 --anneal-factor 0.5", (True, 7, 0.5)),
    ):
        args = parse(*words.split(), model=model)
        assert (args.amp, args.batch_size, args.anneal_factor) == wanted


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ("--mask-padding True", (True, False, True)),  # published with type=bool; its cuDNN was off, ours is on
        ("--mask-padding=true --amp True", (True, True, True)),
        ("--mask-padding False --amp False --cudnn-enabled False", (False, False, False)),
        ("--no-mask-padding True --cudnn-enabled", (False, False, True)),
        ("--no-cudnn-enabled", (False, False, False)),
    ],
)
def test_switches_take_a_value_too(words: str, values: tuple[bool, ...]) -> None:
    args = parse(*words.split())
    assert (args.mask_padding, args.amp, args.cudnn_enabled) == values


def test_help_with_and_without_a_model(capsys) -> None:
    both = ["1501 for Tacotron2; 1001 for WaveGlow; 100 for PulseNoise", "1.0 for Tacotron2; off for WaveGlow"]
    own = ["(default: 1001)", "10 with --amp, else 4", "(default: off)", "--wn-channels"]
    for words, expected in ((["-h"], both), (["-m", "WaveGlow", "--help"], own)):
        with pytest.raises(SystemExit, match="0"):
            parse_training_arguments(words, REGISTRY, "")
        shown = " ".join(capsys.readouterr().out.split())
        assert [text for text in expected if text not in shown] == []
        assert ("--wn-channels" in shown) == (expected is own)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "0"], "--epochs: 0, expected at least 1"),
        (["-bs", "-3"], "-bs/--batch-size: -3, expected at least 1"),
        (["--seed", "-1"], "--seed: -1, expected 0 to 2^32 - 1"),
        (["--seed", "4294967296"], "--seed: 4294967296, expected 0 to 2^32 - 1"),
        (["--learning", "1e-3"], "unrecognized arguments: --learning 1e-3; did you mean --learning-rate?"),
        (["--wn-channels", "64"], "unrecognized arguments: --wn-channels 64"),
        (["--amp", "maybe"], "unrecognized arguments: maybe"),
        (["--lr-scale", "encoder"], "'encoder', expected REGEX=FACTOR with a factor above 0, such as ^encoder=0.1"),
        (["--freeze", "("], "'(' is no regular expression: missing ), unterminated subpattern at position 0"),
    ],
)
def test_what_argparse_refuses(capsys, words: list[str], message: str) -> None:
    assert refusal(capsys, *words).endswith(message)


def test_all_numbers_that_cannot_work_are_reported_at_once() -> None:
    words = "-lr 0 --weight-decay -1 --grad-clip-thresh 0 --anneal-factor 0 --bucket-batches -1 --num-workers -1"
    for given in (words, "-lr nan --weight-decay nan --grad-clip-thresh nan --anneal-factor nan"):
        with pytest.raises(UsageError) as error:
            parse(*given.split())
        flags = [line.split(":")[0] for line in str(error.value).splitlines()]
        assert sorted(flags) == sorted(given.replace("-lr", "--learning-rate").split()[::2])
    assert parse("--grad-clip-thresh", "inf").grad_clip_thresh == math.inf


@BOTH
def test_retired_flags_are_mentioned_once_each_and_change_nothing(capsys, model: str) -> None:
    words = "--use-saved-learning-rate True --dynamic-loss-scaling --world-size 2 --world-size 2 --local_rank=0 --grad-clip 5.0"
    before = vars(parse(model=model))
    assert capsys.readouterr().out == ""
    assert vars(parse(*words.split(), model=model)) == before
    notes = capsys.readouterr().out.splitlines()
    flags = ["--use-saved-learning-rate", "--dynamic-loss-scaling", "--world-size", "--local_rank", "--grad-clip"]
    assert notes == [f"note: {flag} has no effect here; it can be left out" for flag in flags]


def test_flags_of_the_other_model_that_the_published_recipe_took_for_both(capsys) -> None:
    words = ["--load-mel-from-disk", "--text-cleaners", "english_cleaners"]
    args = vars(parse(*words, model="WaveGlow"))
    assert args["load_mel_from_disk"] and "text_cleaners" not in args
    assert capsys.readouterr().out.count("has no effect") == 1
    assert parse(*words).load_mel_from_disk
    assert capsys.readouterr().out == ""


def test_the_command_line_overrides_the_config_file_and_that_the_defaults(tmp_path: Path) -> None:
    content = {
        "optimization": {"learning_rate": 0.5, "batch-size": 3, "anneal_steps": [1, 2], "weight_decay": 0.25},
        "audio": {"--mel-fmin": 40.0},
        "switches": {"amp": True, "cudnn_enabled": False, "seed": None, "mask_padding": True},
    }
    args = parse("--config-file", config(tmp_path, content), "-bs", "9", "--weight-decay", "0", "--no-mask-padding")
    assert (args.learning_rate, args.batch_size, args.weight_decay, args.epochs) == (0.5, 9, 0.0, 1501)
    assert (args.anneal_steps, args.mel_fmin) == ([1, 2], 40.0)
    assert (args.amp, args.cudnn_enabled, args.seed, args.mask_padding) == (True, False, None, False)
    assert args.anneal_factor == 0.3  # as for --amp on the command line
    limits = "--anneal-factor 1 --warmup-steps 0 --max-skipped 0 --num-workers 0 --bucket-batches 0 --epochs 1"
    parse(*limits.split())  # are taken
    assert parse("--config-file", config(tmp_path, content), "--cudnn-enabled").cudnn_enabled


def test_everything_wrong_in_a_config_file_is_named_by_its_place(tmp_path: Path) -> None:
    content = {
        "run": {"epochs": 0, "log_file": "x.json", "help": True},
        "optimization": {"learning": 1e-3, "amp": 1, "batch_size": "many", "epochs-per-checkpoint": True},
    }
    path = config(tmp_path, content)
    with pytest.raises(UsageError) as error:
        parse("--config-file", path)
    where = f"--config-file: {path}: "
    assert str(error.value).splitlines() == [
        f"{where}run.epochs: 0, expected at least 1",
        f"{where}run.help: --help shows the help and ends the run, expected a setting",
        f"{where}optimization.learning: no such flag, --learning",
        f"{where}optimization.amp: --amp takes no value, but true or false: 1",
        f"{where}optimization.batch_size: invalid positive value: 'many'",
        f"{where}optimization.epochs-per-checkpoint: expected one argument",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read (No such file or directory)"),
        ("{", "not JSON (Expecting property name"),
        ("[" * 100_000, "not JSON (brackets nested too deep)"),
        ([1], "expected {group: {flag: value}}"),
        ({"epochs": 3}, "expected {group: {flag: value}}"),
    ],
    ids=["missing", "cut short", "brackets", "a list", "flags without a group"],
)
def test_config_files_that_are_none(tmp_path: Path, content: object, message: str) -> None:
    path = str(tmp_path / "none.json") if content is None else config(tmp_path, content)
    with pytest.raises(UsageError) as error:
        parse("--config-file", path)
    assert str(error.value).startswith(f"--config-file: {path}: {message}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--amp-dtype bfloat16", "--amp-dtype: needs --amp"),
        ("--cpu-offload", "--cpu-offload: needs --shard"),
        ("--deterministic --cudnn-benchmark", "--deterministic: --cudnn-benchmark chooses algorithms by their time"),
        ("--find-lr --dry-run", "--find-lr ends with a plot, --dry-run with a plan: give one of them"),
        ("--best-by mos", "--best-by mos: needs --evaluate-every"),
        ("--best-slack 0.1", "--best-slack: needs a --best-by other than loss"),
        ("--evaluate-every 3 --epochs-per-validation 2", "expected a multiple of --epochs-per-validation 2"),
        ("--ignore-layers ^a", "--ignore-layers: needs --warm-start"),
        ("--measure x.json", "--measure: needs --dry-run"),
        ("--shard --grad-compression fp16", "--shard: has its own way to average gradients"),
        ("--shard --amp --amp-dtype float16", "--shard: works with --amp-dtype bfloat16 or without --amp"),
        ("--warm-start a.pt --checkpoint-path b.pt", "give one of them"),
        ("--ema-decay 1", "--ema-decay: 1.0, expected a number in (0, 1), such as 0.999"),
        ("--max-minutes 0", "--max-minutes: 0.0, expected more than 0"),
    ],
)
def test_flags_that_cannot_work_are_refused(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        parse(*words.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--amp --amp-dtype float16 --grad-compression powersgd", "powersgd: carries its error forward"),
        ("--lr-scale ^x=2", "--lr-scale: no weight's name matches '^x'; names start with upsample, WN, convinv"),
        ("--freeze ^x", "--freeze: no weight's name matches '^x'"),
    ],
)
def test_flags_that_do_not_suit_the_model(tmp_path: Path, words: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        fresh_state("WaveGlow", tmp_path, *words.split())


def test_a_log_file_that_begins_with_the_output_folder_is_meant_as_it_stands() -> None:
    for output, log_file, wanted in (
        ("output", "nvlog.json", "output/nvlog.json"),
        ("./output", "output/nvlog_fp16.json", "output/nvlog_fp16.json"),
        ("output", "output2/nvlog.json", "output/output2/nvlog.json"),
        ("output", "/logs/nvlog.json", "/logs/nvlog.json"),
        (".", "nvlog.json", "nvlog.json"),
    ):
        assert log_path(Path(output), log_file) == Path(wanted)
