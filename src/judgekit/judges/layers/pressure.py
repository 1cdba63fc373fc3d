"""Gates that keep a judge's engine from being overrun: places, pauses, rates, and a rest for one that keeps failing.

A call passes all gates of its `Limited` before it is sent, and leaves them with what came of it. What it waits for there counts
against no evaluation's timeout. Gates live on one event loop, as all layers do.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from typing import Any, Protocol, TypeGuard

import anyio

from judgekit.errors import ConfigError, JudgeBudgetSpent, JudgeError, JudgeTimeout, JudgeUnavailable
from judgekit.execution.stopwatch import STOPWATCH
from judgekit.judges.layers.recovery import not_asking


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


class Places:
    """At most so many calls in flight: fewer after an overload, then more again (AIMD, as TCP's congestion window).

    Begins at *least* places, if that is given, and doubles with each round of answers until the endpoint is overloaded for the
    first time; from then on a round of answers adds 1. An overload halves it: a refusal that may be tried again and, with
    *least*, other failures that may pass and timeouts. Calls that were sent before a cut do not cut it again. Without *least*
    it begins at *most* (None: without a limit), and doubles again after a cut.
    """

    def __init__(self, most: int | None = None, least: int | None = None) -> None:
        if least is not None and most is None:
            raise ConfigError("min_concurrency needs max_concurrency: the concurrency adapts between them")
        if most is not None and most < 1:
            raise ConfigError(f"a limit is at least 1, not {most}")
        if least is not None and most is not None and not 1 <= least <= most:
            raise ConfigError(f"min_concurrency is a number from 1 to max_concurrency ({most}), not {least}")
        self.most = math.inf if most is None else most
        self.least = least
        self.size = float(self.most if least is None else least)
        self._found = False
        """Whether it was overloaded once."""
        self._cut_at = -math.inf
        self._limiter: anyio.CapacityLimiter | None = None
        """Made on the loop that it is used on."""

    @property
    def taken(self) -> int:
        """Calls in flight."""
        return self._limiter.borrowed_tokens if self._limiter is not None else 0

    async def enter(self, call: Call, /) -> None:
        if self._limiter is None:
            self._limiter = anyio.CapacityLimiter(self._total())
        try:
            self._limiter.acquire_on_behalf_of_nowait(call)
        except anyio.WouldBlock:
            with not_asking():
                await self._limiter.acquire_on_behalf_of(call)

    def leave(self, call: Call, /) -> None:
        assert self._limiter is not None
        in_flight = self.taken
        self._limiter.release_on_behalf_of(call)
        outcome = call.outcome
        if not isinstance(outcome, BaseException):
            slowly = self._found and self.least is not None
            self._resize(self.size + (1.0 / self.size if slowly else 1.0))
        elif call.sent < math.inf and self._is_overload(outcome):
            self._found = True
            if call.sent > self._cut_at:
                self._cut_at = time.monotonic()
                self._resize(min(self.size, in_flight) / 2)

    def _is_overload(self, outcome: BaseException) -> bool:
        if overloads(outcome):
            return True
        lost = isinstance(outcome, JudgeUnavailable) and outcome.lost
        return self.least is not None and not lost and isinstance(outcome, JudgeUnavailable | JudgeTimeout)

    def _resize(self, size: float) -> None:
        if self.most == math.inf and size > 2 * max(self.taken, 64):
            size = math.inf  # what was cut has grown back
        self.size = min(max(size, float(self.least or 1)), float(self.most))
        if self._limiter is not None and self._limiter.total_tokens != self._total():
            self._limiter.total_tokens = self._total()

    def _total(self) -> float:
        return self.size if self.size == math.inf else int(self.size)


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
            with not_asking():
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


class RateLimit:
    """Sends at most *per_minute* calls a minute, evenly spaced, first come, first served."""

    def __init__(self, per_minute: float) -> None:
        if not per_minute > 0:
            raise ConfigError("a rate limit is a number of requests per minute above 0")
        self.per_minute = per_minute
        self._next = 0.0
        self._turn = asyncio.Lock()

    async def enter(self, call: Call, /) -> None:
        with not_asking():
            async with self._turn:  # whoever gives up here has taken nothing
                if (wait := self._next - time.monotonic()) > 0:
                    await asyncio.sleep(wait)
                self._next = time.monotonic() + 60.0 / self.per_minute

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
