"""scripts/download_checkpoints.sh over loopback, on small checkpoints in the published layout."""

import hashlib
import io
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import models
from tests.recipe import ROOT, folder_of_tools, succeed
from tests.scripts.loopback import Server, run_script, serve
from tests.scripts.shell import program

NAMES = {"TACOTRON2": "nvidia_tacotron2pyt_fp16.pt", "WAVEGLOW": "nvidia_waveglow256pyt_fp16.pt"}
SIZES = ("symbols_embedding_dim", "encoder_embedding_dim", "attention_rnn_dim", "decoder_rnn_dim", "prenet_dim")
CONFIGS = {
    "Tacotron2": dict.fromkeys((*SIZES, "postnet_embedding_dim"), 8)
    | {"encoder_n_convolutions": 1, "attention_dim": 4, "max_decoder_steps": 10}
    | {"gate_threshold": 1.0},  # else the untrained gate may fire at once
    "WaveGlow": {"n_flows": 2, "WN_config": {"n_layers": 1, "kernel_size": 3, "n_channels": 256}},
}


def published_checkpoint(name: str) -> bytes:
    """Build a checkpoint as the published recipe saved it, after training on several GPUs, in float16, before PyTorch 1.6."""
    torch.manual_seed(0)
    weights = models.get_model(name, CONFIGS[name]).state_dict()
    halves = {f"module.{key}": value.half() if value.is_floating_point() else value for key, value in weights.items()}
    content = io.BytesIO()
    checkpoint = {"epoch": 1500, "config": CONFIGS[name], "state_dict": halves, "amp": {}, "optimizer": None}
    torch.save(checkpoint, content, _use_new_zipfile_serialization=False)
    return content.getvalue()


@pytest.fixture(scope="session")
def contents() -> dict[str, bytes]:
    return dict(zip(NAMES.values(), map(published_checkpoint, CONFIGS), strict=True))


@pytest.fixture
def server(contents: dict[str, bytes]) -> Iterator[Server]:
    with serve(contents) as server:
        yield server


def download(server: Server, *words: object, path: Path | None = None, **changes: str) -> subprocess.CompletedProcess:
    urls = {f"{model}_URL": server.url(name) for model, name in NAMES.items()}
    return run_script(ROOT, "download_checkpoints.sh", *words, path=path, **urls | changes)


def describes_nothing(folder: Path) -> str:
    """A VENV that does not describe the files, which takes seconds."""
    return str(program(folder / "venv/bin/python", "exit 0").parents[1])


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("absent", ["wget", "curl"])
def test_it_downloads_both_describes_them_and_prints_the_command_for_inference(server, contents, tmp_path, absent):
    folder, path = tmp_path / "some checkpoints", folder_of_tools(tmp_path / "bin", absent)
    sums = {f"{model}_SHA256": hashlib.sha256(contents[name]).hexdigest() for model, name in NAMES.items()}
    sizes = {f"{model}_BYTES": str(len(contents[name])) for model, name in NAMES.items()}
    done = download(server, folder, path=path, **sums, **sizes)
    assert done.returncode == 0, done.stderr
    assert read_files(folder) == contents
    assert done.stdout.count("names begin with module. (DistributedDataParallel)") == 2
    assert sum(line.split() == ["epoch", "1500"] for line in done.stdout.splitlines()) == 2
    command = done.stdout.splitlines()[-1].strip()
    files = [str(folder / name) for name in NAMES.values()]
    assert shlex.split(command)[:6] == ["python", "inference.py", "--tacotron2", files[0], "--waveglow", files[1]]
    again = download(server, folder, path=path, **sums, **sizes, VENV=describes_nothing(tmp_path))
    assert again.returncode == 0, again.stderr
    assert server.asked == [(name, None) for name in NAMES.values()]
    assert read_files(folder) == contents
    if absent == "wget":  # once is enough: the command works as it is printed
        words = shlex.split(command)
        printed = succeed(words[1], *words[2:], "-o", tmp_path / "output")
        assert f"{tmp_path}/output/audio_0.wav" in printed


@pytest.mark.parametrize("absent", ["wget", "curl"])
def test_it_resumes_interrupted_downloads(server, contents, tmp_path, absent):
    first, second = NAMES.values()
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / f"{first}.part").write_bytes(contents[first][:1000])
    (folder / f"{second}.part").write_bytes(contents[second])  # stopped just before it got its name
    server.cut = 1700  # and the connection breaks once
    done = download(server, folder, path=folder_of_tools(tmp_path / "bin", absent), VENV=describes_nothing(tmp_path))
    assert done.returncode == 0, done.stderr
    starts = [(first, 1000), (first, 1700), (second, len(contents[second]))]
    assert server.asked == [(name, f"bytes={start}-") for name, start in starts]
    assert read_files(folder) == contents


@pytest.mark.parametrize("there", [False, True], ids=["new", "there already"])
def test_a_wrong_size_or_sum_is_one_error(server, contents, tmp_path, there):
    name, expected = NAMES["WAVEGLOW"], "0" * 64
    if there:
        for file, content in contents.items():
            (tmp_path / file).write_bytes(content)
    done = download(server, tmp_path, WAVEGLOW_BYTES="12345")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert f"{len(contents[name])} bytes, expected 12345" in done.stderr and "delete this file" in done.stderr
    path = folder_of_tools(tmp_path / "bin", "sha256sum", "shasum")
    done = download(server, tmp_path, path=path, WAVEGLOW_SHA256=expected)
    assert done.returncode == 1 and "not installed: sha256sum or shasum; install" in done.stderr
    done = download(server, tmp_path, WAVEGLOW_SHA256=expected)
    assert done.returncode == 1
    assert f"SHA-256 {hashlib.sha256(contents[name]).hexdigest()}, expected {expected}" in done.stderr
    assert (tmp_path / name).exists() == there


@pytest.mark.slow
def test_a_page_instead_of_a_checkpoint_is_an_error_and_usage(server, tmp_path):
    for words, code in ((["--help"], 0), (["a", "b"], 2)):
        done = download(server, *words)
        assert done.returncode == code and "download_checkpoints.sh [FOLDER]" in done.stdout + done.stderr
    assert server.asked == []
    server.contents[NAMES["TACOTRON2"]] = b"<html>please sign in</html>"
    done = download(server, tmp_path)
    assert done.returncode == 1
    assert "no checkpoint, or one cut short (27 bytes" in done.stderr
    assert "error: delete the unusable files, see above, and run again" in done.stderr
