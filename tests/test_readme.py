"""README.md and docs/: every command parses, every flag, link, anchor and file exists, and docs/cli.md is up to date."""

import ast
import contextlib
import functools
import io
import re
import shlex
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path

import pytest

from common.training.arguments import parse_training_arguments
from models import REGISTRY
from multiproc import torchrun_arguments
from scripts import write_cli_docs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
OTHERS = ("CONTRIBUTING.md", "voice/README.md", "audio/README.md", "corpus/README.md")
LINKING = [*PAGES, *(ROOT / name for name in OTHERS)]
# Flags of other programs, and flags that only the published recipe had.
FOREIGN_FLAGS = {
    *("--max-restarts", "--nproc", "--nnodes", "--nproc-per-node", "--rdzv-backend", "--rdzv-endpoint", "--rdzv-id"),
    *("--logdir", "--nodes", "--build-arg", "--dist-url", "--dynamic-loss-scaling", "--model-repository", "--bind"),
    "--install-only",  # of the scripts that install
    "--depth",  # git
    "--query-compute-apps",  # nvidia-smi
    "--data-urlencode",  # curl
    # docker, pip and uv
    *(
        "--rm",
        "--ipc",
        "--shm-size",
        "--require-hashes",
        "--no-deps",
        "--disable-pip",
        "--upgrade",
        "--index-url",
        "--extra-index-url",
    ),
}
FOLDERS_OF_USERS = (
    *("LJSpeech-1.1/", "output/", "OUT/", "FOLDER/", "wavs/", "mels/", "recordings/", "checkpoints/", "spoken/"),
    *("clips.tsv", "state/"),  # of a project of the studio
)
RUNNABLE = r"([A-Z_]+=\S+ )?(python3?|bash|torchrun|sbatch) "


def blocks_of(text: str) -> list[str]:
    fenced = r"^```\w*\n(.*?)^```"
    indented = re.findall(r"(?:^    .*\n?)+", re.sub(fenced, "", text, flags=re.M | re.S), flags=re.M)
    return indented + re.findall(fenced, text, flags=re.M | re.S)


def commands_of(text: str) -> list[list[str]]:
    """List the words of every command line in a page, without comments and settings of variables."""
    inline = re.findall(r"`((?:python|bash|torchrun|sbatch) [^`]+)`", text)
    lines = [line.strip() for block in blocks_of(text) for line in block.replace("\\\n", " ").splitlines()]
    lines += [" ".join(command.split()) for command in inline]
    words = [
        shlex.split(re.sub(r">\([^)]*\)", "/dev/fd/63", line), comments=True)  # bash replaces >(…) by a pipe's name
        for line in lines
        if re.match(RUNNABLE, line) and "…" not in line.split("#")[0]
    ]
    return [[word for word in line if not re.match(r"[A-Z_]+=", word)] for line in words]


def script_and_arguments(words: list[str]) -> tuple[str, list[str]]:
    """Return the script that a command runs in the end, and its arguments; a launcher's own words are removed."""
    if words[0] == "torchrun" or words[:3] == ["python", "-m", "multiproc"]:
        if not any(word.endswith(".py") for word in words):
            return "multiproc", []
        rest = words[1:] if words[0] == "torchrun" else torchrun_arguments(words[3:], gpus=8)
        script = next(i for i, word in enumerate(rest) if word.endswith(".py"))
        return rest[script], rest[script + 1 :]
    if words[0] == "sbatch":
        return "train.py", [*words[2:], "--resume-from-last"]
    if words[1] == "-m":
        return words[2], words[3:]
    return words[1], words[2:]


def parse_training(arguments: list[str]) -> object:
    """Parse the flags of train.py; the embedded voice stands for the checkpoint of --warm-start, which is read here."""
    words = list(arguments)
    if "--warm-start" in words:
        model = words[words.index("-m") + 1]
        words[words.index("--warm-start") + 1] = str(ROOT / "voice" / f"{model.lower()}.safetensors")
    return parse_training_arguments(words, REGISTRY, "")


def parse_platform(script: str, arguments: list[str]) -> object:
    """Parse the flags that follow a script of platform/ or scripts/train_*.sh: they go to train.py."""
    return parse_training(["-m", "WaveGlow" if "waveglow" in script else "Tacotron2", *arguments])


MODULES = {
    "scripts/prepare_dataset.sh": "scripts.prepare_recordings",
    "serving": "serving.config",  # whose import needs no extra
}

LOOK_AT_FILES = {"studio.prepare"}  # so that examples of its command do not parse here


@functools.cache
def parser_of(script: str) -> Callable[[list[str]], object] | None:
    """Find a command's parse_args; None for a command without one."""
    if script == "train.py":
        return parse_training
    module = MODULES.get(script, script.removesuffix(".py"))
    for name in (f"{module}.arguments", f"{module}.__main__", module):
        path = (ROOT / name.replace(".", "/")).with_suffix(".py")
        if path.is_file() and (parse := getattr(import_module(name), "parse_args", None)):
            return parse
    return None


COMMANDS = sorted({(page.name, *words) for page, text in TEXTS.items() for words in commands_of(text)})


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_command_parses(command: tuple[str, ...]) -> None:
    _, *words = command
    script, arguments = script_and_arguments(words)
    if (parse := parser_of(script)) and arguments and "asterisk" not in arguments and script not in LOOK_AT_FILES:
        asks_for_help = {"-h", "--help"} & set(arguments)
        with pytest.raises(SystemExit) if asks_for_help else contextlib.nullcontext() as stopped:
            parse(arguments)
        assert stopped is None or stopped.value.code == 0
    elif script.startswith(("platform/", "scripts/train_")):
        assert (ROOT / script).is_file(), script
        parse_platform(script, arguments)
    elif script not in ("venv", "http.server"):  # of Python itself
        path = script.replace(".", "/") + ".py" if words[1] == "-m" else script
        package = ROOT / script.replace(".", "/") / "__main__.py"  # of a command without flags
        assert (ROOT / path).is_file() or package.is_file(), script


def test_python_examples_compile() -> None:
    examples = re.findall(r"^```python\n(.*?)^```", "\n".join(TEXTS.values()), flags=re.M | re.S)
    assert examples and all(map(ast.parse, examples))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_flag_exists(page: Path) -> None:
    named = set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", TEXTS[page]))
    assert named - known_flags() - FOREIGN_FLAGS == set()


@functools.cache
def known_flags() -> set[str]:
    """Collect the flags of all parsers, those of the generated page among them."""
    parsers = [partial(parse_training, ["-m", name, "--help"]) for name in REGISTRY]
    scripts = {script_and_arguments(list(words))[0] for _, *words in COMMANDS} - {"train.py"}
    parsers += [partial(parse, ["--help"]) for script in scripts if (parse := parser_of(script))]
    parsers += [partial(write_cli_docs.parse_of(command), ["--help"]) for command in write_cli_docs.COMMANDS]
    return {flag for print_help in parsers for flag in flags_in_help(print_help)}


def flags_in_help(print_help: Callable[[], object]) -> set[str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        print_help()
    return set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", printed.getvalue()))


def anchors_of(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_resolve(page: Path) -> None:
    for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or anchor in anchors_of(path), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_is_named_exists(page: Path) -> None:
    text = TEXTS[page]
    if page.name == "compatibility.md":
        text = re.sub(r"^\|[^|]*\|", "|", text, flags=re.M)  # the published names in the first column
    a_file = r"[\w./-]+\.(py|sh|md|toml|tsv|sbatch)|[\w-]+(/[\w-]+)+/?|[\w-]+/"
    words = {word for word in re.findall(r"`([\w./-]+)`", text) if re.fullmatch(a_file, word)}
    files = {file for file in words if not file.startswith(FOLDERS_OF_USERS)}
    below = ("", "common/")  # the source tree names files by their folder
    assert [file for file in sorted(files) if not any((ROOT / folder / file).exists() for folder in below)] == []


def test_every_page_is_linked_from_the_readme() -> None:
    assert len(COMMANDS) > 50 and len(TEXTS[ROOT / "README.md"].splitlines()) <= 200
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)", TEXTS[ROOT / "README.md"]))
    assert linked == {str(page.relative_to(ROOT)) for page in PAGES[1:]}


def test_the_command_line_reference_is_up_to_date() -> None:
    assert write_cli_docs.page() == (ROOT / "docs/cli.md").read_text(encoding="utf-8"), "run `make docs`"


def test_the_page_of_samples_plays_every_sound_once() -> None:
    sources = re.findall(r'src="([^"]+)"', (ROOT / "docs/samples.html").read_text(encoding="utf-8"))
    paths = [(ROOT / "docs" / source).resolve() for source in sources]
    assert all(path.is_file() for path in paths) and len(set(paths)) == len(paths)
    assert set((ROOT / "audio").rglob("*.wav")) <= set(paths)
