"""scripts/download_checkpoints.sh over loopback, on small checkpoints in the published layout."""

from __future__ import annotations

import hashlib
import io
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

import models
from tests.recipe import folder_of_tools, succeed

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
NAMES = {"TACOTRON2": "nvidia_tacotron2pyt_fp16.pt", "WAVEGLOW": "nvidia_waveglow256pyt_fp16.pt"}
CONFIGS = {
    "Tacotron2": {
        "symbols_embedding_dim": 8,
        "encoder_embedding_dim": 8,
        "encoder_n_convolutions": 1,
        "attention_rnn_dim": 8,
        "attention_dim": 4,
        "decoder_rnn_dim": 8,
        "prenet_dim": 8,
        "postnet_embedding_dim": 8,
        "max_decoder_steps": 10,
        "gate_threshold": 1.0,  # else the untrained gate may fire at once
    },
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
    """The two files by their names on NGC."""
    return dict(zip(NAMES.values(), map(published_checkpoint, CONFIGS), strict=True))


class Server(ThreadingHTTPServer):
    """Serve files on loopback, behind a redirection as NGC does; abort the first transfer after `cut` bytes, if set."""

    contents: dict[str, bytes]
    ranges: bool = True
    cut: int | None = None

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, str | None]] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/files/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        place, _, name = self.path.strip("/").partition("/")
        if place == "files":
            self.answer(302, {"Location": f"/storage/{name}", "Content-Length": "0"})
            return
        content, byte_range = self.server.contents[name], self.headers["Range"]
        self.server.asked.append((name, byte_range))
        size = len(content)
        start = int(byte_range.removeprefix("bytes=").removesuffix("-")) if byte_range and self.server.ranges else 0
        if start >= size:
            self.answer(416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        ranges = {"Content-Range": f"bytes {start}-{size - 1}/{size}"} if start else {}
        self.answer(206 if start else 200, {"Content-Length": str(size - start), **ranges})
        cut, self.server.cut = self.server.cut, None
        self.wfile.write(content[start:cut])

    def answer(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server(contents: dict[str, bytes]) -> Iterator[Server]:
    with Server() as server:
        server.contents = dict(contents)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def download(server: Server, *words: object, path: Path | None = None, **changes: str) -> subprocess.CompletedProcess:
    """Run the script on the server's files; its output must be valid text."""
    environment = {
        "PATH": str(path) if path else f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "no_proxy": "127.0.0.1",
        "OMP_NUM_THREADS": "1",
        **{f"{model}_URL": server.url(name) for model, name in NAMES.items()},
    }
    return subprocess.run(
        ["/bin/bash", "scripts/download_checkpoints.sh", *map(str, words)],
        cwd=ROOT,
        env=environment | changes,
        capture_output=True,
        text=True,
        timeout=60,
    )


def read_files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("absent", ["wget", "curl"])
def test_it_downloads_both_describes_them_and_prints_the_command_for_inference(server, contents, tmp_path, absent):
    folder, path = tmp_path / "some checkpoints", folder_of_tools(tmp_path / "bin", absent)
    sums = {f"{model}_SHA256": hashlib.sha256(contents[name]).hexdigest() for model, name in NAMES.items()}
    sizes = {f"{model}_BYTES": str(len(contents[name])) for model, name in NAMES.items()}
    done = download(server, folder, path=path, **sums, **sizes)
    assert done.returncode == 0, done.stderr
    assert read_files(folder) == contents
    assert done.stdout.count("names begin with module. (DistributedDataParallel)") == 2
    assert done.stdout.count("epoch          1500") == 2
    command = done.stdout.splitlines()[-1].strip()
    files = [str(folder / name) for name in NAMES.values()]
    assert shlex.split(command)[:6] == ["python", "inference.py", "--tacotron2", files[0], "--waveglow", files[1]]
    if absent == "wget":  # once is enough: nothing is fetched twice, and the command works as it is printed
        again = download(server, folder, path=path, **sums, **sizes)
        assert again.returncode == 0, again.stderr
        assert server.asked == [(name, None) for name in NAMES.values()]
        assert read_files(folder) == contents
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
    done = download(server, folder, path=folder_of_tools(tmp_path / "bin", absent))
    assert done.returncode == 0, done.stderr
    starts = [(first, 1000), (first, 1700), (second, len(contents[second]))]
    assert server.asked == [(name, f"bytes={start}-") for name, start in starts]
    assert read_files(folder) == contents


@pytest.mark.parametrize("absent", ["wget", "curl"])
def test_a_file_larger_than_the_servers_is_an_error(server, contents, tmp_path, absent):
    name = NAMES["TACOTRON2"]
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / f"{name}.part").write_bytes(contents[name] + b"and more")
    done = download(server, folder, path=folder_of_tools(tmp_path / "bin", absent))
    assert done.returncode == 1
    size = len(contents[name])
    assert f"{name}.part: {size + 8} bytes, expected {size}" in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]  # beside curl's own words
    assert len(errors) == 1 and errors[0].endswith("delete this file and run again")


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
    done = download(server, tmp_path, WAVEGLOW_SHA256=expected)
    assert done.returncode == 1
    assert f"SHA-256 {hashlib.sha256(contents[name]).hexdigest()}, expected {expected}" in done.stderr
    assert (tmp_path / name).exists() == there


def test_a_page_instead_of_a_checkpoint_is_an_error(server, tmp_path):
    server.contents[NAMES["TACOTRON2"]] = b"<html>please sign in</html>"
    done = download(server, tmp_path)
    assert done.returncode == 1
    assert "no checkpoint, or one cut short (27 bytes" in done.stderr
    assert "error: delete the unusable files, see above, and run again" in done.stderr
    assert "channels 256" not in done.stdout


def test_an_address_without_a_file_is_an_error(server, tmp_path):
    done = download(server, tmp_path, TACOTRON2_URL="http://127.0.0.1:9/none")
    assert done.returncode == 1
    assert "nothing comes from there" in done.stderr


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_a_server_that_cannot_resume_is_an_error(server, contents, tmp_path):
    server.ranges = False
    name = NAMES["TACOTRON2"]
    (tmp_path / f"{name}.part").write_bytes(contents[name][:1000])
    done = download(server, tmp_path)
    assert done.returncode == 1
    assert f"cannot go on with a download that was stopped; delete {tmp_path / name}.part" in done.stderr


def test_missing_tools_are_named(server, tmp_path):
    path = folder_of_tools(tmp_path / "bin", "curl", "wget", "sha256sum", "shasum")
    assert "not installed: curl or wget; install" in download(server, tmp_path, path=path).stderr
    done = download(server, tmp_path, path=path, WAVEGLOW_SHA256="0" * 64)
    assert done.returncode == 1
    assert "not installed: curl or wget, sha256sum or shasum; install" in done.stderr


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["a", "b"], 2)])
def test_usage(server, words, code):
    done = download(server, *words)
    assert done.returncode == code
    assert "download_checkpoints.sh [FOLDER]" in done.stdout + done.stderr
    assert server.asked == []
