"""Model repositories for Triton: their files, their config.pbtxt, and a real server on a CPU, over HTTP and gRPC.

`bash scripts/triton.sh` makes the environment of the server; then .venv-triton/bin/python -m pytest tests/exports/test_triton.py
runs these tests.
"""

import os
import re
import signal
import subprocess
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from common.errors import DataError
from common.inference.config import SynthesisConfig
from exports.triton import CHECKPOINTS, WARM_UP
from synthesizer import Line, Synthesizer
from tests.browser import wait
from tests.recipe import ROOT, free_port

pytestmark = pytest.mark.slow  # exports are made in a process of their own

SERVER = ROOT / ".venv-triton" / "lib"
TEXTS = ["Two.", "Ten past nine.", "It is a quarter to eleven.", "Good morning, and good night.", "Seven small boats."]
LONG = "It is nine. The boats lie in the harbour, white and blue. " * 4  # in pieces
REQUESTS = 50


def voice_of(directory: Path, **settings) -> Synthesizer:
    paths = [directory / "tts" / "1" / name for name in CHECKPOINTS]
    config = SynthesisConfig(sigma_infer=0.7, denoising_strength=0.05, **settings)
    return Synthesizer.from_checkpoints(*paths, config=config, device="cpu")


def parse_config(path: Path):
    pytest.importorskip("tritonclient.grpc", reason="tritonclient, of requirements/triton.txt, is not installed")
    from google.protobuf import text_format
    from tritonclient.grpc.model_config_pb2 import ModelConfig

    return text_format.Parse(path.read_text(), ModelConfig())


def test_the_checkpoints_of_a_repository_are_the_voice(export_of, source) -> None:
    """Plain, the checkpoints give the same audio as the models that were exported."""
    lines = [Line("Ten past nine.", 3)]
    (ours,) = voice_of(export_of("triton"), plain=True).speak_batch(lines).speeches
    (theirs,) = source.voice.speak_batch(lines).speeches
    assert len(ours.audio) and torch.equal(ours.audio, theirs.audio)


def test_config_pbtxt_is_a_model_config(export_of) -> None:
    whole, parts = (parse_config(export_of("triton") / name / "config.pbtxt") for name in ("tts", "tts_stream"))
    assert (whole.name, parts.name, whole.backend, parts.backend) == ("tts", "tts_stream", "python", "python")
    assert whole.max_batch_size == 16 and whole.HasField("dynamic_batching")
    assert parts.max_batch_size == 0 and parts.model_transaction_policy.decoupled
    assert not whole.model_transaction_policy.decoupled
    assert [value.name for value in whole.output] == ["audio", "samples", "sampling_rate"]
    strings = {name: parameter.string_value for name, parameter in parts.parameters.items()}
    settings = {"vocoder": "waveglow", "sigma_infer": "0.7", "denoising_strength": "0.05"}
    assert strings == settings | {"voice_of": "tts"}
    for config in (whole, parts):
        assert [value.name for value in config.input] == ["text", "seed"]
        (warm_up,) = config.model_warmup
        contents = (export_of("triton") / config.name / "warmup" / warm_up.inputs["text"].input_data_file).read_bytes()
        assert contents == np.uint32(len(WARM_UP)).tobytes() + WARM_UP.encode()


def is_ready(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=600):
        return True
    return False


@pytest.fixture(scope="module")
def server(export_of, tmp_path_factory):
    """Addresses of a server, (http, grpc), and the directory that it has loaded."""
    if not SERVER.exists():
        pytest.skip("no .venv-triton; `bash scripts/triton.sh` makes it")
    pytest.importorskip("tritonclient.grpc", reason="run this test with .venv-triton/bin/python -m pytest")
    http, grpc, metrics = (free_port() for _ in range(3))
    folder = tmp_path_factory.mktemp("server")
    ports = ["--http-port", http, "--grpc-port", grpc, "--metrics-port", metrics]
    words = map(str, ["bash", "scripts/triton.sh", export_of("triton"), "--http-address", "127.0.0.1", *ports])
    with (folder / "log").open("w") as log:
        options = {"env": os.environ | {"OMP_NUM_THREADS": "1"}, "start_new_session": True}
        process = subprocess.Popen(list(words), cwd=ROOT, stdout=log, stderr=log, **options)
        try:
            wait(lambda: process.poll() is not None or is_ready(http), 600)
            assert process.poll() is None, (folder / "log").read_text()[-4000:]
            assert {executions(f"127.0.0.1:{grpc}", name) for name in ("tts", "tts_stream")} == {(1, 1)}  # the warm-up
            yield {"http": f"127.0.0.1:{http}", "grpc": f"127.0.0.1:{grpc}"}, export_of("triton")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(600)


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_50_requests_at_once_have_the_audio_of_inference(server, protocol: str) -> None:
    """Every request has its own audio bit for bit, in whatever batches the server joined them."""
    from exports.triton_client import speak

    (addresses, directory), numbers = server, range(REQUESTS)
    lines = [Line(TEXTS[number % len(TEXTS)], number) for number in numbers]
    voice = voice_of(directory)
    alone = [voice.speak_batch([line]).speeches[0].audio.numpy() for line in lines]
    before = executions(addresses["grpc"])
    with ThreadPoolExecutor(REQUESTS) as pool:
        answers = list(pool.map(lambda line: speak(protocol, addresses[protocol], line.text, line.seed), lines))
    rows, runs = (now - then for now, then in zip(executions(addresses["grpc"]), before))
    print(f"{protocol}: {rows} requests in {runs} batches")
    assert rows == REQUESTS > runs
    assert len({audio.tobytes() for audio, _ in answers}) == REQUESTS
    for (audio, rate), expected in zip(answers, alone):
        assert rate == voice.audio.sampling_rate
        np.testing.assert_array_equal(audio, expected)


def executions(url: str, model: str = "tts") -> tuple[int, int]:
    """Requests that the server has answered, and the batches that they were in."""
    import tritonclient.grpc as package

    with package.InferenceServerClient(url) as client:
        (statistics,) = client.get_inference_statistics(model).model_stats
    return statistics.inference_count, statistics.execution_count


def test_the_parts_of_a_stream_are_the_whole(server) -> None:
    """Joined, they are the audio of the other model within 1e-3, and bit for bit those of Synthesizer.stream_line."""
    from exports.triton_client import speak, stream

    addresses, directory = server
    parts = [audio for audio, _ in stream(addresses["grpc"], LONG, 5)]
    steps = voice_of(directory).stream_line(Line(LONG, 5))
    expected = [audio.numpy() for audio in steps if len(audio)]
    print(f"{len(parts)} parts of {sum(map(len, parts))} samples")
    assert len(parts) > 1 and [len(part) for part in parts] == [len(part) for part in expected]
    np.testing.assert_array_equal(np.concatenate(parts), np.concatenate(expected))
    whole, _ = speak("grpc", addresses["grpc"], LONG, 5)
    np.testing.assert_allclose(np.concatenate(parts), whole, rtol=0, atol=1e-3)


def test_a_mistake_is_an_error_of_its_own_request(server) -> None:
    """Beside unreadable texts other requests are answered, and the streams end."""
    from exports.triton_client import speak, stream

    addresses, _ = server
    with ThreadPoolExecutor(8) as pool:
        wrong = [pool.submit(speak, "grpc", addresses["grpc"], "", 1) for _ in range(4)]
        right = [pool.submit(speak, "grpc", addresses["grpc"], "Two.", 1) for _ in range(4)]
        assert all(isinstance(future.exception(), DataError) for future in wrong)
        assert all(len(future.result()[0]) for future in right)
    with pytest.raises(DataError, match="seed: -1, expected 0 or more"):
        speak("http", addresses["http"], "Two.", -1)
    with pytest.raises(DataError, match="grpc://"):
        list(stream(addresses["grpc"], "", 1))
    assert list(stream(addresses["grpc"], "Two.", 1))


def test_the_notebook_speaks_through_the_server(server, monkeypatch) -> None:
    """All cells run; the streamed audio agrees with the whole, and two players and a picture are shown."""
    nbformat = pytest.importorskip("nbformat", reason="run this test with .venv-triton/bin/python -m pytest")
    from nbclient import NotebookClient

    addresses, _ = server
    environment = {"TRITON_HTTP": addresses["http"], "TRITON_GRPC": addresses["grpc"], "PYTHONPATH": str(ROOT)}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.read(ROOT / "exports" / "triton.ipynb", as_version=4)
    NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    kinds = [kind for output in outputs for kind in output.get("data", {})]
    (difference,) = re.findall(r"largest difference from the whole: (\S+)", str(outputs).replace("\\n", " "))
    assert float(difference) < 1e-3
    assert str(outputs).count("<audio") >= 2 and "image/png" in kinds
