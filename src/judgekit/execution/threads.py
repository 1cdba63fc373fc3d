"""Threads for synchronous graders that block."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from typing import Any

import anyio
from anyio.lowlevel import RunVar

from judgekit.errors import GraderRaised, JudgekitError
from judgekit.execution.background import in_background

MAX_ABANDONED = 64
"""Calls that may go on after their caller gave up, over the whole process."""


class ThreadsExhausted(JudgekitError):
    """Too many blocking graders ignored their timeout and still hold a thread."""


class _Abandoned:
    """Counts calls whose caller gave up: a thread cannot be stopped, only outlived."""

    def __init__(self) -> None:
        self.count = 0
        self.lock = Lock()


_abandoned = _Abandoned()


def abandoned_threads() -> int:
    """Calls of blocking graders that still run although their caller gave up."""
    return _abandoned.count


async def call_in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """What `function(argument)` returns or raises, called in a daemon thread with the caller's context.

    Cancelling returns at once and leaves the thread to end by itself. Raises ThreadsExhausted where
    MAX_ABANDONED of those still run: one more hung call would only add to them.
    """
    if _abandoned.count >= MAX_ABANDONED:
        raise ThreadsExhausted(
            f"{_abandoned.count} threads are held by blocking graders that ran past their timeout; give their clients "
            'a timeout, or write where="process", which can be killed'
        )
    return await in_background(_call, function, argument)


_limiter: RunVar[anyio.CapacityLimiter] = RunVar("judgekit_threads")


def _no_limit() -> anyio.CapacityLimiter:
    """The background loop's limiter: the runner bounds how many calls run at once, so it need not."""
    try:
        return _limiter.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(math.inf)
        _limiter.set(limiter)
        return limiter


async def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    running = given_up = False

    def work() -> Any:
        nonlocal running
        running = True
        try:
            return function(argument)
        except KeyboardInterrupt as error:  # only the main thread gets the user's: this is the grader's own
            raise GraderRaised("KeyboardInterrupt", str(error), False, False) from None
        finally:
            with _abandoned.lock:
                running = False
                _abandoned.count -= given_up

    try:
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=_no_limit())
    except anyio.get_cancelled_exc_class():
        with _abandoned.lock:
            given_up = running
            _abandoned.count += given_up
        raise
