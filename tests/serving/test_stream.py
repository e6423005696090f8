"""Requests before and beside the engine: settings, limits, waiting times, sentences, and streams that a test feeds."""

import asyncio
import random
from typing import get_args

import pytest
import torch

from common.errors import UsageError
from common.web.sockets import LARGEST_PORT
from serving.config import ServingConfig
from serving.encoding import CODECS
from serving.errors import RequestError
from serving.forecast import LONGEST_WAIT, WorkForecast, work_before
from serving.schemas import BatchBody, Format
from serving.sentences import SentenceCutter
from tacotron2.text.markup import ended_sentences
from tests.serving.conftest import collect, make_stream


async def test_audio_that_is_there_is_given_after_the_time_has_passed() -> None:
    """A slow reader receives all that was computed in time. The time of the first part stays."""
    stream, firsts = make_stream(timeout=0.01), []
    for item in (torch.ones(2), torch.zeros(1), None):
        stream.put(item)
        firsts.append(stream.first)
    await asyncio.sleep(0.05)
    assert (await collect(stream)).tolist() == [1, 1, 0] and stream.samples == 3
    assert firsts[0] and set(firsts) == {firsts[0]}


async def test_progress_sets_the_time_back() -> None:
    """Of the whole answer: a batch's streams share a clock. Without progress it ends, and leaves."""
    stream, other = make_stream(timeout=0.8), make_stream(timeout=0.8)
    other.clock = stream.clock
    for _ in range(3):
        await asyncio.sleep(0.3)
        other.put(torch.zeros(1))
    stream.put(torch.zeros(2))
    assert len(await anext(stream)) == 2
    with pytest.raises(RequestError, match=r"made no progress for 0.8 seconds \(--timeout\)") as caught:
        await anext(stream)
    assert caught.value.status == 504 and stream.cancelled


def test_all_problems_are_one_error() -> None:
    counts = ("max_batch", "max_queue", "max_characters", "max_body", "max_inputs", "max_sockets")
    wrong = {"port": -1, "wyoming_port": LARGEST_PORT + 1, "speed": 4.1, "volume": -0.1, "sentence_pause": -1.0}
    wrong |= dict.fromkeys(counts, 0) | {"timeout": float("nan"), "idle_timeout": 0.0, "grace": -1.0, "api_key": " "}
    with pytest.raises(UsageError) as error:
        ServingConfig(**wrong, embedded=False)
    lines = str(error.value).splitlines()
    flags = {f"--{name.replace('_', '-')}: {value}, expected" for name, value in wrong.items()}
    assert {line[: line.index("expected") + 8] for line in lines[:-1]} == flags and len(lines) == len(wrong) + 1
    assert lines[-1].startswith("--no-embedded: no voice is left") and "--port: -1, expected 0 to 65535" in lines
    ServingConfig(**dict.fromkeys(counts, 1), port=LARGEST_PORT, speed=4.0, volume=0.0, sentence_pause=0.0, grace=0.0)


def test_requests_may_choose_all_formats_and_a_batch_fails_at_its_first_mistake() -> None:
    assert set(get_args(Format)) == set(CODECS)
    with pytest.raises(ValueError, match="1 validation error"):
        BatchBody.model_validate({"input": [7] * 1000})


async def test_audio_that_is_computed_is_no_longer_left() -> None:
    """Four characters at 15.2 a second; more than was expected leaves nothing."""
    stream = make_stream(torch.zeros(2205))
    assert stream.seconds_left == pytest.approx(4 / 15.2 - 0.1)
    stream.put(torch.zeros(22050))
    assert stream.seconds_left == 0


def simulated(active: list[float], waiting: list[float], places: int, step: float = 1e-3) -> float:
    """Give each active request a small share in turn until a new one has a place."""
    active, waiting, work = list(active), list(waiting), 0.0
    while True:
        while waiting and len(active) < places:
            active.append(waiting.pop(0))
        if len(active) < places:
            return work
        active = [left - step for left in active]
        work += step * len(active)
        active = [left for left in active if left > 0]


@pytest.mark.parametrize(("n_active", "n_waiting", "places"), [(0, 0, 1), (3, 0, 4), (1, 5, 1), (4, 9, 4), (4, 0, 4)])
def test_the_work_before_a_request_is_that_of_a_simulation(n_active: int, n_waiting: int, places: int) -> None:
    draw = random.Random(n_waiting)
    active, waiting = ([draw.uniform(0.1, 3) for _ in range(count)] for count in (n_active, n_waiting))
    assert work_before(active, waiting, places) == pytest.approx(simulated(active, waiting, places), abs=0.1)


def test_refused_clients_come_back_one_after_the_other(monkeypatch) -> None:
    """At 10 seconds of audio a second, after 4 seconds, and none so late that OpenAI's clients ignore the number."""
    forecast = WorkForecast()
    forecast.add(600, 60)
    turns = [forecast.retry_after(4, 5.0) for _ in range(200)]
    assert turns[:5] == [4, 5, 5, 6, 6] and turns[-1] == LONGEST_WAIT and turns == sorted(turns)
    assert WorkForecast().retry_after(0, 1.0) == 1
    assert forecast.seconds(30) == pytest.approx(3)
    for _ in range(20):
        forecast.add(10, 10)
    assert forecast.seconds(30) == pytest.approx(30, rel=0.15)  # what was fast is forgotten
    monkeypatch.setattr("time.monotonic", lambda: 5.4)  # and 5.4 + 59 - 5.4 is more than 59
    assert forecast.retry_after(100, 5.0) == LONGEST_WAIT


TEXT = """Dr. Who came at 5 p.m. on Monday.| Really?| Yes, really!| "It was late."| He left.
|The end of it
|# A heading that is longer than forty characters
|The first one was late.| The second one came.| The third
was there, too.
|This line is one of wrapped prose, which goes
on in the next.| <b>It ends[pause:1s] here.|</b> And a title="One.| Two." too<br>|- an item
|- which is longer than forty characters and has no mark
|- last {AH0
|B} <img alt="One. Two. Three">"""  # with a mark at the end of each sentence
SENTENCES, TEXT = [sentence.strip() for sentence in TEXT.split("|")], TEXT.replace("|", "")


@pytest.mark.parametrize("size", [1, 3, 20, 1000])
def test_sentences_do_not_depend_on_the_pieces(size: int) -> None:
    cutter = SentenceCutter(ended_sentences)
    pieces = [TEXT[start : start + size] for start in range(0, len(TEXT), size)]
    sentences = [sentence for piece in pieces for sentence in cutter.add(piece)]
    assert sentences + cutter.finish() == SENTENCES
    assert len(cutter) == 0 and cutter.finish() == []


def test_a_sentence_is_complete_with_the_word_after_it() -> None:
    """In the middle of a long line, a line break is one of wrapped prose; at the beginning of a text, it ends a title."""
    cutter = SentenceCutter(ended_sentences)
    assert cutter.add("Good morning. It") == []
    assert cutter.add(" is") == ["Good morning."]
    assert len(cutter) == len(" It is")
    assert cutter.add(" nine\n") == ["It is nine"]
    cutter = SentenceCutter(ended_sentences)
    assert cutter.add("One.\n\n ... \n12.\n") == ["One.", "12."]  # a number is a word
    assert cutter.add("?!") == [] and cutter.finish() == []
    assert cutter.add("A title\nThen") == ["A title"]  # of another text
    for half in ("One.\tTw", "Yes!No", "One. Tw"):
        cutter = SentenceCutter(ended_sentences)
        assert cutter.add(half) == [] and len(cutter) == len(half)
