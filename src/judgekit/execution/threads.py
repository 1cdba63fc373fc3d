"""Threads for synchronous graders that block."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock, Thread
from typing import Any, TypeVar

import anyio

from judgekit.errors import GraderRaised, JudgekitError
from judgekit.execution.background import in_background
from judgekit.fork import in_child

T = TypeVar("T")

MAX_ABANDONED = 64
"""Calls of the process that may still run after their caller has given up."""


class ThreadsExhausted(JudgekitError):
    """Too many blocking graders have timed out and still occupy a thread."""


_lock = Lock()
_abandoned = 0
"""Calls that still run although their caller has given up: a thread cannot be stopped."""


@in_child
def _forget() -> None:
    global _lock, _abandoned
    _lock, _abandoned = Lock(), 0


async def call_in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """Call `function(argument)` in a daemon thread with the caller's context, and return its value.

    Cancelling returns at once and leaves the thread to end by itself. Raises ThreadsExhausted while MAX_ABANDONED
    such threads still run.
    """
    if _abandoned >= MAX_ABANDONED:
        raise ThreadsExhausted(
            f"{_abandoned} threads are held by blocking graders that ran past their timeout; give their clients "
            'a timeout, or write where="process", which can be killed'
        )
    return await in_background(_call, function, argument)


async def in_own_thread(function: Callable[..., T], *args: Any) -> T:
    """Call `function(*args)` in a daemon thread of its own.

    The threads of `asyncio.to_thread` may all be held by graders whose calls hang. Where the system has no thread
    left, the call blocks the event loop.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()

    def work() -> None:
        try:
            outcome.set_result(function(*args))
        except BaseException as error:
            outcome.set_exception(error)

    try:
        Thread(target=work, daemon=True).start()
    except RuntimeError:
        work()
    return await asyncio.wrap_future(outcome)


async def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    global _abandoned
    running = given_up = False

    def work() -> Any:
        nonlocal running
        global _abandoned
        running = True
        try:
            return function(argument)
        except KeyboardInterrupt as error:  # the grader's own: only the main thread gets the user's
            raise GraderRaised("KeyboardInterrupt", str(error), False, False) from None
        finally:
            with _lock:
                running = False
                _abandoned -= given_up

    limiter = anyio.CapacityLimiter(math.inf)  # the runner bounds how many calls run at once
    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=limiter)
    except anyio.get_cancelled_exc_class():
        with _lock:
            given_up = running
            _abandoned += given_up
        raise
