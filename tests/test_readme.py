"""Every command in README.md exists and parses, and every flag and link it names is real."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import common.checkpoint
import evaluate
import inference
from benchmarks import latency, speed
from common.data.mels import parse_args as parse_mel_arguments
from common.training_arguments import parse_training_arguments
from models import REGISTRY
from multiproc import torchrun_arguments
from scripts import dataset_report, prepare_recordings

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(?:^    .*\n?)+", TEXT, flags=re.MULTILINE)
INLINE = re.findall(r"`((?:python|bash|torchrun) [^`]+)`", TEXT)


def commands() -> list[list[str]]:
    """The words of every command line in the README, without comments and settings of variables."""
    lines = [line.strip() for block in BLOCKS for line in block.splitlines()] + [" ".join(c.split()) for c in INLINE]
    words = [
        shlex.split(
            re.sub(r">\([^)]*\)", "/dev/fd/63", line), comments=True
        )  # to bash, the name of a pipe to what is in ()
        for line in lines
        if re.match(r"([A-Z_]+=\S+ )?(python3?|bash|torchrun|sbatch) ", line)
    ]
    return [[word for word in line if not re.match(r"[A-Z_]+=", word)] for line in words]


def script_and_arguments(words: list[str]) -> tuple[str, list[str]]:
    """What a command runs in the end: the launcher's own words are taken off."""
    if words[0] == "torchrun" or words[:3] == ["python", "-m", "multiproc"]:
        rest = words[1:] if words[0] == "torchrun" else torchrun_arguments(words[3:], gpus=8)
        script = next(i for i, word in enumerate(rest) if word.endswith(".py"))
        return rest[script], rest[script + 1 :]
    if words[0] == "sbatch":
        return "train.py", [*words[2:], "--resume-from-last"]
    if words[1] == "-m":
        return words[2], words[3:]
    return words[1], words[2:]


PARSERS = {  # of what is run by these names
    "inference.py": inference.parse_args,
    "evaluate.py": evaluate.parse_args,
    "train.py": lambda arguments: parse_training_arguments(arguments, REGISTRY, ""),
    "common.data.mels": parse_mel_arguments,
    "common.dataset_report": dataset_report.parse_args,
    "scripts.dataset_report": dataset_report.parse_args,
    "common.checkpoint": common.checkpoint.parse_args,
    "benchmarks.latency": latency.parse_args,
    "benchmarks.speed": speed.parse_args,
    "scripts/prepare_dataset.sh": prepare_recordings.parse_args,
}
COMMANDS = sorted({tuple(words) for words in commands()})


def test_the_readme_has_its_two_first_commands():
    assert ("bash", "scripts/quickstart.sh") in COMMANDS
    assert ("bash", "scripts/test.sh") in COMMANDS
    assert len(COMMANDS) > 12


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_command_parses(words):
    script, arguments = script_and_arguments(list(words))
    if script in PARSERS and arguments and "asterisk" not in arguments:
        help_wanted = {"-h", "--help"} & set(arguments)
        with pytest.raises(SystemExit) if help_wanted else contextlib.nullcontext() as stopped:
            PARSERS[script](arguments)
        assert stopped is None or stopped.value.code == 0
    elif script != "venv":
        path = script.replace(".", "/") + ".py" if words[1] == "-m" else script
        assert (ROOT / path).is_file(), script


def test_every_flag_exists():
    known = {flag for spec in REGISTRY.values() for flag in training_flags(spec.name)}
    helps = [parse for name, parse in PARSERS.items() if name != "train.py"]
    known |= {flag for parse in helps for flag in flags_in_help(partial(parse, ["--help"]))}
    for command in ("inspect", "convert"):
        known |= flags_in_help(partial(common.checkpoint.parse_args, [command, "--help"]))
    known |= {
        "--max-restarts",
        "--nproc",
        "--nnodes",
        "--nproc-per-node",
        "--rdzv-backend",
        "--rdzv-endpoint",
        "--rdzv-id",
        "--logdir",
    }  # of launchers
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", TEXT))
    retired = {"--dist-url", "--dynamic-loss-scaling"}
    assert named - known - retired == set()


def training_flags(name: str) -> set[str]:
    """The flags that a model's help lists."""
    return flags_in_help(lambda: parse_training_arguments(["-m", name, "--help"], REGISTRY, ""))


def flags_in_help(print_help: Callable[[], object]) -> set[str]:
    """The flags that a help text lists."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        print_help()
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", printed.getvalue()))


def test_links_and_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / target).exists(), target
    anchors = {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in re.findall(r"^#+ (.*)", TEXT, re.M)
    }
    for anchor in re.findall(r"\]\(#([^)]+)\)", TEXT):
        assert anchor in anchors, anchor
