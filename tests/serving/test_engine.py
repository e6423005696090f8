"""The engine: the sound of the library alone and under load, batches, limits, cancellation and stopping."""

import asyncio
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from common.errors import DataError
from common.spec import SENTENCE_PAUSE, Piece
from serving.engine import Engine, warm_up
from serving.errors import RequestError
from serving.jobs import Turns
from serving.stream import SpeechRequest, SpeechStream
from synthesizer import Line, Synthesizer
from tests.serving.conftest import (
    LONG,
    TEXTS,
    collect,
    library_voice,
    make_engine,
    own_engine,
    reference,
    run,
    running_engine,
    sample,
    until,
    wait_until_ready,
)


async def collect_all(engine: Engine, requests: list[SpeechRequest], **settings: Any) -> list[Any]:
    """What each of several requests at once comes to: its audio, or, with return_exceptions, its error."""
    return await asyncio.gather(*(collect(engine.submit(request)) for request in requests), **settings)


def speak(engine: Engine, **request: Any) -> tuple[torch.Tensor, SpeechStream]:
    async def call() -> tuple[torch.Tensor, SpeechStream]:
        stream = engine.submit(SpeechRequest(**request))
        return await collect(stream), stream

    return run(call())


@pytest.mark.slow
def test_requests_under_load_are_the_streams_of_the_library(engine: Engine) -> None:
    """Requests of several settings at once: the batch of mels, the other requests and their vocoders change no bit."""
    requests = [SpeechRequest(text=text, seed=10 + i) for i, text in enumerate([*TEXTS, LONG])]
    requests += [SpeechRequest(text=TEXTS[1], seed=3, vocoder="waveglow", sigma=0.5, denoising_strength=0.1)]
    requests += [SpeechRequest(text=TEXTS[0], seed=4, number=3)]
    requests += [SpeechRequest(text="[pause:0.2s]Title\n\nB[pause:1.5s] <b>No.</b>[pause:0.1s]", seed=5)]
    before = sample(engine, "tts_batch_size_count"), sample(engine, "tts_batch_size_sum")
    sounds = run(collect_all(engine, requests))
    batches = sample(engine, "tts_batch_size_count") - before[0]
    pieces = sample(engine, "tts_batch_size_sum") - before[1]
    assert pieces == 9 + len(library_voice().cut_line(Line(LONG)))
    assert batches < pieces  # several pieces were one batch
    for request, sound in zip(requests, sounds, strict=True):
        settings = {"vocoder": request.vocoder, "denoising_strength": request.denoising_strength}
        settings |= {"sigma_infer": request.sigma} if request.sigma else {}
        expected = reference(request.text, request.seed, request.number, **settings)
        silence = torch.zeros(round(SENTENCE_PAUSE * 22050) if request.number else 0)  # before a later sentence
        assert torch.equal(sound, torch.cat([silence, expected])), request


@own_engine(batching=False)
async def test_without_batching_requests_are_computed_in_turn_and_cancelled_ones_leave_at_once(engine: Engine) -> None:
    sounds = await collect_all(engine, [SpeechRequest(text=text, seed=1) for text in TEXTS])
    assert sample(engine, "tts_batch_size_count") == sample(engine, "tts_batch_size_sum") == len(TEXTS)
    for text, sound in zip(TEXTS, sounds, strict=True):
        assert torch.equal(sound, reference(text, 1))
    first, waiting = (engine.submit(SpeechRequest(text=LONG * 5, seed=1)) for _ in range(2))
    await anext(first)
    waiting.cancel()
    await until(lambda: waiting.ended)
    assert not first.ended and waiting.samples == 0 and sample(engine, "tts_queue_length") == 1
    assert sample(engine, "tts_requests_total", voice="embedded", result="cancelled") == 1
    first.cancel()


def test_silence_between_sentences_can_be_chosen() -> None:
    """In a text that would be spoken in one piece; the first sentence is that of the library."""
    with running_engine(sentence_pause=1.0) as engine:
        audio, stream = speak(engine, text="Yes! Two.", seed=1)
        assert [piece.text for piece in stream.pieces] == ["Yes!", "Two."]
        assert torch.equal(stream.speech.audio, audio)
        for text, number, expected in (  # the text's own pauses take the place of silence
            ("Yes![pause:0.5s]\nTwo.", 0, 0.5),
            ("Yes![pause:0.5s] Two.", 0, 0.5),
            ("Yes!", 1, 1.0),
            ("[pause:0.5s]Yes!", 1, 0.5),
        ):
            pieces = speak(engine, text=text, number=number)[1].pieces
            assert sum(piece.lead + piece.pause for piece in pieces) == expected
    first = reference("Yes!", 1)
    silence = audio[len(first) :][:22050]
    assert torch.equal(audio[: len(first)], first)
    assert len(silence) == 22050 and not silence.any() and len(audio) > len(first) + 22050 + 1000


@own_engine(max_queue=2, batching=False)
async def test_metrics_of_each_result(engine: Engine) -> None:
    """Characters count once a text is accepted, whatever becomes of it; audio as far as it was computed."""
    first = engine.submit(SpeechRequest(text="Two.", seed=1))
    waiting = engine.submit(SpeechRequest(text="Good morning.", seed=1))
    waiting.cancel()
    with pytest.raises(RequestError):
        engine.submit_all([SpeechRequest(text="Refused.")] * 2)
    await collect(first)
    await until(lambda: waiting.ended)
    with pytest.raises(RequestError):
        await collect(engine.submit(SpeechRequest(text="{XX}")))
    whole = engine.submit(SpeechRequest(text=LONG, seed=1))
    await anext(whole)
    whole.cancel()
    await until(lambda: whole.ended)
    assert sample(engine, "tts_characters_total", voice="embedded") == len("Two.Good morning.{XX}") + len(LONG)
    seconds = (first.samples + waiting.samples + whole.samples) / 22050
    assert sample(engine, "tts_audio_seconds_total", voice="embedded") == pytest.approx(seconds)
    assert first.samples == len(reference("Two.", 1)) and whole.samples < len(reference(LONG, 1)) / 2
    assert sample(engine, "tts_first_byte_seconds_sum") == pytest.approx(first.first)
    assert sample(engine, "tts_request_seconds_sum") > first.first
    for result, count in {"ok": 1, "cancelled": 2, "invalid_text": 1, "timeout": 0, "overloaded": 0}.items():
        assert sample(engine, "tts_requests_total", voice="embedded", result=result) == count
    assert sample(engine, "tts_first_byte_seconds_count") == sample(engine, "tts_request_seconds_count") == 1
    await until(lambda: sample(engine, "tts_active_requests") == 0)


@own_engine(max_queue=2)
async def test_audio_that_nobody_reads_holds_its_place(engine: Engine) -> None:
    streams = [engine.submit(SpeechRequest(text=text, seed=1)) for text in ("Two.", "Yes!")]
    await until(lambda: all(stream.ended for stream in streams))
    with pytest.raises(RequestError) as caught:
        engine.submit(SpeechRequest(text="Two."))
    assert (caught.value.status, caught.value.headers) == (503, {"Retry-After": "1"})
    assert sample(engine, "tts_queue_length") == 2
    assert torch.equal(await collect(streams[0]), reference("Two.", 1))  # to its end
    assert sample(engine, "tts_queue_length") == 1
    streams[1].cancel()
    assert sample(engine, "tts_queue_length") == 0
    streams.clear()
    engine.submit(SpeechRequest(text="Two."))  # one that is lost gives its place back
    await until(lambda: len(engine._streams) == 0)


@own_engine(max_batch=2)
async def test_no_more_requests_than_the_limit_are_computed_at_once(engine: Engine) -> None:
    active = set()
    streams = [asyncio.ensure_future(collect(engine.submit(SpeechRequest(text=LONG[:48], seed=1)))) for _ in range(4)]
    while not all(stream.done() for stream in streams):
        active.add(sample(engine, "tts_active_requests"))
        await asyncio.sleep(0.01)
    await until(lambda: sample(engine, "tts_active_requests") == 0)
    assert 2 in active and max(active) == 2


@own_engine(max_batch=16)
async def test_a_batch_of_mels_on_a_cpu_has_eight_pieces_at_most(engine: Engine) -> None:
    await collect_all(engine, [SpeechRequest(text=TEXTS[0], seed=seed) for seed in range(12)])
    batches = sample(engine, "tts_batch_size_count")
    assert sample(engine, "tts_batch_size_sum") == 12 and batches == sample(engine, "tts_batch_size_bucket", le="8.0")


@own_engine(max_batch=3)
async def test_a_new_request_is_read_while_others_sound_and_is_heard_next(engine: Engine) -> None:
    """The third request arrives during the fifth part of two others, which does not end before the mels are there."""
    advanced, advance, loop = [], engine._advance, asyncio.get_running_loop()
    streams = engine.submit_all([SpeechRequest(text=LONG[:48], seed=1)] * 2)

    async def submit() -> None:
        streams.append(engine.submit(SpeechRequest(text=TEXTS[2], seed=2)))
        await until(lambda: any(job.stream is streams[2] and job.steps for job in engine._jobs))

    def note(job: Any) -> tuple[float, bool]:
        advanced.append(job.stream)
        if len(advanced) == 5:
            asyncio.run_coroutine_threadsafe(submit(), loop).result()
        return advance(job)

    engine._advance = note
    await until(lambda: len(streams) == 3 and all(stream.ended for stream in streams))
    assert torch.equal(await collect(streams[2]), reference(TEXTS[2], 2))
    assert [streams.index(stream) for stream in advanced].index(2) == 5
    for stream in streams:
        stream.cancel()


@own_engine(max_batch=4)
async def test_threads_that_take_turns_never_compute_at_once(engine: Engine) -> None:
    """As on a GPU."""
    engine._turns, inside, most = Turns(), [], 0

    def noted(work: Any) -> Any:
        def call(argument: Any) -> Any:
            nonlocal most
            inside.append(work)
            most = max(most, len(inside))
            try:
                return work(argument)
            finally:
                inside.pop()

        return call

    engine._compute_mels, engine._advance = noted(engine._compute_mels), noted(engine._advance)
    sounds = await collect_all(engine, [SpeechRequest(text=text, seed=1) for text in [*TEXTS, LONG]])
    assert most == 1
    assert all(torch.equal(sound, reference(text, 1)) for sound, text in zip(sounds, [*TEXTS, LONG], strict=True))


def test_turns_come_in_the_order_in_which_threads_ask() -> None:
    turns, order = Turns(), list[int]()

    def take(number: int) -> None:
        with turns:
            order.append(number)

    threads = [Thread(target=take, args=(number,)) for number in range(3)]
    with turns:
        for asked, thread in enumerate(threads, start=2):
            thread.start()
            run(until(lambda asked=asked: turns._next == asked))
    for thread in threads:
        thread.join(60)
    assert order == [0, 1, 2]


@own_engine(batching=False)
async def test_time_passes_before_the_first_part_and_without_progress(engine: Engine) -> None:
    """A text whose computation takes longer than --timeout is spoken to its end."""
    old, waiting = (engine.submit(SpeechRequest(text=LONG[:48], seed=1)) for _ in range(2))
    first = await anext(old)
    old.start -= 1000
    waiting.clock.progress -= 1000
    assert torch.equal(torch.cat([first, await collect(old)]), reference(LONG[:48], 1))
    with pytest.raises(RequestError, match="did not begin within 60 seconds"):
        await collect(waiting)
    stuck = engine.submit(SpeechRequest(text=LONG, seed=1))
    await anext(stuck)
    stuck.clock.limit = -1
    with pytest.raises(RequestError, match="made no progress"):
        await collect(stuck)
    begun, later = engine.submit_all([SpeechRequest(text=LONG, seed=1)] * 2)  # of one answer
    await anext(begun)
    assert later.clock.has_begun
    for stream in (begun, later):
        stream.cancel()
    await until(lambda: stuck.ended)  # by its time, or because its consumer has left
    assert sample(engine, "tts_requests_total", voice="embedded", result="timeout") >= 1


@own_engine(batching=False, timeout=30)
async def test_a_request_that_cannot_begin_in_time_is_refused_at_once(engine: Engine) -> None:
    engine._forecast.add(60.0, 60.0)  # a second of audio takes a second
    stream = engine.submit(SpeechRequest(text=LONG * 5, seed=1))
    waits = []
    for _ in range(2):
        with pytest.raises(RequestError, match="would wait for") as caught:
            engine.submit(SpeechRequest(text=LONG * 5))
        assert (caught.value.status, caught.value.code) == (503, "overloaded")
        waits.append(int(caught.value.headers["Retry-After"]))
    stream.cancel()
    assert 30 < waits[0] < waits[1] < 60  # the second refused client has its turn after the first one


def test_a_fault_of_the_thread_ends_all_requests() -> None:
    """A request cannot reach this fault; it stands for one that nobody foresaw."""

    async def call() -> list[Any]:
        streams = [engine.submit(SpeechRequest(text=LONG, seed=1)) for _ in range(2)]
        await anext(streams[0])
        engine.metrics.active = None
        results = list(await asyncio.gather(*map(collect, streams), return_exceptions=True))
        with pytest.raises(RequestError) as caught:
            engine.submit(SpeechRequest(text="Two."))
        assert caught.value.status == 503
        return results

    failures: list[bool] = []
    engine = make_engine(batching=False)
    engine.start(on_failure=lambda: failures.append(True))
    wait_until_ready(engine)
    for error in run(call()):
        assert isinstance(error, RequestError) and error.status == 500 and error.code == "internal"
    run(until(lambda: bool(failures)))
    assert isinstance(engine.failure, AttributeError) and not engine.is_alive and not engine.ready
    assert sample(engine, "tts_ready") == 0 and sample(engine, "tts_queue_length") == 0


def test_a_consumer_whose_loop_has_ended_cancels_its_request(engine: Engine) -> None:
    async def call() -> SpeechStream:
        return engine.submit(SpeechRequest(text=LONG, seed=1))

    stream = run(call())  # asyncio.run closes the loop
    run(until(lambda: stream.ended))
    assert stream.cancelled and len(stream.speeches) < 4


def test_a_text_without_audio_is_an_error_of_no_other_request(engine: Engine) -> None:
    """The gate of the embedded voice fires at once for a single phoneme."""

    requests = [SpeechRequest(text=text, seed=1) for text in ("{OW}", "Two.")]
    error, sound = run(collect_all(engine, requests, return_exceptions=True))
    assert isinstance(error, RequestError) and error.status == 400 and error.code == "no_audio"
    assert torch.equal(sound, reference("Two.", 1))


class LargeVocoder:
    """A vocoder whose memory does not suffice."""

    def with_settings(self, sigma: float, strength: float) -> "LargeVocoder":
        return self

    def stream(self, *args: object) -> Any:
        raise MemoryError
        yield


@pytest.mark.parametrize(
    ("vocoder", "code"),
    [
        (LargeVocoder(), "out_of_memory"),
        (None, "internal"),  # has no settings, so the request fails at its beginning
    ],
)
def test_a_computation_that_fails_ends_its_request_alone(vocoder: Any, code: str) -> None:
    requests = [SpeechRequest(text="Two.", seed=1, vocoder=vocoder) for vocoder in ("waveglow", "griffin-lim")]
    with running_engine() as engine:
        engine.voices._loaded["embedded", "waveglow"].vocoder = vocoder
        failure, sound = run(collect_all(engine, requests, return_exceptions=True))
        assert isinstance(failure, RequestError) and failure.status == 500 and failure.code == code
        assert failure.kind == "server_error"
        assert torch.equal(sound, reference("Two.", 1, vocoder="griffin-lim"))
        assert engine.is_alive


def test_a_piece_that_fails_in_a_batch_is_the_only_one(monkeypatch) -> None:
    """The pieces of a batch that fails are tried one by one."""
    start, sizes = Synthesizer.stream_pieces, list[int]()

    def fail(voice: Synthesizer, pieces: list[Piece], *voices: Any) -> Any:
        sizes.append(len(pieces))
        if any(piece.text == "Yes!" for piece in pieces):
            raise RuntimeError("shapes")
        return start(voice, pieces, *voices)

    async def call() -> list[Any]:
        streams = engine.submit_all([SpeechRequest(text=text, seed=1) for text in ("Two.", "Yes!", "Good morning.")])
        return await asyncio.gather(*map(collect, streams), return_exceptions=True)

    monkeypatch.setattr(Synthesizer, "stream_pieces", fail)
    with running_engine() as engine:
        first, failure, last = run(call())
    assert sizes == [3, 1, 1, 1] and failure.code == "internal"
    assert torch.equal(first, reference("Two.", 1)) and torch.equal(last, reference("Good morning.", 1))


def test_a_voice_that_cannot_speak_ends_the_start() -> None:
    mute = SimpleNamespace(stream=lambda text: iter(()), description="mute")
    with pytest.raises(DataError, match=r"voice mute: .* no audio for 'Ready"):
        warm_up(mute)
