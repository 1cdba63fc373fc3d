"""Starts a runner's judges and graders, outside every rollout's time, and closes what was started."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import Any
from weakref import WeakSet

import anyio

from judgekit.errors import ConfigError, JudgeUnavailable
from judgekit.execution.limits import Limiter
from judgekit.execution.pool import ProcessPool
from judgekit.execution.threads import call_in_thread
from judgekit.execution.together import together
from judgekit.graders.function import lifetimes
from judgekit.run.bound_grader import BoundGrader

logger = logging.getLogger("judgekit")

_SAY_S, _MOST_SAY_S = 30.0, 300.0
"""Time between two lines in the log about a start that takes long."""
_AGAIN_S = 60.0
"""Seconds after a failed start before a run tries again."""


class Starter:
    """Starts *resources* and *graders* once, for a runner and its variants. May be used from many loops at a time.

    Who starts them holds them; they are closed when their last holder closes them. Starting and closing wait for each
    other.
    """

    def __init__(self, resources: Sequence[Any], graders: Sequence[BoundGrader], pool: ProcessPool) -> None:
        self._resources = resources
        self._graders = graders
        self._pool = pool
        self._turn = Limiter(1)
        self._holders: WeakSet[Any] = WeakSet()
        self._up: list[Any] = []
        """Resources that were started."""
        self._opened = AsyncExitStack()
        """Closes them, the last one first."""
        self._not_before = 0.0
        self._closed = False
        self._waits_for: dict[str, None] = {}
        """What is being started."""
        self._lifetimes = [one for bound in graders for one in lifetimes(bound.grader)]
        """Graders that are started and closed, and the objects whose methods they are."""
        warm_up = any(hasattr(bound.grader, "warm_up") for bound in graders)
        self._needed = bool(resources or self._lifetimes) or warm_up
        self.done = not self._needed

    async def start(self, holder: Any, limit_s: float) -> None:
        """Start everything within *limit_s*, or wait for the caller who already does.

        Raises what starting raises, after closing what was started, unless somebody else holds it.
        """
        async with self._turn:
            self._holders.add(holder)
            try:
                if not self.done:
                    await self._start(limit_s)
            except BaseException:
                with anyio.CancelScope(shield=True):
                    await self._release(holder)
                raise

    async def start_for_run(self, holder: Any, limit_s: float) -> None:
        """Start everything for a run. A judge that cannot start costs its own grades, not the run."""
        async with self._turn:
            if self.done or time.monotonic() < self._not_before:
                return
            if self._closed:
                logger.warning(
                    "a closed runner grades again, and starts its judges again: close it once more"
                )
            self._holders.add(holder)
            try:
                await self._start(limit_s)
            except ConfigError:
                raise
            except Exception as error:
                self._not_before = time.monotonic() + _AGAIN_S
                logger.error("a judge or grader could not be started: %s: %s", type(error).__name__, error)

    async def close(self, holder: Any) -> bool:
        """Close what was started, unless others hold it. Returns whether nobody does. Raises what closing raises.

        The next run starts it again.
        """
        async with self._turn:
            return await self._release(holder)

    async def _release(self, holder: Any) -> bool:
        self._holders.discard(holder)
        if self._holders:
            return False
        self.done = not self._needed
        self._closed = bool(self._up)
        self._up = []
        opened, self._opened = self._opened, AsyncExitStack()
        await opened.aclose()
        return True

    async def _start(self, limit_s: float) -> None:
        saying = asyncio.create_task(self._say(limit_s))
        try:
            async with asyncio.timeout(limit_s) as limit:
                for things in (self._resources, self._lifetimes):  # graders may ask the judges
                    for outcome in await together(map(self._start_one, things)):
                        if isinstance(outcome, BaseException):
                            raise outcome
                for bound in self._graders:
                    if bound.where != "process" and (warm_up := getattr(bound.grader, "warm_up", None)):
                        with self._waiting_for(f"grader {bound.name!r}"):
                            await _warm_up(warm_up)
                if pickled := [bound.pickled for bound in self._graders if bound.pickled is not None]:
                    with self._waiting_for("worker processes"):
                        await self._pool.warm_up(pickled)
        except TimeoutError:
            if not limit.expired():  # a judge's or grader's own
                raise
            raise JudgeUnavailable(f"judges and graders were not started within {limit_s:g} s") from None
        finally:
            saying.cancel()
        self.done = True
        self._closed = False

    async def _start_one(self, resource: Any) -> None:
        if any(one is resource for one in self._up):
            return
        with self._waiting_for(repr(resource)):
            await _call(resource, "start")
        self._up.append(resource)
        self._opened.push_async_callback(_call, resource, "close")

    @contextmanager
    def _waiting_for(self, what: str) -> Iterator[None]:
        self._waits_for[what] = None
        try:
            yield
        finally:
            self._waits_for.pop(what, None)

    async def _say(self, limit_s: float) -> None:
        """Log what starting waits for, while it takes long."""
        start, pause = time.monotonic(), _SAY_S
        while True:
            await asyncio.sleep(pause)
            logger.warning(
                "still waiting for %s to start, after %.0f s of at most %g (start_timeout_s); this counts against no deadline_s",
                ", ".join(self._waits_for) or "judges and graders",
                time.monotonic() - start,
                limit_s,
            )
            pause = min(2 * pause, _MOST_SAY_S)


async def _call(thing: Any, method: str) -> None:
    """Call a method that *thing* may have, and that may be asynchronous."""
    ended: Any = getattr(thing, method, lambda: None)()
    if hasattr(ended, "__await__"):
        await ended


async def _warm_up(warm_up: Any) -> None:
    """Call a grader's warm_up(): in a thread if it is synchronous, for it may import for seconds."""
    if inspect.iscoroutinefunction(warm_up):
        await warm_up()
    elif hasattr(later := await call_in_thread(warm_up), "__await__"):
        await later
