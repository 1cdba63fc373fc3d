"""Makes a call once for all who ask for it at the same time."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine, Hashable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, Generic, TypeVar

from judgekit.errors import JudgeUnavailable
from judgekit.execution.stopwatch import STOPWATCH, Stopwatch
from judgekit.fork import in_child, leave_to_parent

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class Flights(Generic[T]):
    """Joins equal calls that are in flight on one event loop.

    A call is a task of its own, which belongs to nobody who waits for it: any of them may time out or be cancelled, also the one
    that asked first. When the last has left, it is cancelled, unless it is *lasting*. Time during which it is held up
    counts against nobody who waits.
    """

    def __init__(self, *, lasting: bool = False) -> None:
        self._lasting = lasting
        self._calls: dict[Hashable, _Flight[T]] = {}
        in_child(self._forked)

    def __len__(self) -> int:
        """Return the number of calls in flight."""
        return len(self._calls)

    async def join(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what the call *key* returns, and raise what it raises; `make()` is called if there is none.

        If it cancels itself, whoever made it gets JudgeUnavailable, and the others make it again.
        """
        while True:
            flight = self._calls.get(key)
            first = flight is None or flight.over
            if flight is None or first:
                flight = self._calls[key] = _Flight(make(), lasting=self._lasting)
                flight.task.add_done_callback(partial(self._landed, key, flight))
            await flight.wait()
            if not flight.task.cancelled():
                return flight.result()
            if first or flight.closed:
                raise JudgeUnavailable("the call was cancelled")

    def cancel(self) -> None:
        """Cancel all calls in flight; those that wait for them get JudgeUnavailable."""
        for flight in self._calls.values():
            flight.closed = True
            if not flight.over:
                flight.task.cancel()

    def _landed(self, key: Hashable, flight: _Flight[T], _: object) -> None:
        if self._calls.get(key) is flight:
            del self._calls[key]
        flight.wake()
        if not flight.task.cancelled():
            flight.task.exception()  # retrieved, for nobody may wait for it any more

    def _forked(self) -> None:
        leave_to_parent(self._calls)
        self._calls = {}


class _Flight(Generic[T]):
    """A call in flight, and how many wait for it."""

    def __init__(self, call: Coroutine[Any, Any, T], *, lasting: bool) -> None:
        # what lasts longer than its first caller has nothing of that caller's context
        context = Context() if lasting else copy_context()
        self.stopwatch = Stopwatch()
        context.run(STOPWATCH.set, self.stopwatch)
        self.task = asyncio.get_running_loop().create_task(call, context=context)
        self.closed = False
        self._lasting = lasting
        self._waiting: set[asyncio.Future[None]] = set()
        self._most = 0

    @property
    def over(self) -> bool:
        """Whether it has ended, is being cancelled, or was left behind by its loop: who comes now needs another."""
        task = self.task
        return task.done() or task.cancelling() > 0 or task.get_loop() is not asyncio.get_running_loop()

    async def wait(self) -> None:
        """Wait until it has ended: until `wake`. Whoever leaves last waits until it is cancelled."""
        ended = asyncio.get_running_loop().create_future()
        self._waiting.add(ended)
        self._most = max(self._most, len(self._waiting))
        mine = STOPWATCH.get()
        if mine is not None:
            self.stopwatch.add_sharer(mine)
        try:
            await ended
        finally:
            if mine is not None:
                self.stopwatch.drop_sharer(mine)
            self._waiting.discard(ended)
            if not self._waiting and not self._lasting and not self.task.done():
                self.task.cancel()
                await asyncio.wait([self.task])

    def wake(self) -> None:
        """Tell all who wait that it has ended."""
        for ended in self._waiting:
            if not ended.done():
                ended.set_result(None)

    def result(self) -> T:
        error = self.task.exception()
        if error is not None and self._most > 1:
            raise own_copy(error)
        return self.task.result()


def own_copy(error: E) -> E:
    """Return an error for one of several callers, who note on it what they did; itself where it cannot be copied."""
    try:
        return copy.copy(error)
    except Exception:
        return error
