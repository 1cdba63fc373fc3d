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


_MOST = 32
"""Calls that go home together, at most: home begins with the first of many while the others are made."""


class Crossing:
    """Runs coroutines on the loop *home* for callers on other loops.

    Like `asyncio.run_coroutine_threadsafe`, but a thread is woken once for all calls and results of one turn of the other
    loop, not once for each: with hundreds of short calls in flight, two threads that wake each other for each of them take
    the interpreter from each other, and that costs more than the calls.
    """

    def __init__(self, home: asyncio.AbstractEventLoop) -> None:
        self.home = home
        self._lock = Lock()
        self._callers: dict[asyncio.AbstractEventLoop, _Caller] = {}
        self._in_parent = False
        in_child(self._forked)

    def _forked(self) -> None:
        leave_to_parent(self._lock, self._callers)
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
        caller = self._callers.get(here) or self._new_caller(here)
        call = _Call(coroutine, here.create_future(), copy_context(), caller)
        caller.ask(call)
        try:
            return await call.answer  # type: ignore[no-any-return]
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # home is closed, and the call with it
                self.home.call_soon_threadsafe(call.cancel)
            raise

    def _new_caller(self, here: asyncio.AbstractEventLoop) -> _Caller:
        with self._lock:
            for over in [loop for loop in self._callers if loop.is_closed()]:
                self._callers.pop(over).abandon()
            return self._callers.setdefault(here, _Caller(here, self.home))


class _Caller:
    """One loop that calls: what it asks in a turn goes home together, and what ends there in a turn comes back together."""

    def __init__(self, here: asyncio.AbstractEventLoop, home: asyncio.AbstractEventLoop) -> None:
        self._here = here
        self._home = home
        self._asked: list[_Call] = []
        """Touched by its own thread alone."""
        self._ended: list[_Call] = []
        """Touched by the thread of home alone."""

    def ask(self, call: _Call) -> None:
        self._asked.append(call)
        if len(self._asked) == 1:
            self._here.call_soon(self._send)
        elif len(self._asked) == _MOST:
            self._send()

    def _send(self) -> None:
        calls, self._asked = self._asked, []
        if not calls:
            return
        try:
            self._home.call_soon_threadsafe(_begin, calls, self._home)
        except RuntimeError as error:  # home is closed
            for call in calls:
                call.coroutine.close()
                if not call.answer.done():
                    call.answer.set_exception(RuntimeError(*error.args))
        give_way()

    def abandon(self) -> None:
        """Drop what was asked in the last turn of a loop that was closed."""
        for call in self._asked:
            call.coroutine.close()

    def end(self, call: _Call, _: Any) -> None:
        self._ended.append(call)
        if len(self._ended) == 1:
            self._home.call_soon(self._return)

    def _return(self) -> None:
        ended, self._ended = self._ended, []
        with contextlib.suppress(RuntimeError):  # the caller's loop is closed: nobody waits
            self._here.call_soon_threadsafe(_deliver, ended)


class _Call:
    """One coroutine, and the future `answer` that its caller awaits."""

    __slots__ = ("answer", "caller", "context", "coroutine", "task")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        answer: asyncio.Future[Any],
        context: Context,
        caller: _Caller,
    ) -> None:
        self.coroutine = coroutine
        self.answer = answer
        self.context = context
        self.caller = caller
        self.task: asyncio.Task[Any] | None = None

    def begin(self, home: asyncio.AbstractEventLoop) -> None:
        if self.answer.cancelled():
            self.coroutine.close()
            return
        self.task = home.create_task(self.coroutine, context=self.context)
        self.task.add_done_callback(partial(self.caller.end, self))

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def _begin(calls: list[_Call], home: asyncio.AbstractEventLoop) -> None:
    for call in calls:
        call.begin(home)


def _deliver(ended: list[_Call]) -> None:
    for call in ended:
        assert call.task is not None
        if call.task.cancelled():
            call.answer.cancel()
            continue
        error = call.task.exception()
        if call.answer.done():  # the caller was cancelled
            continue
        if error is None:
            call.answer.set_result(call.task.result())
        else:
            call.answer.set_exception(error)
