"""Excludes the time during which a judge is loading or restarting from an evaluation's timeout."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from msgspec import Struct

from judgekit.fork import in_child

_lock = threading.RLock()
"""A judge's loop holds a stopwatch that the run's loop reads, and others share it."""


@in_child
def _forked() -> None:
    global _lock
    _lock = threading.RLock()


class Stopwatch(Struct, gc=False, eq=False):
    """Measures for how long an evaluation was held up by something that is loading or restarting.

    Holds may overlap; overlapping time is measured once.
    """

    # gc=False, as for all records of a run: there is one for every evaluation
    _holds: int = 0
    _since: float = 0.0
    _held_s: float = 0.0
    _sharers: tuple[Stopwatch, ...] = ()
    _excused: float = 0.0
    """Monotonic time up to which time has been excused."""

    @property
    def holding(self) -> bool:
        return self._holds > 0

    def held_s(self) -> float:
        """Return the seconds for which it has been held so far."""
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
        """Also exclude the time since *since* (monotonic): only now is it known that a call hung."""
        with _lock:
            now = time.monotonic()
            self._held_s += max(0.0, now - max(since, self._excused))  # several calls may have hung at once
            self._excused = now
            for other in self._sharers:
                other.excuse(since)

    def add_sharer(self, other: Stopwatch) -> None:
        """Hold *other* along with this stopwatch from now on: both wait for the same call."""
        with _lock:
            self._sharers += (other,)
            if self._holds:
                other.hold()

    def drop_sharer(self, other: Stopwatch) -> None:
        """Hold it no more: it has its answer."""
        with _lock:
            sharers = list(self._sharers)
            sharers.remove(other)
            self._sharers = tuple(sharers)
            if self._holds:
                other.release()

    def hold(self) -> None:
        """Exclude the time from now until `release` has been called as often."""
        with _lock:
            if not self._holds:
                self._since = time.monotonic()
                for other in self._sharers:
                    other.hold()
            self._holds += 1

    def release(self) -> None:
        """End a hold."""
        with _lock:
            if self._holds == 1:
                now = time.monotonic()  # in this order, for `held_s` reads without the lock
                self._held_s, self._since = self._held_s + now - self._since, now
                for other in self._sharers:
                    other.release()
            self._holds -= 1


STOPWATCH: ContextVar[Stopwatch | None] = ContextVar("judgekit_stopwatch", default=None)
"""The stopwatch of the current evaluation; None outside a runner."""


def off_the_clock() -> AbstractContextManager[None]:
    """Exclude the time of the block from the current evaluation's `timeout_s`."""
    stopwatch = STOPWATCH.get()
    return nullcontext() if stopwatch is None else stopwatch.held()
