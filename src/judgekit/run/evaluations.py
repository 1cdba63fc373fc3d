"""The evaluations of one run: each attempt is a task with a context of its own, and ends with it.

Attempts wait in queues, one for each limit, and at most `max_concurrency` of them run. One timer watches all of them, so
that an attempt costs no timer of its own. An attempt that fails in a way that may pass goes back into its queue after a
wait, which holds no place.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from contextvars import Context
from typing import Any, Protocol

import anyio
import msgspec
from msgspec import Struct, field

from judgekit.errors import attribute
from judgekit.execution.stopwatch import STOPWATCH, Stopwatch
from judgekit.run.bound_grader import BoundGrader
from judgekit.run.groups import RolloutState
from judgekit.run.settings import Plan
from judgekit.types import Failed, Graded, Usage

logger = logging.getLogger("judgekit")

SLICE_S = 0.005
"""Seconds for which a run's graders may hold the event loop before others get a turn."""
GRACE_S = 0.5
"""Seconds that a cancelled grader may take to clean up before its coroutine is closed."""
_GRADES = (float, int, Graded)
"""What most graders return: no failure, and nothing to wait for."""
HOLD_S = 0.25
"""Seconds between two looks at the deadline of an evaluation whose judge is restarting."""


class Queue(Struct, gc=False, eq=False):
    """Evaluations that share a limit."""

    # gc=False: hosts start thousands of short runs at once, and tracking their records would cost more than the
    # grading. A run breaks its own reference cycles when it ends.

    fixed: float
    judges: tuple[Any, ...] = ()
    """Those that its evaluations ask, if they are known."""
    follows: bool = False
    """Whether as many evaluations are in flight as these are sent calls at once."""
    active: int = 0
    jobs: deque[Job] = field(default_factory=deque)

    @property
    def limit(self) -> float:
        return sum(judge.places for judge in self.judges) if self.follows else self.fixed

    @property
    def starves(self) -> bool | None:
        """Whether a judge's engine would run more requests while evaluations wait; None where no engine tells."""
        told = [(starved, judge.full) for judge in self.judges if (starved := judge.starved) is not None]
        return any(starved and (full or self.jobs) for starved, full in told) if told else None


class Job(Struct, gc=False, eq=False):
    """One evaluation with its retries: a grader and the rollouts that it grades, one or a group's."""

    grader: BoundGrader
    states: Sequence[RolloutState]
    queue: Queue
    awaitable: Awaitable[Any] | None = None
    """What a synchronous grader returned, if that must be awaited."""
    context: Context | None = None
    """The context in which it was called."""
    attempt: int = 1
    queued: float = field(default_factory=time.monotonic)
    """When it entered its queue, the last time."""
    started: float | None = None
    """When its first attempt began."""
    began: float = 0.0
    """When its current attempt began."""
    seconds: float = 0.0
    """How long its last attempt took."""
    deadline: float = math.inf
    """When the clock looks at it."""
    why: Failed | None = None
    """Its grade, if the clock has cancelled it."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    """Measures the time that does not count, over all attempts."""
    shares: bool = False
    """Whether the evaluation that started this run is held along with it."""

    def due(self, now: float) -> float:
        """Return when it times out, as far as that is known *now*."""
        assert self.started is not None
        due = self.started + self.grader.timeout_s + self.stopwatch.held_s()
        return max(due, now + HOLD_S) if self.stopwatch.holding else due


class Owner(Protocol):
    """The run, as its evaluations see it."""

    def answer(self, job: Job, value: Any, seconds: float | None) -> None:
        """Take in what a job's grader returned, or the exception or Failed that it ended with."""

    def wake(self) -> None:
        """Bring in more, if there is room: a job was answered."""

    def out_of_time(self) -> None:
        """End the run: the time given to `end_after` is up."""

    def stop_reading(self) -> None:
        """Bring in nothing more: an error ends the run, which `check` raises."""


class Evaluations:
    """Runs and owns the evaluations of one run. Belongs to the running event loop.

    *context*: each attempt gets a copy. *owner*: gets the answers.
    """

    def __init__(self, plan: Plan, context: Context, owner: Owner) -> None:
        self._context = context
        self._own = context.copy()
        """For callbacks, which would each copy the current one; tasks are made in the other."""
        self._owner = owner
        whole = plan.settings.max_concurrency
        self._queues = [Queue(*limit) for limit in plan.places]
        self._pool = plan.pool
        self._max = math.inf if whole == "auto" else whole
        self._most: float | None = None
        """See `most`, once it is known that it does not change."""
        self._retry = plan.settings.retry
        self._budget = plan.budget if self._retry.attempts > 1 else None
        self._limits = plan.limits
        self._loop = asyncio.get_running_loop()
        self._outer = context.get(STOPWATCH)
        """The stopwatch of the evaluation that started this run, if one has: what holds up ours holds it up, too."""
        self.queued = 0
        """Evaluations that wait for a place."""
        self._running: dict[asyncio.Task[Any], Job] = {}
        self._delayed: dict[Job, asyncio.TimerHandle] = {}
        """Evaluations that wait before a retry."""
        self._clock: asyncio.TimerHandle | None = None
        self._clock_at = math.inf
        self._run_ends = math.inf
        self._turn_ends = self._turn_ends_at_last = self._turn_cpu_s = 0.0
        self._turn: asyncio.Handle | None = None
        """Set from the first attempt that begins until the event loop comes round."""
        self._begun: list[Job] = []
        """Jobs whose attempts began in this turn."""
        self._expired = False
        self._closing = False
        self._error: BaseException | None = None
        self._over: asyncio.Future[None] | None = None
        """Set while somebody waits until nothing runs any more."""
        self.interrupting = False
        """Whether a pending cancellation of the run's task is our own, to end the reading of its source."""
        self._run = asyncio.current_task()
        self._cancels = self._run.cancelling() if self._run is not None else 0

    # ---- called by the run

    @property
    def most(self) -> float:
        """Evaluations that may be in flight now."""
        if self._most is not None:
            return self._most
        most = min(self._max, sum(queue.limit for queue in self._queues))
        if not any(queue.follows for queue in self._queues):
            self._most = most
        return most

    def add(self, grader: BoundGrader, states: Sequence[RolloutState]) -> None:
        """Queue an evaluation, for `start` to begin."""
        self._queue(Job(grader, states, self._queues[grader.queue]))

    def grade_inline(self, grader: BoundGrader, state: RolloutState) -> tuple[Any, float] | None:
        """Call a rule at once. Returns what it returned or raised, and its seconds; None if its answer comes later."""
        context = self._context.copy()
        start = time.monotonic()
        if self._budget is not None:
            self._budget.call()
        value: Any
        try:
            value = context.run(grader.call_here, state.rollout)
            if not isinstance(value, _GRADES) and hasattr(value, "__await__"):
                self._queue(Job(grader, (state,), self._queues[grader.queue], value, context))
                return None
        except BaseException as error:  # panics of native code are no Exception
            if is_interrupt(error):
                raise
            value = error
        try:
            seconds = time.monotonic() - start
            if not isinstance(value, _GRADES) and self._budget is not None and _may_pass(value):
                job = Job(grader, (state,), self._queues[grader.queue], started=start)
                if self._try_again(job, value):
                    return None
            return value, seconds
        finally:
            del value  # an error holds this frame, which would hold it: only a collection would free them

    def start(self) -> None:
        """Begin the evaluations that have a place."""
        create, ended = self._loop.create_task, self._ended
        while self.queued and not self._closing and len(self._running) < self._max:
            job = self._take()
            if job is None:
                return
            # the task copies the context that it is made in; its name is for whoever debugs, and asyncio's takes longer to make
            task = (job.context or self._context).run(create, self._attempt(job), name=job.grader.name)
            self._running[task] = job
            task.add_done_callback(ended, context=self._own)

    def end_after(self, seconds: float) -> None:
        """Set the run's own time limit. `watch` starts the clock for it."""
        self._run_ends = time.monotonic() + seconds

    def watch(self) -> None:
        """Start the clock for the run's time limit, before something waits. A run that never waits needs no timer."""
        if self._run_ends < self._clock_at:
            self._set_clock(self._run_ends)

    def expire(self, why: Failed) -> None:
        """Cancel what runs, and answer it and all that waits with *why*."""
        self._expired = True
        for task, job in self._running.items():
            if job.why is None:
                self._cancel(task, job, why)
        self._set_clock()
        for job in self._drop_waiting():
            self._owner.answer(job, why, None)
        self._tell_if_over()

    def fail(self, error: BaseException) -> None:
        """End the run with *error*."""
        if self._error is None:
            self._error = error
        self._closing = True
        self._owner.stop_reading()
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def over(self) -> asyncio.Future[None] | None:
        """Return what is done once nothing runs any more, or an error ends the run; None if that is so already."""
        if self._error is not None or not (self.queued or self._running or self._delayed):
            return None
        if not self._running:  # else those that run start the clock
            self.watch()
        self._over = self._loop.create_future()
        return self._over

    def check(self) -> None:
        """Raise the error that ends the run, if there is one."""
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """Cancel what still runs and wait for its end, whatever cancels the caller meanwhile."""
        self.abandon()
        for task, job in self._running.items():
            self._cancel(task, job, job.why)
        self._set_clock()
        while self._running:
            self._over = self._loop.create_future()
            with suppress(asyncio.CancelledError), anyio.CancelScope(shield=True):
                await self._over
        self._stop_clock()

    def abandon(self) -> None:
        """Answer and begin nothing more: the run has ended, or its loop has."""
        self._closing = True
        self._run_ends = math.inf
        self._drop_waiting()
        self._stop_clock()

    # ---- one attempt

    async def _attempt(self, job: Job) -> Any:
        """Call a job's grader. Returns what it returned, or the exception that it raised."""
        limits = self._limits.get(job.grader.name, ())
        held = 0
        job.began = now = time.monotonic()
        try:
            if now > self._turn_ends:
                if self._turn is not None:
                    await self._turn_to_end()
                    now = time.monotonic()
                self._take_turn(now)
            for limit in limits:
                if not limit.try_acquire():
                    self.watch()
                    await limit.acquire()
                    now = time.monotonic()
                held += 1
            self._begin(job, now)
            awaitable, job.awaitable = job.awaitable, None
            if awaitable is None:
                states = job.states
                subject = [s.rollout for s in states] if job.grader.compares else states[0].rollout
                awaitable = job.grader.begin(subject, self._pool)
            return await awaitable
        except BaseException as error:  # panics of native code are no Exception
            if is_interrupt(error):
                raise
            return error
        finally:
            job.seconds = time.monotonic() - job.began
            job.deadline = math.inf
            for limit in limits[:held]:
                limit.release()

    async def _turn_to_end(self) -> None:
        """Wait until the turn in progress has ended: graders that never suspend would starve the event loop."""
        while self._turn is not None:
            now = time.monotonic()
            if now < self._turn_ends_at_last and time.thread_time() < self._turn_cpu_s:
                return  # a busy machine has held us up, and not our graders
            self.watch()
            await asyncio.sleep(0)

    def _take_turn(self, now: float) -> None:
        """Begin a turn, or go on with the one in progress."""
        self._turn_ends = now + SLICE_S
        if self._turn is not None:
            return
        self._turn_ends_at_last = self._turn_ends + 9 * SLICE_S
        self._turn_cpu_s = time.thread_time() + SLICE_S

    def _end_turn(self) -> None:
        """Start the clock for the attempts that have suspended. One that never does needs none."""
        self._turn = None
        deadline = min([job.deadline for job in self._begun])
        self._begun.clear()
        if deadline < math.inf and not self._closing and min(deadline, self._run_ends) < self._clock_at:
            self._set_clock(min(deadline, self._run_ends))

    def _begin(self, job: Job, now: float) -> None:
        """Start an attempt's time: it has its place under all limits."""
        job.began = now
        if job.started is None:
            job.started = now
            for timings in job.grader.timings:
                timings.waits.append(now - job.queued)
            if self._budget is not None:
                self._budget.call()
        elif job.attempt > 1:
            job.stopwatch.excuse(job.queued)
        if job.grader.where == "process":  # the pool keeps time itself, once a worker has the rollout
            self.watch()
        else:
            if self._outer is not None and not job.shares:
                job.shares = True
                job.stopwatch.add_sharer(self._outer)
            STOPWATCH.set(job.stopwatch)
            job.deadline = job.started + job.grader.timeout_s
            if job.attempt > 1:
                job.deadline += job.stopwatch.held_s()
            self._begun.append(job)
            if self._turn is None:
                self._turn = self._loop.call_soon(self._end_turn, context=self._own)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        """Take in an attempt that has ended, whatever ended it."""
        job = self._running.pop(task)
        job.queue.active -= 1
        if job.queue.judges:
            starved = job.queue.starves
            for timings in job.grader.timings if starved is not None else ():
                timings.starved.append(bool(starved))
        if job.awaitable is not None:  # it was cancelled before it began
            discard(job.awaitable)
        try:
            try:
                value = task.result()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # it was cancelled before it began, or its coroutine was closed
                value = error
            if job.why is not None:
                value = _with_usage(job.why, value)
            if not (self.closing or (not isinstance(value, _GRADES) and self._try_again(job, value))):
                self._owner.answer(job, value, job.seconds)
            if self.queued:
                self.start()
            self._owner.wake()
        except BaseException as error:
            self.fail(error)
        if self._over is not None:
            self._tell_if_over()

    def _tell_if_over(self) -> None:
        left = self._running or (self._error is None and (self.queued or self._delayed))
        if self._over is not None and not self._over.done() and not left:
            self._over.set_result(None)

    @property
    def closing(self) -> bool:
        """Whether the run is ending early. A cancellation before that is a grader's own."""
        if not (self._closing or self.interrupting or self._run is None):
            self._closing = self._run.cancelling() > self._cancels
        return self._closing

    # ---- queues

    def _queue(self, job: Job) -> None:
        job.queue.jobs.append(job)
        self.queued += 1

    def _take(self) -> Job | None:
        """Take the next of the jobs that wait."""
        queues = self._queues
        best = queues[0] if len(queues) == 1 else self._least_used()
        if best is None or best.active >= best.limit:
            return None
        best.active += 1
        self.queued -= 1
        return best.jobs.popleft()

    def _least_used(self) -> Queue | None:
        """Return the queue with waiting jobs that uses the smallest share of its limit.

        Otherwise slow judge calls would take every place and leave the process pool idle.
        """
        best: Queue | None = None
        least = math.inf
        for queue in self._queues:
            if queue.jobs and queue.active < (limit := queue.limit):
                used = queue.active / min(limit, self._max)
                if used < least:
                    best, least = queue, used
        return best

    def _try_again(self, job: Job, value: Any) -> bool:
        """Retry the job after a wait that holds no place. Returns False if this was its last attempt."""
        if (
            self._budget is None
            or job.attempt >= self._retry.attempts
            or self._expired
            or job.started is None
            or job.why is not None
            or not _may_pass(value)
        ):
            return False
        wait = self._retry.wait_s(job.attempt, value)
        now = time.monotonic()
        if now + wait >= job.due(now) or not self._budget.allow():
            return False
        job.attempt += 1
        job.deadline = math.inf
        self._delayed[job] = self._loop.call_later(wait, self._requeue, job, context=self._own)
        self.watch()
        return True

    def _requeue(self, job: Job) -> None:
        del self._delayed[job]
        job.queued = time.monotonic()
        self._queue(job)
        self.start()

    def _drop_waiting(self) -> list[Job]:
        if not (self.queued or self._delayed):
            return []
        jobs = [job for queue in self._queues for job in queue.jobs] + list(self._delayed)
        for queue in self._queues:
            queue.jobs.clear()
        for timer in self._delayed.values():
            timer.cancel()
        self._delayed.clear()
        self.queued = 0
        for job in jobs:
            discard(job.awaitable)
        return jobs

    # ---- the clock: one timer, set to the nearest deadline

    def _set_clock(self, when: float | None = None) -> None:
        if when is None:
            when = min((job.deadline for job in self._running.values()), default=math.inf)
            when = min(when, self._run_ends)
        if when == self._clock_at:
            return
        self._stop_clock()
        self._clock_at = when
        if when < math.inf:
            self._clock = self._loop.call_later(
                max(0.0, when - time.monotonic()), self._tick, context=self._own
            )

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        self._clock, self._clock_at = None, math.inf

    def _tick(self) -> None:
        self._clock, self._clock_at = None, math.inf
        now = time.monotonic()
        if now >= self._run_ends:
            self._run_ends = math.inf
            self._owner.out_of_time()
        for task, job in self._running.items():
            if job.deadline > now:
                continue
            if job.why is not None or self.closing:
                self._end(task, job, now)
            elif (
                later := job.due(now)
            ) > now:  # the time during which its judge was restarting does not count
                job.deadline = later
            else:
                late = f"no grade within {job.grader.timeout_s:g} s"
                self._cancel(task, job, Failed("GraderTimeout", late))
        self._set_clock()

    def _cancel(self, task: asyncio.Task[Any], job: Job, why: Failed | None) -> None:
        job.why = why
        job.deadline = time.monotonic() + GRACE_S
        task.cancel()

    def _end(self, task: asyncio.Task[Any], job: Job, now: float) -> None:
        """End an attempt whose grader ignores its cancellation: close its coroutine, and wake its task."""
        if not job.grader.unstoppable:
            job.grader.unstoppable = True
            logger.error("grader %r ignores its cancellation: its coroutines are closed", job.grader.name)
        job.deadline = now + GRACE_S
        coroutine: Any = task.get_coro()
        with suppress(BaseException):  # it ignores even that, and will not run again
            coroutine.close()
        task.cancel()


def _with_usage(why: Failed, error: Any) -> Failed:
    """Return the grade of an evaluation that the clock has ended, with what its judge had used by then."""
    usage = attribute(error, "usage") if isinstance(error, asyncio.CancelledError) else None
    return msgspec.structs.replace(why, usage=usage) if isinstance(usage, Usage) else why


def _may_pass(value: Any) -> bool:
    """Whether what a grader raised or returned is a failure that a retry may not meet."""
    if isinstance(value, Failed):
        return value.retryable is True
    return (
        isinstance(value, BaseException)
        and attribute(value, "retryable") is True
        and attribute(value, "exhausted") is not True
    )


def is_interrupt(error: BaseException) -> bool:
    """Whether *error* is the user's Ctrl-C (only the main thread gets it) or the closing of a generator.

    Neither comes from a grader.
    """
    if isinstance(error, KeyboardInterrupt):
        return threading.current_thread() is threading.main_thread()
    return isinstance(error, GeneratorExit)


def discard(awaitable: Any) -> None:
    """Close a coroutine that will never be awaited."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
