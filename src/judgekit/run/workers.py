"""The workers of one run: bounded, on time, and cleaned up after.

Jobs wait in lanes; a lane is what shares a limit. Up to `max_concurrency` tasks take jobs whose lane has
room; they are made when there is work and end when there is none. One timer watches all of them, so that a
job costs no timer of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import math
import time
from collections import deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from judgekit.execution.limits import Limiter, Retry, RetryBudget
from judgekit.types import Failed

if TYPE_CHECKING:
    from judgekit.run.jobs import GraderSlot
    from judgekit.run.state import Item

logger = logging.getLogger("judgekit")

GRACE_S = 0.5
"""How long a cancelled grader may take to end before it is left behind."""

_stuck: set[asyncio.Task[None]] = set()
"""Tasks of graders that ignore cancellation, kept from being collected while they still run."""


class Lane:
    """Jobs that share a limit."""

    __slots__ = ("active", "limit", "queue")

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.active = 0
        self.queue: deque[Job] = deque()


class Job:
    """One evaluation: a grader and the rollout, or the group's rollouts, that it is to grade."""

    __slots__ = ("attempt", "awaitable", "items", "lane", "queued", "slot", "started")

    def __init__(
        self, slot: GraderSlot, items: list[Item], lane: Lane, awaitable: Awaitable[Any] | None = None
    ) -> None:
        self.slot = slot
        self.items = items
        self.lane = lane
        self.awaitable = awaitable
        """What a synchronous grader returned to be awaited."""
        self.attempt = 1
        self.queued = time.perf_counter()
        self.started: float | None = None
        """Loop time of its first attempt."""


class Owner(Protocol):
    """Who the workers work for. None of these may raise but `perform`."""

    async def perform(self, job: Job) -> Any:
        """Do the job."""
        ...

    def answer(self, job: Job, value: Any, seconds: float | None) -> None:
        """The job is done: what `perform` returned, or the exception or Failed that it ended with."""
        ...

    def taken(self, job: Job, waited_s: float) -> None:
        """A worker took the job for the first time."""
        ...

    def wake(self) -> None:
        """There is room for more jobs."""
        ...


class _Flight:
    """What one worker is doing, for the clock."""

    __slots__ = ("abandoned", "deadline", "held", "job", "task", "why")

    def __init__(self) -> None:
        self.held: list[Limiter] = []
        """Slots that it has of those which runs share."""
        self.task: asyncio.Task[None] | None = None
        self.job: Job | None = None
        self.deadline = math.inf
        self.why: Failed | None = None
        """Set when the clock has cancelled it."""
        self.abandoned = False


class Workers:
    """Runs jobs for *owner*; belongs to the running event loop."""

    def __init__(
        self,
        owner: Owner,
        lanes: list[Lane],
        *,
        max_concurrency: int,
        retry: Retry,
        budget: RetryBudget,
        gates: Mapping[str, Sequence[Limiter]],
    ) -> None:
        """*gates*: by a grader's name, the slots that all runs share and that its jobs need to begin."""
        self._owner = owner
        self._lanes = lanes
        self._max = max_concurrency
        self._retry = retry
        self._budget = budget
        self._gates = gates
        self._loop = asyncio.get_running_loop()
        self.queued = 0
        """Jobs that wait for a worker."""
        self._active = 0
        self._flights: set[_Flight] = set()
        self._delayed: dict[Job, asyncio.TimerHandle] = {}
        self._clock: asyncio.TimerHandle | None = None
        self._clock_at = math.inf
        self._expired = False

    def add(self, job: Job) -> None:
        """Queue a job; `start` gets it going."""
        job.lane.queue.append(job)
        self.queued += 1

    def start(self) -> None:
        """Make workers for the jobs that may run now."""
        while self._active < self._max and (job := self._take()) is not None:
            self._active += 1
            flight = _Flight()
            self._flights.add(flight)
            flight.task = self._loop.create_task(self._work(flight, job))

    def expire(self, why: Failed) -> None:
        """End everything now: what is in flight is cancelled, and it and what waits is answered with *why*."""
        self._expired = True
        for flight in list(self._flights):
            if flight.why is None and flight.job is not None:
                self._cancel(flight, why)
        self._set_clock()
        jobs = [job for lane in self._lanes for job in lane.queue] + list(self._delayed)
        self._forget_waiting()
        for job in jobs:
            discard(job.awaitable)
            self._owner.answer(job, why, None)

    async def close(self) -> None:
        """Cancel what is left and wait for it; a task that ignores its cancellation is left behind, and said so."""
        if self._clock is not None:
            self._clock.cancel()
        for job in [job for lane in self._lanes for job in lane.queue] + list(self._delayed):
            discard(job.awaitable)
        self._forget_waiting()
        tasks = {flight.task for flight in self._flights if flight.task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=GRACE_S)
            for task in stuck:
                _leave_behind(task)

    def _forget_waiting(self) -> None:
        for lane in self._lanes:
            lane.queue.clear()
        self.queued = 0
        for handle in self._delayed.values():
            handle.cancel()
        self._delayed.clear()

    def _take(self) -> Job | None:
        """The next job of the lane that uses least of what it may: a few slow calls must not keep the few slots
        of a worker pool empty, nor one lane take all that there is."""
        if not self.queued:
            return None
        best: Lane | None = None
        least = math.inf
        for lane in self._lanes:
            if lane.queue and lane.active < lane.limit:
                used = lane.active / min(lane.limit, self._max)
                if used < least:
                    best, least = lane, used
        if best is None:
            return None
        best.active += 1
        self.queued -= 1
        return best.queue.popleft()

    async def _work(self, flight: _Flight, first: Job) -> None:
        job: Job | None = first
        try:
            while job is not None:
                await self._execute(flight, job)
                if flight.abandoned:
                    return
                job.lane.active -= 1
                flight.job = None
                self.start()
                self._owner.wake()
                job = self._take()
        finally:
            if not flight.abandoned:
                self._active -= 1
                self._flights.discard(flight)

    async def _execute(self, flight: _Flight, job: Job) -> None:
        flight.job, flight.why = job, None
        start = time.perf_counter()
        value: Any
        try:
            if self._gates:
                for gate in self._gates.get(job.slot.name, ()):
                    await gate.acquire()
                    flight.held.append(gate)
                start = time.perf_counter()
            self._begin(flight, job, start)
            value = await self._owner.perform(job)
        except asyncio.CancelledError as error:
            if flight.abandoned:
                return
            if flight.why is None and flight.task is not None and flight.task.cancelling():
                raise  # the run is being cancelled
            value = error  # the clock's, or the grader's own
        except (Exception, SystemExit) as error:
            value = error
        finally:
            _let_go(flight)
        if flight.abandoned:
            return
        flight.deadline = math.inf
        if flight.why is not None:
            await self._absorb_cancel(flight)
            value = flight.why
        if isinstance(value, BaseException) and self._try_again(job, value):
            return
        self._owner.answer(job, value, time.perf_counter() - start)

    def _begin(self, flight: _Flight, job: Job, now: float) -> None:
        """The job has its slot: from here on its time counts."""
        if job.started is None:
            job.started = self._loop.time()
            self._owner.taken(job, now - job.queued)
            self._budget.call()
        if job.slot.mode != "process":  # the pool keeps time itself, from when a worker has the rollout
            flight.deadline = job.started + job.slot.timeout_s
        if flight.deadline < self._clock_at:
            self._set_clock()

    async def _absorb_cancel(self, flight: _Flight) -> None:
        """Take in the clock's cancellation where the grader did not, and undo its count."""
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        if flight.task is not None and flight.task.uncancel() > 0:
            raise asyncio.CancelledError

    def _try_again(self, job: Job, error: BaseException) -> bool:
        """Queue the job for another try, without a worker meanwhile; False where this was its last."""
        if (
            job.attempt >= self._retry.attempts
            or self._expired
            or job.started is None
            or not getattr(error, "retryable", False)
            or getattr(error, "exhausted", False)
        ):
            return False
        wait = self._retry.wait_s(job.attempt, error)
        if self._loop.time() + wait >= job.started + job.slot.timeout_s or not self._budget.allow():
            return False
        job.attempt += 1
        self._delayed[job] = self._loop.call_later(wait, self._requeue, job)
        return True

    def _requeue(self, job: Job) -> None:
        del self._delayed[job]
        self.add(job)
        self.start()

    # ---- the clock

    def _set_clock(self) -> None:
        when = min((flight.deadline for flight in self._flights), default=math.inf)
        if when == self._clock_at:
            return
        if self._clock is not None:
            self._clock.cancel()
        self._clock_at = when
        self._clock = self._loop.call_at(when, self._tick) if when < math.inf else None

    def _tick(self) -> None:
        now = self._loop.time()
        for flight in list(self._flights):
            if flight.deadline > now or flight.job is None:
                continue
            if flight.why is None:
                timeout_s = flight.job.slot.timeout_s
                self._cancel(
                    flight, Failed("GraderTimeout", f"no grade within {timeout_s:g} s", retryable=True)
                )
            else:
                self._abandon(flight)
        self._clock, self._clock_at = None, math.inf
        self._set_clock()

    def _cancel(self, flight: _Flight, why: Failed) -> None:
        flight.why = why
        flight.deadline = self._loop.time() + GRACE_S
        if flight.task is not None:
            flight.task.cancel()

    def _abandon(self, flight: _Flight) -> None:
        """Go on without a grader that ignores its cancellation."""
        job, task = flight.job, flight.task
        flight.abandoned = True
        flight.deadline = math.inf
        self._flights.discard(flight)
        self._active -= 1
        _let_go(flight)
        if task is not None:
            _leave_behind(task)
        if job is not None:
            job.lane.active -= 1
            self._owner.answer(job, flight.why, None)
        self.start()
        self._owner.wake()


def _let_go(flight: _Flight) -> None:
    """Give back the slots that runs share."""
    while flight.held:
        flight.held.pop().release()


def discard(awaitable: Any) -> None:
    """Close a coroutine that will not be awaited."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()


def _leave_behind(task: asyncio.Task[None]) -> None:
    logger.error("a grader ignores its cancellation; its task %s is left to end by itself", task.get_name())
    _stuck.add(task)
    task.add_done_callback(_stuck.discard)
