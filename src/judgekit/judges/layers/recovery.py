"""Waits for engines that are being restarted, and cuts off calls to engines that hang.

An engine takes part if it has `async def ready() -> bool`: whether it would answer a request now. `ready` starts what it
can to become so, returns soon, and raises only a ConfigError, which is final.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any
from weakref import WeakKeyDictionary

from judgekit.errors import ConfigError, JudgekitError, JudgeLoading, JudgeUnavailable
from judgekit.execution.stopwatch import STOPWATCH, off_the_clock

logger = logging.getLogger("judgekit")

READY_S = 10.0
"""An engine that does not say within this time whether it is ready is not."""
_CONFIRM_S = 0.5
"""An engine may fail calls for a moment before it says that it is down: it is asked twice."""
_PAUSE_S, _MAX_PAUSE_S = 0.25, 2.0
"""Pauses between two questions to an engine that is down."""
_QUIET_S, _LOOK_S, _MISSES = 15.0, 5.0, 3
"""An engine that has answered no call for so long is asked so often whether it is ready; it hangs if it says no, or
nothing, so many times in a row."""


async def is_ready(engine: Any) -> bool:
    """Whether *engine* would answer now; True for an engine that cannot say. Raises ConfigError."""
    ready = getattr(engine, "ready", None)
    if ready is None:
        return True
    try:
        async with asyncio.timeout(READY_S):
            return bool(await ready())
    except ConfigError:
        raise
    except (JudgekitError, TimeoutError, OSError):
        return False


class Recovery:
    """Lets calls wait until an engine that went down answers again.

    An outage is waited for at most *limit_s*, from its beginning: what is asked later fails at once, until the engine
    answers again. An engine that has never answered is not waited for, unless it says that it is being loaded. One task per event loop asks the engine,
    however many calls wait.
    """

    def __init__(self, engine: Any, limit_s: float) -> None:
        self.engine = engine
        self.limit_s = limit_s
        self._answered = False
        self._away_since: float | None = None
        self._last_away = 0.0
        self._probes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Probe] = WeakKeyDictionary()

    def __reduce__(self) -> Any:
        return Recovery, (self.engine, self.limit_s)

    def answered(self) -> None:
        """The engine has answered."""
        self._answered = True
        if self._away_since is not None:
            logger.info("%r answers again after %.0f s", self.engine, time.monotonic() - self._away_since)
            self._away_since = None

    async def wait(self, since: float, error: JudgeUnavailable) -> bool:
        """Wait until the engine is ready; whether it was away at some time after *since* and is ready now.

        *since* is a time of the monotonic clock, *error* how the engine failed. The wait counts against no
        evaluation's timeout.
        """
        if not (self._answered or isinstance(error, JudgeLoading)) or self.limit_s <= 0 or self._gave_up():
            return False
        loop = asyncio.get_running_loop()
        probe = self._probes.get(loop)
        if probe is None or probe.ended:
            # in a context of its own, for it outlives the call that it is made in
            task = loop.create_task(self._until_ready(), context=Context())
            probe = self._probes[loop] = _Probe(task)
        with off_the_clock():
            return await probe.wait() and self._last_away >= since

    def _gave_up(self) -> bool:
        return self._away_since is not None and time.monotonic() - self._away_since > self.limit_s

    async def _until_ready(self) -> bool:
        """Whether the engine is ready, in the end."""
        pause, confirmed = _PAUSE_S, False
        while True:
            if await is_ready(self.engine):
                if confirmed or self._away_since is not None:
                    self.answered()
                    return True
                confirmed = True
                await asyncio.sleep(_CONFIRM_S)
                continue
            self._last_away = time.monotonic()
            if self._away_since is None:
                self._away_since = self._last_away
                logger.warning(
                    "%r does not answer: calls wait up to %g s for it to be restarted",
                    self.engine,
                    self.limit_s,
                )
            if self._gave_up():
                logger.error(
                    "%r has not answered for %g s: calls fail until it does", self.engine, self.limit_s
                )
                return False
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, _MAX_PAUSE_S)


class _Probe:
    """A task with several waiters; cancelled when the last of them is."""

    def __init__(self, task: asyncio.Task[bool]) -> None:
        self.task = task
        self.waiting = 0

    @property
    def ended(self) -> bool:
        """Whether it has ended, or is being cancelled: who comes now needs another."""
        return self.task.done() or self.task.cancelling() > 0

    async def wait(self) -> bool:
        self.waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self.waiting -= 1
            if not self.waiting and not self.task.done():
                self.task.cancel()


class HangGuard:
    """Cuts off the calls to an engine that has stopped to answer anything, its health check included.

    A busy engine is not one that hangs: any answer to any call, or one good health check, is a sign of life.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._able = getattr(engine, "ready", None) is not None
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _Calls] = WeakKeyDictionary()

    def __reduce__(self) -> Any:
        return HangGuard, (self.engine,)

    @contextmanager
    def _watching(self, scope: asyncio.Timeout) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        calls = self._loops.get(loop)
        if calls is None:
            calls = self._loops[loop] = _Calls(self.engine, loop)
        calls.add(scope)
        try:
            yield
            calls.alive()
        finally:
            calls.scopes.discard(scope)

    async def complete(self, inner: Any, request: Any) -> Any:
        """Return `inner.complete(request)`. Raises JudgeUnavailable where the engine hangs."""
        if not self._able:
            return await inner.complete(request)
        start = time.monotonic()
        try:
            async with asyncio.timeout(None) as scope:
                with self._watching(scope):
                    return await inner.complete(request)
        except TimeoutError:
            if not scope.expired():
                raise
            if (stopwatch := STOPWATCH.get()) is not None:
                calls = self._loops[asyncio.get_running_loop()]
                stopwatch.excuse(max(start, calls.last_sign))
            raise JudgeUnavailable(
                f"{self.engine!r} hangs: it answers neither calls nor health checks"
            ) from None


class _Calls:
    """The calls of one event loop to one engine."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self.scopes: set[asyncio.Timeout] = set()
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None
        self.last_sign = 0.0
        self._misses = 0

    def add(self, scope: asyncio.Timeout) -> None:
        if not self.scopes:
            self.alive()  # while nobody asks there are no answers
        self.scopes.add(scope)
        if self._timer is None:
            self._timer = self._loop.call_later(_LOOK_S, self._tick)

    def alive(self) -> None:
        self.last_sign = time.monotonic()
        self._misses = 0

    def _tick(self) -> None:
        self._timer = None
        if not self.scopes:
            return
        if time.monotonic() - self.last_sign >= _QUIET_S and (self._look is None or self._look.done()):
            self._look = self._loop.create_task(self._ask(), context=Context())
        self._timer = self._loop.call_later(_LOOK_S, self._tick)

    async def _ask(self) -> None:
        before = self.last_sign
        try:
            ready = await is_ready(self.engine)
        except ConfigError:  # the calls find that out by themselves
            ready = True
        if ready:
            self._misses = 0
            return
        if self.last_sign == before:
            self._misses += 1
        if self._misses >= _MISSES:
            logger.warning("%r hangs: its %d calls are cut off", self.engine, len(self.scopes))
            self._misses = 0
            for scope in list(self.scopes):
                if not scope.expired():
                    scope.reschedule(self._loop.time())
