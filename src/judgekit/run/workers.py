"""The workers of one run, owned by a task group.

Jobs wait in queues, one for each limit. Up to `max_concurrency` workers take jobs from queues below their limit;
workers start when there is work and end when there is none. One timer watches all of them, so that an evaluation
costs neither a task nor a timer of its own. A worker that raises ends the run with its error.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import threading
import time
import types
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from judgekit.errors import attribute
from judgekit.execution.limits import Limiter
from judgekit.execution.pool import ProcessPool
from judgekit.execution.stopwatch import STOPWATCH
from judgekit.execution.threads import call_in_thread
from judgekit.run.jobs import BoundGrader, Job, Queue
from judgekit.run.settings import Plan
from judgekit.run.state import RolloutState
from judgekit.types import Failed

logger = logging.getLogger("judgekit")

SLICE_S = 0.005
"""Seconds for which a run's graders may hold the event loop before others get a turn."""
GRACE_S = 0.5
"""Seconds that a cancelled grader may take to clean up before its coroutine is closed."""


class _Worker(Struct, eq=False):
    """The state of one worker."""

    job: Job | None
    task: asyncio.Task[None] | None = None
    running: bool = False
    """Whether it has begun its job. A task cancelled before that would never answer."""
    deadline: float = math.inf
    why: Failed | None = None
    """The grade of a job that the clock has cancelled."""
    forced: bool = False
    """Whether the job ignored its cancellation, so that its coroutine is closed."""


class Workers:
    """Runs the jobs of one run in the task group *tasks*. Belongs to the running event loop.

    *answer*: called with a job, its value (or the exception or Failed that it ended with), and its seconds.
    *wake*: called when there is room for more jobs. *out_of_time*: called when the time given to `end_after` is
    up. An exception in any of them ends the run.
    """

    def __init__(
        self,
        plan: Plan,
        tasks: asyncio.TaskGroup,
        *,
        answer: Callable[[Job, Any, float | None], None],
        wake: Callable[[], None],
        out_of_time: Callable[[], None],
    ) -> None:
        self._tasks = tasks
        self._queues = [Queue(limit) for limit in plan.queue_limits]
        self._pool = plan.pool
        self._answer = answer
        self._wake = wake
        self._out_of_time = out_of_time
        self._max = plan.settings.max_concurrency
        self._retry = plan.settings.retry
        self._budget = plan.budget if self._retry.attempts > 1 else None
        self._limits = plan.limits
        self._loop = asyncio.get_running_loop()
        self.queued = 0
        """Jobs that wait for a worker."""
        self._suspends = False
        """Whether any job has suspended yet. Until then one worker is as fast as many."""
        self._workers: set[_Worker] = set()
        self._delayed: dict[Job, asyncio.Task[None]] = {}
        """Jobs that wait before a retry."""
        self._clock: asyncio.TimerHandle | None = None
        self._clock_at = math.inf
        self._run_ends = math.inf
        self._expired = False
        self._closing = False
        self._run = asyncio.current_task()
        self._cancels = self._run.cancelling() if self._run is not None else 0

    def add(
        self, grader: BoundGrader, states: Sequence[RolloutState], awaitable: Awaitable[Any] | None = None
    ) -> None:
        """Queue a job, for `start` to run. *awaitable*: what a synchronous grader has already returned."""
        self._queue(Job(grader, states, self._queues[grader.queue], awaitable))

    def _queue(self, job: Job) -> None:
        job.queue.jobs.append(job)
        self.queued += 1

    def start(self) -> None:
        """Start workers for the jobs that may run now."""
        while self.queued and not self.closing and len(self._workers) < (self._max if self._suspends else 1):
            job = self._take()
            if job is None:
                return
            worker = _Worker(job)
            self._workers.add(worker)
            worker.task = self._tasks.create_task(self._work(worker, job))

    def end_after(self, seconds: float) -> None:
        """Set the run's own time limit. `watch` starts the clock for it."""
        self._run_ends = self._loop.time() + seconds

    def watch(self) -> None:
        """Start the clock for the run's time limit, before something waits. A run that never waits needs no timer."""
        if self._run_ends < self._clock_at:
            self._set_clock(self._run_ends)

    def expire(self, why: Failed) -> None:
        """Cancel all running jobs, and answer them and all waiting jobs with *why*."""
        self._expired = True
        for worker in self._workers:
            if worker.why is None and worker.job is not None:
                self._cancel(worker, why)
        self._set_clock()
        for job in self._drop_waiting():
            self._answer(job, why, None)

    def fail(self, error: BaseException) -> None:
        """End the run with *error*. For timer callbacks, where an exception would only be logged."""

        async def raise_it() -> None:
            raise error

        self.stop()
        self._tasks.create_task(raise_it())

    def stop(self) -> None:
        """Answer no more jobs: the run is ending early."""
        self._closing = True

    @property
    def closing(self) -> bool:
        """Whether the run is ending early, because its task was cancelled or a worker failed.

        The task group then cancels the workers. Only a cancellation before that can be a grader's own.
        """
        if not self._closing and self._run is not None and self._run.cancelling() > self._cancels:
            self._closing = True
        return self._closing

    def close(self) -> None:
        """Drop all waiting jobs, once the task group has ended the workers."""
        self._drop_waiting()
        for worker in self._workers:  # those cancelled before they began
            discard(worker.job and worker.job.awaitable)
        if self._clock is not None:
            self._clock.cancel()

    def _drop_waiting(self) -> list[Job]:
        jobs = [job for queue in self._queues for job in queue.jobs] + list(self._delayed)
        for queue in self._queues:
            queue.jobs.clear()
        for task in self._delayed.values():
            task.cancel()
        self._delayed.clear()
        self.queued = 0
        for job in jobs:
            discard(job.awaitable)
        return jobs

    def _take(self) -> Job | None:
        """Take the next job, from the queue that uses the smallest share of its limit.

        Otherwise slow judge calls would take every worker and leave the process pool idle.
        """
        best: Queue | None = None
        least = math.inf
        for queue in self._queues:
            if queue.jobs and queue.active < queue.limit:
                used = queue.active / min(queue.limit, self._max)
                if used < least:
                    best, least = queue, used
        if best is None:
            return None
        best.active += 1
        self.queued -= 1
        return best.jobs.popleft()

    async def _work(self, worker: _Worker, job: Job | None) -> None:
        turn_ends = time.perf_counter() + SLICE_S
        try:
            while job is not None:
                # graders that never suspend would starve the event loop
                if time.perf_counter() > turn_ends:
                    worker.running = False
                    self.watch()
                    await asyncio.sleep(0)
                    turn_ends = time.perf_counter() + SLICE_S / len(self._workers)
                worker.running = True
                await self._execute(worker, job)
                job.queue.active -= 1
                worker.job = job = self._take() if self.queued else None
                worker.why, worker.forced, worker.deadline = None, False, math.inf
                if self.queued:
                    self.start()
                self._wake()
        except BaseException:
            # the task group now cancels the other workers, which must not look like a grader's own cancellation
            self._closing = True
            raise
        finally:
            self._workers.discard(worker)

    async def _execute(self, worker: _Worker, job: Job) -> None:
        """Run one job and answer it, whatever its grader does. Only a run that ends early gets no answer."""
        if worker.why is not None:  # the deadline passed before it began
            discard(job.awaitable)
            return self._answer(job, worker.why, None)
        start = time.perf_counter()
        value: Any
        held: list[Limiter] = []
        try:
            if self._limits:
                for limit in self._limits.get(job.grader.name, ()):
                    if not limit.try_acquire():
                        self.watch()
                        self._will_wait()
                        await limit.acquire()
                    held.append(limit)
                start = time.perf_counter()
            self._begin(worker, job, start)
            value = await self._stepped(_begun(job, self._pool), worker)
        except BaseException as error:  # panics of native code are no Exception
            if is_interrupt(error) or (isinstance(error, asyncio.CancelledError) and self.closing):
                raise
            value = error  # the grader's own, or the result of the clock's cancellation
        finally:
            for limit in held:
                limit.release()
            worker.deadline = math.inf
        task = worker.task
        if task is not None and task.cancelling():
            await self._take_in_cancellation(task)
        if worker.why is not None:
            value = worker.why
        if self.closing:
            return
        if not (isinstance(value, BaseException) and self._try_again(job, value)):
            self._answer(job, value, time.perf_counter() - start)

    def _will_wait(self) -> None:
        """Start the other workers: this one is about to suspend."""
        if not self._suspends:
            self._suspends = True
            self.start()

    @types.coroutine
    def _stepped(self, awaitable: Awaitable[Any], worker: _Worker) -> Generator[Any, Any, Any]:
        """Await a grader step by step, so that a grader that ignores its cancellation can be closed.

        The task group would wait for it forever.
        """
        coroutine: Any = awaitable if hasattr(awaitable, "send") else _awaited(awaitable)
        try:
            step = coroutine.send(None)
            # a grader that never suspends needs no clock: nothing could end it earlier
            nearest = min(worker.deadline, self._run_ends)
            if nearest < self._clock_at:
                self._set_clock(nearest)
            self._will_wait()
            while True:
                try:
                    yield step
                except BaseException as error:
                    if worker.forced or isinstance(error, GeneratorExit):
                        raise
                    if self.closing:
                        worker.deadline = self._loop.time() + GRACE_S
                        self._set_clock()
                    step = coroutine.throw(error)
                else:
                    step = coroutine.send(None)
        except StopIteration as end:
            return end.value
        finally:
            with suppress(RuntimeError):  # it ignores even that, and will not run again
                coroutine.close()

    async def _take_in_cancellation(self, task: asyncio.Task[None]) -> None:
        """Absorb a cancellation meant for this job, so that it does not reach the worker's next one."""
        try:
            await asyncio.sleep(0)  # if the job returned all the same, the cancellation is still pending
        except asyncio.CancelledError:
            if self.closing:
                raise
        while task.uncancel():
            pass

    def _begin(self, worker: _Worker, job: Job, now: float) -> None:
        """Start the job's time: it has its place under all limits."""
        if job.started is None:
            job.started = self._loop.time()
            for _, waits in job.grader.timings:
                waits.append(now - job.queued)
            if self._budget is not None:
                self._budget.call()
        if job.grader.mode != "process":  # the pool keeps time itself, once a worker has the rollout
            STOPWATCH.set(job.stopwatch)
            worker.deadline = job.started + job.grader.timeout_s + job.stopwatch.held_s()

    def _try_again(self, job: Job, error: BaseException) -> bool:
        """Retry the job after a wait that occupies no worker. Returns False if this was its last attempt."""
        if (
            job.attempt >= self._retry.attempts
            or self._expired
            or job.started is None
            or attribute(error, "retryable") is not True
            or attribute(error, "exhausted") is True
        ):
            return False
        wait = self._retry.wait_s(job.attempt, error)
        now = self._loop.time()
        if now + wait >= job.deadline(now):
            return False
        if self._budget is None or not self._budget.allow():
            return False
        self.watch()
        job.attempt += 1
        self._delayed[job] = self._tasks.create_task(self._requeue(job, wait))
        return True

    async def _requeue(self, job: Job, wait: float) -> None:
        await asyncio.sleep(wait)
        del self._delayed[job]
        self._queue(job)
        self.start()

    # ---- the clock: one timer, set to the nearest deadline

    def _set_clock(self, when: float | None = None) -> None:
        if when is None:
            when = min((worker.deadline for worker in self._workers), default=math.inf)
            when = min(when, self._run_ends)
        if when == self._clock_at:
            return
        if self._clock is not None:
            self._clock.cancel()
        self._clock_at = when
        self._clock = self._loop.call_at(when, self._tick) if when < math.inf else None

    def _tick(self) -> None:
        now = self._loop.time()
        if now >= self._run_ends:
            self._run_ends = math.inf
            self._out_of_time()
        for worker in self._workers:
            if worker.deadline > now or worker.job is None:
                continue
            if worker.why is None and not self.closing:
                # the time during which its judge was restarting does not count
                if (later := worker.job.deadline(now)) > now:
                    worker.deadline = later
                    continue
                timeout_s = worker.job.grader.timeout_s
                self._cancel(worker, Failed("GraderTimeout", f"no grade within {timeout_s:g} s"))
            elif worker.task is not None:
                grader = worker.job.grader
                if not grader.unstoppable:
                    grader.unstoppable = True
                    logger.error("grader %r ignores its cancellation: its coroutines are closed", grader.name)
                worker.forced, worker.deadline = True, now + GRACE_S
                worker.task.cancel()
        self._clock, self._clock_at = None, math.inf
        self._set_clock()

    def _cancel(self, worker: _Worker, why: Failed) -> None:
        worker.why = why
        if worker.running and worker.task is not None:
            worker.deadline = self._loop.time() + GRACE_S
            worker.task.cancel()


def _begun(job: Job, pool: ProcessPool) -> Awaitable[Any]:
    """Call a job's grader."""
    grader = job.grader
    if job.awaitable is not None:
        awaitable, job.awaitable = job.awaitable, None
        return awaitable
    rollout = job.states[0].rollout
    if grader.mode == "async":
        return grader.call(rollout)  # type: ignore[no-any-return]
    if grader.mode == "process":
        return pool.grade(grader.pickled, rollout, timeout_s=grader.timeout_s)
    return _called(grader, [state.rollout for state in job.states] if grader.mode == "group" else rollout)


async def _called(grader: BoundGrader, argument: Any) -> Any:
    """Call a grader in its thread, or here, and await what it returns if that is awaitable."""
    value = await call_in_thread(grader.call, argument) if grader.mode == "thread" else grader.call(argument)
    return await value if hasattr(value, "__await__") else value


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


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
