"""Gives a rule's work a turn of its own, or moves it to a worker process, where it would hold up the event loop.

A rollout's characters say little of how long its tool calls take: thousands of short calls against a long reference do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from judgekit.execution.pool import default_pool
from judgekit.execution.stopwatch import off_the_clock
from judgekit.execution.turns import give_way
from judgekit.graders.rules.written_calls import MARKS
from judgekit.types import Grade, Rollout

FEW_CALLS, FEW_PAIRS = 60, 2_000
"""Calls that are read, and pairs of calls or observations that are compared, at once with other rules."""
MOST_CALLS, MOST_PAIRS = 1_000, 20_000
"""Those that are read and compared on the event loop at all."""
_ARGUMENTS = 16
"""So many arguments of a call take as long to read as the call."""


class Work(NamedTuple):
    """How much a rule has to do for a rollout."""

    calls: int
    pairs: int = 0


class Paced:
    """Base of rules whose work grows with a rollout's calls: much of it takes its turn, or goes to a worker process."""

    gives_turns: bool = False
    """Whether its grades say something of each of the policy's turns."""

    def grade(self, rollout: Rollout, /) -> Grade | Awaitable[Grade]:
        work = self.work(rollout)
        if work.calls <= FEW_CALLS and work.pairs <= FEW_PAIRS:
            return self.here(rollout)
        try:
            asyncio.get_running_loop()
        except RuntimeError:  # in a worker, or called directly
            return self.here(rollout)
        if work.calls <= MOST_CALLS and work.pairs <= MOST_PAIRS:
            return _in_turn(self, rollout)
        return _sent(self, rollout, float(getattr(self, "timeout_s", None) or 10.0))

    def here(self, rollout: Rollout) -> Grade:
        """Grade a rollout at once."""
        raise NotImplementedError

    def work(self, rollout: Rollout) -> Work:
        """Return how much there is to do."""
        return Work(calls_of(rollout))


async def _in_turn(grader: Paced, rollout: Rollout) -> Grade:
    """Grade a rollout in a turn of the event loop in which no other one is graded so."""
    turn = _turn()
    with off_the_clock():
        await turn.acquire()
    try:
        await give_way()
        return grader.here(rollout)
    finally:
        turn.release()


async def in_pool(grader: Any, rollout: Rollout, timeout_s: float) -> Any:
    """Grade a rollout in the shared pool, which bounds the time itself: a worker that is busy or starting is no grader's time."""
    with off_the_clock():
        return await default_pool().grade(grader, rollout, timeout_s=timeout_s)


async def _sent(grader: Any, rollout: Rollout, timeout_s: float) -> Grade:
    """Send a rollout to a worker: one at a time, because writing a long one takes a while itself."""
    with off_the_clock():
        async with _turn():
            sent = asyncio.ensure_future(default_pool().grade(grader, rollout, timeout_s=timeout_s))
            try:
                await give_way()
            except BaseException:  # a run that ends leaves nothing behind
                sent.cancel()
                raise
        return await sent  # type: ignore[no-any-return]


def _turn() -> asyncio.Lock:
    return _TURNS.setdefault(asyncio.get_running_loop(), asyncio.Lock())


_TURNS: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def calls_of(rollout: Rollout) -> int:
    """Count a rollout's calls and turns without reading them; many arguments of a call count as further calls.

    All rules of a reward ask it of the same rollout, one after the other: the last one's count is kept.
    """
    global _last
    last, count = _last
    if last is not rollout:
        count = _counted(rollout)
        _last = rollout, count
    return count


_last: tuple[Rollout | None, int] = (None, 0)


def _counted(rollout: Rollout) -> int:
    found = len(rollout.messages)
    for message in rollout.messages:
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(calls, list | tuple):
            found += len(calls) + sum(map(_arguments, calls)) // _ARGUMENTS
        if isinstance(content, str):
            found += _in_text(content)
        elif isinstance(content, list | tuple):
            found += len(content)
    return found + (_in_text(rollout.response) if not rollout.messages else 0)


def _arguments(call: Any) -> int:
    call = call.get("function", call) if isinstance(call, dict) else None
    given = call.get("arguments") if isinstance(call, dict) else None
    return len(given) if isinstance(given, dict) else given.count(":") if isinstance(given, str) else 0


def _in_text(text: str) -> int:
    found = sum(text.count(mark) for mark in _BEGINNINGS)
    is_code = text[:1] in ("[", "`") or any(mark in text for mark in _CODE)
    return max(
        found, text.count('"name"'), text.count("(") if is_code else 0
    )  # of a list, one mark says nothing


_BEGINNINGS = (*MARKS, "<search>", "Action", "Observation", "<information>")
_CODE = ("<|python_start|>", "<|tool_call_start|>", "<function_calls>")
