"""Retries calls to an engine, and waits for one that is being restarted."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from judgekit.errors import JudgeError, JudgeUnavailable
from judgekit.execution.limits import Retry, RetryBudget
from judgekit.execution.stopwatch import off_the_clock
from judgekit.judges.base import Judge, JudgeReply, JudgeRequest
from judgekit.judges.layers.pressure import Breaker, Pause, overloads
from judgekit.judges.layers.recovery import Recovery

logger = logging.getLogger("judgekit")

T = TypeVar("T")

_SAY_S = 60.0
"""Time between two lines in the log that calls are refused."""


async def beside(retrying: Retrying | None, call: Callable[[], Awaitable[T]]) -> T:
    """Return what *call* returns, which asks the engine beside requests: tried again as these are."""
    return await (call() if retrying is None else retrying.beside(call))


class Retrying:
    """Retries calls that may succeed later, and waits for an engine that is being restarted.

    See `Retry` for how often and how soon calls are tried again. *engine*: what `inner` asks in the end. If it has
    `ready` (see `judgekit.judges.layers.recovery`) and goes down, calls wait up to *restart_wait_s* for it. The wait
    counts against no evaluation's timeout. The next try counts as an attempt and takes nothing from the budget, which
    is there to stop storms. *breaker*: closed once the engine is back.
    """

    def __init__(
        self,
        inner: Judge,
        retry: Retry | None = None,
        *,
        engine: Any = None,
        restart_wait_s: float = 0.0,
        breaker: Breaker | None = None,
    ) -> None:
        self.inner = inner
        self.retry = retry or Retry()
        self.budget = RetryBudget(self.retry.budget)
        able = hasattr(engine, "ready")
        self.recovery = Recovery(engine, restart_wait_s) if able and restart_wait_s > 0 else None
        self.restart_wait_s = restart_wait_s
        self._engine = engine
        self._say_at = 0.0
        self._breaker = breaker
        self._paces = any(isinstance(gate, Pause) for gate in getattr(inner, "gates", ()))
        """Whether calls to *inner* wait there while the endpoint refuses."""

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        self.budget.call()
        reply: JudgeReply = await self._tried(
            partial(self.inner.complete, request), self.budget.allow, paced=self._paces
        )
        self.answered()
        return reply

    async def beside(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return what *call* returns, which asks the engine beside requests; it takes nothing from the budget."""
        return await self._tried(call, lambda: True, paced=False)

    def answered(self) -> None:
        """The engine has answered."""
        if self.recovery is not None:
            self.recovery.answered()

    async def _tried(
        self, call: Callable[[], Awaitable[T]], allowed: Callable[[], bool], *, paced: bool
    ) -> T:
        """Make *call*, and again after what may pass, where another try is *allowed*.

        A refusal costs no attempt, nothing of the budget and no evaluation's time: the next try waits until the endpoint
        takes calls again, for `restart_wait_s` in all. *paced*: the call itself waits for that, in its gates.
        """
        attempt = 1
        refused_until: float | None = None
        while True:
            asked = time.monotonic()
            try:
                return await call()
            except JudgeError as error:
                resting = self._breaker is not None and self._breaker.is_open
                if overloads(error) and self.restart_wait_s > 0 and not resting:
                    now = time.monotonic()
                    if refused_until is None:
                        refused_until = now + self.restart_wait_s
                        self._say(error, now)
                    if now + (error.retry_after or 0.0) > refused_until:
                        error.exhausted = True
                        raise
                    if not paced:
                        with off_the_clock():
                            await asyncio.sleep(error.retry_after or self.retry.wait_s(attempt, error))
                    continue
                if not error.retryable or attempt >= self.retry.attempts:
                    error.exhausted = True
                    raise
                if not await self._returned(error, asked):
                    if not allowed():
                        error.exhausted = True
                        raise
                    await asyncio.sleep(self.retry.wait_s(attempt, error))
                attempt += 1

    def _say(self, error: JudgeError, now: float) -> None:
        """Log, now and then, that calls are refused and wait."""
        if now >= self._say_at:
            self._say_at = now + _SAY_S
            logger.warning(
                "%r refuses calls, which wait up to %g s until it takes them: %s",
                self._engine,
                self.restart_wait_s,
                error,
            )

    async def _returned(self, error: JudgeError, asked: float) -> bool:
        """Whether the engine was away, and is back."""
        if self.recovery is None or not isinstance(error, JudgeUnavailable):
            return False
        resting = self._breaker is not None and self._breaker.is_open
        if error.retry_after is not None and not resting:  # a server that says when to come again is there
            return False
        if not await self.recovery.wait(asked, error):
            return False
        if self._breaker is not None:
            self._breaker.close()
        return True
