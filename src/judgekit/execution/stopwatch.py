"""The time that an evaluation has taken, without the time in which its judge was being restarted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from msgspec import Struct


class Stopwatch(Struct, gc=False, eq=False):
    """Measures for how long an evaluation was held up by something that is loaded or restarted.

    Holds may overlap: only the time in which there is at least one counts, and it counts once.
    """

    # one is made for every evaluation: it is not tracked by the garbage collector, as the records of a run are not
    _holds: int = 0
    _since: float = 0.0
    _held_s: float = 0.0
    _sharers: tuple[Stopwatch, ...] = ()
    _excused: float = 0.0
    """Monotonic time up to which time was excused."""

    @property
    def holding(self) -> bool:
        return self._holds > 0

    def held_s(self) -> float:
        """Seconds for which it was held so far."""
        return self._held_s + (time.monotonic() - self._since if self._holds else 0.0)

    @contextmanager
    def held(self) -> Iterator[None]:
        """The time of this block does not count."""
        self.hold()
        try:
            yield
        finally:
            self.release()

    def excuse(self, since: float) -> None:
        """Do not count the time since then (monotonic) either: its call hung, as is known only now."""
        now = time.monotonic()
        self._held_s += max(0.0, now - max(since, self._excused))  # several calls may have hung at once
        self._excused = now
        for other in self._sharers:
            other.excuse(since)

    @contextmanager
    def shared_by(self, other: Stopwatch | None) -> Iterator[None]:
        """While this block runs, what holds this stopwatch holds *other* as well: it waits for the same call."""
        if other is None or other is self:
            yield
            return
        self._sharers += (other,)
        if self._holds:
            other.hold()
        try:
            yield
        finally:
            sharers = list(self._sharers)
            sharers.remove(other)
            self._sharers = tuple(sharers)
            if self._holds:
                other.release()

    def hold(self) -> None:
        """Stop counting, until `release` is called as often."""
        self._holds += 1
        if self._holds == 1:
            self._since = time.monotonic()
            for other in self._sharers:
                other.hold()

    def release(self) -> None:
        """Count again, if nothing else holds it."""
        self._holds -= 1
        if not self._holds:
            self._held_s += time.monotonic() - self._since
            for other in self._sharers:
                other.release()


STOPWATCH: ContextVar[Stopwatch | None] = ContextVar("judgekit_stopwatch", default=None)
"""The stopwatch of the evaluation that is running here; None outside of a runner."""


def off_the_clock() -> AbstractContextManager[None]:
    """The time of this block counts against no evaluation's `timeout_s`."""
    stopwatch = STOPWATCH.get()
    return nullcontext() if stopwatch is None else stopwatch.held()
