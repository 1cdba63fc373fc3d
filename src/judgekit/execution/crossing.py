"""Calls from one event loop to another in another thread, in batches."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine
from contextvars import Context, copy_context
from functools import partial
from threading import Lock
from typing import Any, TypeVar

from judgekit.errors import ConfigError
from judgekit.fork import in_child, leave_to_parent

T = TypeVar("T")

give_way = getattr(os, "sched_yield", lambda: None)
"""Let another process have this core for a moment.

Where cores are scarce, a process that builds prompts without a pause slows down an engine beside it: vLLM's polls
for the end of a step, and yields its core between polls.
"""


class Crossing:
    """Runs coroutines on the loop *home* for callers on other loops.

    Like `asyncio.run_coroutine_threadsafe`, but a thread is woken once for all calls and results that wait for it,
    not once for each: with hundreds of short calls in flight, waking costs more than the calls.
    """

    def __init__(self, home: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self._lock = Lock()
        self._calls: list[_Call] = []
        """Calls that have not begun at home yet."""
        self._returns: dict[asyncio.AbstractEventLoop, _Return] = {}
        self._in_parent = False
        in_child(self._forked)

    def _forked(self) -> None:
        leave_to_parent(self._lock, self._calls, self._returns)
        self._in_parent = True

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Await *coroutine* at home, in the caller's context. Cancelling the caller cancels it."""
        if self._in_parent:
            coroutine.close()
            raise ConfigError(
                "this process was forked from one that has the loop of this call, which answers only there: build "
                "judges and runners that start an engine after the fork, or start processes with 'spawn'"
            )
        here = asyncio.get_running_loop()
        if here is self.home:
            return await coroutine
        with self._lock:
            back = self._returns.get(here)
            if back is None:
                for over in [loop for loop in self._returns if loop.is_closed()]:
                    del self._returns[over]
                back = self._returns[here] = _Return(here)
            call = _Call(coroutine, here.create_future(), copy_context(), back)
            self._calls.append(call)
            wake = len(self._calls) == 1
        if wake:
            try:
                self.home.call_soon_threadsafe(self._begin)
            except RuntimeError:
                self._give_up()
                raise
        give_way()
        try:
            return await call.answer  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # home is closed, and the call with it
                self.home.call_soon_threadsafe(call.cancel)
            raise

    def _begin(self) -> None:
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call.begin(self.home)

    def _give_up(self) -> None:
        """Cancel all calls that have not begun: home is closed."""
        with self._lock:
            calls, self._calls = self._calls, []
        for call in calls:
            call.coroutine.close()
            call.back.cancel(call)


class _Call:
    """One coroutine, and the future `answer` that its caller awaits."""

    __slots__ = ("answer", "back", "context", "coroutine", "task")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        answer: asyncio.Future[Any],
        context: Context,
        back: _Return,
    ) -> None:
        self.coroutine = coroutine
        self.answer = answer
        self.context = context
        self.back = back
        self.task: asyncio.Task[Any] | None = None

    def begin(self, home: asyncio.AbstractEventLoop) -> None:
        if self.answer.cancelled():
            self.coroutine.close()
            return
        self.task = home.create_task(self.coroutine, context=self.context)
        self.task.add_done_callback(partial(self.back.add, self))

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class _Return:
    """Delivers results to one caller's loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._lock = Lock()
        self._ended: list[tuple[_Call, asyncio.Task[Any]]] = []

    def add(self, call: _Call, task: asyncio.Task[Any]) -> None:
        with self._lock:
            self._ended.append((call, task))
            wake = len(self._ended) == 1
        if wake:
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the caller's loop is closed: nobody waits
                self._ended.clear()

    def cancel(self, call: _Call) -> None:
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed
            self._loop.call_soon_threadsafe(call.answer.cancel)

    def _deliver(self) -> None:
        with self._lock:
            ended, self._ended = self._ended, []
        for call, task in ended:
            if task.cancelled():
                call.answer.cancel()
                continue
            error = task.exception()
            if call.answer.done():  # the caller was cancelled
                continue
            if error is None:
                call.answer.set_result(task.result())
            else:
                call.answer.set_exception(error)
