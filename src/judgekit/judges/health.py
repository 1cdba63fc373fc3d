"""Signs of life: whether an engine would answer now, and calls cut off from one that hangs.

An engine takes part if it has `async def ready() -> bool`: whether it would answer a request now. `ready` starts what it
can to become so, returns soon, and raises only a ConfigError, which is final. Where that can be true of an engine that
hangs, `async def progress() -> object` helps: two equal answers, other than None, mean that it has done nothing in between.
`hangs()` is called when its calls are cut off; `ready` is then to be sure.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import Context
from typing import Any

from judgekit.errors import ConfigError, JudgekitError, JudgeUnavailable
from judgekit.execution.stopwatch import STOPWATCH

logger = logging.getLogger("judgekit")

READY_S = 10.0
"""An engine that does not say within this time whether it is ready is not."""
_QUIET_S, _LOOK_S, _PATIENCE_S, _MISSES = 15.0, 5.0, 30.0, 3
"""An engine that has answered no call for `_QUIET_S` is asked every `_LOOK_S` whether it is ready. It hangs if it says no, or
nothing, or has done nothing, for `_PATIENCE_S` and so many times in a row."""


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


class HangGuard:
    """Cuts off the calls to an engine that has stopped to answer anything.

    A busy engine is not one that hangs: any answer to any call, or a good health check with some progress, is a sign of
    life. From the first missing sign on, time counts against no evaluation until there is one again.
    """

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self._able = getattr(engine, "ready", None) is not None
        self._calls: _Calls | None = None

    def __reduce__(self) -> Any:
        return HangGuard, (self.engine,)

    async def complete(self, inner: Any, request: Any) -> Any:
        """Return `inner.complete(request)`. Raises JudgeUnavailable where the engine hangs."""
        if not self._able:
            return await inner.complete(request)
        loop = asyncio.get_running_loop()
        calls = self._calls
        if calls is None or calls.loop is not loop:
            calls = self._calls = _Calls(self.engine, loop)
        try:
            async with asyncio.timeout(None) as scope:
                call = calls.add(scope)
                try:
                    reply = await inner.complete(request)
                    calls.alive()
                    return reply
                finally:
                    calls.remove(call)
        except TimeoutError:
            if not scope.expired():
                raise
            raise JudgeUnavailable(
                f"{self.engine!r} hangs: it answers neither calls nor health checks"
            ) from None


class _Call:
    __slots__ = ("held", "scope", "start", "stopwatch")

    def __init__(self, scope: asyncio.Timeout, start: float) -> None:
        self.scope = scope
        self.start = start
        self.stopwatch = STOPWATCH.get()
        self.held = False

    def hold(self, since: float) -> None:
        """Do not count the time since then, nor what follows."""
        if self.stopwatch is not None and not self.held:
            self.held = True
            self.stopwatch.excuse(max(self.start, since))
            self.stopwatch.hold()

    def release(self) -> None:
        if self.stopwatch is not None and self.held:
            self.held = False
            self.stopwatch.release()


class _Calls:
    """The calls to one engine."""

    def __init__(self, engine: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.engine = engine
        self._calls: set[_Call] = set()
        self.loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None
        self._last_sign = 0.0
        self._misses = 0
        self._missing_since = 0.0
        self._progress: object = None
        """What the engine had done when it was last asked, since the last sign."""

    def add(self, scope: asyncio.Timeout) -> _Call:
        """Watch a call that asks from now on."""
        now = time.monotonic()
        call = _Call(scope, now)
        if not self._calls:
            self._last_sign = now  # while nobody asks there are no answers
            self._misses, self._progress = 0, None
        self._calls.add(call)
        if self._misses:
            call.hold(now)
        if self._timer is None:
            self._timer = self.loop.call_later(_LOOK_S, self._tick)
        return call

    def remove(self, call: _Call) -> None:
        self._calls.discard(call)
        call.release()

    def alive(self) -> None:
        self._last_sign = time.monotonic()
        if self._progress is not None:
            self._progress = None
        if self._misses:
            self._misses = 0
            for call in self._calls:
                call.release()

    def _tick(self) -> None:
        self._timer = None
        if not self._calls:
            return
        if time.monotonic() - self._last_sign >= _QUIET_S and (self._look is None or self._look.done()):
            self._look = self.loop.create_task(self._ask(), context=Context())
        self._timer = self.loop.call_later(_LOOK_S, self._tick)

    async def _ask(self) -> None:
        before = self._last_sign
        try:
            moves = await is_ready(self.engine) and await self._moves()
        except ConfigError:  # the calls find that out by themselves
            moves = True
        if self._last_sign != before or not self._calls:
            return
        if moves:
            if self._misses:
                self.alive()
            return
        self._misses += 1
        now = time.monotonic()
        if self._misses == 1:
            self._missing_since = now
        for call in self._calls:
            call.hold(self._last_sign)
        if self._misses >= _MISSES and now - self._missing_since >= _PATIENCE_S:
            logger.warning("%r hangs: its %d calls are cut off", self.engine, len(self._calls))
            self._misses, self._progress = 0, None
            if hangs := getattr(self.engine, "hangs", None):
                hangs()
            for call in list(self._calls):
                if not call.scope.expired():
                    call.scope.reschedule(self.loop.time())

    async def _moves(self) -> bool:
        """Whether the engine has done anything since it was last asked, as far as it can tell."""
        progress = getattr(self.engine, "progress", None)
        if progress is None:
            return True
        try:
            async with asyncio.timeout(READY_S):
                found = await progress()
        except (JudgekitError, TimeoutError, OSError):
            return False
        before, self._progress = self._progress, found
        return before is None or found is None or found != before
