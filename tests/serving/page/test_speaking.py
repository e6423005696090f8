"""Events of the page without a browser: messages, an answer spoken to its end, and a recording that is no sound."""

import asyncio
import base64
import json
from types import SimpleNamespace
from typing import Any

import pytest

from common.errors import DataError, UsageError
from serving.engine import Engine
from serving.errors import RequestError, not_ready_error, overload_error, timeout_error
from serving.limits import Pace
from tests.recipe import skip_without_evaluators
from tests.serving.conftest import run, running_engine
from tests.serving.server_process import PATIENCE
from tests.serving.test_stopping import PAUSE, SENTENCES, sounds

pytest.importorskip("gradio", reason="gradio, of requirements/serving.txt, is not installed")
from serving.page.relay import Relay
from serving.page.speaking import Speaker, Talker, visitor_message


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (overload_error("full", 3), "Many people are listening just now. Please try again in a moment."),
        (timeout_error(20), "This took too long. Please try again, perhaps with a shorter text."),
        (not_ready_error(True), "The server is stopping; try another one."),
        (
            RequestError(400, "input: 1010 characters, expected at most 1000 (--max-characters)", code="text_too_long"),
            "This text has 1,010 characters, and 1,000 are allowed. Please shorten it.",
        ),
        (
            RequestError(400, "input: text: '{' at character 1", code="invalid_text"),
            "This text cannot be read: '{' at character 1",
        ),
        (
            RequestError(400, "denoising_strength: nan, expected 0 to 10", code="out_of_range"),
            "Denoiser strength: nan does not fit. Please enter 0 to 10.",
        ),
        (UsageError("seed: 'a', expected a whole number"), "Seed: 'a' does not fit. Please enter a whole number."),
        (DataError("a.wav: not a sound"), "A.wav: not a sound."),
    ],
)
def test_errors_are_in_a_visitor_s_words(error: Exception, expected: str) -> None:
    assert visitor_message(error) == expected


def test_a_file_that_is_no_sound_is_named(tmp_path):
    skip_without_evaluators()
    (tmp_path / "notes.wav").write_text("This is no sound.")
    with pytest.raises(DataError, match=r"^notes\.wav: not an audio file"):
        asyncio.run(Talker(None, None).transcribe(str(tmp_path / "notes.wav")))


@pytest.mark.parametrize("answers", [SENTENCES, SENTENCES[:1]])
def test_an_answer_on_the_page_is_spoken_to_its_end(answers: list[str]) -> None:
    """The engine begins to stop after the first sentence; its thread ends after the last one, and takes no further question."""

    async def transcribe(recording: str | None) -> str:
        return "What time is it?"

    async def call(engine: Engine) -> list[Any]:
        submit, seeds, relay = engine.submit, [], Relay()

        def submit_and_stop(request: Any, visit: Any = None) -> Any:
            seeds.append(request.seed)
            stream = submit(request, visit)
            engine.begin_stop()
            return stream

        engine.submit = submit_and_stop
        talker: Any = Talker(Speaker(engine, relay), None)
        talker.conversation, talker.transcribe = SimpleNamespace(answer=lambda *given: iter(answers)), transcribe
        answer = talker.answer("question.wav", [], None, None, None)
        reading = asyncio.ensure_future(read(relay, (await anext(answer)).token))
        questions = [talk.question async for talk in answer]
        assert questions[0] == "What time is it?"
        lines = await reading
        assert seeds == [None, *[3] * (len(answers) - 1)]  # the first sentence's seed for all: one tone
        refused = talker.answer("question.wav", [], None, None, "3")
        token = (await anext(refused)).token
        assert [talk async for talk in refused] == []
        assert [line["error"] for line in await read(relay, token)] == ["The server is stopping; try another one."]
        return lines

    with running_engine(seed=3) as engine:
        lines = run(call(engine))
    samples = b"".join(base64.b64decode(line.get("audio", "")) for line in lines)
    assert samples == PAUSE.join(sounds(answers))
    assert "".join(line.get("text", "") for line in lines) == " ".join(answers) and lines[0]["about"]["rate"] == 22050
    words = [word for line in lines for word in line.get("timestamps", [])]
    assert [word["word"] for word in words] == " ".join(answers).split() and lines[-1]["mp3"]
    edges = [word[edge] for word in words for edge in ("start_time", "end_time")]
    assert edges == sorted(edges) and edges[-1] <= len(samples) / 2 / 22050


async def read(relay: Relay, token: str) -> list[Any]:
    channel = relay.take(token)
    assert channel is not None
    return [json.loads(line) async for line in channel.read(Pace(60))]


def test_the_page_shows_the_outcome_of_its_text() -> None:
    """The engine ends after the pictures, not after the audio."""

    async def call(engine: Engine) -> None:
        outcomes = Speaker(engine, Relay()).speak("Two.", None, None, "3", None, None, None)
        await anext(outcomes)
        pictures = asyncio.ensure_future(anext(outcomes))
        while not engine._streams:
            await asyncio.sleep(0)
        stop = asyncio.ensure_future(engine.stop(PATIENCE))
        assert (await pictures).alignment["value"].size
        await asyncio.sleep(0.2)
        assert not stop.done()
        await outcomes.aclose()
        assert await stop

    with running_engine() as engine:
        run(call(engine))
