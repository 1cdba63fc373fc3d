"""Gates that keep a judge's engine from being overrun: pauses, rates, and a rest for one that keeps failing.

A call passes all gates of its `Limited` before it is sent, and leaves them with what came of it. What it waits for there counts
against no evaluation's timeout. Gates live on one event loop, as all layers do.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeGuard

from judgekit.errors import (
    ConfigError,
    JudgeBudgetSpent,
    JudgeError,
    JudgeUnavailable,
)
from judgekit.execution.stopwatch import STOPWATCH, off_the_clock


class Call:
    """One attempt on its way through the gates."""

    __slots__ = ("outcome", "request", "reserved", "sent", "task")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.task = asyncio.current_task()
        self.reserved = 0.0
        """Tokens that a `TokenRate` has reserved for it."""
        self.sent = math.inf
        """When it was sent (monotonic clock); infinite while it waits."""
        self.outcome: Any = None
        """The reply, or the exception that the call ended with."""


class Gate(Protocol):
    """One condition for sending a call."""

    async def enter(self, call: Call, /) -> None:
        """Wait until the call may be sent. Raises a JudgeError if it may not."""
        ...

    def leave(self, call: Call, /) -> None:
        """Note what came of a call that entered."""
        ...


def overloads(outcome: Any) -> TypeGuard[JudgeUnavailable]:
    """Whether the endpoint refused a call because it has too many (HTTP 429 or 503), or says when to come again."""
    return isinstance(outcome, JudgeUnavailable) and (outcome.refused or outcome.retry_after is not None)


class Pause:
    """Holds all calls back while the endpoint refuses: for as long as it asks, or a little longer each time.

    *limit_s*: a longer pause is not kept; whoever is refused for longer fails.
    """

    def __init__(self, limit_s: float = 600.0) -> None:
        self.limit_s = limit_s
        self._until = self._began = 0.0
        self._refusals = 0
        """Pauses in a row that the endpoint has not asked for."""

    async def enter(self, call: Call, /) -> None:
        while (wait := self._until - time.monotonic()) > 0:
            with off_the_clock():
                await asyncio.sleep(wait)

    def leave(self, call: Call, /) -> None:
        now = time.monotonic()
        if not isinstance(call.outcome, BaseException):
            self._refusals = 0
        elif overloads(call.outcome):
            if (stopwatch := STOPWATCH.get()) is not None and self.limit_s > 0:
                stopwatch.excuse(call.sent)
            asked = call.outcome.retry_after
            if asked is None:
                if call.sent < self._began:  # sent before the pause that its wave has brought
                    return
                self._refusals += 1
                asked = min(0.25 * 2 ** min(self._refusals, 6), 8.0) * (0.5 + 0.5 * random.random())
            if asked <= self.limit_s:
                self._began = now
                self._until = max(self._until, now + asked)


class Line:
    """Lets callers start one after another, first come, first served. What they wait counts against no evaluation's timeout."""

    def __init__(self) -> None:
        self.free_at = 0.0
        """Monotonic time of the next start."""
        self._turn = asyncio.Lock()

    async def start(self, seconds: Callable[[], float]) -> None:
        """Wait for the next start; the one after it comes so many *seconds* later. Whoever gives up takes none."""
        with off_the_clock():
            async with self._turn:
                if (wait := self.free_at - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                self.free_at = time.monotonic() + seconds()


class RateLimit:
    """Sends at most *per_minute* calls a minute, evenly spaced, first come, first served."""

    def __init__(self, per_minute: float) -> None:
        if not per_minute > 0:
            raise ConfigError("a rate limit is a number of requests per minute above 0")
        self.per_minute = per_minute
        self._line = Line()

    async def enter(self, call: Call, /) -> None:
        await self._line.start(lambda: 60.0 / self.per_minute)

    def leave(self, call: Call, /) -> None:
        pass


class Breaker:
    """Stops calling an engine that keeps failing.

    After `failures` consecutive failures it opens: calls raise JudgeUnavailable immediately. After `open_s`
    seconds one call is let through as a probe. If it succeeds the breaker closes, otherwise the wait starts
    again.
    """

    def __init__(self, *, failures: int = 8, open_s: float = 10.0, who: str = "the judge") -> None:
        if failures < 1 or not open_s > 0:
            raise ConfigError("a breaker needs failures of 1 or more and open_s above 0")
        self.failures = failures
        self.open_s = open_s
        self.who = who
        self._row = 0
        self._open_until: float | None = None
        self._probe: Call | None = None

    @property
    def is_open(self) -> bool:
        return self._open_until is not None

    async def enter(self, call: Call, /) -> None:
        """Raise JudgeUnavailable if the breaker is open and this call is not its probe."""
        if self._open_until is None:
            return
        wait = self._open_until - time.monotonic()
        if wait <= 0 and self._probe is None:
            self._probe = call
            return
        raise JudgeUnavailable(
            f"{self.who} failed {self.failures} times in a row and is given a rest",
            retry_after=max(wait, 0.1),
        )

    def leave(self, call: Call, /) -> None:
        outcome, probed = call.outcome, call is self._probe
        if probed:
            self._probe = None
        if not isinstance(outcome, BaseException) or (
            isinstance(outcome, JudgeError)
            and not outcome.retryable
            and not isinstance(outcome, JudgeBudgetSpent)
        ):
            self.close()  # a rejected request still shows that the engine works
        elif isinstance(outcome, JudgeError) and outcome.retryable and not overloads(outcome):
            self._row += 1
            if self._row >= self.failures or probed:
                self._open_until = time.monotonic() + self.open_s

    def close(self) -> None:
        """Let calls through again: the engine works."""
        self._row = 0
        self._open_until = None
