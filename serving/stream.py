"""A request to speak, and its audio on the way from the engine's thread to a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from common.inference.stages import acoustic_stages, join_pieces
from common.inference.words import Timetable, Word
from common.spec import Piece
from serving.config import ServingConfig
from serving.errors import RequestError, timeout_error
from synthesizer import Line, Speech, Synthesizer

CHARACTERS = 15.2  # in a second of speech, as in LJSpeech


@dataclass(frozen=True, kw_only=True)
class SpeechRequest:
    """A text to speak. None stands for the server's default or the voice's own."""

    text: str
    voice: str | None = None
    vocoder: str | None = None
    seed: int | None = None  # of all pieces of the text
    number: int = 0  # the sentence's in a longer text; combined with the seed
    sigma: float | None = None  # standard deviation of the vocoder's noise
    denoising_strength: float | None = None


class Clock:
    """The time since an answer last made progress. The streams of one answer share a clock."""

    def __init__(self, limit: float) -> None:
        self.limit, self.progress, self.has_begun = limit, time.monotonic(), False

    def note(self) -> None:
        """Note progress: a part of the audio."""
        self.progress, self.has_begun = time.monotonic(), True

    @property
    def left(self) -> float:
        """Seconds until the answer times out, below 0 afterwards."""
        return self.progress + self.limit - time.monotonic()

    def error(self) -> RequestError:
        """Return the error of an answer that has timed out."""
        return timeout_error(self.limit, self.has_begun)


class SpeechStream:
    """The audio of a request, in parts: `async for audio in stream` yields tensors (n,), float32 in [-1, 1], on the CPU.

    Iteration raises RequestError if the request fails or times out. A consumer that stops early must call `cancel`.

    Attributes:
        ended: the engine computes no more of it.
        cancelled: the consumer has left, early or after the end.
        on_cancel: called with the stream when the consumer leaves.
    """

    def __init__(self, request: SpeechRequest, voice: str, rate: int, seed: int, timeout: float) -> None:
        self.request, self.voice, self.sampling_rate, self.seed = request, voice, rate, seed
        self.clock, self.start = Clock(timeout), time.monotonic()
        self.cancelled = self.ended = False
        self.on_cancel: Callable[[SpeechStream], None] = lambda stream: None
        self.first: float | None = None  # seconds to the first part
        self.pieces: list[Piece] = []  # of the text, once its computation has begun
        self.speeches: list[Speech] = []  # of the pieces that are complete
        self.samples = 0
        self._synthesizer: Synthesizer | None = None
        self._drafts: deque[tuple[float, Speech]] = deque()  # pieces whose words are not listed yet, with their start
        self._timetable: Timetable | None = None
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Tensor | RequestError | None] = asyncio.Queue()

    def __aiter__(self) -> SpeechStream:
        return self

    async def __anext__(self) -> Tensor:
        item = await self._next()
        if isinstance(item, Tensor):
            return item
        self.cancel()
        raise item or StopAsyncIteration

    async def _next(self) -> Tensor | RequestError | None:
        """Wait for the next item until the clock has run down, which another stream of the same answer may set back."""
        while self._queue.empty() and (left := self.clock.left) > 0:
            with contextlib.suppress(TimeoutError, asyncio.TimeoutError):
                return await asyncio.wait_for(self._queue.get(), left)
        return self.clock.error() if self._queue.empty() else self._queue.get_nowait()

    def cancel(self) -> None:
        """End the computation before its next part, because the consumer leaves. A finished request is not affected."""
        self.cancelled = True
        self.on_cancel(self)

    @property
    def seconds_left(self) -> float:
        """The seconds of audio that are not computed, at the usual pace of speech."""
        return max(0.0, len(self.request.text) / CHARACTERS - self.samples / self.sampling_rate)

    @property
    def reserve(self) -> float:
        """The seconds of audio that a listener who plays the first part at once has left; none have less before it."""
        played = math.inf if self.first is None else time.monotonic() - self.start - self.first
        return self.samples / self.sampling_rate - played

    @property
    def speech(self) -> Speech:
        """The whole speech after iteration: audio, mel (M, T) and alignment (K, S)."""
        assert self._synthesizer is not None
        speech = join_pieces(self.speeches, self.pieces, self._synthesizer.audio)
        assert speech is not None
        return speech

    @property
    def symbols(self) -> list[list[str]]:
        """The symbols of each piece, in the order of the alignment's columns."""
        assert self._synthesizer is not None
        return [self._synthesizer.symbols(piece.text) for piece in self.pieces]

    def begin_piece(self, draft: Speech) -> None:
        """Keep the speech of a piece whose audio comes next, for `new_words`."""
        self._drafts.append((self.samples / self.sampling_rate, draft))

    def new_words(self) -> list[Word]:
        """List the words of the pieces begun since the last call, with their seconds in the stream. Call it from the consumer."""
        if self._drafts and self._timetable is None:
            assert self._synthesizer is not None
            texts = [piece.text for piece in self.pieces]
            acoustic = self._synthesizer.acoustic
            text = acoustic_stages(acoustic).written(self.request.text, acoustic.options)
            self._timetable = Timetable(text, texts, self._synthesizer.symbols)
        words = []
        while self._drafts and self._timetable:
            start, draft = self._drafts.popleft()
            words += self._timetable.add(draft.parts[0]._replace(start=start), draft.alignment)
        return words

    def put(self, item: Tensor | RequestError | None) -> None:
        """Pass a part, an error or None for the end from the engine's thread to the consumer's loop."""
        if isinstance(item, Tensor):
            self.samples += len(item)
            self.clock.note()
            self.first = self.first or time.monotonic() - self.start
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, item)
        except RuntimeError:  # the loop is closed, so nobody consumes
            self.cancel()

    def put_silence(self, seconds: float) -> None:
        """Pass on silence, which takes no memory before it is encoded."""
        if samples := round(seconds * self.sampling_rate):
            self.put(torch.zeros(1).expand(samples))

    def begin(self, voice: Synthesizer, sentences: list[str] | None = None, pause: float = 0.0) -> None:
        """Cut the text into pieces; if its sentences are given, these apart. `pause` is the silence in seconds between sentences.

        A later sentence of a longer text begins with it. A pause that the text demands takes its place. Raises DataError if the
        text cannot be read or has no words.
        """
        self._synthesizer = voice
        line = Line(self.request.text, self.seed, self.request.number)
        cuts = [voice.cut_line(line._replace(text=text)) for text in sentences or [line.text]]
        for cut, following in pairwise(cut for cut in cuts if cut):
            if not (cut[-1].pause or following[0].lead):
                cut[-1] = cut[-1]._replace(pause=pause)
        pieces = [piece for cut in cuts for piece in cut]
        self.pieces = [piece._replace(key=(*piece.key[:2], number)) for number, piece in enumerate(pieces)]
        if self.request.number and self.pieces and not self.pieces[0].lead:
            self.pieces[0] = self.pieces[0]._replace(lead=pause)


class Visit:
    """A client whose text becomes several requests in turn: a Wyoming connection.

    While the engine stops, it still accepts the requests of open visits. `on_stop` is called in the client's loop when it begins to
    stop: the client then takes no more text, and ends after the text it has.
    """

    def __init__(self, on_stop: Callable[[], object]) -> None:
        self._on_stop, self._loop = on_stop, asyncio.get_running_loop()

    def begin_stop(self) -> None:
        """Call `on_stop`, from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, so the client has left
            self._loop.call_soon_threadsafe(self._on_stop)


def check_length(found: int, config: ServingConfig, param: str = "input", which: str = "") -> None:
    """Raise RequestError if a text, or `which` of its characters, exceeds the limit; `param` is its name in the request."""
    if found > (most := config.max_characters):
        message = f"{param}: {found} characters{which}, expected at most {most} (--max-characters)"
        raise RequestError(400, message, param=param, code="text_too_long")
