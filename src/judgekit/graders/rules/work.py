"""Moves a rule's work to a worker process where it would hold up the event loop.

A rollout's characters say little of how long its tool calls take: thousands of short calls against a long reference do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any
from weakref import WeakKeyDictionary

from judgekit.execution.pool import default_pool
from judgekit.types import Grade, Rollout

MOST_CALLS = 1_000
"""Calls of one rollout that are read on the event loop."""
MOST_PAIRS = 20_000
"""Pairs of calls, or of observations, that are compared on it."""


def elsewhere(
    grader: Any, rollout: Rollout, pairs: int = 0, calls: int | None = None
) -> Awaitable[Grade] | None:
    """Return the grade from a worker, if the work is too much for the event loop that runs; else None.

    *pairs*: of what is compared with what. *calls*: how many there are, if it is known.
    """
    if (calls_of(rollout) if calls is None else calls) <= MOST_CALLS and pairs <= MOST_PAIRS:
        return None
    try:
        asyncio.get_running_loop()
    except RuntimeError:  # in a worker, or called directly
        return None
    return _sent(grader, rollout, float(getattr(grader, "timeout_s", None) or 10.0))


async def _sent(grader: Any, rollout: Rollout, timeout_s: float) -> Grade:
    """Send a rollout to a worker: one at a time, because writing a long one takes a while itself."""
    turn = _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock())
    async with turn:
        sent = asyncio.ensure_future(default_pool().grade(grader, rollout, timeout_s=timeout_s))
        await asyncio.sleep(0)
    return await sent  # type: ignore[no-any-return]


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def calls_of(rollout: Rollout) -> int:
    """Count a rollout's calls and turns without reading them."""
    found = len(rollout.messages)
    for message in rollout.messages:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        found += len(calls) if isinstance(calls, list | tuple) else 0
        if isinstance(content, str):
            found += _in_text(content)
        elif isinstance(content, list | tuple):
            found += len(content)
    return found + (_in_text(rollout.response) if not rollout.messages else 0)


def _in_text(text: str) -> int:
    return sum(
        text.count(mark) for mark in ("<tool_call>", "<search>", "Action", "Observation", "<information>")
    )
