"""Limits and retries that the event loops and threads of a process can share.

asyncio's own primitives belong to one loop; a runner is called from loops that come and go.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from threading import Lock, RLock
from types import TracebackType
from typing import Any

from msgspec import Struct

from judgekit.errors import ConfigError, attribute


class Limiter:
    """Allows `total` holders at once over all loops and threads of the process; first come, first served."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ConfigError(f"a limit is at least 1, not {total}")
        self.total = total
        self.held = 0
        # reentrant: while we hold it, the garbage collector may finalize a holder of a closed loop, which releases
        self._lock = RLock()
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    def try_acquire(self) -> bool:
        """Take a place if one is free and nobody waits."""
        with self._lock:
            if self.held < self.total and not self._waiters:
                self.held += 1
                return True
            return False

    async def acquire(self) -> None:
        if self.try_acquire():
            return
        with self._lock:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            self._waiters.append((loop, future))
        try:
            await future
        except BaseException:  # cancelled, or collected with its loop
            with self._lock:
                waits = (loop, future) in self._waiters
                if waits:
                    self._waiters.remove((loop, future))
            if not waits:  # a place was handed over while we were cancelled: pass it on
                self.release()
            raise

    def release(self) -> None:
        with self._lock:
            self.held -= 1
            self._hand_out()

    def resize(self, total: int) -> None:
        """Change the limit. Holders above a lowered one keep their places until they leave."""
        with self._lock:
            self.total = total
            self._hand_out()

    def _hand_out(self) -> None:
        """Give free places to waiters."""
        while self._waiters and self.held < self.total:
            loop, future = self._waiters.popleft()
            self.held += 1
            try:
                loop.call_soon_threadsafe(_grant, future)
            except RuntimeError:  # that loop is closed, and its waiter gone
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


class Retry(Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how soon to retry a retryable failure.

    Waits double from `wait_initial_s` to `wait_max_s`, each shortened by up to half (jitter); a longer Retry-After
    of the endpoint is obeyed. `budget`: retries may be at most this share of all calls (after the first ten), so
    that an outage does not cause a storm of retries; 1 allows one retry per call on average.
    """

    attempts: int = 3
    """Attempts in all; 1 never retries."""
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
        asked = attribute(error, "retry_after")
        return max(wait, float(asked)) if isinstance(asked, int | float) else wait


NO_RETRY = Retry(attempts=1)


class RetryBudget:
    """Limits retries to a share of the last minute's calls.

    The minute is kept as two halves, of which the older is dropped once the newer has passed. At least 10 calls are
    assumed, so that a first failure may be retried.
    """

    _HALF_S = 30.0

    def __init__(self, share: float) -> None:
        self._share = share
        self._lock = Lock()
        self._halves = [[0, 0], [0, 0]]
        """Calls and retries of the previous and of the current half minute."""
        self._half = 0

    def call(self) -> None:
        """Count a first attempt."""
        with self._lock:
            self._now()[0] += 1

    def allow(self) -> bool:
        """Take one retry from the budget. Returns False if it is spent."""
        with self._lock:
            now = self._now()
            calls, retries = map(sum, zip(*self._halves, strict=True))
            if retries + 1 > self._share * max(calls, 10):
                return False
            now[1] += 1
            return True

    def _now(self) -> list[int]:
        half = int(time.monotonic() / self._HALF_S)
        if half != self._half:
            self._halves = [self._halves[1] if half == self._half + 1 else [0, 0], [0, 0]]
            self._half = half
        return self._halves[1]

    def __reduce__(self) -> Any:
        return RetryBudget, (self._share,)
