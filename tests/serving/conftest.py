"""Fixtures of the server's tests: the embedded voice, its reference, and an engine."""

import asyncio
import copy
import functools
import inspect
import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from torch import Tensor

from common.audio.audio_processing import to_pcm
from synthesizer import Line, SynthesisConfig, Synthesizer

PACKAGES = ("fastapi", "fastapi_offline", "uvicorn", "h11", "prometheus_client", "av", "httpx")

run = asyncio.run
# Some texts with marks, one of several pieces, and one that two vocoders speak.
TEXTS = ["Two.", "Good morning.", "It is a quarter past eleven.", "Yes!"]
LONG = "The ferry waits until noon, and then it leaves. " * 4


HEADERLESS = {"pcm": "PCM_16", "g711_ulaw": "ULAW", "g711_alaw": "ALAW"}  # formats, by libsndfile's names

# Without these packages no test of this folder is collected.
missing = [name for name in PACKAGES if find_spec(name) is None]
HERE = Path(__file__).parent
collect_ignore = [str(path) for path in HERE.rglob("test_*.py") if missing]


@functools.cache
def library_voice(vocoder: str | None = None) -> Synthesizer:
    return Synthesizer.embedded(config=SynthesisConfig(vocoder=vocoder), device="cpu")


@functools.cache
def reference(text: str, seed: int, number: int = 0, vocoder: str | None = None, **settings: float | None) -> Tensor:
    """The audio of `Synthesizer.stream_line`; the settings are sigma_infer and denoising_strength."""
    sigma, strength = (settings.get(name) for name in ("sigma_infer", "denoising_strength"))
    voice = library_voice(vocoder).with_settings(seed, sigma, strength)
    return torch.cat(list(voice.stream_line(Line(text, seed, number))))


def pcm(text: str, seed: int = 3, number: int = 0, **settings: Any) -> bytes:
    return to_pcm(reference(text, seed, number, **settings)).tobytes()


@functools.cache
def loaded_voices() -> dict[tuple[str, str], Synthesizer]:
    from serving.config import ServingConfig
    from serving.voices import Voices

    voices = Voices(ServingConfig(cpu=True))
    voices.load("cpu")
    return voices._loaded


def make_engine(*, shares: bool = True, **settings: Any) -> Any:
    """An engine that has not started.

    The models are loaded and warmed up once for all engines that share them; a voice of a folder is the embedded one.
    """
    from serving.config import ServingConfig
    from serving.engine import Engine
    from serving.voices import Voices

    config = ServingConfig(cpu=True, **settings)
    voices = Voices(config)
    if shares:
        loaded = loaded_voices()
        own = [(name, vocoder) for name in voices.names for vocoder in voices.vocoders(name)]
        voices._loaded = {key: copy.copy(loaded.get(key, loaded["embedded", key[1]])) for key in own}
        voices.load, voices.all_loaded = lambda device=None: None, list
    return Engine(voices, config)


@contextmanager
def running_engine(*, shares: bool = True, **settings: Any) -> Iterator[Any]:
    """An engine that is ready and stops at the end of the block."""
    engine = make_engine(shares=shares, **settings)
    engine.start()
    try:
        wait_until_ready(engine)
        yield engine
    finally:
        assert run(engine.stop(30))


def wait_until_ready(engine: Any) -> None:
    run(until(lambda: engine.ready or engine.failure is not None))
    assert engine.failure is None, engine.failure


def sample(engine: Any, name: str, **labels: str) -> float:
    return engine.metrics.registry.get_sample_value(name, labels) or 0.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""

    async def wait() -> None:
        while not condition():
            await asyncio.sleep(0.01)

    await asyncio.wait_for(wait(), 120)


async def collect(stream: Any) -> Tensor:
    """Join the parts of a stream."""
    return torch.cat([audio async for audio in stream])


def decode(data: bytes, code: str | None = None, rate: int = 0) -> tuple[np.ndarray, int]:
    """Samples (N,) and their rate, by FFmpeg's decoder, or by libsndfile for a code without a header."""
    import av

    if code is not None:
        raw = {"format": "RAW", "subtype": code, "endian": "LITTLE"}
        return soundfile.read(io.BytesIO(data), samplerate=rate, channels=1, **raw)
    with av.open(io.BytesIO(data)) as file:
        frames = list(file.decode(audio=0))
    resampler = av.AudioResampler("flt", "mono")
    samples = [out.to_ndarray()[0] for frame in frames for out in resampler.resample(frame)]
    return np.concatenate(samples), frames[0].sample_rate


@pytest.fixture(scope="session")
def shared_engine() -> Iterator[Any]:
    torch.set_num_threads(1)  # as in the tests themselves
    with running_engine(shares=False) as ready:  # models serve one thread at a time
        yield ready


@pytest.fixture
def engine(request: pytest.FixtureRequest) -> Iterator[Any]:
    """An engine of the embedded voice for all tests that change nothing of it, or one with the settings of `own_engine`."""
    if hasattr(request, "param"):
        with running_engine(**request.param) as ready:
            yield ready
    else:
        yield request.getfixturevalue("shared_engine")


def app_of(engine: Any, **settings: Any) -> Any:
    from serving.app import make_app
    from serving.config import ServingConfig

    return make_app(engine, ServingConfig(cpu=True, **settings))


@pytest.fixture(scope="module")
def app(shared_engine: Any) -> Any:
    return app_of(shared_engine)


def own_engine(**settings: Any) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("engine", [settings], indirect=True, ids=["own"])


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in an event loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}))
    return True


@pytest.fixture(scope="module")
def server() -> Iterator[Any]:
    from tests.serving.server_process import PATIENCE, serve

    with serve("--seed", 3, "--max-queue", 32, "--grace", PATIENCE) as ready:
        yield ready


def make_stream(*items: Any, timeout: float = 60) -> Any:
    """A stream of "Two." with these items, which no engine computes; from a coroutine."""
    from serving.stream import SpeechRequest, SpeechStream

    stream = SpeechStream(SpeechRequest(text="Two."), "embedded", 22050, 1, timeout)
    for item in items:
        stream.put(item)
    return stream


def chunk(text: str | None) -> str:
    """An event of OpenAI's chat API: the first has a role, the last no content."""
    delta = {"role": "assistant", "content": text} if text is not None else {}
    return f"data: {json.dumps({'object': 'chat.completion.chunk', 'choices': [{'index': 0, 'delta': delta}]})}\n\n"


@pytest.fixture
def endpoint(monkeypatch) -> Iterator[SimpleNamespace]:
    """A chat endpoint in this process: answers with a status and events, and keeps the requests."""
    import httpx

    endpoint = SimpleNamespace(url="http://chat.example/v1", status=200, requests=[], timeout=0.0)
    endpoint.events = [chunk("Yes."), "data: [DONE]\n\n"]

    def answer(request: Any) -> Any:
        endpoint.timeout = request.extensions["timeout"]["read"]
        endpoint.requests.append((request.url.path, request.headers.get("authorization"), json.loads(request.content)))
        return httpx.Response(endpoint.status, content=(event.encode() for event in endpoint.events))

    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        monkeypatch.setattr(httpx, "stream", client.stream)
        yield endpoint
