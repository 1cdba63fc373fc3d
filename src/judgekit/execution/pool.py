"""Killable worker processes, for graders that burn CPU or that hostile input can hang.

A thread cannot be stopped; a process can be killed. Workers start on demand and stay, take one rollout at a time
over their pipes, and have a memory limit. They belong to the background loop, so that the pool can be used from
any thread and event loop.

A worker is trusted only while it is idle: an interrupted request or an unexpected reply ends it.
"""

from __future__ import annotations

import asyncio
import functools
import io
import itertools
import os
import pickle
import signal
import sys
import time
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from subprocess import PIPE
from typing import Any

import anyio
import cloudpickle
from anyio.abc import Process
from anyio.streams.buffered import BufferedByteReceiveStream

from judgekit.errors import ConfigError, GraderRaised, JudgekitError, RolloutError
from judgekit.execution.background import in_background, run_blocking
from judgekit.execution.pool_worker import HEADER
from judgekit.types import Rollout

LOADING_S = 300.0
"""Seconds that a worker may take to import and warm up a grader."""
_UNLOADABLE_S = 30.0
"""Seconds before a grader that could not be loaded is tried again."""
_STARVED = 10
"""Timeouts that a worker may take which computes but does not get the CPU."""
_KEPT_GRADERS = 16
"""Graders that one worker holds at most."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS)
"""Signals that a process brings on itself; any other came from outside."""


class WorkerDied(RolloutError):
    """Two worker processes crashed over this rollout: native code that it breaks."""


class WorkerLost(JudgekitError):
    """The worker process ended, was killed from outside, or sent a wrong reply. Not the rollout's fault."""

    def __init__(self, message: str, crashed: bool = False) -> None:
        super().__init__(message, crashed)
        self.crashed = crashed


class WorkerTimeout(JudgekitError):
    """The grader timed out while idle, starved or still loading. Not the rollout's fault."""


class WorkerRanAway(RolloutError):
    """The rollout used up its timeout in CPU time; the worker was killed."""


class PickledGrader:
    """A grader, pickled for the workers: by name from a module, by value from a script or a notebook.

    Raises ConfigError if it cannot be pickled.
    """

    def __init__(self, name: str, grader: Any) -> None:
        try:
            self.payload = _by_value(grader)
        except Exception as error:
            raise ConfigError(
                f"grader {name!r} runs in a worker process and cannot be sent to one: {error}. Make what cannot be "
                "pickled (a client, a lock, a model) in the worker: in the function, or in the grader's warm_up()"
            ) from None
        self.key = blake2b(self.payload, digest_size=16).digest()


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
        self.started = 0
        """Worker processes started so far, replacements included."""
        self._proven: set[bytes] = set()
        """Graders that were warmed up, or have graded a rollout: if one breaks now, it is the rollout's fault."""
        self._unloadable: dict[bytes, tuple[float, Exception]] = {}
        self._crew: _Crew | None = None

    async def grade(self, grader: Any, rollout: Rollout, *, timeout_s: float) -> Any:
        """Return what `grader.grade(rollout)` returns in a worker. *grader* may be a PickledGrader.

        *timeout_s*: seconds from when a worker has the rollout. Loading the grader does not count, and a worker
        that does not get the CPU may take up to ten times as long. Raises GraderRaised, WorkerRanAway, WorkerDied,
        WorkerTimeout and WorkerLost. Cancelling kills the worker.
        """
        if not isinstance(grader, PickledGrader):
            grader = PickledGrader(getattr(grader, "name", ""), grader)
        return await in_background(self._grade, grader, _pickled(rollout), timeout_s)

    async def warm_up(self, graders: Sequence[PickledGrader]) -> None:
        """Start the workers and load *graders* in each. Raises what loading raises."""
        await in_background(self._warm_up, graders)

    def close(self) -> None:
        """End the workers. The pool starts new ones when it is used again."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.pid == os.getpid() and crew.loop.is_running():
            run_blocking(crew.close())

    # ---- on the background loop

    async def _grade(self, grader: PickledGrader, rollout: bytes, timeout_s: float) -> Any:
        crew = self._current_crew()
        async with crew.limiter:
            for attempt in (1, 2):
                worker = await self._worker_with(crew, grader, fresh=attempt == 2)
                try:
                    value = await worker.grade(grader, rollout, timeout_s)
                    self._proven.add(grader.key)
                    return value
                except (GraderRaised, WorkerRanAway, WorkerLost) as error:
                    # one lost worker may be bad luck, two are not
                    if not isinstance(error, WorkerLost) or attempt == 2:
                        raise self._blame(error, grader) from None
                finally:
                    await crew.put_back(worker)
            raise AssertionError("not reached")

    def _blame(
        self, error: GraderRaised | WorkerRanAway | WorkerLost, grader: PickledGrader
    ) -> JudgekitError:
        """Blame the rollout only if the grader is known to manage with its time and memory otherwise."""
        proven = grader.key in self._proven
        if isinstance(error, WorkerLost):
            return WorkerDied(f"{error}, twice") if error.crashed and proven else error
        if isinstance(error, WorkerRanAway):
            return error if proven else WorkerTimeout(f"{error}, and the grader may have been loading")
        blamed = error.from_rollout and (proven or error.error not in ("MemoryError", "RecursionError"))
        return GraderRaised(error.error, error.detail, error.retryable, blamed)

    async def _worker_with(self, crew: _Crew, grader: PickledGrader, *, fresh: bool = False) -> _Worker:
        """Return an idle worker, or a new one (always if *fresh*), that holds *grader*."""
        until, failed = self._unloadable.get(grader.key, (0.0, None))
        if failed is not None and time.monotonic() < until:
            raise failed
        while True:
            worker = None if fresh else await crew.idle_worker(grader)
            if worker is None:
                fresh = True
                worker = await crew.hire(self.memory_mb)
                self.started += 1
            try:
                if grader.key not in worker.graders and await worker.load(grader):
                    self._proven.add(grader.key)
                return worker
            except BaseException as error:
                await crew.put_back(worker)
                if isinstance(error, WorkerLost) and not fresh:
                    continue  # it died while it was idle
                if isinstance(error, GraderRaised | WorkerTimeout | WorkerLost):
                    now = time.monotonic()
                    self._unloadable = {k: v for k, v in self._unloadable.items() if v[0] > now}
                    self._unloadable[grader.key] = (now + _UNLOADABLE_S, error)
                raise

    async def _warm_up(self, graders: Sequence[PickledGrader]) -> None:
        crew = self._current_crew()

        async def one() -> None:
            async with crew.limiter:
                worker = await self._worker_with(crew, graders[0])
                try:
                    for grader in graders[1:]:
                        if grader.key not in worker.graders and await worker.load(grader):
                            self._proven.add(grader.key)
                finally:
                    await crew.put_back(worker)

        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(self.workers):
                    tasks.start_soon(one)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    def _current_crew(self) -> _Crew:
        """Return this loop's workers. Those of a parent process, or of a closed loop, are not ours."""
        if self._crew is None or self._crew.loop is not asyncio.get_running_loop():
            self._crew = _Crew(self.workers)
        return self._crew

    def __reduce__(self) -> Any:
        return functools.partial(ProcessPool, self.workers, memory_mb=self.memory_mb), ()


_default = ProcessPool()


def default_pool() -> ProcessPool:
    """Return the process's shared pool."""
    return _default


class _Crew:
    """The workers of a pool on one background loop."""

    def __init__(self, size: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.pid = os.getpid()
        self.limiter = anyio.CapacityLimiter(size)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self._owner = self.loop.create_task(self._own(), name="judgekit-pool")

    async def _own(self) -> None:
        """Own the workers until the loop or the pool is closed, then end them."""
        try:
            await anyio.sleep_forever()
        finally:
            for worker in list(self._all):
                await self._end(worker)

    async def close(self) -> None:
        self._owner.cancel()
        await asyncio.wait([self._owner])

    async def hire(self, memory_mb: int) -> _Worker:
        """Start a worker."""
        if self._owner.done():
            raise WorkerLost("the pool was closed")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        main = "from judgekit.execution.pool_worker import main; main()"
        program = [sys.executable, "-c", main, str(os.getpid()), str(memory_mb)]
        process = await anyio.open_process(
            program, stdin=PIPE, stdout=PIPE, stderr=None, env=env, start_new_session=True
        )
        worker = _Worker(process)
        self._all.add(worker)
        worker.watch = self.loop.create_task(worker.end_with_its_group())
        return worker

    async def idle_worker(self, grader: PickledGrader) -> _Worker | None:
        """Return a live idle worker, if possible one that holds *grader*."""
        self._idle.sort(key=lambda worker: grader.key in worker.graders)
        while self._idle:
            worker = self._idle.pop()
            if worker.process.returncode is None:
                return worker
            await self._end(worker)
        return None

    async def put_back(self, worker: _Worker) -> None:
        """Keep a worker for the next request, or end it if its last request was not completely answered."""
        if worker.trusted and worker.process.returncode is None and not self._owner.done():
            self._idle.append(worker)
        else:
            await self._end(worker)

    async def _end(self, worker: _Worker) -> None:
        with anyio.move_on_after(5.0, shield=True):
            worker.kill()
            await worker.process.aclose()
        self._all.discard(worker)


class _Worker:
    """One child process and the graders that it holds."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.trusted = True
        """Whether its last request was completely answered and left it enough memory."""
        self.graders: OrderedDict[bytes, None] = OrderedDict()
        """Keys of the graders that it holds, least recently used first."""
        self._replies = BufferedByteReceiveStream(process.stdout)  # type: ignore[arg-type]
        self._numbers = itertools.count(1)
        self._head: tuple[int, int, bool] | None = None
        self.watch: asyncio.Task[None] | None = None

    def kill(self) -> None:
        """Kill the process and all that its graders have started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end_with_its_group(self) -> None:
        """Wait for the process to end, then kill what its graders have started: that holds its pipes open."""
        await self.process.wait()
        self.kill()

    async def load(self, grader: PickledGrader) -> bool:
        """Load the grader in the worker, which is no rollout's time. Returns whether it was warmed up."""
        drop = list(self.graders)[: max(0, len(self.graders) - _KEPT_GRADERS + 1)]
        with anyio.move_on_after(LOADING_S):
            warmed: bool = await self._answer(await self._send(("load", grader.key, grader.payload, drop)))
            for key in drop:
                del self.graders[key]
            self.graders[grader.key] = None
            return warmed
        raise WorkerTimeout(f"the grader was not loaded within {LOADING_S:g} s")

    async def grade(self, grader: PickledGrader, rollout: bytes, timeout_s: float) -> Any:
        self.graders.move_to_end(grader.key)
        before, _ = self._cpu()
        number: int | None = None
        for _ in range(_STARVED):
            with anyio.move_on_after(timeout_s):
                if number is None:
                    number = await self._send(("grade", grader.key, rollout))
                return await self._answer(number)
            if self.process.returncode is not None:  # what its grader has started may still hold its pipes
                raise await self._lost()
            after, computing = self._cpu()
            if after - before >= 0.95 * timeout_s:  # the system counts in ticks of 10 ms
                raise WorkerRanAway(f"still computing after {timeout_s:g} s of CPU time")
            if not computing or number is None:
                break
        raise WorkerTimeout(
            f"no grade within {timeout_s:g} s, of which {max(after - before, 0.0):.2g} s were computing"
        )

    async def _send(self, request: Any) -> int:
        self.trusted = False
        data, number = pickle.dumps(request), next(self._numbers)
        try:
            await self.process.stdin.send(HEADER.pack(len(data), number, False) + data)  # type: ignore[union-attr]
        except (OSError, RuntimeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise await self._lost() from None
        return number

    async def _answer(self, number: int) -> Any:
        """Return the reply to request *number*. May be cancelled and called again."""
        try:
            if self._head is None:
                self._head = HEADER.unpack(await self._replies.receive_exactly(HEADER.size))
            size, answered, full = self._head
            data = await self._replies.receive_exactly(size)
        except (OSError, RuntimeError, anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError):
            raise await self._lost() from None
        if answered != number:
            raise WorkerLost(f"the worker process answered request {answered} in place of {number}")
        self._head, self.trusted = None, not full
        kind, *reply = pickle.loads(data)
        if kind == "ok":
            return reply[0]
        raise GraderRaised(*reply)

    async def _lost(self) -> WorkerLost:
        """Say what became of the process."""
        with anyio.move_on_after(1.0):
            code = await self.process.wait()
            return WorkerLost(f"the worker process ended (exit code {code})", code >= 0 or -code in _CRASHES)
        return WorkerLost("the worker process closed its pipes")

    def _cpu(self) -> tuple[float, bool]:
        """Return the CPU seconds that the worker has used, and whether it is running now; without /proc, (0, False)."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == b"R"
        except (OSError, ValueError, IndexError):
            return 0.0, False


def _pickled(rollout: Rollout) -> bytes:
    try:
        data = pickle.dumps(rollout)
        # it may hold objects of a script's own classes
        return _by_value(rollout) if b"__main__" in data else data
    except RecursionError:
        raise RolloutError("the rollout is nested too deeply to be sent to a worker process") from None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what a script or notebook defines by value, including functions with an `lru_cache`."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is functools._lru_cache_wrapper and obj.__module__ == "__main__":
            return _with_cache, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _with_cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _by_value(thing: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getvalue()
