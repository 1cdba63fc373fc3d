"""Awaits coroutines concurrently, each to its end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any

from judgekit.errors import ConfigError, first_error


async def together(coroutines: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Return what each coroutine returned or the exception that it raised, in order.

    A ConfigError is raised at once and cancels the others, which cannot make up for it. None of them runs on after
    this has returned.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_outcome(coroutine)) for coroutine in coroutines]
    except BaseExceptionGroup as errors:
        raise first_error(errors) from None
    return [task.result() for task in tasks]


async def _outcome(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        return await coroutine
    except ConfigError:
        raise
    except Exception as error:
        return error


async def start_together(things: Iterable[Any]) -> None:
    """Call `start` of all *things* that have it, concurrently; then raise the first error."""
    starts = [start() for thing in things if (start := getattr(thing, "start", None))]
    for outcome in await together(starts):
        if isinstance(outcome, BaseException):
            raise outcome
