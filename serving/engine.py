"""The engine: two threads that run the models for all requests together.

A text is cut into pieces. One thread admits requests and computes the mels of the next pieces of all requests for a voice as one
batch. The other one meanwhile turns mels into audio, a part at a time, first for those whose listeners have least of it. The audio
of a request equals that of `Synthesizer.stream_line(Line(text, seed, 0))`, because neither the mel nor the audio of a piece depends
on its batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from weakref import WeakSet

import torch

from common import precision
from common.data.filelist import BadRows, NothingToSay
from common.errors import DataError, UsageError
from common.web.server import LOADER
from serving.config import ServingConfig
from serving.errors import NOTHING, RequestError, not_ready_error, overload_error
from serving.forecast import WorkForecast, work_before
from serving.jobs import Job, Turns
from serving.metrics import Metrics
from serving.sentences import cut_sentences
from serving.stream import SpeechRequest, SpeechStream, Visit, check_length
from serving.voices import Voices
from synthesizer import Synthesizer

WARM_UP = "Ready."
LAST_MOMENT = 0.5  # seconds for the end of a thread that loads voices
TICK = 0.05  # seconds between two checks for unfinished work
GATHER = 0.004  # seconds in which requests join the first one of a batch
CPU_BATCH = 8  # pieces; on a CPU more gain little, and would all have to wait for their mels

log = logging.getLogger("serving")


class Engine:
    """Accepts requests in an event loop and computes them in its own threads.

    `start` begins to load the voices; `ready` becomes True when they are loaded. `stop` finishes the accepted requests and the
    visits. A request keeps its place in the queue until its computation has ended and its consumer has left, so that the audio
    waiting for slow consumers is limited, too.
    """

    def __init__(self, voices: Voices, config: ServingConfig) -> None:
        self.voices, self.config, self.metrics = voices, config, Metrics()
        self.failure: Exception | None = None  # that ended the threads
        self._forecast, self._places = WorkForecast(), config.max_batch if config.batching else 1
        self._since = 0.0  # when the last part of audio was ready, or the first request came
        on_cpu = config.cpu or precision.default_device().type == "cpu"
        self._batch = min(CPU_BATCH, self._places) if on_cpu else self._places
        # A GPU serves one thread at a time: while one records a graph, the other must not wait for the device.
        self._turns: AbstractContextManager[None] = nullcontext() if on_cpu else Turns()
        self._ready = self._aborting = False
        self.is_left = False  # True if the thread still loads voices, which nothing can interrupt
        self.is_stopping = False  # True once it has stopped accepting requests
        self._streams: WeakSet[SpeechStream] = WeakSet()  # with a place; garbage-collected ones give it back
        self._inbox: deque[SpeechStream] = deque()
        self._jobs: list[Job] = []  # all that have begun
        self._unread: list[Job] = []  # those that wait for the mels of their next piece
        self._visits: WeakSet[Visit] = WeakSet()
        self._wake = threading.Condition()
        self._thread: threading.Thread | None = None

    @property
    def ready(self) -> bool:
        """True while requests are accepted."""
        return self._ready and not self.is_stopping and self.is_alive

    @property
    def is_alive(self) -> bool:
        """True while the threads work, or have been told to stop."""
        thread = self._thread
        return self.failure is None and (self.is_stopping or (thread is not None and thread.is_alive()))

    def check_ready(self) -> None:
        """Raise RequestError 503 while no requests are accepted."""
        if not self.ready:
            raise not_ready_error(self.is_stopping or self._ready)

    def start(self, on_failure: Callable[[], object] = bool) -> None:
        """Start the threads. `on_failure` is called if voices cannot be loaded or a fault ends them; `failure` has the error."""
        self._thread = threading.Thread(target=self._run, args=(on_failure,), name=LOADER, daemon=True)
        self._thread.start()

    @contextmanager
    def visit(self, on_stop: Callable[[], object] = bool) -> Iterator[Visit]:
        """Open a visit, from a coroutine. Raises RequestError 503 while no requests are accepted."""
        self.check_ready()
        visit = Visit(on_stop)
        with self._wake:
            self._visits.add(visit)
            if self.is_stopping:  # since the check
                visit.begin_stop()
        try:
            yield visit
        finally:
            with self._wake:
                self._visits.discard(visit)
                self._wake.notify_all()

    def submit(self, request: SpeechRequest, visit: Visit | None = None) -> SpeechStream:
        """Accept a request, from a coroutine; an open visit's even while the engine stops. It is computed from the next round on.

        Raises:
            RequestError: 400 for values that cannot be used, an unknown voice among them, 503 if the queue is full.
        """
        if not request.text.strip():  # one of several may be empty: it gives no sound, as others without words
            raise RequestError(400, "input: empty, expected a text", param="input", code="empty_text")
        return self.submit_all([request], visit)[0]

    def submit_all(self, requests: list[SpeechRequest], visit: Visit | None = None) -> list[SpeechStream]:
        """Accept all of several requests, or none. Raises as `submit` does."""
        if visit is None:
            self.check_ready()
        streams = [self._stream(request) for request in requests]
        for stream in streams:
            stream.clock = streams[0].clock
        with self._wake:
            is_open = not self.is_stopping or (visit in self._visits and not self._aborting)
            if not is_open or self.failure:  # since the check, so the thread may have ended
                raise not_ready_error(is_stopping=True)
            self._check_load(streams)
            self._streams.update(streams)
            self._inbox.extend(streams)
            self.metrics.queue.set(len(self._streams))
            self._wake.notify_all()
        for stream in streams:
            self.metrics.characters.labels(stream.voice).inc(len(stream.request.text))
        return streams

    def _check_load(self, streams: list[SpeechStream]) -> None:
        """Raise RequestError 503 for new streams that the queue has no room for, or that could not begin in time."""
        most, own = self.config.max_queue, sum(stream.seconds_left for stream in streams)
        waiting = [stream.seconds_left for stream in self._inbox if not stream.cancelled]
        active = [stream.seconds_left for stream in self._streams if not stream.ended and stream not in self._inbox]
        wait = self._forecast.seconds(work_before(active, waiting, self._places))
        if len(self._streams) + len(streams) > most:
            reason = f"the server has {len(self._streams)} requests in its queue, at most {most} (--max-queue)"
            raise overload_error(reason, self._forecast.retry_after(wait, own))
        if wait > self.config.timeout:
            reason = f"this request would wait for {wait:.0f} seconds, at most {self.config.timeout:g} (--timeout)"
            raise overload_error(reason, self._forecast.retry_after(wait - self.config.timeout / 2, own))

    def choose_seed(self, seed: int | None) -> int:
        """Return the request's seed, otherwise the server's, otherwise a random one."""
        chosen = self.config.seed if seed is None else seed
        return precision.draw_seed() if chosen is None else chosen

    def begin_stop(self) -> None:
        """Refuse new requests from now on."""
        with self._wake:
            visits = [] if self.is_stopping else list(self._visits)
            self.is_stopping = True
            self.metrics.ready.set(0)
            self._wake.notify_all()
        for visit in visits:
            visit.begin_stop()

    async def stop(self, grace: float | None = None) -> bool:
        """Finish the accepted requests and the visits within `grace` seconds, then end the threads.

        A request is finished when its consumer has all of its audio. Returns False if any had to be cut off.
        """
        self.begin_stop()
        thread, limit = self._thread, self.config.grace if grace is None else grace
        if thread is None:
            return True
        end = time.monotonic() + (limit if self._ready else 0.0)  # before that, nothing has been accepted
        while (is_busy := thread.is_alive() or len(self._streams) > 0) and time.monotonic() < end:
            await asyncio.sleep(TICK)
        await asyncio.to_thread(self.abort)
        return not (is_busy and self._ready)

    def abort(self) -> None:
        """Cut off all requests after their current part, and wait for the thread to end.

        The process must not exit earlier: C++ code in a running thread would abort it. While voices are being loaded, it only waits
        for a moment.
        """
        self.begin_stop()
        with self._wake:
            self._aborting = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join(None if self._ready or self.failure else LAST_MOMENT)
            self.is_left = self._thread.is_alive()

    def _stream(self, request: SpeechRequest) -> SpeechStream:
        check_length(len(request.text), self.config)
        voice = self.voices.resolve(request.voice)
        self.voices.vocoder_of(voice, request.vocoder)
        rate, seed = self.voices.sampling_rate(voice), self.choose_seed(request.seed)
        stream = SpeechStream(request, voice, rate, seed, self.config.timeout)
        stream.on_cancel = self._release
        return stream

    def _run(self, on_failure: Callable[[], object]) -> None:
        self._repeat(self._load, on_failure)
        if self._ready:
            sound = threading.Thread(target=self._repeat, args=(self._speak, on_failure), name=LOADER, daemon=True)
            sound.start()
            self._repeat(self._read, on_failure)
            sound.join()

    def _repeat(self, work: Callable[[], bool | None], on_failure: Callable[[], object]) -> None:
        """Work as long as that returns True. An error that belongs to no request ends all of them, and both threads.

        Between two calls, the waiting thread keeps no reference to a request.
        """
        try:
            while work():
                pass
        except Exception as error:
            with self._wake:
                self.failure = self.failure or error
                self.metrics.ready.set(0)
                self._wake.notify_all()
                streams = [stream for stream in self._streams if not stream.ended]
            for stream in streams:
                self._fail(stream, error)
            on_failure()

    def _load(self) -> None:
        self.voices.load("cpu" if self.config.cpu else None)
        for voice in self.voices.all_loaded():
            if self._aborting:
                return
            warm_up(voice)
        self._ready = True
        self.metrics.ready.set(1)
        log.info("ready", extra={"fields": {"voices": self.voices.names}})

    def _read(self) -> bool:
        """Compute the mels of pieces that wait for them, those of a voice as one batch. Returns False when the engine ends."""
        jobs = self._next_pieces() if (goes_on := self._admit()) else []
        for voice in {job.stream.voice: None for job in jobs}:
            with self._turns:
                self._compute_mels([job for job in jobs if job.stream.voice == voice])
        return goes_on

    def _speak(self) -> bool:
        """Compute a part of audio. Returns False when the engine ends."""
        if (job := self._next_job()) is None:
            return False
        with self._turns:
            audio, has_ended = self._advance(job)
        now = time.monotonic()
        self._forecast.add(audio, now - self._since)
        self._since = now
        if has_ended:
            self._hand_on(job)
        return True

    def _has_ended(self) -> bool:
        """True when a thread has failed, or nothing is left and nothing more comes."""
        is_last = self._aborting or (self.is_stopping and not self._visits)
        return self.failure is not None or (is_last and not self._jobs and not self._inbox)

    def _hand_on(self, job: Job) -> None:
        """Pass a job on whose piece has ended: to the thread that computes mels, or its place to another."""
        with self._wake:
            job.steps = None
            if job.has_more:
                self._unread.append(job)
            else:
                self._jobs.remove(job)
            self.metrics.active.set(len(self._jobs))
            self._wake.notify_all()

    def _admit(self) -> bool:
        """Wait for pieces to read, and move requests from the queue to the jobs. Returns False when the engine ends."""
        with self._wake:
            self._wake.wait_for(lambda: self._has_ended() or self._unread or self._places_to_give())
            if self._has_ended():
                return False
            if self._places > 1:
                self._wake.wait_for(lambda: self._aborting, GATHER)
            self._drop_abandoned()
            if not self._jobs:
                self._since = time.monotonic()
            new = [Job(self._inbox.popleft()) for _ in range(self._places_to_give())]
            self._jobs += new
            self.metrics.active.set(len(self._jobs))
        for job in new:
            self._begin(job)
            self._hand_on(job)
        return True

    def _places_to_give(self) -> int:
        return min(len(self._inbox), self._places - len(self._jobs))

    def _drop_abandoned(self) -> None:
        """Finish requests in the queue whose time is over, so that they leave their places to others."""
        self._inbox = deque(stream for stream in self._inbox if not self._is_over(stream))

    def _next_pieces(self) -> list[Job]:
        """Take the jobs whose mels come next."""
        with self._wake:
            self._unread.sort(key=lambda job: job.stream.reserve)
            taken, self._unread = self._unread[: self._batch], self._unread[self._batch :]
        for job in (over := [job for job in taken if self._is_over(job.stream)]):
            self._hand_on(job)
        return [job for job in taken if job not in over]

    def _next_job(self) -> Job | None:
        """Wait for jobs with mels; return the one whose listener has least audio, None when the engine ends."""
        with self._wake:
            self._wake.wait_for(lambda: self._has_ended() or any(job.steps for job in self._jobs))
            self._drop_abandoned()
            jobs = [] if self.failure else [job for job in self._jobs if job.steps]
            return min(jobs, key=lambda job: job.stream.reserve, default=None)

    def _begin(self, job: Job) -> None:
        """Choose a job's voice and cut its text into pieces."""
        stream = job.stream
        try:
            job.voice = self.voices.get(stream.request, stream.seed)
            stream.begin(job.voice, self._sentences(stream), self.config.silence)
        except (DataError, UsageError) as error:
            problem = "; ".join(error.problems.values()) if isinstance(error, BadRows) else str(error)
            code = NOTHING if isinstance(error, NothingToSay) else "invalid_text"
            self._finish(stream, RequestError(400, f"input: {problem}", param="input", code=code))
        except Exception as error:
            self._fail(stream, error)

    def _sentences(self, stream: SpeechStream) -> list[str] | None:
        """Return the sentences of a stream's text, if the settings want silence between them."""
        if self.config.sentence_pause is None:
            return None
        return list(cut_sentences([stream.request.text], partial(self.voices.sentence_ends, stream.voice)))

    def _compute_mels(self, group: list[Job]) -> None:
        """Start the next piece of jobs for a voice, as one batch."""
        try:
            self._start_pieces(group)
        except Exception:  # perhaps of one piece: try each alone, so that the others continue
            for job in group:
                try:
                    self._start_pieces([job])
                except Exception as error:
                    self._fail(job.stream, error)
                    self._hand_on(job)

    def _start_pieces(self, group: list[Job]) -> None:
        streams = group[0].voice.stream_pieces([job.piece for job in group], [job.voice for job in group])
        self.metrics.batch.observe(len(group))
        for job, stream in zip(group, streams, strict=True):
            job.stream.put_silence(job.piece.lead)
            job.stream.begin_piece(stream.draft)
        with self._wake:
            for job, stream in zip(group, streams, strict=True):
                job.steps = stream.steps  # from here on, the job is the other thread's
            self._wake.notify_all()

    def _advance(self, job: Job) -> tuple[float, bool]:
        """Compute the next part of a job's audio and pass it on. Returns its seconds, and True at the end of the piece."""
        stream = job.stream
        assert job.steps is not None
        if self._is_over(stream):
            job.steps.close()
            return 0.0, True
        try:
            audio = next(job.steps)
        except StopIteration as end:
            speech, _ = end.value
            pause = job.piece.pause
            stream.speeches.append(speech)
            stream.put_silence(pause)
            if not job.has_more:
                self._finish(stream, None)
            return 0.0, True
        except Exception as error:
            self._fail(stream, error)
            return 0.0, True
        if len(audio):
            stream.put(audio)
        return len(audio) / stream.sampling_rate, False

    def _is_over(self, stream: SpeechStream) -> bool:
        """Finish a stream that nobody consumes any more or that has timed out. Returns True if it has ended."""
        if stream.cancelled:
            self._finish(stream, None, "cancelled")
        elif self._aborting:
            self._finish(stream, not_ready_error(is_stopping=True))
        elif stream.clock.left < 0:
            self._finish(stream, stream.clock.error())
        return stream.ended

    def _fail(self, stream: SpeechStream, error: Exception) -> None:
        log.exception("a request failed", exc_info=error)
        message, code = "the computation failed; the log of the server has the cause", "internal"
        if precision.is_out_of_memory(error):
            message, code = "not enough memory for this text", "out_of_memory"
        self._finish(stream, RequestError(500, message, code=code))

    def _finish(self, stream: SpeechStream, error: RequestError | None, result: str = "ok") -> None:
        """End a stream: pass on its end or error, and count it."""
        stream.ended = True
        if error is None and result == "ok" and not any(speech.mel.shape[1] for speech in stream.speeches):
            message = "input: the voice produces no audio for this text; add words or a full stop"
            error = RequestError(400, message, param="input", code="no_audio")
        self._release(stream)
        result = (error.code or "error") if error else result
        self.metrics.requests.labels(stream.voice, result).inc()
        self.metrics.audio.labels(stream.voice).inc(stream.samples / stream.sampling_rate)
        if result == "ok" and stream.first is not None:
            self.metrics.first_byte.observe(stream.first)
            self.metrics.duration.observe(time.monotonic() - stream.start)
        stream.put(error)  # last, so that a consumer of the end finds it counted

    def _release(self, stream: SpeechStream) -> None:
        """Give back a stream's place once its computation has ended and its consumer has left."""
        if stream.ended and stream.cancelled:
            with self._wake:
                self._streams.discard(stream)
                self.metrics.queue.set(len(self._streams))


def warm_up(voice: Synthesizer) -> None:
    """Speak a word, because first calls are slow. Raises DataError if the voice produces no audio."""
    audio = torch.cat([torch.zeros(0), *voice.stream(WARM_UP)])
    if not len(audio):
        message = f"its models produce no audio for {WARM_UP!r}, expected trained checkpoints"
        raise DataError(f"voice {voice.description}: {message}")
