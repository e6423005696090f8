"""Every flag of train.py changes just what its row says: in two steps, or in a run's log, files and switches of PyTorch."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch

import train
from common.audio.audio_processing import read_audio, save_audio
from common.audio.stft import TacotronSTFT
from common.checkpoint.files import load_checkpoint
from common.errors import DataError
from common.inference.stages import mels_from_texts
from common.inference.vocoders import LoadedModel
from common.run.distributed import Dist
from common.spec import AcousticInference
from common.training.arguments import parse_training_arguments
from common.training.loop import train_step
from common.training.sampler import readable_steps
from data_functions import get_loaders
from models import REGISTRY
from tests.options import changes, flag_in, flags_of, unmatched
from tests.recipe import ROOT, clips, flags, losses, run, train_tiny_model

pytestmark = pytest.mark.slow

CPU = Dist(0, 0, 1, torch.device("cpu"))

# A flag and its words: what differs from two steps without it; after a semicolon, the words that both have.
BASE = {"Tacotron2": ["--gate-threshold", "0.9"], "WaveGlow": []}  # a model that has trained for two steps ends at once
STEPS = {
    "Tacotron2": {
        "--bucket-batches 3": "batches free later loss",
        "--disable-uniform-initialize-bn-weight": "free later loss start",
        "--load-mel-from-disk {mels}": "batches free later loss ; --training-files {lists}/wav.txt",
        "--guided-attention-weight 9": "free later loss",
        "--guided-attention-sigma 0.2": "free later loss ; --guided-attention-weight 9",
        "--guided-attention-decay 0.5": "free later ; --guided-attention-weight 9",
        "--drop-frame-rate 0.5": "free later loss",
        "--p-convolution-dropout 0.1": "free later loss",
        "--longest-clip 1": "refused",
        "--symbols-per-second 5": "refused",
        "--text-cleaners basic_cleaners": "batches free later loss ; --training-files {lists}/other.txt",
        "--text-reading as-published": "free",
        "--symbols-file {lists}/symbols": "batches config free later loss start",
        "--n-symbols 150": "config free later loss start",
        "--symbols-embedding-dim 20": "config free later loss start",
        "--mask-padding": "config free later loss",
        "--encoder-kernel-size 3": "config free later loss start",
        "--encoder-n-convolutions 1": "config free later loss start way",
        "--encoder-embedding-dim 20": "config free later loss start",
        "--n-frames-per-step 4": "config free later loss start",
        "--decoder-rnn-dim 20": "config free later loss start",
        "--prenet-dim 20": "config free later loss start",
        "--max-decoder-steps 9": "config free",
        "--gate-threshold 0.01": "config free",
        "--p-attention-dropout 0.5": "config free later loss",
        "--p-decoder-dropout 0.5": "config free later loss",
        "--decoder-no-early-stopping": "config free ; --gate-threshold 0.01",
        "--attention-rnn-dim 20": "config free later loss start",
        "--attention-dim 10": "config free later loss start",
        "--attention-location-n-filters 5": "config free later loss start",
        "--attention-location-kernel-size 7": "config free later loss start",
        "--postnet-embedding-dim 20": "config free later loss start",
        "--postnet-kernel-size 3": "config free later loss start",
        "--postnet-n-convolutions 2": "config free later loss start way",
        "--attention-stop 1": "free",
        "--attention-window 1": "free",
        "--max-frames-per-symbol 1": "free",
    },
    "WaveGlow": {
        "--sampling-rate 16000": "refused",
        "--filter-length 2048": "batches later",
        "--stft-hop-length 512": "batches config later",
        "--win-length 800": "batches later",
        "--n-mel-channels 12": "batches config later loss start",
        "--mel-fmin 50": "batches later",
        "--mel-fmax 7000": "batches later",
        "--batch-size 3": "batches later loss pace",
        "--grad-accumulation-steps 2": "batches later loss pace",
        "--optimizer adam": "way",
        "--weight-decay 0.5": "later",
        "--grad-clip-thresh 0.1": "later",
        "--ema-decay 0.5": "average",
        "--dataset-path {lists}": "batches",
        "--training-files {lists}/other.txt": "batches later loss",
        "--freeze ^WN": "later",
        "--lr-scale ^WN=0.1": "later",
        "--learning-rate 0.01": "later rates",
        "--lr-scaling linear": "later rates",
        "--lr-schedule constant": "rates ; --anneal-steps 1",
        "--anneal-steps 2": "rates",
        "--anneal-factor 0.5": "rates ; --anneal-steps 2",
        "--warmup-steps 10": "later rates",
        "--warm-start {waveglow}": "later loss start",
        "--ignore-layers ^upsample": "later loss start ; --warm-start {waveglow}",
        "--amp": "half later pace",
        "--amp-dtype float16": "half later ; --amp",
        "--plain": "later way",
        "--segment-length 2048": "batches later loss",
        "--longest-clip 1": "refused",
        "--load-mel-from-disk": "batches later loss ; --training-files {lists}/wav.txt --validation-files {lists}/wav.txt",
        "--dither 0.1": "later loss",
        "--sigma 0.5": "later loss",
        "--recompute": "way",
        "--flows 6": "config later loss start way",
        "--groups 4": "config later loss start",
        "--early-every 3": "config later loss start",
        "--early-size 4": "config later loss start",
        "--upsample-channels 8": "config later loss start",
        "--wn-kernel-size 5": "config later loss start",
        "--wn-channels 4": "config later loss start",
        "--wn-layers 3": "config later loss start way",
    },
}
CHECKED = "--epochs-per-validation 1 --evaluate-without asr mos likeness"
# The same of whole runs of WaveGlow.
RUNS = {
    "--output {folder}/other": "best by files last log",
    "--log-file other.json": "files log",
    "--config-file {lists}/flags.json": "best log",
    "--epochs 1": "best files last log",
    "--epochs-per-validation 1": "log ; --epochs 3",
    "--seed 2": "log",
    "--bench-class perf-train": "best by files last",
    "--dry-run": "best by files last log said",
    "--measure {folder}/measured": "files said ; --dry-run",
    "--find-lr": "best by files last log said",
    "--early-stop-patience 1": "files last log said ; --epochs 4 -lr 1e-30 --epochs-per-validation 1",
    "--max-minutes 1e-9": "best files last log said",
    "--evaluate-every 2": f"log ; {CHECKED}",
    "--evaluate-lines 1": f"log ; --evaluate-every 1 {CHECKED}",
    "--best-by mel_distance": f"by ; --evaluate-every 1 {CHECKED}",
    "--epochs-per-checkpoint 1": "files ; --epochs 3",
    "--checkpoint-every-minutes 1e-9": "said",
    "--keep-checkpoints 1": "files ; --epochs 3 --epochs-per-checkpoint 1",
    "--checkpoint-path {waveglow}": "files log said ; --epochs 3",
    "--resume-from-last": "said",
    "--max-skipped 9": "files log said ; --max-loss -9",
    "--max-loss -9": "best by code files last log said",
    "--validation-files {lists}/other.txt": "log said",
    "--no-tf32": "switches",
    "--no-cudnn-enabled": "switches",
    "--cudnn-benchmark": "switches",
}
# Flags that change nothing here: what they do has a test of its own.
ELSEWHERE = {
    **dict.fromkeys(("--language", "--recogniser"), "tests/common/quality/test_whisper.py"),
    "--cpu": "tests/test_gpu_rules.py",
    "--best-slack": "tests/common/training/test_checkup.py",
    "--evaluate-without": "tests/test_evaluate.py::test_training_lets_the_model_speak_and_chooses_the_best_by_it",
    "--num-workers": "tests/test_determinism.py::test_equal_runs_end_with_equal_bits",
    "--deterministic": "tests/test_determinism.py::test_the_switches_are_set_inside_the_context_alone",
    "--compile": "tests/test_fast_ways.py",
    "--bucket-cap-mb": "tests/common/training/test_two_processes.py",
    "--grad-compression": "tests/common/training/test_two_processes.py",
    "--shard": "tests/test_scale.py::test_sharded_training_equals_unsharded_training",
    "--cpu-offload": "tests/test_scale.py::test_sharded_training_equals_unsharded_training",
    "--timeout-minutes": "tests/test_scale.py::test_a_process_that_hangs_is_named_and_the_main_one_saves",
    "--max-wav-value": "tests/common/audio/test_stft.py",
    "--model-name": "tests/test_train.py",
}


@pytest.mark.parametrize("model", STEPS)
def test_every_flag_has_a_row(model: str) -> None:
    def parse(*words: str) -> object:
        return parse_training_arguments(["-m", *words], REGISTRY, "")

    shared = flags_of(lambda words: parse("PulseNoise", *words))  # which has no flags of its own
    common = {row for table in (*STEPS.values(), RUNS, ELSEWHERE) for row in table if flag_in(row, shared) in shared}
    assert unmatched(lambda words: parse(model, *words), STEPS[model], common) == set()
    for place in ELSEWHERE.values():
        path, _, name = place.partition("::")
        assert name in (ROOT / path).read_text()


@cache
def two_steps(*argv: str) -> dict[str, Any]:
    """What two steps of a training are made of, and what comes of them; an acoustic model then speaks."""
    options, spec = parse_training_arguments(list(argv), REGISTRY, "")
    torch.manual_seed(0)
    try:
        loaders = get_loaders(spec, options, CPU)
    except DataError as error:
        return {"refused": re.sub(r"/\S+", "", str(error))}
    state, _ = train.make_state(spec, options, CPU, loaders.pace)
    found: dict[str, Any] = {"config": spec.config_from_options(options.model), "pace": loaders.pace}
    found["start"] = sums(state.model)
    found["half"] = state.setup.half
    found["way"] = [type(module) for module in state.trained.modules()], state.optimizer.defaults["fused"]
    found["rates"] = []
    for state.progress.epoch in range(4):
        found["rates"].append(state.learning_rate)
    state.progress.epoch = 0
    found["batches"], results = [], []
    for batches in islice(readable_steps(loaders.training), 2):
        found["batches"].append([(batch.names, batch.inputs[0].shape, batch.inputs[0].sum()) for batch in batches])
        results.append(train_step(state, batches).loss)
    found |= {"loss": results[0], "later": results[1:], "average": state.average and sums(state.eval_weights)}
    if isinstance(spec.inference, AcousticInference):
        loaded = LoadedModel(spec, state.eval_model.eval(), dict(options.model))
        torch.manual_seed(0)  # of the prenet's dropout
        found["free"] = (
            mels_from_texts(["Two: 5 kg."], loaded, CPU.device, half=False)[0].mels.sum(),
            state.model.decoder.guard,
        )
    return found


def sums(model: torch.nn.Module) -> list[float]:
    return [weight.double().sum().item() for weight in model.state_dict().values()]


@pytest.fixture(scope="module")
def places(tmp_path_factory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("lists")
    rows = [row.split("|") for row in (folder / "training.txt").read_text().splitlines()] if clips(folder) else []
    (folder / "other.txt").write_text("".join(f"{name}|Dr. {text}\n" for name, text in rows[:4]))
    (folder / "corpus").symlink_to(ROOT / "corpus")
    (folder / "symbols").write_text("\n".join("_-!'(),.:;? abcdefghijklmnopqrstuvwxyz"))
    (folder / "flags.json").write_text('{"group": {"learning-rate": 0.5}}')
    for name in ("wavs", "mels"):
        (folder / name).mkdir()
    stft = TacotronSTFT(n_mel_channels=10)
    for number, (name, _) in enumerate(rows):
        samples = read_audio(ROOT / name, None).samples
        save_audio(folder / "wavs" / f"{number}.wav", samples, 22050)
        torch.save(stft.mel_spectrogram(samples[None])[0] + 0.01, folder / "mels" / f"{number}.pt")
    for kind, ending in (("wavs", "wav"), ("mels", "pt")):
        lines = [f"{folder}/{kind}/{number}.{ending}|{text}\n" for number, (_, text) in enumerate(rows)]
        (folder / f"{ending}.txt").write_text("".join(lines))
    mels = f"--training-files {folder}/pt.txt --validation-files {folder}/pt.txt"
    return {"lists": folder, "mels": mels, "waveglow": train_tiny_model("WaveGlow")}


def split(row: str, words: str, places: dict[str, Any]) -> tuple[str, list[str], list[str]]:
    seen, _, both = row.partition(" ; ")
    return seen, both.format(**places).split(), words.format(**places).split()


@pytest.mark.parametrize(("model", "words"), [(model, words) for model, table in STEPS.items() for words in table])
def test_an_option_of_a_step(model: str, words: str, places: dict[str, Any]) -> None:
    seen, both, given = split(STEPS[model][words], words, places)
    argv = [*flags(model, places["lists"]), *BASE[model], *both]
    found = changes(two_steps(*argv), two_steps(*argv, *given))
    assert ("refused" if "refused" in found else found) == seen


@cache
def run_without(parent: Path, *words: str) -> dict[str, Any]:
    """A run that the rows with these words share, and those of others."""
    return a_run(Path(mkdtemp(dir=parent)), *words)


def a_run(folder: Path, *words: str) -> dict[str, Any]:
    """What a run prints, logs and writes, and the switches of PyTorch after it."""
    result = run("train.py", *flags("WaveGlow", folder), "--epochs", "2", *words)
    lines = [line for line in result.out.splitlines() if not line.startswith("DLL") and " left" not in line]
    found = {"code": result.code, "said": re.sub(r"/\S+|[\d.]+ (?=s|ms)", "", "\n".join([*lines, result.err]))}
    found["files"] = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if "tfevents" not in path.name)
    if (folder / "nvlog.json").exists():
        found["log"] = losses(folder)
    for name in ("last", "best"):
        if (path := folder / f"checkpoint_WaveGlow_{name}.pt").exists():
            checkpoint = load_checkpoint(path)
            found |= {name: checkpoint["epoch"], "by": checkpoint["best"]["by"]}
    cudnn = torch.backends.cudnn
    found["switches"] = (cudnn.enabled, cudnn.benchmark, cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
    return found


@pytest.mark.parametrize("words", RUNS)
def test_an_option_of_a_run(words: str, places: dict[str, Any], tmp_path: Path) -> None:
    seen, both, given = split(RUNS[words], words, places | {"folder": tmp_path})
    assert changes(run_without(tmp_path.parent, *both), a_run(tmp_path, *both, *given)) == seen
