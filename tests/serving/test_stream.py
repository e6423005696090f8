"""The stream of a request without an engine: limits of its values, its time, and its first part."""

import asyncio
from pathlib import Path

import pytest
import torch

from serving.config import ServingConfig
from serving.errors import RequestError
from serving.stream import SpeechRequest, SpeechStream, check
from tests.recipe import succeed
from tests.serving.conftest import LONG, collect, pcm

CONFIG = ServingConfig(max_characters=4)


@pytest.mark.parametrize(
    ("values", "param", "code"),
    [
        ({"text": "abcde"}, "input", "text_too_long"),
        ({"seed": 2**32}, "seed", "out_of_range"),
        ({"sigma": 10.1}, "sigma", "out_of_range"),
        ({"denoising_strength": float("nan")}, "denoising_strength", "out_of_range"),
    ],
)
def test_values_beyond_them_are_named(values: dict, param: str, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        check(SpeechRequest(**({"text": "Two."} | values)), CONFIG)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, param, code)
    check(SpeechRequest(text="abcd", seed=2**32 - 1, sigma=10.0, denoising_strength=10.0), CONFIG)
    check(SpeechRequest(text="Two.", seed=0, sigma=0.0), CONFIG)


@pytest.mark.slow
def test_inference_streams_the_same_bits(tmp_path: Path, monkeypatch) -> None:
    """The samples of the reference that the server's tests compare with, then half a second of silence."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # the number of threads may change the last bits
    (tmp_path / "phrase.txt").write_text(f"{LONG}\n")
    words = ("-i", tmp_path / "phrase.txt", "-o", tmp_path / "out", "--seed", 3, "--cpu", "--stream", tmp_path / "live")
    succeed("inference.py", *words)
    assert (tmp_path / "live").read_bytes() == pcm(LONG.strip()) + bytes(22050)


def make_stream(timeout: float) -> SpeechStream:
    return SpeechStream(SpeechRequest(text="Two."), "embedded", 22050, 1, timeout)


async def test_audio_that_is_there_is_given_after_the_time_has_passed() -> None:
    """A slow reader receives all that was computed in time."""
    stream = make_stream(0.01)
    for item in (torch.ones(2), torch.zeros(1), None):
        stream.put(item)
    await asyncio.sleep(0.05)
    assert (await collect(stream)).tolist() == [1, 1, 0]


async def test_a_stream_without_audio_ends_by_its_time_and_leaves() -> None:
    stream = make_stream(0.01)
    released: list[SpeechStream] = []
    stream.on_cancel = released.append
    with pytest.raises(RequestError, match=r"did not begin within 0.01 seconds \(--timeout\)") as caught:
        await anext(stream)
    assert caught.value.status == 504 and stream.cancelled and released == [stream]


async def test_progress_sets_the_time_back() -> None:
    """Of the whole answer: a batch's streams share a clock. Without progress it ends."""
    stream, other = make_stream(0.2), make_stream(0.2)
    other.clock = stream.clock
    for _ in range(4):
        await asyncio.sleep(0.1)
        other.put(torch.zeros(1))
    stream.put(torch.zeros(2))
    assert len(await anext(stream)) == 2
    with pytest.raises(RequestError, match=r"made no progress for 0.2 seconds \(--timeout\)"):
        await anext(stream)


async def test_the_time_of_the_first_part_stays() -> None:
    stream = make_stream(60)
    stream.put(torch.zeros(3))
    first = stream.first
    await asyncio.sleep(0.01)
    stream.put(torch.zeros(4))
    assert first is not None and stream.first == first and stream.samples == 7
