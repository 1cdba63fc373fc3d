"""Awaits what may take minutes side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from judgekit.errors import ConfigError


async def together(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return what each coroutine returned, or the exception that it ended with, in order.

    A ConfigError is raised at once, and ends the others: nothing that they could do would mend it. None of them goes
    on after this has returned.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        for next_one in asyncio.as_completed(tasks):
            try:
                await next_one
            except ConfigError:
                raise
            except Exception:
                continue  # found again below, in its place
    finally:
        left = [task for task in tasks if not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for task in tasks:
            if not task.cancelled():
                task.exception()  # retrieved
    return [task.exception() or task.result() for task in tasks]


async def start_together(things: Iterable[Any]) -> None:
    """Start what has `start`, side by side; raise the first error once all have ended."""
    starts = [start() for thing in things if (start := getattr(thing, "start", None))]
    for outcome in await together(starts):
        if isinstance(outcome, BaseException):
            raise outcome
