"""Threads for synchronous graders that block."""

from __future__ import annotations

import math
from collections.abc import Callable
from threading import Lock
from typing import Any

import anyio

from judgekit.errors import GraderRaised, JudgekitError
from judgekit.execution.background import in_background

MAX_ABANDONED = 64
"""Calls that may go on after their caller gave up, over the whole process."""


class ThreadsExhausted(JudgekitError):
    """Too many blocking graders ignored their timeout and still hold a thread."""


_lock = Lock()
_abandoned = 0
"""Calls that still run although their caller gave up: a thread cannot be stopped, only outlived."""


async def call_in_thread(function: Callable[[Any], Any], argument: Any) -> Any:
    """What `function(argument)` returns or raises, called in a daemon thread with the caller's context.

    Cancelling returns at once and leaves the thread to end by itself. Raises ThreadsExhausted where
    MAX_ABANDONED of those still run: one more hung call would only add to them.
    """
    if _abandoned >= MAX_ABANDONED:
        raise ThreadsExhausted(
            f"{_abandoned} threads are held by blocking graders that ran past their timeout; give their clients "
            'a timeout, or write where="process", which can be killed'
        )
    return await in_background(_call, function, argument)


async def _call(function: Callable[[Any], Any], argument: Any) -> Any:
    global _abandoned
    running = given_up = False

    def work() -> Any:
        nonlocal running
        global _abandoned
        running = True
        try:
            return function(argument)
        except KeyboardInterrupt as error:  # only the main thread gets the user's: this is the grader's own
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
