"""How long a request will wait, from the speed of late."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Iterable

MEMORY = 30.0  # seconds of computing after which a measurement counts for half
GUESS = 10.0  # seconds of audio computed in the first second, until that is measured
LONGEST_WAIT = 59  # seconds of Retry-After; of more than 60, OpenAI's older clients take no notice


class WorkForecast:
    """The speed of the models' thread, and the times at which refused clients are to come back.

    `add` belongs to the thread, `retry_after` to the event loop.
    """

    def __init__(self) -> None:
        self._audio, self._seconds, self._promised = GUESS, 1.0, 0.0

    def add(self, audio: float, seconds: float) -> None:
        """Count seconds of audio and those of their computation."""
        fading = 0.5 ** (seconds / MEMORY)
        self._audio, self._seconds = self._audio * fading + audio, self._seconds * fading + seconds

    def seconds(self, audio: float) -> float:
        """Return the seconds that the computation of so many seconds of audio takes."""
        return audio * self._seconds / self._audio

    def retry_after(self, wait: float, audio: float) -> int:
        """Return the whole seconds after which a refused client is to come back.

        Clients refused earlier have their turns first; if all came at once, most would be refused again.

        Args:
            wait: seconds until its request could begin, were there no such clients.
            audio: seconds of audio that it asks for.
        """
        now = time.monotonic()
        own = min(max(self._promised - now, wait), LONGEST_WAIT)  # a difference of times, which would round to more
        self._promised = now + own + self.seconds(audio)
        return max(1, math.ceil(own))


def work_before(active: Iterable[float], waiting: Iterable[float], places: int) -> float:
    """Return the seconds of audio computed before another request begins.

    The `active` requests, by the seconds they have left, share the thread evenly. Each one that ends leaves its place to the first
    of those `waiting`, and the new one comes last.
    """
    ends = sorted(active)  # a heap, in seconds that each active one has been given by then
    given = work = 0.0
    for left in [*waiting, 0.0]:
        while len(ends) >= places:
            work += (ends[0] - given) * len(ends)
            given = heapq.heappop(ends)
        heapq.heappush(ends, given + left)
    return work
