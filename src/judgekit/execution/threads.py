"""Threads for synchronous graders that block: made on demand for one run, and gone with it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Task = tuple[Callable[[Any], Any], Any, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Threads:
    """Runs one blocking call per thread; the caller bounds how many at once.

    A thread cannot be stopped: one whose caller gave up is left to end by itself (a daemon, so that it does
    not hold the process), and a fresh one takes the next call.
    """

    def __init__(self) -> None:
        self._idle: list[SimpleQueue[_Task | None]] = []
        self._lock = threading.Lock()
        self._closed = False

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """What `function(argument)` returns or raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            inbox = self._idle.pop() if self._idle else None
        if inbox is None:
            inbox = SimpleQueue()
            threading.Thread(target=self._serve, args=(inbox,), name="judgekit-grader", daemon=True).start()
        inbox.put((function, argument, loop, future))
        return await future

    def close(self) -> None:
        """Let idle threads end now and busy ones after their call."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for inbox in idle:
            inbox.put(None)

    def _serve(self, inbox: SimpleQueue[_Task | None]) -> None:
        while (task := inbox.get()) is not None:
            function, argument, loop, future = task
            value: Any = None
            error: BaseException | None = None
            try:
                value = function(argument)
            except BaseException as raised:
                error = raised
            with self._lock:
                closed = self._closed
                if not closed:
                    self._idle.append(inbox)
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(_settle, future, value, error)
            del task, future, value, error
            if closed:
                return


def _settle(future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    elif isinstance(error, StopIteration):  # a future cannot hold one
        future.set_exception(RuntimeError(f"StopIteration: {error}"))
    else:
        future.set_exception(error)
