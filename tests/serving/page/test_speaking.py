"""Events of the page without a browser: messages, an answer spoken to its end, and a recording that is no sound."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from common.errors import DataError
from serving.engine import Engine
from serving.errors import overload_error, timeout_error
from tests.recipe import skip_without_evaluators
from tests.serving.conftest import run, running_engine
from tests.serving.server_process import PATIENCE
from tests.serving.test_stopping import PAUSE, SENTENCES, sounds

pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
import gradio as gr

from serving.page.relay import Relay
from serving.page.speaking import Speaker, Talker, visitor_message


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "input: 1010 characters, expected at most 1000 (--max-characters)",
            "text: 1010 characters, expected at most 1000",
        ),
        ("input: text: '{' at character 1", "text: '{' at character 1"),
        ("denoising_strength: nan, expected 0 to 10", "denoiser strength: nan, expected 0 to 10"),
        (str(overload_error(3)), "the server has 3 requests in its queue; try again later"),
        (str(timeout_error(20)), "the audio was not ready within 20 seconds"),
        ("seed: -1, expected 0 to 4294967295", "seed: -1, expected 0 to 4294967295"),
    ],
)
def test_a_visitor_reads_no_flag_of_the_server(message: str, expected: str) -> None:
    assert visitor_message(message) == expected


def test_a_file_that_is_no_sound_is_named(tmp_path):
    skip_without_evaluators()
    (tmp_path / "notes.wav").write_text("This is no sound.")
    with pytest.raises(DataError, match=r"^notes\.wav: not an audio file"):
        asyncio.run(Talker(None, None).transcribe(str(tmp_path / "notes.wav")))


@pytest.mark.parametrize("answers", [SENTENCES, SENTENCES[:1]])
def test_an_answer_on_the_page_is_spoken_to_its_end(answers: list[str]) -> None:
    """The engine begins to stop after the first sentence; its thread ends after the last one, and takes no further question."""

    class Words:
        def answer(self, *arguments: Any) -> Iterator[str]:
            yield from answers

    async def transcribe(recording: str | None) -> str:
        return "What time is it?"

    async def call(engine: Engine) -> list[Any]:
        submit, seeds = engine.submit, []
        engine.submit = lambda request, visit=None: seeds.append(request.seed) or submit(request, visit)  # type: ignore
        talker: Any = Talker(Speaker(engine, Relay()), None)
        talker.conversation, talker.transcribe = Words(), transcribe
        talks: list[Any] = []
        async for talk in talker.answer("question.wav", [], None, None, None):
            talks.append(talk)
            if len(talks) == 2:  # the first sentence
                engine.begin_stop()
        assert seeds == [None, *[3] * (len(answers) - 1)]  # the first sentence's seed for all: one tone
        with pytest.raises(gr.Error, match="the server is stopping"):
            await anext(talker.answer("question.wav", [], None, None, "3"))
        return talks

    with running_engine(seed=3) as engine:
        rate, samples = run(call(engine))[-1].audio
    assert rate == 22050 and samples.tobytes() == b"".join(sound + PAUSE for sound in sounds(answers))


def test_the_page_shows_the_outcome_of_its_text() -> None:
    """The engine ends after the pictures, not after the audio."""

    async def call(engine: Engine) -> None:
        outcomes = Speaker(engine, Relay()).speak("Two.", None, None, "3", None, None, None)
        await anext(outcomes)
        stop = asyncio.ensure_future(engine.stop(PATIENCE))
        outcome = await anext(outcomes)
        assert "s of speech" in outcome.message
        await asyncio.sleep(0.2)
        assert not stop.done()
        await outcomes.aclose()
        assert await stop

    with running_engine() as engine:
        run(call(engine))
