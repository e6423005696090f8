"""Every flag of inference.py changes just what its row says of a line's sound, files, log and printed text, or is refused."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import soundfile
import torch

from common.checkpoint.files import load_checkpoint
from inference import parse_args
from tests.options import changes, unmatched
from tests.recipe import run, speech_flags, train_tiny_model

pytestmark = pytest.mark.slow

# A flag and its words: what differs from a run without it; after a semicolon, the words that both have.
ROWS = {
    "--input {folder}/other": "said samples",
    "--text Three.": "refused",
    "--output {folder}/others": "files samples subtype",
    "--suffix _x": "files",
    "--resume": "said",
    "--format flac": "files",
    "--sample-format float32": "samples subtype",
    "--alignments": "files",
    "--subtitles srt": "files",
    "--stream {folder}/live": "logged said",
    "--log-file other.json": "files",
    "--verbose": "logged",
    "--longest-piece 9": "said samples",
    "--normalize peak": "samples",
    "--speed 2": "said samples",
    "--vocoder griffin-lim": "logged said samples",
    "--tacotron2 {other}": "samples",
    "--sigma-infer 0.2": "samples",
    "--denoising-strength 0.2": "samples",
    "--seed 1": "samples",
    "--lexicon {folder}/lexicon": "samples",
    "--fp16": "samples",
    "--int8": "samples",
    "--plain": "samples",
    "--text-reading as-published": "samples",
    "--max-decoder-steps 9": "said samples",
    "--gate-threshold 0.01": "refused",
    "--attention-window 1": "samples",
    "--max-frames-per-symbol 1": "said samples",
}
# Settings that a checkpoint has stored: another value is refused.
STORED = """--sampling-rate 16000 --filter-length 512 --stft-hop-length 200 --win-length 800 --n-mel-channels 12 --mel-fmin 50
--mel-fmax 7000 --text-cleaners basic_cleaners --symbols-file {symbols} --n-symbols 150 --symbols-embedding-dim 20
--encoder-kernel-size 3 --encoder-n-convolutions 1 --encoder-embedding-dim 20 --n-frames-per-step 4 --decoder-rnn-dim 20
--prenet-dim 20 --p-attention-dropout 0.5 --p-decoder-dropout 0.5 --attention-rnn-dim 20 --attention-dim 10
--attention-location-n-filters 5 --attention-location-kernel-size 7 --postnet-embedding-dim 20 --postnet-kernel-size 3
--postnet-n-convolutions 2 --flows 6 --groups 4 --early-every 3 --early-size 4 --upsample-channels 8 --wn-kernel-size 5
--wn-channels 4 --wn-layers 3"""
STORED_ROWS = [f"{flag} {value}" for flag, value in zip(STORED.split()[::2], STORED.split()[1::2])] + ["--mask-padding"]
# Flags that change nothing here: what they do has a test of its own.
ELSEWHERE = {
    "--batch-size": "tests/test_bulk.py",
    "--include-warmup": "tests/test_inference.py",
    "--deterministic": "tests/test_determinism.py",
    "--export": "tests/exports/test_command.py",
    "--voice": "tests/common/inference/test_voice_folder.py",
    "--waveglow": "tests/test_voice.py",
    "--pulse-noise": "tests/test_third_model.py",
    "--cpu": "tests/test_gpu_rules.py",
    "--decoder-no-early-stopping": "tests/tacotron2/test_decoder.py",
    "--attention-stop": "tests/tacotron2/test_guard.py",
    "--max-wav-value": "tests/common/audio/test_stft.py",
}


def test_every_flag_has_a_row() -> None:
    assert unmatched(parse_args, ROWS, STORED_ROWS, ELSEWHERE) == set()


@cache
def speech(parent: Path, *words: str) -> dict[str, Any]:
    folder = Path(mkdtemp(dir=parent))
    argv = [*(word for word in speech_flags(folder, "Two: 5 kg.") if word != "--cpu"), "--seed", 0, "--no-alignments"]
    result = run("inference.py", *argv, *words)
    if result.code:
        return {"refused": re.sub(r"/\S+", "", result.err)}
    lines = [line for line in result.out.splitlines() if not line.startswith("DLL ")]
    found: dict[str, Any] = {"said": re.sub(r"/\S+", "", "\n".join(lines))}
    found["logged"] = (
        sorted(re.findall(r"PARAMETER (\w+)", result.out)),
        sorted(re.findall(r"(\w+_latency)", result.out)),
    )
    found["files"] = sorted(path.name for path in folder.iterdir())
    sounds = [path for ending in ("wav", "flac") for path in folder.rglob(f"*.{ending}")]
    found["samples"] = [soundfile.read(path)[0].tolist() for path in sounds]
    found["subtype"] = [soundfile.info(path).subtype for path in sounds]
    return found


@pytest.mark.parametrize("words", ROWS)
def test_an_option_of_inference(words: str, tmp_path: Path) -> None:
    if words.startswith("--speed"):
        pytest.importorskip("av", reason="of requirements/serving.txt")
    (tmp_path / "other").write_text("Three.\n")
    (tmp_path / "lexicon").write_text("two\tthree\n")
    checkpoint = load_checkpoint(train_tiny_model("Tacotron2"))
    checkpoint["state_dict"]["decoder.linear_projection.linear_layer.bias"] += 0.5
    torch.save(checkpoint, tmp_path / "other.pt")
    seen, both = ROWS[words], ["--cpu"] * ("--fp16" not in words)
    given = words.format(folder=tmp_path, other=tmp_path / "other.pt").split()
    found = changes(speech(tmp_path.parent, *both), speech(tmp_path, *both, *given))
    assert ("refused" if "refused" in found else found) == seen


@pytest.mark.parametrize("words", STORED_ROWS)
def test_a_setting_of_the_checkpoint_is_refused(words: str, tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("\n".join("_abc"))
    result = speech(tmp_path, *words.format(symbols=tmp_path / "symbols").split())
    assert "as requested: leave these flags out, the checkpoint stores its settings" in result.get("refused", "")
