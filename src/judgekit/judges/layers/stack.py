"""Layers around a judge: each a judge itself, testable alone, stacked in one place by `stacked`.

    Cached( Retrying( Limited( engine )))

A cache hit takes no slot, and a call that waits for its next try holds none.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeError, JudgeTimeout
from judgekit.execution.limits import Limiter, Retry, RetryBudget
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest
from judgekit.judges.layers.cache import Cached, DiskCache
from judgekit.judges.layers.pressure import Breaker, RateLimit


class Limited:
    """Bounds what reaches *inner*: calls at once, starts per minute, seconds per call, failures in a row.

    *attempt_timeout_s* starts when the call has its slot, so that a call that queues is not charged for the
    time that others hang. The limits hold over all runners, event loops and threads of the process.
    """

    def __init__(
        self,
        inner: Judge,
        *,
        max_concurrency: int | None = None,
        requests_per_minute: float | None = None,
        attempt_timeout_s: float | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        if attempt_timeout_s is not None and not attempt_timeout_s > 0:
            raise ConfigError(f"attempt_timeout_s is a number of seconds above 0, not {attempt_timeout_s!r}")
        self.inner = inner
        self.limiter = Limiter(max_concurrency) if max_concurrency is not None else None
        self.rate = RateLimit(requests_per_minute) if requests_per_minute is not None else None
        self.attempt_timeout_s = attempt_timeout_s
        self.breaker = breaker

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        if self.limiter is None:
            return await self._call(request)
        async with self.limiter:
            return await self._call(request)

    async def _call(self, request: JudgeRequest) -> JudgeReply:
        if self.breaker is not None:
            self.breaker.before(repr(self.inner))
        if self.rate is not None:
            await self.rate.wait()
        try:
            reply = await self._timed(request)
        except JudgeError as error:
            if self.breaker is not None:
                # a request that is refused is an answer: the engine works
                self.breaker.failed() if error.retryable else self.breaker.succeeded()
            raise
        except BaseException:
            if self.breaker is not None:
                self.breaker.left()
            raise
        if self.breaker is not None:
            self.breaker.succeeded()
        return reply

    async def _timed(self, request: JudgeRequest) -> JudgeReply:
        if self.attempt_timeout_s is None:
            return await self.inner.complete(request)
        try:
            async with asyncio.timeout(self.attempt_timeout_s) as scope:
                return await self.inner.complete(request)
        except TimeoutError:
            if not scope.expired():
                raise
            raise JudgeTimeout(f"no answer within {self.attempt_timeout_s:g} s") from None


class Retrying:
    """Tries again what failed and may succeed; see `Retry` for how often and how soon."""

    def __init__(self, inner: Judge, retry: Retry | None = None) -> None:
        self.inner = inner
        self.retry = retry or Retry()
        self.budget = RetryBudget(self.retry.budget)

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.budget.call()
        attempt = 1
        while True:
            try:
                return await self.inner.complete(request)
            except JudgeError as error:
                if not error.retryable or attempt >= self.retry.attempts or not self.budget.allow():
                    error.exhausted = True
                    raise
                wait = self.retry.wait_s(attempt, error)
            attempt += 1
            await asyncio.sleep(wait)


class LayerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands between graders and an engine; the section `layers` of a judge in reward.yaml."""

    max_concurrency: int | None = None
    """Calls in flight at once, over all runners of the process."""
    requests_per_minute: float | None = None
    attempt_timeout_s: float | None = None
    """Seconds for one try, from when it has its slot."""
    retry: Retry | None = Retry()
    """None: never."""
    breaker: BreakerOptions | None = None
    cache: CacheOptions | None = None


class BreakerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `limits.Breaker`."""

    failures: int = 8
    open_s: float = 10.0


class CacheOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """See `cache.Cached`."""

    entries: int = 50_000
    """Replies kept in memory."""
    path: str | None = None
    """A file that keeps them on disk, too; safe for several processes."""


def stacked(engine: Judge, options: LayerOptions | None = None) -> Judge:
    """*engine* with the layers that *options* ask for, in the one right order."""
    options = options or LayerOptions()
    judge: Judge = engine
    breaker = None
    if options.breaker is not None:
        breaker = Breaker(failures=options.breaker.failures, open_s=options.breaker.open_s)
    if options.max_concurrency or options.requests_per_minute or options.attempt_timeout_s or breaker:
        judge = Limited(
            judge,
            max_concurrency=options.max_concurrency,
            requests_per_minute=options.requests_per_minute,
            attempt_timeout_s=options.attempt_timeout_s,
            breaker=breaker,
        )
    if options.retry is not None and options.retry.attempts > 1:
        judge = Retrying(judge, options.retry)
    cache = options.cache
    disk = DiskCache(cache.path) if cache is not None and cache.path is not None else None
    return Stack(Cached(judge, entries=cache.entries if cache else 0, disk=disk, identify=engine), engine)


class Stack:
    """Layers with the engine below them, which is started and closed through it."""

    def __init__(self, outer: Judge, engine: Any) -> None:
        self.outer = outer
        self.engine = engine

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        return await self.outer.complete(request)

    async def start(self) -> None:
        """Start the engine, where it can be started."""
        if start := getattr(self.engine, "start", None):
            await start()

    async def close(self) -> None:
        """End the engine, where it can be ended, and close the cache."""
        if close := getattr(self.engine, "close", None):
            await close()
        if isinstance(self.outer, Cached):
            self.outer.close()

    def __repr__(self) -> str:
        return repr(self.engine)
