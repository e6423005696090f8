"""A request being computed, and the turns of the threads that compute it."""

from __future__ import annotations

import threading

from common.inference.stages import AudioSteps
from common.spec import Piece
from serving.stream import SpeechStream
from synthesizer import Synthesizer


class Job:
    """A request being computed: its stream, its voice once it has begun, and the audio of the current piece."""

    voice: Synthesizer

    def __init__(self, stream: SpeechStream) -> None:
        self.stream = stream
        self.steps: AudioSteps | None = None  # before the mels of the piece are there

    @property
    def piece(self) -> Piece:
        """The piece computed now or next."""
        return self.stream.pieces[len(self.stream.speeches)]

    @property
    def has_more(self) -> bool:
        """True while pieces are left, unless the request has ended."""
        return not self.stream.ended and len(self.stream.speeches) < len(self.stream.pieces)


class Turns:
    """A lock that threads get in the order in which they ask for it."""

    def __init__(self) -> None:
        self._next = self._now = 0
        self._change = threading.Condition()

    def __enter__(self) -> None:
        with self._change:
            turn, self._next = self._next, self._next + 1
            self._change.wait_for(lambda: self._now == turn)

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._now += 1
            self._change.notify_all()
