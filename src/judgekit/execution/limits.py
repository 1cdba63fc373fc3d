"""Limits, retries and breakers that may be shared by many event loops and threads of a process.

asyncio's own primitives belong to one loop; a runner is called from loops that come and go.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from threading import Lock
from types import TracebackType
from typing import Any

from msgspec import Struct

from judgekit.errors import ConfigError, JudgeUnavailable


class Limiter:
    """At most `total` holders at once, over every loop and thread of the process; first come, first served."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ConfigError(f"a limit is at least 1, not {total}")
        self.total = total
        self.held = 0
        self._lock = Lock()
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def acquire(self) -> None:
        with self._lock:
            if self.held < self.total and not self._waiters:
                self.held += 1
                return
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, future))
        try:
            await future
        except asyncio.CancelledError:
            with self._lock:
                try:
                    self._waiters.remove((loop, future))
                except ValueError:  # the slot was handed over while we were cancelled: pass it on
                    granted = True
                else:
                    granted = False
            if granted:
                self.release()
            raise

    def release(self) -> None:
        with self._lock:
            while self._waiters:
                loop, future = self._waiters.popleft()
                try:
                    loop.call_soon_threadsafe(_grant, future)
                except RuntimeError:  # that loop is closed; its waiter is gone
                    continue
                return
            self.held -= 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __reduce__(self) -> Any:
        return Limiter, (self.total,)


def _grant(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class RateLimit:
    """At most `per_minute` starts a minute, evenly spaced after a burst of up to *burst* (GCRA)."""

    def __init__(self, per_minute: float, *, burst: int = 1) -> None:
        if not per_minute > 0 or burst < 1:
            raise ConfigError(
                "a rate limit is a number of requests per minute above 0, with a burst of 1 or more"
            )
        self.per_minute = per_minute
        self.burst = burst
        self._interval = 60.0 / per_minute
        self._next = 0.0
        self._lock = Lock()

    def reserve(self, now: float) -> float:
        """Take the next start; returns the seconds to wait for it from *now* (monotonic clock)."""
        with self._lock:
            start = max(self._next, now - self._interval * (self.burst - 1))
            self._next = start + self._interval
            return max(0.0, start - now)

    async def wait(self) -> None:
        """Wait for the next start."""
        if delay := self.reserve(time.monotonic()):
            await asyncio.sleep(delay)

    def __reduce__(self) -> Any:
        return _rate_limit, (self.per_minute, self.burst)


def _rate_limit(per_minute: float, burst: int) -> RateLimit:
    return RateLimit(per_minute, burst=burst)


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how soon a retryable failure is tried again.

    Waits double from `wait_initial_s` to `wait_max_s`, each drawn between half and whole of it (jitter);
    an endpoint's Retry-After is obeyed when it is longer. `budget`: retries may be at most this share of
    all calls (after the first ten), so that an outage is not answered with a storm; 1 allows one retry per
    call on average.
    """

    attempts: int = 3
    """Tries in all; 1 never retries."""
    wait_initial_s: float = 0.5
    wait_max_s: float = 20.0
    budget: float = 0.2

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ConfigError(f"retry: attempts is at least 1, not {self.attempts}")
        if not 0 <= self.wait_initial_s <= self.wait_max_s:
            raise ConfigError("retry: wait_initial_s must be at least 0 and no more than wait_max_s")
        if not self.budget >= 0:
            raise ConfigError(f"retry: budget is a share of calls, at least 0, not {self.budget}")

    def wait_s(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait after attempt number *attempt* (from 1) failed with *error*."""
        wait: float = min(self.wait_max_s, self.wait_initial_s * 2 ** min(attempt - 1, 30))
        wait *= 0.5 + 0.5 * random.random()
        asked = getattr(error, "retry_after", None)
        return max(wait, float(asked)) if isinstance(asked, int | float) else wait


NO_RETRY = Retry(attempts=1)


class RetryBudget:
    """Counts calls and retries, and says whether another retry is allowed."""

    def __init__(self, share: float) -> None:
        self._share = share
        self._lock = Lock()
        self.calls = 0
        self.retries = 0

    def call(self) -> None:
        """A first try was made."""
        with self._lock:
            self.calls += 1

    def allow(self) -> bool:
        """Take one retry from the budget; False where it is spent."""
        with self._lock:
            if self.retries + 1 > self._share * max(self.calls, 10):
                return False
            self.retries += 1
            return True

    def __reduce__(self) -> Any:
        return RetryBudget, (self._share,)


class Breaker:
    """Stops calling an engine that fails again and again.

    After `failures` consecutive failures it opens: calls raise JudgeUnavailable at once. After `open_s`
    seconds one call is let through as a probe; it closes the breaker when it succeeds, else the wait begins
    anew.
    """

    def __init__(self, *, failures: int = 8, open_s: float = 10.0) -> None:
        if failures < 1 or not open_s > 0:
            raise ConfigError("a breaker needs failures of 1 or more and open_s above 0")
        self.failures = failures
        self.open_s = open_s
        self._lock = Lock()
        self._row = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    def before(self, what: str = "the judge") -> None:
        """Raise JudgeUnavailable where the breaker is open and this call is not its probe."""
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
        """The call ended without saying anything about the engine (it was cancelled)."""
        with self._lock:
            self._probing = False

    def __reduce__(self) -> Any:
        return _breaker, (self.failures, self.open_s)


def _breaker(failures: int, open_s: float) -> Breaker:
    return Breaker(failures=failures, open_s=open_s)
