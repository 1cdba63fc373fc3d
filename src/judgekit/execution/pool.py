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
import fcntl
import functools
import io
import itertools
import logging
import os
import pickle
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Container, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from subprocess import DEVNULL
from typing import Any, NamedTuple

import anyio
import cloudpickle

from judgekit.errors import ConfigError, GraderRaised, JudgekitError, RolloutError
from judgekit.execution.background import in_background, run_blocking
from judgekit.execution.pool_worker import HEADER, PROCESSES, THREADS, children
from judgekit.fork import in_child, leave_to_parent
from judgekit.types import Rollout

logger = logging.getLogger("judgekit")

LOADING_S = 300.0
"""Seconds that a worker may take to import and warm up a grader."""
_UNLOADABLE_S = 30.0
"""Seconds before a grader that could not be loaded is tried again."""
_LAST_LOOK_S = 0.05
"""Seconds in which an answer that came with the timeout is read."""
_STARVED = 10
"""Timeouts that a worker may take which computes but does not get the CPU, or is loading."""
_KEPT_GRADERS = 16
"""Graders that one worker holds at most."""
_KEPT_BYTES = 1 << 20
"""Size of the largest rollout that is kept for practice."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS)
"""Signals that a process brings on itself; any other came from outside."""


_LEFT = {THREADS: "threads", PROCESSES: "processes that cannot be killed"}


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
        self.name = name
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
        self._crew: _Crew | None = None
        self._reset()
        in_child(self._reset)

    def _reset(self) -> None:
        leave_to_parent(self._crew)
        self._crew = None
        self.started = 0
        """Worker processes started so far, replacements included."""
        self._managed: OrderedDict[bytes, bytes] = OrderedDict()
        """For each grader a rollout that it has graded."""
        self._refusals: dict[bytes, _Refusal] = {}
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
        return await in_background(self._grade, grader, _pickled(rollout), timeout_s)

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
            if len(self._managed) > _KEPT_GRADERS:
                self._managed.popitem(last=False)

    async def _worker_with(self, crew: _Crew, grader: PickledGrader, *, fresh: bool = False) -> _Worker:
        """Return a worker that holds *grader*: an idle one, or a new one.

        *fresh*: a new one that has answered with the grader, if that can be. While the grader cannot be loaded, wait
        for a worker that holds it.
        """
        unlucky = False
        while True:
            refusal = self._refusals.get(grader.key)
            if refusal is not None and time.monotonic() > refusal.until:
                refusal = None
            if refusal is not None and not crew.holds(grader):
                raise refusal.again()
            worker = (
                None
                if fresh and refusal is None
                else await crew.idle_worker(grader, loaded=refusal is not None)
            )
            new = worker is None
            if worker is None:
                try:
                    if refusal is None:
                        worker = await crew.hire(self.memory_mb)
                        self.started += 1
                except WorkerLost:
                    if fresh or not (crew.size or crew.starting):
                        raise
                if worker is None:
                    await crew.change()
                    continue
            elif grader.key in worker.graders:
                return worker
            try:
                await worker.load(grader)
                rollout = self._managed.get(grader.key) if fresh and not worker.graders[grader.key] else None
                if rollout is None or await worker.practise(grader, rollout):
                    return worker
                del self._managed[grader.key]
                await crew.put_back(worker)
            except BaseException as error:
                await crew.put_back(worker)
                if not isinstance(error, GraderRaised | WorkerTimeout | WorkerLost):
                    raise
                if not isinstance(error, WorkerLost) or (new and unlucky):
                    self._refuse(grader, error)
                unlucky = unlucky or new

    def _refuse(self, grader: PickledGrader, error: JudgekitError) -> None:
        now = time.monotonic()
        self._refusals = {key: one for key, one in self._refusals.items() if one.until > now}
        self._refusals[grader.key] = _Refusal(now + _UNLOADABLE_S, type(error), error.args)

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

    def _current_crew(self) -> _Crew:
        """Return this loop's workers. Those of a closed loop are not ours."""
        if self._crew is None or self._crew.loop is not asyncio.get_running_loop():
            self._crew = _Crew(self.workers)
        return self._crew

    def __reduce__(self) -> Any:
        return functools.partial(ProcessPool, self.workers, memory_mb=self.memory_mb), ()


_default = ProcessPool()


def default_pool() -> ProcessPool:
    """Return the process's shared pool."""
    return _default


class _Refusal(NamedTuple):
    """Why a grader could not be loaded, and until when it is not tried again."""

    until: float
    kind: type[JudgekitError]
    args: tuple[Any, ...]

    def again(self) -> JudgekitError:
        """Return a new error: each that is raised keeps the frames that it passes."""
        return self.kind(*self.args)


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


class _Crew:
    """The workers of a pool on one background loop."""

    def __init__(self, size: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.limiter = anyio.CapacityLimiter(size)
        self._idle: list[_Worker] = []
        self._all: set[_Worker] = set()
        self.starting = 0
        self._changed = asyncio.Event()
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

    @property
    def size(self) -> int:
        return len(self._all)

    def holds(self, grader: PickledGrader) -> bool:
        """Whether a live worker holds *grader*."""
        return any(worker.alive and grader.key in worker.graders for worker in self._all)

    async def change(self) -> None:
        """Wait until a worker has started, is idle, or has ended."""
        await self._changed.wait()

    async def hire(self, memory_mb: int) -> _Worker:
        """Start a worker. Raises WorkerLost if the system has no process, descriptor or thread left for it."""
        self.starting += 1
        try:
            worker = await self._start(memory_mb)
        except (OSError, RuntimeError) as error:
            raise WorkerLost(f"no worker process could be started: {error}") from None
        finally:
            self.starting -= 1
            self._tell()
        self._all.add(worker)
        worker.watch = self.loop.create_task(worker.end_with_its_group())
        return worker

    async def _start(self, memory_mb: int) -> _Worker:
        if self._owner.done():
            raise WorkerLost("the pool was closed")
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        main = "from judgekit.execution.pool_worker import main; main()"
        program = [sys.executable, "-c", main, str(os.getpid()), str(memory_mb)]
        with ExitStack() as stack:
            ends = [stack.enter_context(end) for end in socket.socketpair()]
            # where standard descriptors are closed, these may have got the numbers of some
            ours, theirs = (
                stack.enter_context(socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3)))
                for end in ends
            )
            process = await asyncio.create_subprocess_exec(
                *program,
                str(theirs.fileno()),
                stdin=DEVNULL,
                stdout=DEVNULL,
                env=env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
            streams = await asyncio.open_unix_connection(sock=socket.socket(fileno=ours.detach()))
        return _Worker(process, *streams)

    async def idle_worker(self, grader: PickledGrader, *, loaded: bool) -> _Worker | None:
        """Return the live idle worker that has shown most with *grader*. *loaded*: only one that holds it."""
        self._idle.sort(key=lambda worker: worker.graders.get(grader.key, -1))
        while self._idle and (not loaded or grader.key in self._idle[-1].graders):
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await self._end(worker)
        return None

    async def put_back(self, worker: _Worker) -> None:
        """Keep a worker for the next request, or end it if its last request was not completely answered."""
        if (
            worker.trusted
            and worker.alive
            and not self._owner.done()
            and self.size <= self.limiter.total_tokens
        ):
            self._idle.append(worker)
            self._tell()
        else:
            await self._end(worker)

    async def _end(self, worker: _Worker) -> None:
        with anyio.move_on_after(5.0, shield=True):
            await worker.end()
        self._all.discard(worker)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class _Worker:
    """One child process, the graders that it holds, and what it has shown with them."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        replies: asyncio.StreamReader,
        requests: asyncio.StreamWriter,
    ) -> None:
        self.process = process
        self.trusted = True
        """Whether its last request was completely answered and left nothing behind."""
        self.left = 0
        """What its last request left behind."""
        self.graders: OrderedDict[bytes, bool] = OrderedDict()
        """Graders that it holds, least recently used first: whether each was warmed up or has answered here."""
        self._replies = replies
        self._requests = requests
        self._numbers = itertools.count(1)
        self._head: tuple[int, int, int] | None = None
        self.watch: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process.returncode is None

    async def end(self) -> None:
        self._kill()
        self._requests.close()
        await self.process.wait()

    def _kill(self) -> None:
        """Kill the process and all that its graders have started."""
        pid = self.process.pid
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)  # it starts nothing more, and adopts what its children leave
            found: set[int] = set()
            # the worker last: meanwhile it may have adopted what another has left
            while new := {child for parent in (*found, pid) for child in children(parent)} - found:
                found |= new
                for child in new:
                    with suppress(ProcessLookupError, PermissionError):
                        os.kill(child, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)

    async def end_with_its_group(self) -> None:
        """Wait for the process to end, then kill what its graders have started."""
        await self.process.wait()
        self._kill()

    async def load(self, grader: PickledGrader) -> None:
        """Load the grader in the worker, which is no rollout's time."""
        drop = list(self.graders)[: max(0, len(self.graders) - _KEPT_GRADERS + 1)]
        warmed = await self._in_loading_time(("load", grader.key, grader.payload, drop))
        for key in drop:
            del self.graders[key]
        self.graders[grader.key] = warmed

    async def practise(self, grader: PickledGrader, rollout: bytes) -> bool:
        """Have it answer a rollout that the grader has managed before. Returns whether it has nothing left to load."""
        with suppress(GraderRaised):
            await self._in_loading_time(("grade", grader.key, rollout))
            self.graders[grader.key] = self.trusted
        return self.graders[grader.key]

    async def _in_loading_time(self, request: Any) -> Any:
        with anyio.move_on_after(LOADING_S):
            return await self._answer(self._send(request))
        raise WorkerTimeout(f"the grader was not loaded within {LOADING_S:g} s")

    async def grade(
        self, grader: PickledGrader, rollout: bytes, timeout_s: float, managed: Container[bytes]
    ) -> Any:
        """Return the grade. The first one may compute for longer, unless the grader has *managed* to answer elsewhere."""
        self.graders.move_to_end(grader.key)
        before, _ = self._cpu()
        number = self._send(("grade", grader.key, rollout))
        for _ in range(_STARVED):
            begun = time.monotonic()
            # if this process was stopped, an answer may come with the timeout
            for wait_s in (timeout_s, _LAST_LOOK_S):
                with anyio.move_on_after(wait_s):
                    value = await self._answer(number)
                    self.graders[grader.key] = True
                    return value
            if not self.alive:  # what its grader has started may still hold its socket
                raise await self._lost()
            after, computing = self._cpu()
            proven = self.graders[grader.key]
            ran_away = after - before >= 0.95 * timeout_s  # the system counts in ticks of 10 ms
            if ran_away and (proven or grader.key in managed):
                raise WorkerRanAway(f"still computing after {timeout_s:g} s of CPU time")
            held_up = time.monotonic() - begun > 1.1 * timeout_s + 2 * _LAST_LOOK_S
            if not (computing or held_up):
                break
        loading = "" if proven else "; what a grader imports at first use belongs into its warm_up()"
        raise WorkerTimeout(
            f"no grade within {timeout_s:g} s, of which {max(after - before, 0.0):.2g} s were computing{loading}"
        )

    def _send(self, request: Any) -> int:
        self.trusted = False
        data, number = pickle.dumps(request), next(self._numbers)
        self._requests.write(HEADER.pack(len(data), number, 0) + data)
        return number

    async def _answer(self, number: int) -> Any:
        """Return the reply to request *number*. May be cancelled and called again."""
        try:
            if self._head is None:
                self._head = HEADER.unpack(await self._replies.readexactly(HEADER.size))
            size, answered, why = self._head
            data = await self._replies.readexactly(size)
        except (OSError, RuntimeError, EOFError):
            raise await self._lost() from None
        if answered != number:
            raise WorkerLost(f"the worker process answered request {answered} in place of {number}")
        self._head, self.trusted, self.left = None, not why, why
        kind, *reply = pickle.loads(data)
        if kind == "ok":
            return reply[0]
        raise GraderRaised(*reply)

    async def _lost(self) -> WorkerLost:
        """Say what became of the process."""
        with anyio.move_on_after(1.0):
            code = await self.process.wait()
            return WorkerLost(f"the worker process ended (exit code {code})", code >= 0 or -code in _CRASHES)
        return WorkerLost("the worker process closed its socket")

    def _cpu(self) -> tuple[float, bool]:
        """Return the CPU seconds that the worker has used, and whether it runs or waits for a disk now.

        Without /proc, (0, False).
        """
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] in (b"R", b"D")
        except (OSError, ValueError, IndexError):
            return 0.0, False


def _pickled(rollout: Rollout) -> bytes:
    try:
        data = pickle.dumps(rollout)
        # it may hold objects of a script's own classes
        return _by_value(rollout) if b"_main__" in data else data
    except RecursionError:
        raise RolloutError("the rollout is nested too deeply to be sent to a worker process") from None


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles what a script or notebook defines by value, including functions with an `lru_cache`."""

    def reducer_override(self, obj: Any) -> Any:
        if type(obj) is functools._lru_cache_wrapper and obj.__module__ in ("__main__", "__mp_main__"):
            return _with_cache, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)


def _with_cache(function: Any, parameters: dict[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def _by_value(thing: Any) -> bytes:
    main = sys.modules["__main__"]
    if main.__name__ == "__mp_main__":  # a script's name in the processes that multiprocessing spawns for it
        cloudpickle.register_pickle_by_value(main)
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getvalue()
