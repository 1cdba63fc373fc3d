"""Starts a runner's judges and graders, outside every rollout's time."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Sequence
from typing import Any

from judgekit.errors import ConfigError, JudgeUnavailable
from judgekit.execution.limits import Limiter
from judgekit.execution.pool import ProcessPool
from judgekit.execution.threads import call_in_thread
from judgekit.execution.together import start_together
from judgekit.run.bound_grader import BoundGrader

logger = logging.getLogger("judgekit")

_AGAIN_S = 60.0
"""Seconds after a failed start before a run tries again."""


class Starter:
    """Starts *resources* and *graders* once. May be used from many loops at a time."""

    def __init__(self, resources: Sequence[Any], graders: Sequence[BoundGrader], pool: ProcessPool) -> None:
        self._resources = resources
        self._graders = graders
        self._pool = pool
        self._turn = Limiter(1)
        self._not_before = 0.0
        self._needed = bool(resources) or any(hasattr(g.grader, "warm_up") for g in graders)
        self.done = not self._needed

    async def start(self, limit_s: float) -> None:
        """Start everything within *limit_s*, or wait for the caller who already does. Raises what starting raises."""
        async with self._turn:
            if not self.done:
                await self._start(limit_s)

    async def start_for_run(self, limit_s: float) -> None:
        """Start everything for a run. A judge that cannot start costs its own grades, not the run."""
        async with self._turn:
            if self.done or time.monotonic() < self._not_before:
                return
            try:
                await self._start(limit_s)
            except ConfigError:
                raise
            except Exception as error:
                self._not_before = time.monotonic() + _AGAIN_S
                logger.error("a judge or grader could not be started: %s: %s", type(error).__name__, error)

    async def close(self) -> None:
        """Close all resources, then raise the first error. The next run starts them again."""
        self.done = not self._needed
        errors: list[Exception] = []
        for resource in self._resources:
            try:
                ended: Any = getattr(resource, "close", lambda: None)()
                if hasattr(ended, "__await__"):
                    await ended
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]

    async def _start(self, limit_s: float) -> None:
        try:
            async with asyncio.timeout(limit_s) as limit:
                await start_together(self._resources)
                for bound in self._graders:
                    if bound.where != "process" and (warm_up := getattr(bound.grader, "warm_up", None)):
                        await _warm_up(warm_up)
                if pickled := [bound.pickled for bound in self._graders if bound.pickled is not None]:
                    await self._pool.warm_up(pickled)
        except TimeoutError:
            if not limit.expired():  # a judge's or grader's own
                raise
            raise JudgeUnavailable(f"judges and graders were not started within {limit_s:g} s") from None
        self.done = True


async def _warm_up(warm_up: Any) -> None:
    """Call a grader's warm_up(): in a thread if it is synchronous, for it may import for seconds."""
    if inspect.iscoroutinefunction(warm_up):
        await warm_up()
    elif hasattr(later := await call_in_thread(lambda _: warm_up(), None), "__await__"):
        await later
