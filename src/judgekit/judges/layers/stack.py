"""Layers around a judge; each is a judge itself, and `stacked` combines them.

    Cached( Retrying( Limited( engine )))

Neither a cache hit nor a call that waits for its next attempt takes a slot.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgeBudgetSpent, JudgeError, JudgeTimeout
from judgekit.execution.limits import Limiter, Retry
from judgekit.execution.threads import in_own_thread
from judgekit.judges.asking.images import Images, images_of
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest, Turn
from judgekit.judges.engines.reward_models import RewardModel
from judgekit.judges.layers.cache import Cached, DiskCache
from judgekit.judges.layers.pressure import AdaptiveLimit, Breaker, RateLimit
from judgekit.judges.layers.retrying import Retrying, beside
from judgekit.judges.layers.spending import Budget, Spending, TokenRate
from judgekit.types import Price, Usage


class Limited:
    """Limits calls to *inner*: concurrency, rate, seconds per call, consecutive failures, what it may cost.

    *attempt_timeout_s* starts when the call has its slot, so that the wait in the queue does not count. *min_concurrency*:
    the concurrency adapts between it and *max_concurrency* (`AdaptiveLimit`). The limits apply to all runners, event loops
    and threads of the process together.
    """

    def __init__(
        self,
        inner: Judge,
        *,
        max_concurrency: int | None = None,
        min_concurrency: int | None = None,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        attempt_timeout_s: float | None = None,
        breaker: Breaker | None = None,
        spending: Spending | None = None,
    ) -> None:
        if attempt_timeout_s is not None and not attempt_timeout_s > 0:
            raise ConfigError(f"attempt_timeout_s is a number of seconds above 0, not {attempt_timeout_s!r}")
        self.inner = inner
        self.adaptive: AdaptiveLimit | None = None
        self.limiter: Limiter | None = None
        if min_concurrency is not None:
            if max_concurrency is None:
                raise ConfigError(
                    "min_concurrency needs max_concurrency: the concurrency adapts between them"
                )
            self.adaptive = AdaptiveLimit(min_concurrency, max_concurrency)
            self.limiter = self.adaptive.limiter
        elif max_concurrency is not None:
            self.limiter = Limiter(max_concurrency)
        self.rate = RateLimit(requests_per_minute) if requests_per_minute is not None else None
        self.token_rate = TokenRate(tokens_per_minute) if tokens_per_minute is not None else None
        self.attempt_timeout_s = attempt_timeout_s
        self.breaker = breaker
        self.spending = spending

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        if self.limiter is None:
            return await self._call(request)
        async with self.limiter:
            return await self._call(request)

    async def _call(self, request: JudgeRequest) -> JudgeReply:
        if self.breaker is not None:
            self.breaker.before(repr(self.inner))
        try:
            if self.spending is not None:
                self.spending.before(repr(self.inner))
            if self.rate is not None:
                await self.rate.wait()
            reply = await self._paced(request)
        except BaseException as error:
            if self.breaker is not None:
                if not isinstance(error, JudgeError) or isinstance(error, JudgeBudgetSpent):
                    self.breaker.left()
                else:  # a rejected request still shows that the engine works
                    self.breaker.failed() if error.retryable else self.breaker.succeeded()
            raise
        if self.breaker is not None:
            self.breaker.succeeded()
        if self.spending is not None:
            self.spending.after(_usage(reply), repr(self.inner))
        return reply

    async def _paced(self, request: JudgeRequest) -> JudgeReply:
        if self.token_rate is None:
            return await self._adapting(request)
        chars = _chars(request)
        reserved = await self.token_rate.wait(chars)
        try:
            reply = await self._adapting(request)
        except BaseException:
            self.token_rate.settle(reserved, chars, 0)
            raise
        self.token_rate.after(_usage(reply), reserved, chars, repr(self.inner))
        return reply

    async def _adapting(self, request: JudgeRequest) -> JudgeReply:
        if self.adaptive is None:
            return await self._timed(request)
        began = time.monotonic()
        try:
            reply = await self._timed(request)
        except JudgeError as error:
            self.adaptive.failed(error, began)
            raise
        self.adaptive.answered()
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


def _usage(reply: Any) -> Usage:
    """What a judge's reply, or a reward model's, cost."""
    usage: Usage = reply[1] if isinstance(reply, tuple) else reply.usage
    return usage


def _chars(request: Any) -> int:
    """The length of what a judge is asked, or a reward model."""
    turns: Sequence[Turn] = request.turns if isinstance(request, JudgeRequest) else request
    return sum(len(piece.text) for turn in turns for piece in turn.pieces)


class LayerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of the layers around an engine; the section `layers` in reward.yaml."""

    max_concurrency: int | None = None
    """Calls in flight at once, over all runners of the process."""
    min_concurrency: int | None = None
    """With it, the calls in flight adapt to what the endpoint takes, between it and `max_concurrency`."""
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    """Of prompts and replies together."""
    budget: Budget | None = None
    """What this process may spend in all."""
    price: Price | None = None
    """What tokens cost, for a budget in US dollars and for reports."""
    attempt_timeout_s: float | None = None
    """Seconds for one attempt, from when it has its slot."""
    retry: Retry | None = Retry()
    """None: no retries, and no wait for a restart."""
    restart_wait_s: float = 600.0
    """Seconds that calls wait for an engine that is being restarted, from when it went down; they count against no
    evaluation's `timeout_s`. 0: they fail instead."""
    breaker: BreakerOptions | None = None
    cache: CacheOptions | None = None

    def __post_init__(self) -> None:
        if not self.restart_wait_s >= 0:
            raise ConfigError(
                f"restart_wait_s is a number of seconds, at least 0, not {self.restart_wait_s!r}"
            )


class BreakerOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `Breaker`."""

    failures: int = 8
    open_s: float = 10.0


class CacheOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `Cached` and its `DiskCache`."""

    entries: int = 50_000
    """Replies kept in memory."""
    path: str | os.PathLike[str] | None = None
    """A file to keep them on disk, too; several processes can share it."""


def stacked(engine: Judge, options: LayerOptions | None = None) -> Stack:
    """Wrap *engine* in the layers that *options* ask for, always in the same order."""
    options = options or LayerOptions()
    judge, retrying = _protected(engine, engine, options)
    cache = options.cache
    disk = DiskCache(cache.path) if cache is not None and cache.path is not None else None
    entries = cache.entries if cache else 0
    cached = Cached(judge, entries=entries, disk=disk, identify=engine, retrying=retrying)
    return Stack(cached, engine, retrying, options.price)


def stacked_reward_model(model: RewardModel, options: LayerOptions | None = None) -> RewardModelStack:
    """Wrap a reward model in the layers that *options* ask for. Raises ConfigError for a cache: it keeps verdicts."""
    options = options or LayerOptions()
    if options.cache is not None:
        raise ConfigError("a reward model has no cache")
    return RewardModelStack(*_protected(_Asked(model), model, options), model, options.price)


def _protected(inner: Any, engine: Any, options: LayerOptions) -> tuple[Any, Retrying | None]:
    """Limits and retries around *inner*, whose calls *engine* answers."""
    breaker = None
    if options.breaker is not None:
        breaker = Breaker(failures=options.breaker.failures, open_s=options.breaker.open_s)
    limits = {
        "max_concurrency": options.max_concurrency,
        "min_concurrency": options.min_concurrency,
        "requests_per_minute": options.requests_per_minute,
        "tokens_per_minute": options.tokens_per_minute,
        "attempt_timeout_s": options.attempt_timeout_s,
        "breaker": breaker,
        "spending": Spending(options.budget, options.price) if options.budget is not None else None,
    }
    if any(limit is not None for limit in limits.values()):  # 0 is an error, not the absence of a limit
        inner = Limited(inner, **limits)  # type: ignore[arg-type]
    if options.retry is None or options.retry.attempts < 2:
        return inner, None
    retrying = Retrying(
        inner, options.retry, engine=engine, restart_wait_s=options.restart_wait_s, breaker=breaker
    )
    return retrying, retrying


async def _started(start: Callable[[], Awaitable[None]], retrying: Retrying | None) -> None:
    await beside(retrying, start)
    if retrying is not None:
        retrying.answered()


class Stack:
    """Layers with their engine, which it starts and closes."""

    def __init__(
        self, outer: Judge, engine: Any, retrying: Retrying | None = None, price: Price | None = None
    ) -> None:
        self.outer = outer
        self.engine = engine
        self._retrying = retrying
        self.price = price

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        return await self.outer.complete(request)

    async def start(self) -> None:
        """Open the cache's file, and start the engine, if it has `start`."""
        if isinstance(self.outer, Cached) and self.outer.disk is not None:
            self.outer.disk.open()
        if start := getattr(self.engine, "start", None):
            await _started(start, self._retrying)

    @property
    def images(self) -> Images:
        """The images that the engine is shown."""
        return images_of(self.engine)

    async def check_request(self, request: JudgeRequest) -> None:
        """Let the engine check that it can answer such requests, if it has `check_request`. Raises ConfigError."""
        if check := getattr(self.engine, "check_request", None):
            ask = partial(beside, self._retrying, partial(check, request))
            await (self.outer.check(request, ask) if isinstance(self.outer, Cached) else ask())

    async def close(self) -> None:
        """Close the engine, if it has `close`, and the cache."""
        if close := getattr(self.engine, "close", None):
            await close()
        if isinstance(self.outer, Cached):
            await in_own_thread(self.outer.close)  # which waits for the disk

    def __repr__(self) -> str:
        return repr(self.engine)


class _Asked:
    """A reward model as layers see it: what they call with a request is its `reward`."""

    def __init__(self, model: RewardModel) -> None:
        self.model = model

    async def complete(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        return await self.model.reward(turns)

    def __repr__(self) -> str:
        return repr(self.model)


class RewardModelStack:
    """Layers with their reward model, which it starts and closes."""

    def __init__(self, outer: Any, retrying: Retrying | None, model: Any, price: Price | None = None) -> None:
        self.outer = outer
        self.model = model
        self._retrying = retrying
        self.price = price

    async def reward(self, turns: Sequence[Turn], /) -> tuple[float, Usage]:
        return await self.outer.complete(turns)  # type: ignore[no-any-return]

    async def start(self) -> None:
        """Start the model, if it has `start`."""
        if start := getattr(self.model, "start", None):
            await _started(start, self._retrying)

    async def close(self) -> None:
        """Close the model, if it has `close`."""
        if close := getattr(self.model, "close", None):
            await close()

    def __repr__(self) -> str:
        return repr(self.model)
