"""Tables of options: each flag of a command has a row, and what the row names must change when the flag is given."""

import contextlib
import io
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from tempfile import gettempdir
from types import MappingProxyType
from typing import Any, NamedTuple

from common.errors import DataError, UsageError
from tests.recipe import ROOT, own_signals

TEXTS = (".html", ".json", ".jsonl", ".md", ".tsv", ".txt")  # files whose texts may name their folder or a time
# Paths, times and dates, of which a run's own say nothing.
PASSING = re.compile(
    rf"({re.escape(gettempdir())}|{re.escape(str(ROOT))})/[^\s\"',:|]+|[\d.]+ (?=s\b|ms)|_factor\": [\d.]+|\d+-\d\d-\d\d"
    r"|\d\d:\d\d:[\d.]+|stamp\": \"[\d.]+|time\": \"[\d.e-]+"
)

VOICE = "--tacotron2 {tacotron2} --waveglow {waveglow}"
# How a voice speaks: flags of every command that takes those of inference.py.
SPEAKING = """--vocoder pulse-noise | --pulse-noise {pulsenoise} --vocoder pulse-noise | --sigma-infer 0.2 | --seed 1 | --fp16
--denoising-strength 0.2 | --lexicon {lists}/lexicon | --int8 | --plain | --text-reading as-published | --max-decoder-steps 9
--gate-threshold 0.01 | --attention-window 1 | --attention-stop 1 | --max-frames-per-symbol 1 | --decoder-no-early-stopping
--tacotron2 {other} | --waveglow {othervocoder} | --max-wav-value 9""".replace("\n", " | ").split(" | ")
SPEAKERS = ("evaluate.py", "python -m serving.conversation", "python -m benchmarks.latency")
RECOGNISER = dict.fromkeys(("--language", "--recogniser"), "tests/common/quality/test_whisper.py")
WORKERS = {"--num-workers": "tests/common/data/test_parallel.py"}
CPU = {"--cpu": "tests/test_gpu_rules.py"}
FOLDER = {"--voice": "tests/common/inference/test_voice_folder.py"}


class Table(NamedTuple):
    """The words of all runs of a command, lines of what differs: flags and words that change it, and flags tested elsewhere."""

    words: str
    text: str
    elsewhere: Mapping[str, str] = MappingProxyType({})

    @property
    def rows(self) -> dict[str, str]:
        """What changes, by flag and words, as in the table of inference.py."""
        lines = [line.strip().partition(": ") for line in self.text.splitlines() if line.strip()]
        return {row: seen for seen, _, rows in lines for row in rows.split(" | ")}


TABLES = {
    "evaluate.py": Table(
        "-i {lists}/phrases -o {folder}/report --without asr mos likeness --seed 0 --lines 1 --cpu " + VOICE,
        """
        html json said: --input {lists}/validation.txt | --lines 2 | --without asr mos ; -i {lists}/validation.txt
        html json said: --other-tacotron2 {other} | --other-waveglow {waveglow} | --other-pulse-noise {pulsenoise}
        html json said: --other-vocoder griffin-lim | --seed 1
        refused: --dataset-path {lists} ; -i {lists}/validation.txt | --export {lists}
        files html said: --output {folder}/other
        """,
        RECOGNISER | CPU | FOLDER,
    ),
    "python -m serving.conversation": Table(
        "{data}/0.wav {data}/2.wav -o {folder}/answer.wav --knowledge {lists}/knowledge --seed 0 --cpu " + VOICE,
        """
        files flac wav: --output {folder}/other.flac
        files pcm: --stream {folder}/live.pcm
        said wav: --knowledge {lists}/other_knowledge | --chat-url http://a/v1 --chat-model b
        said: --chat-model c ; --chat-url http://a/v1 --chat-model b
        said: --chat-instructions d ; --chat-url http://a/v1 --chat-model b
        said: --chat-timeout 9 ; --chat-url http://a/v1 --chat-model b
        said: --remembered-turns 0 ; --chat-url http://a/v1 --chat-model b
        wav: --seed 1
        """,
        RECOGNISER | CPU | FOLDER,
    ),
    "bash scripts/prepare_dataset.sh --dataset": Table(
        "--dataset recordings.txt {folder} --relative-to {data} --filelists {folder}/lists --num-workers 1",
        """
        files said txt: --dataset two.txt
        files said: --name other
        files: --filelists {folder}/others
        refused: --relative-to {lists} | --longest-clip 1 | --symbols-per-second 5 | --symbols-file {lists}/symbols
        accepted: --resample ; --dataset two_rates.txt
        files json said txt wav: --sampling-rate 16000 ; --resample | --trim-silence
        said txt: --min-duration 2.1 | --max-duration 2.1 | --validation 2
        said: --text-cleaners basic_cleaners
        """,
        WORKERS,
    ),
    "python -m studio.prepare": Table(
        "{lists}/talk --name new --projects {folder} --num-workers 1 --language en --validation 1 --allow-several-speakers",
        """
        files said: --name other
        files: --projects {folder}/others
        refused: --apply | --language de
        jsonl said tsv txt: --max-words-wrong 0.1
        files json jsonl wav: --sampling-rate 16000
        files json: --min-duration 2 | --max-duration 5 | --min-pause 2 | --normalize peak | --no-fill-silence
        files json jsonl tsv wav: --margin 0.05
        json said txt: --validation 2
        json said: --recogniser moonshine | --transcriber-requests 2 ; --transcriber http://a/v1
        json jsonl said tsv: --no-verify
        json jsonl said: --transcriber http://a/v1 | --transcriber-model b ; --transcriber http://a/v1
        jsonl said tsv: --clipping-runs 1 | --min-snr 90 | --min-bandwidth 11000 | --loudness 0.1 ; --normalize none
        """,
        WORKERS
        | {
            "--allow-several-speakers": "tests/studio/prepare/test_command.py",
            "--pace": "tests/studio/prepare/test_faults.py",
        },
    ),
    "python -m studio.plan": Table(
        "mine --projects {folder} --cpu",
        """
        refused: --projects {lists}
        json said: --from {tacotron2} {waveglow} | --hours 2 | --minutes 2
        files json said: --find-lr
        json: --seed 2
        """,
        CPU,
    ),
    "python -m common.data.mels": Table(
        "--audio-filelist {data}/wavs.txt --mel-filelist {data}/other_mels.txt -d {folder}/data --n-mel-channels 10 "
        "--num-workers 1",
        """
        refused: --wav-files {data}/two.txt | --dataset-path {folder}/other | --sampling-rate 16000
        files json pt said: --mel-files {data}/mels.txt
        json pt: --filter-length 2048 | --stft-hop-length 300 | --win-length 800 | --n-mel-channels 12 | --mel-fmin 50
        json pt: --mel-fmax 7000
        """,
        WORKERS | {"--max-wav-value": "tests/common/audio/test_stft.py"},
    ),
    "python -m scripts.dataset_report": Table(
        "{lists}/training.txt -d {root} -o {folder} --num-workers 1",
        """
        refused: --dataset-path {lists} | --longest-clip 1 | --symbols-per-second 5 | --symbols-file {lists}/symbols
        refused: --sampling-rate 16000 | --filter-length 131072 | --stft-hop-length 1024 | --win-length 200 | --n-mel-channels 0
        refused: --mel-fmin 9000 | --mel-fmax 12000
        files: --output {folder}/other.png
        said: --text-cleaners basic_cleaners
        """,
        WORKERS | {"--max-wav-value": "tests/common/audio/test_stft.py"},
    ),
    "python -m common.checkpoint inspect": Table(
        "{waveglow}",
        """
        said: --tensors | --json
        """,
    ),
    "python -m common.checkpoint convert": Table(
        "{waveglow} {folder}/data/mels/0.pt",
        """
        pt said: --half ; --force | --weights-only ; --force
        accepted: --force
        """,
    ),
    "python -m scripts.predict_mels": Table(
        "{tacotron2} {data}/mels.txt -d {data} -o {folder}/predicted --cpu",
        """
        refused: --dataset-path {lists}
        files: --output {folder}/other
        pt: --batch-size 1
        """,
        CPU,
    ),
    "python -m scripts.sharpen_mels": Table(
        "{tacotron2} {data}/mels.txt -d {data} -o {folder}/sharp.pt --cpu --steps 2",
        """
        refused: --dataset-path {lists} | --minutes 0.001
        files: --output {folder}/other.pt
        pt said: --batch-size 1 | --clips 2
        pt: --seed 2 | --steps 3
        """,
        CPU,
    ),
    "python -m scripts.sharpen_vocoder": Table(
        "{waveglow} {data}/wavs.txt -d {data} -o {folder}/sharp.pt --cpu --steps 2",
        """
        refused: --dataset-path {lists} | --minutes 0.001
        files: --output {folder}/other.pt
        pt: --batch-size 1 | --load-mel-from-disk | --seed 2 | --steps 3
        """,
        CPU,
    ),
    "python -m studio.share": Table(
        "mine --projects {folder} -o {folder}/mine.zip",
        """
        refused: --projects {lists}
        files: --output {folder}/other.zip
        """,
    ),
    "python -m studio.export": Table(
        "mine torchscript --projects {folder}",
        """
        refused: --projects {lists}
        """,
    ),
    "python -m exports": Table(
        "onnx -o {folder}/out " + VOICE,
        """
        files: --output {folder}/other
        json: --sigma-infer 0.2 | --denoising-strength 0.3 | --vocoder pulse-noise ; --pulse-noise {pulsenoise}
        json: --tacotron2 {other} | --waveglow {othervocoder}
        accepted: --pulse-noise {pulsenoise} ; --vocoder pulse-noise
        """,
        FOLDER,
    ),
    "python -m exports.triton_client": Table(
        "Two. -o {folder}/out.wav",
        """
        files: --output {folder}/other.wav
        said: --url other:1 | --protocol grpc | --stream | --seed 3
        """,
    ),
    "python -m benchmarks.latency": Table(
        "-o {folder} --cpu -il 5 --num-iters 2 --warmup 1 " + VOICE,
        """
        json said: --batch-size 2 | --input-length 9 | --num-iters 3 | --warmup 2
        refused: --mel-frames 9
        files: --output {folder}/other
        files json said: --log-file other.json
        """,
        CPU | FOLDER,
    ),
    "python -m benchmarks.speed": Table(
        "--quick --cpu --threads 1 -o {folder} --rows waveglow-training",
        """
        json md said: --rows tacotron2-training | --train-flags=--recompute | --repeats 5 | --threads 2 | --amp
        files: --output {folder}/other
        """,
        CPU | {"--quick": "tests/benchmarks/test_speed.py"},
    ),
    "python -m benchmarks.load": Table(
        "--requests 2 --clients 1 --batching",
        """
        said: --requests 3 | --clients 2 | --pause 3 | --no-batching | --vocoder waveglow
        """,
    ),
}


def flags_of(parse: Callable[[list[str]], object]) -> set[str]:
    """The long flags that a command lists with --help, without --help itself."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse(["--help"])
    return set(re.findall(r"^  (?:-\w+, )*(--[\w-]+)", printed.getvalue(), re.MULTILINE)) - {"--help"}


def flag_in(words: str, flags: Collection[str]) -> str:
    """The flag that a row's words begin with; --no-x is --x where the help lists that first."""
    flag = words.split()[0].partition("=")[0]
    return flag if flag in flags else flag.replace("--no-", "--")


def unmatched(parse: Callable[[list[str]], object], *tables: Collection[str]) -> set[str]:
    """Flags of a command that begin no row, and flags that begin a row but are gone."""
    found = flags_of(parse)
    return found ^ {flag_in(words, found) for table in tables for words in table}


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Names of what differs between two observations, in order."""
    return " ".join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))


def observe(main: Callable[[list[str]], object], folder: Path, *words: str) -> dict[str, Any]:
    """What a command prints and the files that it writes into a folder, by their endings, without places and times."""
    before, printed = {path: path.stat().st_ino for path in folder.rglob("*")}, io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed), own_signals():
            main(list(words))
    except (DataError, UsageError, SystemExit) as error:
        return {"refused": f"{printed.getvalue()}{error}"}
    found: dict[str, Any] = {"said": PASSING.sub("", printed.getvalue())}
    files = [path for path in folder.rglob("*") if path.is_file() and "tfevents" not in path.name]
    paths = sorted(path for path in files if before.get(path) != path.stat().st_ino)
    found["files"] = [str(path.relative_to(folder)) for path in paths]
    for path in paths:
        content = PASSING.sub("", path.read_text()) if path.suffix in TEXTS else path.read_bytes()
        found.setdefault(path.suffix[1:], []).append(content)
    return found
