"""Protects a judge under load: a rate limit, concurrency that adapts, and a circuit breaker."""

from __future__ import annotations

import asyncio
import time
from threading import Lock, RLock
from typing import Any

from judgekit.errors import ConfigError, JudgeError, JudgeTimeout, JudgeUnavailable
from judgekit.execution.limits import Limiter
from judgekit.judges.layers.recovery import not_asking


class RateLimit:
    """Limits starts to *per_minute*, evenly spaced."""

    def __init__(self, per_minute: float) -> None:
        if not per_minute > 0:
            raise ConfigError("a rate limit is a number of requests per minute above 0")
        self.per_minute = per_minute
        self._interval = 60.0 / per_minute
        self._next = 0.0
        self._lock = RLock()  # a call that is garbage may give its start back while we have it

    def reserve(self, now: float) -> float:
        """Reserve the next start; returns the seconds to wait, from *now* (monotonic clock)."""
        with self._lock:
            start = max(self._next, now)
            self._next = start + self._interval
            return start - now

    async def wait(self) -> None:
        """Wait for the next start. The wait counts against no evaluation's timeout."""
        if delay := self.reserve(time.monotonic()):
            try:
                with not_asking():
                    await asyncio.sleep(delay)
            except BaseException:
                with self._lock:
                    self._next -= self._interval
                raise

    def __reduce__(self) -> Any:
        return RateLimit, (self.per_minute,)


class AdaptiveLimit:
    """Concurrency between *low* and *high* that finds what the endpoint can take (AIMD, as TCP's congestion window).

    It begins at *low* and doubles with each round of answers until the endpoint is overloaded for the first time; from then
    on a round of answers adds 1, and an overload halves it. Overloads are refusals that may be tried again (HTTP 429, 503 and
    other 5xx) and timeouts; calls that began before a cut do not cut it again.
    """

    def __init__(self, low: int, high: int) -> None:
        if not 1 <= low <= high:
            raise ConfigError(f"min_concurrency is a number from 1 to max_concurrency ({high}), not {low}")
        self.low = low
        self.high = high
        self.limiter = Limiter(low)
        self._size = float(low)
        self._found = False
        """Whether it was overloaded once."""
        self._cut_at = float("-inf")
        self._lock = Lock()

    def answered(self) -> None:
        """A call was answered."""
        with self._lock:
            self._resize(self._size + (1.0 / self._size if self._found else 1.0))

    def failed(self, error: JudgeError, began: float) -> None:
        """A call that began at that time (monotonic clock) failed."""
        lost = isinstance(error, JudgeUnavailable) and error.lost
        if lost or not isinstance(error, JudgeUnavailable | JudgeTimeout):
            return
        with self._lock:
            self._found = True
            if began > self._cut_at:
                self._cut_at = time.monotonic()
                self._resize(self._size / 2)

    def _resize(self, size: float) -> None:
        self._size = min(max(size, float(self.low)), float(self.high))
        if int(self._size) != self.limiter.total:
            self.limiter.resize(int(self._size))

    def __reduce__(self) -> Any:
        return AdaptiveLimit, (self.low, self.high)


class Breaker:
    """Stops calling an engine that keeps failing.

    After `failures` consecutive failures it opens: calls raise JudgeUnavailable immediately. After `open_s`
    seconds one call is let through as a probe. If it succeeds the breaker closes, otherwise the wait starts
    again.
    """

    def __init__(self, *, failures: int = 8, open_s: float = 10.0) -> None:
        if failures < 1 or not open_s > 0:
            raise ConfigError("a breaker needs failures of 1 or more and open_s above 0")
        self.failures = failures
        self.open_s = open_s
        self._lock = RLock()  # a call that is garbage may leave while we have it
        self._row = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def before(self, what: str = "the judge") -> None:
        """Raise JudgeUnavailable if the breaker is open and this call is not its probe."""
        with self._lock:
            if self._open_until is None:
                return
            wait = self._open_until - time.monotonic()
            if wait <= 0 and not self._probing:
                self._probing = True
                return
        raise JudgeUnavailable(
            f"{what} failed {self.failures} times in a row and is given a rest", retry_after=max(wait, 0.1)
        )

    def succeeded(self) -> None:
        with self._lock:
            self._row = 0
            self._open_until = None
            self._probing = False

    def failed(self) -> None:
        with self._lock:
            self._row += 1
            if self._row >= self.failures or self._probing:
                self._open_until = time.monotonic() + self.open_s
            self._probing = False

    def left(self) -> None:
        """Note that a call ended in a way that says nothing about the engine."""
        with self._lock:
            self._probing = False

    def __reduce__(self) -> Any:
        return _breaker, (self.failures, self.open_s)


def _breaker(failures: int, open_s: float) -> Breaker:
    return Breaker(failures=failures, open_s=open_s)
