"""Grades groups whose rollouts arrive one at a time.

Hosts such as verl and SkyRL hand over one rollout at a time, while group graders, group transforms and neutral
fills need all rollouts of a prompt. In a hook that knows the group's size, each member awaits `arrive`: pointwise
graders start at once, group graders once the last member has arrived. Only coroutines wait: a hook that blocks
threads or actors starves (measured at 1,100 groups).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any

import msgspec

from judgekit.errors import ConfigError, JudgekitError
from judgekit.run.runner import GradingRunner
from judgekit.types import RewardResult, Rollout


class GroupCollector:
    """Grades groups whose members arrive one by one.

        async def member(rollout):
            try:
                result = await collector.arrive(uid, rollout, size=8)
            ...
        collector.leave(uid, size=8)      # this member will not arrive: stop waiting for it

    *timeout_s*: seconds from a group's first arrival until it stops waiting for missing members; the results of
    such a partial group say so in `policies`. The runner's deadline starts with a group's last arrival. Belongs to
    one event loop.
    """

    def __init__(self, runner: GradingRunner, *, timeout_s: float | None = None) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(f"group collector: timeout_s is a number of seconds above 0, not {timeout_s!r}")
        self.runner = runner
        self.timeout_s = timeout_s
        self._groups: dict[Hashable, _Collection] = {}
        self._tasks: dict[asyncio.Task[None], _Collection] = {}

    @property
    def waiting(self) -> int:
        """Number of groups that are not complete yet."""
        return len(self._groups)

    async def arrive(
        self, group: Hashable, rollout: Rollout, *, size: int, tags: Mapping[str, Any] | None = None
    ) -> RewardResult:
        """Add a member and return its final result, whose `index` is its place in order of arrival.

        *size*: members of the group, including those who leave. *tags*: for the ledger; the first member's count.
        Raises what the grading raises. A member that is cancelled while it waits still counts for the others.
        """
        collection = self._collection(group, size)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[RewardResult] = loop.create_future()
        if not collection.futures:  # the first to come
            self._limit_waiting(group, collection)
            task = loop.create_task(self._grade(collection, tags))
            self._tasks[task] = collection
            task.add_done_callback(self._ended)
        collection.futures.append(future)
        collection.arrived.append(rollout)
        self._notify(group, collection)
        if collection.error is not None:  # its grading has already failed
            future.set_exception(collection.error)
        return await future

    def leave(self, group: Hashable, *, size: int) -> None:
        """Say that one member of the group will not arrive."""
        collection = self._collection(group, size)
        if collection.timer is None:  # perhaps nobody else will arrive either
            self._limit_waiting(group, collection)
        collection.expected -= 1
        self._notify(group, collection)

    async def close(self) -> None:
        """Cancel all gradings and everybody who waits."""
        for collection in self._groups.values():
            collection.cancel()
        self._groups.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _collection(self, group: Hashable, size: int) -> _Collection:
        if size < 1:
            raise ConfigError(f"group collector: a group has at least 1 member, not {size}")
        collection = self._groups.get(group)
        if collection is None:
            self._groups[group] = collection = _Collection(size)
        elif collection.size != size:
            raise ConfigError(
                f"group collector: group {group!r} has {collection.size} members, but one of them says {size}"
            )
        return collection

    def _notify(self, group: Hashable, collection: _Collection) -> None:
        """Announce a change. A complete group is removed, so that another may have its id."""
        if len(collection.futures) >= collection.expected:
            if collection.timer is not None:
                collection.timer.cancel()
            if self._groups.get(group) is collection:
                del self._groups[group]
        collection.changed.set()

    def _limit_waiting(self, group: Hashable, collection: _Collection) -> None:
        if collection.timer is not None:
            collection.timer.cancel()
        if self.timeout_s is not None:
            loop = asyncio.get_running_loop()
            collection.timer = loop.call_later(self.timeout_s, self._end_waiting, group, collection)

    def _end_waiting(self, group: Hashable, collection: _Collection) -> None:
        collection.expected = len(collection.futures)
        self._notify(group, collection)

    async def _grade(self, collection: _Collection, tags: Mapping[str, Any] | None) -> None:
        try:
            await self.runner.follow(collection, collection.deliver, tags=tags)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever it is, nobody must wait forever
            collection.fail(error)
            if not isinstance(error, Exception):
                raise

    def _ended(self, task: asyncio.Task[None]) -> None:
        collection = self._tasks.pop(task)
        if task.cancelled():
            collection.error = JudgekitError("the grading of this group was cancelled")  # for later arrivals
            collection.cancel()


_PARTIAL = "partial group: "


def came_alone(result: RewardResult) -> bool:
    """Return whether a result is of the only member of a larger group that arrived."""
    return any(note.startswith(f"{_PARTIAL}1 of ") for note in result.policies)


class _Collection:
    """One group whose members are arriving; iterates over them as they arrive."""

    __slots__ = ("arrived", "changed", "error", "expected", "futures", "size", "timer")

    def __init__(self, size: int) -> None:
        self.size = self.expected = size
        """Members of the group, and those of them that have arrived or are still expected."""
        self.arrived: deque[Rollout] = deque()
        """Members that have arrived and were not taken yet."""
        self.changed = asyncio.Event()
        self.futures: list[asyncio.Future[RewardResult]] = []
        """The result of each member that has arrived."""
        self.timer: asyncio.TimerHandle | None = None
        self.error: BaseException | None = None

    def __aiter__(self) -> _Collection:
        return self

    async def __anext__(self) -> Rollout:
        while not self.arrived:
            if len(self.futures) >= self.expected:
                raise StopAsyncIteration
            self.changed.clear()
            await self.changed.wait()
        return self.arrived.popleft()

    def deliver(self, result: RewardResult) -> None:
        future = self.futures[result.index]
        if future.done():
            return
        if self.expected < self.size:
            note = f"{_PARTIAL}{self.expected} of {self.size} members"
            result = msgspec.structs.replace(result, policies=(*result.policies, note))
        future.set_result(result)

    def fail(self, error: BaseException) -> None:
        self.error = error
        for future in self.futures:
            if not future.done():
                future.set_exception(error)

    def cancel(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        for future in self.futures:
            future.cancel()
