"""No command looks up or connects to another host, and each works without a network: only loopback is up.

A hook in every Python process writes the hosts that it looks up to a file, so that no silent attempt remains. A namespace of the
kernel has no other interface, also for native code. Exports run so in tests/exports/conftest.py.
"""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import outside_hosts
from tests.recipe import ENVIRONMENT, EVALUATORS, ROOT, flags, free_port, train_tiny_model

pytestmark = pytest.mark.slow

# sitecustomize.py, which Python runs at its start
HOOK = f"{Path(outside_hosts.__file__).read_text()}\n\nwatch(write_to(os.environ['HOSTS']))\n"
EXTRAS = (
    *(*EVALUATORS, "av", "fastapi", "fastapi_offline", "gradio", "onnx", "prometheus_client", "pydantic", "rapidfuzz"),
    *("starlette", "uvicorn", "wyoming"),
)
# All modules, then inference.py, evaluate.py and the recogniser on a clip of real speech: most of the time goes into imports.
COMMANDS = """
import importlib, json, pkgutil, sys
serving, absent, speech, report, clip = json.loads(sys.argv[1])
packages = "common tacotron2 waveglow exports studio benchmarks".split() + serving
names = [m.name for p in packages for m in pkgutil.walk_packages(importlib.import_module(p).__path__, p + ".")]
names += "models data_functions loss_functions synthesizer hubconf train inference evaluate multiproc".split()
for name in names:
    if not name.endswith("__main__") and name != "exports.triton_model":
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in absent:
                raise
import evaluate, inference
from common.audio.audio_processing import read_audio
from common.quality.moonshine import Moonshine
for sys.argv, main in ((["inference.py", *speech], inference.main), (["evaluate.py", *report], evaluate.main)):
    if sys.argv[1:]:
        main()
audio = read_audio(clip, None)
print(len(names), Moonshine()(audio.samples.numpy(), audio.rate) if report else "-")
"""
# A server with its page, a request, and SIGTERM, in one namespace.
SERVE = """
import json, signal, subprocess, sys, time, urllib.request
server = subprocess.Popen([sys.executable, "-m", "serving", "--cpu", "--port", sys.argv[1], *sys.argv[2:]])
def ask(path, body=None):
    request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}{path}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=100) as answer:
        return answer.read()
try:
    while server.poll() is None:
        try:
            ask("/readyz")
            break
        except OSError:
            time.sleep(0.1)
    body = {"model": "tts-1", "voice": "embedded", "input": "Two.", "response_format": "wav"}
    found = [ask("/v1/audio/speech", json.dumps(body).encode())[:4].decode(), len(ask("/")), len(ask("/docs"))]
finally:
    server.send_signal(signal.SIGTERM)  # else it holds the pipes of the test
    code = server.wait(100)
print(*found)
sys.exit(code)
"""


@pytest.fixture(scope="module", autouse=True)
def namespace() -> None:
    if reason := outside_hosts.no_namespace():
        pytest.skip(reason)


def run(folder: Path, *words: object) -> str:
    """Run Python with these words without a network; return its stdout. No process of it may look up a host."""
    (folder / "hook").mkdir(exist_ok=True)
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    hosts = folder / "hosts.txt"
    hosts.touch()
    paths = {"PYTHONPATH": f"{folder / 'hook'}:{ROOT}", "HOSTS": str(hosts)}
    command = [*outside_hosts.IN_NAMESPACE, sys.executable, *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT | paths, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert hosts.read_text() == ""
    return done.stdout


def test_the_hook_sees_attempts(tmp_path: Path) -> None:
    tries = "socket.create_connection(('example.com', 80))", "socket.socket().connect(('192.0.2.1', 80))"
    lines = ["import socket", *(f"try: {one}\nexcept OSError: pass" for one in tries)]
    with pytest.raises(AssertionError, match=r"(?s)example\.com.*192\.0\.2\.1"):
        run(tmp_path, "-c", "\n".join(lines))


def test_training_on_two_processes_with_loader_processes(tmp_path: Path) -> None:
    words = [*flags("Tacotron2", tmp_path / "run"), "--epochs", 1, "--num-workers", 1]
    run(tmp_path, "-m", "multiproc", "--nproc", 2, "train.py", *words)
    assert (tmp_path / "run" / "checkpoint_Tacotron2_last.pt").exists()


def test_imports_inference_and_evaluation(tmp_path: Path) -> None:
    serving = ["serving"] if all(map(find_spec, ("fastapi", "av", "wyoming"))) else []
    absent = [name for name in EXTRAS if find_spec(name) is None]
    (tmp_path / "phrases.txt").write_text("Two.\n")
    words = ["-i", tmp_path / "phrases.txt", "--cpu", "--seed", "1", "-o"]
    voice = ["--tacotron2", train_tiny_model("Tacotron2"), "--vocoder", "griffin-lim"]
    report = [*words, tmp_path / "report", *voice] if all(map(find_spec, EVALUATORS)) else []
    arguments = json.dumps(
        [serving, absent, [*words, tmp_path / "speech"], report, next((ROOT / "corpus").rglob("*.ogg"))], default=str
    )
    number, heard = run(tmp_path, "-c", COMMANDS, arguments).splitlines()[-1].split(maxsplit=1)
    assert int(number) > 100 and heard and (tmp_path / "speech" / "audio_0.wav").is_file()


def test_the_server_and_its_page(tmp_path: Path) -> None:
    for package in ("fastapi", "av", "prometheus_client"):
        pytest.importorskip(package, reason=f"{package}, of requirements/serving.txt, is not installed")
    answer, *sizes = run(tmp_path, "-c", SERVE, free_port()).splitlines()[-1].split()
    assert answer == "RIFF" and all(int(size) > 500 for size in sizes)
