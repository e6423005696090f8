"""Fixtures of the server's tests: the embedded voice, its reference, and an engine."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from synthesizer import Line, SynthesisConfig, Synthesizer

PACKAGES = ("fastapi", "fastapi_offline", "uvicorn", "h11", "websockets", "prometheus_client", "av", "httpx")

# Some texts with marks, one of several pieces, and one that two vocoders speak.
TEXTS = ["Two.", "Good morning.", "It is a quarter past eleven.", "Yes!"]
LONG = "The ferry waits until noon, and then it leaves. " * 4


# Without these packages no test of this folder is collected; test_packages.py skips with the reason.
missing = [name for name in PACKAGES if find_spec(name) is None]
HERE = Path(__file__).parent
collect_ignore = [path.name for path in HERE.glob("test_*.py") if missing and path.name != "test_packages.py"]


def reference(text: str, seed: int, number: int = 0, **settings: Any) -> Tensor:
    """The audio of `Synthesizer.stream_line`, of a voice that is loaded for this call alone."""
    voice = Synthesizer.embedded(config=SynthesisConfig(seed=seed, **settings), device="cpu")
    return torch.cat(list(voice.stream_line(Line(text, seed, number))))


@contextmanager
def running_engine(**settings: Any) -> Iterator[Any]:
    """An engine of the embedded voice that is ready, and stops at the end of the block."""
    from serving.config import ServingConfig
    from serving.engine import Engine
    from serving.voices import Voices

    config = ServingConfig(cpu=True, **settings)
    engine = Engine(Voices(config), config)
    engine.start()
    try:
        wait_until_ready(engine)
        yield engine
    finally:
        assert run(engine.stop(30))


def wait_until_ready(engine: Any) -> None:
    """Wait until an engine has loaded its voices."""

    async def wait() -> None:
        while not engine.ready:
            assert engine.failure is None, engine.failure
            await asyncio.sleep(0.05)

    run(asyncio.wait_for(wait(), 120))


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in an event loop of its own."""
    return asyncio.run(coroutine)


async def collect(stream: Any) -> Tensor:
    """Join the parts of a stream."""
    return torch.cat([audio async for audio in stream])


def decode(data: bytes) -> tuple[np.ndarray, int]:
    """Samples (N,) and their rate, by FFmpeg's decoder."""
    import av

    with av.open(io.BytesIO(data)) as file:
        frames = list(file.decode(audio=0))
    resampler = av.AudioResampler("flt", "mono")
    samples = [out.to_ndarray()[0] for frame in frames for out in resampler.resample(frame)]
    return np.concatenate(samples), frames[0].sample_rate


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """An engine of the embedded voice for all tests of a file."""
    torch.set_num_threads(1)  # as in the tests themselves
    with running_engine() as ready:
        yield ready
