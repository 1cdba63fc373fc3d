"""Limits and retries that the event loops and threads of a process can share.

asyncio's own primitives belong to one loop; a runner is called from loops that come and go.
"""

from __future__ import annotations

import asyncio
import gc
import math
import random
import time
from collections import deque
from threading import Lock, RLock
from types import TracebackType
from typing import Any, Literal

from msgspec import Struct

from judgekit.errors import ConfigError, attribute
from judgekit.fork import in_child, leave_to_parent

Limit = int | Literal["auto"]
"""Calls in flight at once: a number, or as many as keep the engine busy."""


def check_limit(limit: Any, name: str = "max_concurrency") -> None:
    """Raise ConfigError unless *limit* is a Limit."""
    if limit != "auto" and (type(limit) is not int or limit < 1):
        raise ConfigError(f"{name} is auto or a whole number from 1, not {limit!r}")


class Limiter:
    """Allows `total` holders at once over all loops and threads of the process; first come, first served."""

    def __init__(self, total: int) -> None:
        if total < 1:
            raise ConfigError(f"a limit is at least 1, not {total}")
        self.total = total
        self._reset()
        in_child(self._forked)

    def _reset(self) -> None:
        self.held = 0
        # reentrant: while we hold it, the garbage collector may finalize a holder of a closed loop, which releases
        self._lock = RLock()
        self._waiters: deque[_Waiter] = deque()
        self._loops: set[asyncio.AbstractEventLoop] = set()
        """Loops that have had waiters."""

    def _forked(self) -> None:
        leave_to_parent(self._waiters, self._loops)
        self._reset()

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
        loop = asyncio.get_running_loop()
        waiter = _Waiter(loop, loop.create_future())
        with self._lock:
            waiting = len(self._waiters)
            if closed := {loop for loop in self._loops if loop.is_closed()}:
                self._loops -= closed
                self._waiters = deque(waiter for waiter in self._waiters if waiter.loop not in closed)
            abandoned = len(self._waiters) < waiting
            self._waiters.append(waiter)
            self._loops.add(loop)
            self._hand_out()  # another thread may have released the last place since we tried
        if abandoned:
            # the waiters kept the tasks of their loop alive, whose places come back when these are collected
            del closed
            gc.collect()
        try:
            await waiter.future
        except BaseException:  # cancelled, or collected with its loop
            with self._lock:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
            if waiter.granted:  # while it was cancelled: pass the place on
                self.release()
            raise

    def release(self) -> None:
        with self._lock:
            self.held -= 1
            if self._waiters:
                self._hand_out()

    def _hand_out(self) -> None:
        """Give free places to waiters."""
        while self._waiters and self.held < self.total:
            waiter = self._waiters.popleft()
            try:
                waiter.loop.call_soon_threadsafe(waiter.grant)
            except RuntimeError:  # that loop is closed, and its waiter gone
                continue
            waiter.granted = True
            self.held += 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def __reduce__(self) -> Any:
        return Limiter, (self.total,)


class _Waiter:
    """A future in the queue of a Limiter."""

    __slots__ = ("future", "granted", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[None]) -> None:
        self.loop = loop
        self.future = future
        self.granted = False
        """Whether a place is counted for it."""

    def grant(self) -> None:
        if not self.future.done():
            self.future.set_result(None)


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
        if type(self.attempts) is not int or self.attempts < 1:
            raise ConfigError(f"retry: attempts is a whole number from 1, not {self.attempts!r}")
        for name in ("wait_initial_s", "wait_max_s", "budget"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise ConfigError(f"retry: {name} is a number of at least 0, not {value!r}")
        if self.wait_initial_s > self.wait_max_s:
            raise ConfigError("retry: wait_initial_s must be no more than wait_max_s")

    def wait_s(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait after attempt number *attempt* (from 1) failed with *error*."""
        wait: float = min(self.wait_max_s, self.wait_initial_s * 2 ** min(attempt - 1, 30))
        wait *= 0.5 + 0.5 * random.random()
        asked = attribute(error, "retry_after")
        return float(max(wait, min(asked, 1e9))) if isinstance(asked, int | float) else wait


NO_RETRY = Retry(attempts=1)


class RetryBudget:
    """Limits retries to a share of the last minute's calls.

    The minute is kept as two halves, of which the older is dropped once the newer has passed. At least 10 calls are
    assumed, so that a first failure may be retried.
    """

    _HALF_S = 30.0

    def __init__(self, share: float) -> None:
        self._share = share
        self._reset()
        in_child(self._reset)

    def _reset(self) -> None:
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
