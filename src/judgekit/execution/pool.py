"""Killable worker processes, for graders that burn CPU or that hostile input can hang.

A thread cannot be stopped; a process can be killed. Workers start on demand and stay, take one rollout at a time
over a socket of their own, and have a memory limit. They belong to the background loop, so that the pool can be used
from any thread and event loop.

A worker is trusted only while it is idle: an interrupted request or an unexpected reply ends it.

Whose fault a failure is depends on what this very worker has shown. Until it has answered once with a grader, time
and memory may be what the grader imports at first use; then the rollout is tried again in a new worker, which first
answers a rollout that the grader has managed before.

What a rollout leaves behind never sees another rollout: processes are killed before the next request is sent, also
those in new sessions, and a worker in which threads are left is replaced. Threads and processes that loading a
grader starts stay with its worker. The boundary is the process: code that runs within the worker can read its
memory, and a program of the same user can read the memory of workers and of the host while it runs, where the system
lets it trace them (ptrace, /proc/PID/mem). If it also kills its worker, what it started in sessions of its own
survives, but without a connection to anybody. Grade untrusted programs in the sandbox of `code`.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import anyio

from judgekit.errors import ConfigError, GraderRaised, JudgekitError, RolloutError
from judgekit.execution.background import in_background, run_blocking
from judgekit.execution.pickled import PickledGrader, pickled
from judgekit.execution.pool_crew import KEPT_GRADERS, Crew, Worker, WorkerLost, WorkerRanAway, WorkerTimeout
from judgekit.execution.pool_worker import PROCESSES, THREADS
from judgekit.fork import in_child, leave_to_parent
from judgekit.types import Rollout

logger = logging.getLogger("judgekit")

_UNLOADABLE_S = 30.0
"""Seconds before a grader that could not be loaded is tried again."""
_KEPT_BYTES = 1 << 20
"""Size of the largest rollout that is kept for practice."""
_LEFT = {THREADS: "threads", PROCESSES: "processes that cannot be killed"}


class WorkerDied(RolloutError):
    """Two worker processes crashed over this rollout: native code that it breaks."""


class ProcessPool:
    """`workers` processes that run synchronous graders.

    *memory_mb*: MiB that grading one rollout may use beyond what loading the graders took; a rollout that needs more
    breaks its grader. A worker whose graders have accumulated half of that is replaced. Workers start on first use
    and end with `close` or with the process.
    """

    def __init__(self, workers: int | None = None, *, memory_mb: int = 4096) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"a process pool has at least 1 worker, not {workers}")
        self.workers = workers or max(1, min(8, os.cpu_count() or 1))
        self.memory_mb = memory_mb
        self._crew: Crew | None = None
        self._reset()
        in_child(self._reset)

    def _reset(self) -> None:
        leave_to_parent(self._crew)
        self._crew = None
        self.started = 0
        """Worker processes started so far, replacements included."""
        self._managed: OrderedDict[bytes, bytes] = OrderedDict()
        """For each grader a rollout that it has graded."""
        self._refusals: dict[bytes, tuple[float, type[JudgekitError], tuple[Any, ...]]] = {}
        """Graders that could not be loaded: until when they are refused, and with which error."""
        self._told: set[bytes] = set()
        """Graders of which was said what they leave behind."""

    async def grade(self, grader: Any, rollout: Rollout, *, timeout_s: float) -> Any:
        """Return what `grader.grade(rollout)` returns in a worker. *grader* may be a PickledGrader.

        *timeout_s*: seconds from when a worker has the rollout. Loading the grader does not count, and a worker
        that does not get the CPU may take up to ten times as long, as may the first rollout of a grader. Raises
        GraderRaised, WorkerRanAway, WorkerDied, WorkerTimeout and WorkerLost. Cancelling kills the worker.
        """
        if not isinstance(grader, PickledGrader):
            grader = PickledGrader(getattr(grader, "name", ""), grader)
        return await in_background(self._grade, grader, pickled(rollout), timeout_s)

    async def warm_up(self, graders: Sequence[PickledGrader]) -> None:
        """Start the workers and load *graders* in each. Raises what loading raises."""
        await in_background(self._warm_up, graders)

    def close(self) -> None:
        """End the workers. The pool starts new ones when it is used again."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.loop.is_running():
            run_blocking(crew.close())

    # ---- on the background loop

    async def _grade(self, grader: PickledGrader, rollout: bytes, timeout_s: float) -> Any:
        crew, key = self._current_crew(), grader.key
        crashes = 0
        async with crew.limiter:
            for last in (False, True):
                worker = await self._worker_with(crew, grader, fresh=last)
                try:
                    value = await worker.grade(grader, rollout, timeout_s, () if last else self._managed)
                    self._remember(key, rollout)
                    return value
                except (GraderRaised, WorkerRanAway, WorkerLost) as error:
                    crashes += isinstance(error, WorkerLost) and error.crashed
                    if last or not (
                        isinstance(error, WorkerLost)  # one lost worker may be bad luck, two are not
                        or (_is_resources(error) and not worker.graders[key] and key in self._managed)
                    ):
                        raise _blamed(error, worker.graders[key], crashes) from None
                finally:
                    self._tell(grader, worker.left)
                    await crew.put_back(worker)
            raise AssertionError("not reached")

    def _tell(self, grader: PickledGrader, left: int) -> None:
        if left in _LEFT and grader.key not in self._told:
            self._told.add(grader.key)
            logger.warning(
                "grader %r leaves %s behind, so that its worker is replaced after each such rollout: start what is to "
                "stay in warm_up()",
                grader.name,
                _LEFT[left],
            )

    def _remember(self, key: bytes, rollout: bytes) -> None:
        if key not in self._managed and len(rollout) <= _KEPT_BYTES:
            self._managed[key] = rollout
            if len(self._managed) > KEPT_GRADERS:
                self._managed.popitem(last=False)

    async def _worker_with(self, crew: Crew, grader: PickledGrader, *, fresh: bool = False) -> Worker:
        """Return a worker that holds *grader*: an idle one, or a new one.

        *fresh*: a new one that has answered with the grader, if that can be. While the grader cannot be loaded, wait
        for a worker that holds it.
        """
        unlucky = False
        while True:
            refusal = self._refusal(grader)
            if refusal is not None and not crew.holds(grader):
                raise refusal
            worker = None
            if refusal is not None or not fresh:
                worker = await crew.idle_worker(grader, loaded=refusal is not None)
            if worker is not None and grader.key in worker.graders:
                return worker
            new = worker is None
            if worker is None and refusal is None:
                worker = await self._hired(crew, fresh=fresh)
            if worker is None:
                await crew.change()
                continue
            try:
                await worker.load(grader)
            except BaseException as error:
                await crew.put_back(worker)
                if not isinstance(error, GraderRaised | WorkerTimeout | WorkerLost):
                    raise
                # one that was lost may have been idle for long, or met with bad luck
                if not isinstance(error, WorkerLost) or (new and unlucky):
                    self._refuse(grader, error)
                unlucky = unlucky or new
                continue
            if not fresh or worker.graders[grader.key] or await self._practised(crew, worker, grader):
                return worker

    async def _hired(self, crew: Crew, *, fresh: bool) -> Worker | None:
        """Start a worker. Returns None if the system has no room for one, but another worker will be free."""
        try:
            worker = await crew.hire(self.memory_mb)
        except WorkerLost:
            if fresh or not (crew.size or crew.starting):
                raise
            return None
        self.started += 1
        return worker

    async def _practised(self, crew: Crew, worker: Worker, grader: PickledGrader) -> bool:
        """Have *worker* answer a rollout that the grader has managed before, if there is one. False: it has failed."""
        rollout = self._managed.get(grader.key)
        if rollout is None:
            return True
        try:
            if await worker.practise(grader, rollout):
                return True
        except BaseException:
            await crew.put_back(worker)
            raise
        self._managed.pop(grader.key, None)
        await crew.put_back(worker)
        return False

    def _refusal(self, grader: PickledGrader) -> JudgekitError | None:
        """Return why the grader was not loaded lately, as a new error: one that is raised keeps its frames alive."""
        until, kind, args = self._refusals.get(grader.key, (0.0, JudgekitError, ()))
        return kind(*args) if time.monotonic() < until else None

    def _refuse(self, grader: PickledGrader, error: JudgekitError) -> None:
        now = time.monotonic()
        self._refusals = {key: one for key, one in self._refusals.items() if one[0] > now}
        self._refusals[grader.key] = (now + _UNLOADABLE_S, type(error), error.args)

    async def _warm_up(self, graders: Sequence[PickledGrader]) -> None:
        crew = self._current_crew()

        async def one() -> None:
            async with crew.limiter:
                worker = await self._worker_with(crew, graders[0])
                try:
                    for grader in graders[1:]:
                        if grader.key not in worker.graders:
                            await worker.load(grader)
                finally:
                    await crew.put_back(worker)

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self.workers):
                    tasks.start_soon(one)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _current_crew(self) -> Crew:
        """Return this loop's workers. Those of a closed loop are not ours."""
        if self._crew is None or self._crew.loop is not asyncio.get_running_loop():
            self._crew = Crew(self.workers)
        return self._crew

    def __reduce__(self) -> Any:
        return functools.partial(ProcessPool, self.workers, memory_mb=self.memory_mb), ()


_default = ProcessPool()


def default_pool() -> ProcessPool:
    """Return the process's shared pool."""
    return _default


def _is_resources(error: JudgekitError) -> bool:
    """Whether it is an error that a grader's first imports may cause as well."""
    return isinstance(error, WorkerRanAway) or (
        isinstance(error, GraderRaised) and error.error in ("MemoryError", "RecursionError")
    )


def _blamed(error: JudgekitError, proven: bool, crashes: int) -> JudgekitError:
    """Blame the rollout only if the worker is known to manage with its time and memory otherwise."""
    if isinstance(error, WorkerLost):
        return WorkerDied(f"{error}, twice") if proven and crashes == 2 else error
    if isinstance(error, GraderRaised) and not proven and _is_resources(error):
        return GraderRaised(error.error, error.detail, error.retryable, False)
    return error
