"""Every flag of the other commands changes just what its row says of the files that they write and of what they print."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import soundfile
import torch

from benchmarks.cases import Case
from benchmarks.latency import Iteration
from benchmarks.load import Reply, SpeechJob
from benchmarks.speed import CaseRow
from common.audio.stft import AudioConfig
from common.checkpoint.files import load_checkpoint
from common.data.mels import main as make_mels
from common.errors import DataError, UsageError
from common.inference.vocoders import LoadedModel
from common.options import from_options
from common.quality.recogniser import RecogniserConfig
from models import REGISTRY
from scripts.write_cli_docs import COMMANDS, parse_of
from studio.plan.commands import Figures
from studio.project import create_project
from synthesizer import Synthesizer
from tests.options import SPEAKERS, SPEAKING, TABLES, changes, flag_in, flags_of, observe, unmatched
from tests.recipe import ROOT, clips, skip_without_evaluators, train_tiny_model
from tests.sounds import SENTENCES, sentence
from tests.studio.projects import add_voice, make_project
from tests.test_every_option_of_inference import STORED_ROWS

pytestmark = pytest.mark.slow


def write_export(target: str, source: Any, folder: Path) -> None:
    """Stands in for an export: what it would be made of."""
    models = source.voice.acoustic.model, source.voice.vocoding.model
    config = source.voice.config
    found = [
        target,
        *map(weights, models),
        config.sigma_infer,
        source.voice.denoising_strength,
        source.voice.description,
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "export.json").write_text(json.dumps(found))


def weights(model: torch.nn.Module) -> list[float]:
    return [weight.double().sum().item() for weight in model.state_dict().values()]


def repeat(*words: object, **more: object) -> None:
    """Stands in for work that takes long: prints what it was asked for."""
    print([word for word in words if not callable(word)], more)


def chat(*words: object) -> Callable[..., Any]:
    return lambda question, turns: repeat(*words, len(turns)) or iter(["Two."])


def measure(name: str, groups: Any, threads: int) -> Figures:
    values = dict.fromkeys((field for field in Figures.__annotations__), 10) | {"model": name, "device": "D"}
    return Figures(**values | {"step_seconds": [0.1], "available": 10**9, "clips": 5})


def run_train(name: str, groups: Any, threads: int, *words: str) -> None:
    (Path(words[-1])).mkdir(exist_ok=True)
    (Path(words[-1]) / f"learning_rate_{name}.json").write_text('{"limit": 0.5, "suggestion": 0.05}')


class Server:
    """Stands in for a server process, whose port and number it says."""

    stdout, pid = ['{"host": "h", "port": 1}'], os.getpid()

    def __init__(self, words: list[str], **more: object) -> None:
        repeat(*words[1:])

    def wait(self, *seconds: float) -> int:
        return 0

    kill = send_signal = wait


async def under_load(url: str, process: Any, jobs: Any, clients: int, options: Any) -> Any:
    repeat(clients, options.requests, options.pause, jobs)
    return 1.0, [Reply(0.1, 0.2, "right", SpeechJob("", 0, "", 1.0))], (1, 2, 3)


def case_row(make: Callable[[], Case], device: torch.device, repeats: int) -> CaseRow:
    return CaseRow(name=f"{make().name} {repeats} {torch.get_num_threads()}", unit="", reference=1.0, ours=2.0)


def recognise(paths: list[Path], config: Any, workers: int) -> Iterator[str]:
    repeat(config)
    return (SENTENCES[int(path.stem.split("_")[0]) - 1].replace("the", "a") for path in paths)


@pytest.fixture
def quick(monkeypatch) -> None:
    """Stand-ins for recognisers, exports, servers and measurements, which print what they were given."""
    for place, stand_in in {
        "common.quality.recogniser.RecogniserConfig.load": lambda config: lambda audio, rate: "What is it?",
        "serving.conversation.ChatEndpoint": chat,
        "exports.__main__.export": write_export,
        "studio.export.export": write_export,
        "exports.triton_client.speak": lambda *words: repeat(*words) or (np.zeros(9), 22050),
        "exports.triton_client.stream": lambda *words: repeat(*words) or [(np.zeros(9), 22050)],
        "studio.plan.__main__.measure": measure,
        "benchmarks.latency.measure": lambda say, options, log: (
            [Iteration(1.0, 9, {"latency": options.warmup})],
            False,
        ),
        "benchmarks.load.subprocess.Popen": Server,
        "benchmarks.load.wait_until_ready": repeat,
        "benchmarks.load.expected_jobs": lambda vocoder: vocoder,
        "benchmarks.load.measure": under_load,
        "benchmarks.speed.measure_in_process": case_row,
        "studio.prepare.texts._recognise_all": recognise,
        "studio.plan.__main__.run_train": run_train,
    }.items():
        monkeypatch.setattr(place, stand_in)


def add_recordings(lists: Path) -> Path:
    """Write recordings with lists of them, and a talk for studio.prepare. Returns the folder of the former."""
    rows = [row.split("|") for row in (lists / "training.txt").read_text().splitlines()]
    data, talk = lists / "start" / "data", lists / "talk"
    for folder in (data / "wavs", data / "mels", talk):
        folder.mkdir(parents=True)
    for number, (path, _) in enumerate(rows):
        samples, rate = soundfile.read(ROOT / path)
        soundfile.write(data / "wavs" / f"{number}.wav", samples, rate, subtype="PCM_16")
        soundfile.write(data / f"{number}.wav", samples, 16000 if number == 1 else rate, subtype="PCM_16")
    for name, pattern, count in (
        ("wavs.txt", "wavs/{}.wav", 5),
        ("two.txt", "wavs/{}.wav", 2),
        ("mels.txt", "mels/{}.pt", 5),
        ("other_mels.txt", "other/{}.pt", 5),
        ("recordings.txt", "{data}/wavs/{}.wav", 5),
        ("two_rates.txt", "{data}/{}.wav", 5),
    ):
        lines = [f"{pattern.format(number, data=data)}|{text}\n" for number, (_, text) in enumerate(rows[:count])]
        (data / name).write_text("".join(lines))
    for number in range(1, 9):
        sound = sentence(number) * 0.9**number
        sound[[5000, 5001, 5002, 9000, 9001, 9002]] = 1.0  # two runs at full scale
        soundfile.write(talk / f"{number}.wav", sound, 22050)
        (talk / f"{number}.txt").write_text(SENTENCES[number - 1])
    return data


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Any]:
    skip_without_evaluators("fastapi", "httpx")
    lists = tmp_path_factory.mktemp("lists")
    clips(lists)
    for name, content in {
        "phrases": "Two: 5 kg.\nThree.\n",
        "lexicon": "two\tthree\n",
        "symbols": "_\nq",
        "knowledge": "what is it|Two: 5 kg.\n",
        "other_knowledge": "what is it|Three.\n",
    }.items():
        (lists / name).write_text(content)
    data = add_recordings(lists)
    found: dict[str, Any] = {"lists": lists, "data": data, "root": ROOT, "start": lists / "start"}
    found |= {name.lower(): train_tiny_model(name) for name in REGISTRY}
    argv = (
        f"--audio-filelist {data}/wavs.txt --mel-filelist {data}/mels.txt -d {data} --num-workers 1 --n-mel-channels 10"
    )
    make_mels(argv.split())
    for name, key, weight in (
        ("tacotron2", "other", "decoder.linear_projection.linear_layer.bias"),
        ("waveglow", "othervocoder", "upsample.bias"),
    ):
        checkpoint = load_checkpoint(found[name])
        checkpoint["state_dict"][weight] += 0.5
        found[key] = lists / f"{key}.pt"
        torch.save(checkpoint, found[key])
    project = make_project(create_project(lists / "start", "mine"))
    add_voice(project)
    return found | {"voice": project.voice}


def main_of(command: str) -> Callable[[list[str]], object]:
    """The function that runs a command's words."""
    module, *first = COMMANDS[command].split()
    main = import_module({"studio.prepare.arguments": "studio.prepare.__main__"}.get(module, module)).main
    return lambda words: main([*first, *words])


@cache
def observe_without(command: str, parent: Path, start: Path, words: str) -> dict[str, Any]:
    return observe_in(Path(mkdtemp(dir=parent)), start, command, words)


def observe_in(folder: Path, start: Path, command: str, words: str) -> dict[str, Any]:
    """Run a command in a folder with a project and some recordings, which it may change."""
    shutil.copytree(start, folder, copy_function=os.link, dirs_exist_ok=True)
    return observe(main_of(command), folder, *words.format(folder=folder).split())


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("command", "row"), [(name, row) for name, table in TABLES.items() for row in table.rows])
def test_an_option_of_a_command(command: str, row: str, places: dict[str, Any], tmp_path: Path) -> None:
    table = TABLES[command]
    given, _, both = row.partition(" ; ")
    words = f"{table.words} {both}".format(**places, folder="{folder}")
    before = observe_without(command, tmp_path.parent, places["start"], words)
    after = observe_in(tmp_path, places["start"], command, f"{words} {given.format(**places, folder='{folder}')}")
    if "refused" in after:
        found = "refused" if after != before else ""
    else:
        found = "accepted" if "refused" in before else changes(before, after)
    assert found == table.rows[row]


@pytest.mark.parametrize("command", TABLES)
def test_every_flag_has_a_row(command: str) -> None:
    table = TABLES[command]
    voiced = {row.partition(" ")[0] for row in (*SPEAKING, *STORED_ROWS)}
    shared = voiced & flags_of(parse_of(command)) if command in SPEAKERS else ()
    assert unmatched(parse_of(command), table.rows, table.elsewhere, shared) == set()
    assert all(Path(ROOT, place).exists() for place in table.elsewhere.values())


def test_every_command_has_a_table() -> None:
    """Those of inference.py and of the server stand apart; the last three have a few flags of their processes."""
    assert COMMANDS.keys() - TABLES.keys() == {
        "inference.py",
        "python -m serving",
        "python -m studio",
        "python -m studio.train",
        "python -m benchmarks.peers",
    }


class Given(Exception):
    """What a command gives to its voice."""


@pytest.mark.parametrize("command", SPEAKERS)
def test_the_flags_of_speaking_reach_the_voice(
    command: str, places: dict[str, Any], tmp_path: Path, monkeypatch
) -> None:
    """tests/test_every_option_of_inference.py has what they change there."""

    def take(*parts: Any, **more: Any) -> None:
        loaded = [part for part in parts if isinstance(part, LoadedModel)]
        models = [(one.path, weights(one.model), one.spec.config_from_options(one.options)) for one in loaded]
        audio = [(from_options(AudioConfig, one.options), one.options["text_cleaners"]) for one in loaded]
        raise Given(str((models, audio, *(part for part in parts if not isinstance(part, LoadedModel)), more)))

    monkeypatch.setattr(RecogniserConfig, "load", repeat)
    monkeypatch.setattr(Synthesizer, "from_choice", take)
    monkeypatch.setattr("benchmarks.latency.Synthesizer", take)

    def given(row: str) -> str:
        words = f"{TABLES[command].words} {row}".format(**places, symbols=places["lists"] / "symbols", folder=tmp_path)
        words = words.replace("--cpu", "")  # which excludes --fp16
        with pytest.raises((Given, DataError, UsageError)) as found:  # settings of a checkpoint are refused
            main_of(command)(words.split())
        return str(found.value)

    usual, flags = given(""), flags_of(parse_of(command))
    rows = [row for row in (*SPEAKING, *STORED_ROWS) if flag_in(row, flags) in flags]
    assert len(rows) > 50 and [row for row in rows if given(row) == usual] == []
