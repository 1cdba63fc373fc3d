"""Threads for synchronous calls that block: daemons, which may be used again and never keep the process alive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import Any, TypeVar, cast

from judgekit.errors import GraderRaised, JudgekitError
from judgekit.fork import in_child

T = TypeVar("T")

MAX_ABANDONED = 64
"""Calls of the process that may still run after their caller has given up."""
_IDLE_S = 10.0
"""Seconds after which a thread without a call ends."""


class ThreadsExhausted(JudgekitError):
    """Too many blocking graders have timed out and still occupy a thread."""


class _Worker(Thread):
    """A thread that takes one call after the other."""

    def __init__(self) -> None:
        super().__init__(name="judgekit-worker", daemon=True)
        self.calls: SimpleQueue[_Call] = SimpleQueue()
        self.start()

    def run(self) -> None:
        while True:
            try:
                call = self.calls.get(timeout=_IDLE_S)
            except Empty:
                with _lock:
                    if self in _idle:  # else a call is coming
                        _idle.remove(self)
                        return
            else:
                call.run(self)
                del call  # what it holds ends with it, and not with the next one


_lock = Lock()
_idle: deque[_Worker] = deque()
"""Threads without a call; the last one is taken first, so that those that are not needed end."""
_abandoned = 0
"""Calls that still run although their caller has given up: a thread cannot be stopped."""


@in_child
def _forget() -> None:
    global _lock, _abandoned
    _lock, _abandoned = Lock(), 0
    _idle.clear()


class _Call:
    """A call in a thread, with its caller's context. Its outcome is its value, or the exception that it raised."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._function = function
        self._args = args
        self._context = copy_context()
        self._given_up = False
        self.outcome: Future[tuple[Any, BaseException | None]] = Future()
        self.outcome.set_running_or_notify_cancel()

    def start(self) -> None:
        """Begin the call. Raises RuntimeError if the system has no thread left."""
        with _lock:
            worker = _idle.pop() if _idle else None
        (worker or _Worker()).calls.put(self)

    def run(self, worker: _Worker) -> None:
        """Make the call in this thread, which is *worker*."""
        global _abandoned
        value: tuple[Any, BaseException | None]
        try:
            value = self._context.run(self._function, *self._args), None
        except BaseException as error:  # a StopIteration cannot be raised into a future
            value = None, error
        with _lock:
            _idle.append(worker)
            _abandoned -= self._given_up
            self._function = None  # type: ignore[assignment]
        outcome = self.outcome
        outcome.set_result(value)
        # an error holds this frame, which would hold it: only a collection would free them
        del self, value, outcome

    def give_up(self) -> None:
        """Count the call as abandoned for as long as it runs."""
        global _abandoned
        with _lock:
            self._given_up = self._function is not None
            _abandoned += self._given_up


async def call_in_thread(function: Callable[..., T], *args: Any) -> T:
    """Call `function(*args)` in a thread with the caller's context, and return its value.

    Cancelling returns at once and leaves the call to end by itself. Raises ThreadsExhausted while MAX_ABANDONED such
    calls still run, and RuntimeError where the system has no thread left.
    """
    if _abandoned >= MAX_ABANDONED:
        raise ThreadsExhausted(
            f"{_abandoned} threads are held by blocking graders that ran past their timeout; give their clients "
            'a timeout, or write where="process", which can be killed'
        )
    call = _Call(function, args)
    call.start()
    try:
        value, error = await asyncio.wrap_future(call.outcome)
    except asyncio.CancelledError:
        call.give_up()
        raise
    if isinstance(error, KeyboardInterrupt):  # the grader's own: only the main thread gets the user's
        error = GraderRaised("KeyboardInterrupt", str(error), False, False)
    try:
        return _unwrapped(cast(T, value), error)
    finally:
        del call, error  # as in `run`


async def in_own_thread(function: Callable[..., T], *args: Any) -> T:
    """Call `function(*args)` in a thread that no other call holds, as those of `asyncio.to_thread` may be.

    Where the system has no thread left, the call blocks the event loop.
    """
    call = _Call(function, args)
    try:
        call.start()
    except RuntimeError:
        return function(*args)
    value, error = await asyncio.wrap_future(call.outcome)
    return _unwrapped(cast(T, value), error)


def _unwrapped(value: T, error: BaseException | None) -> T:
    if error is None:
        return value
    try:
        raise error
    finally:
        del error  # it refers to this frame
