"""The workers of a pool: child processes on the background loop, each with a socket of its own."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import pickle
import signal
import socket
import sys
import time
from collections import OrderedDict
from collections.abc import Container
from contextlib import ExitStack, suppress
from subprocess import DEVNULL
from typing import Any

import anyio

from judgekit.errors import GraderRaised, JudgekitError, RolloutError
from judgekit.execution.pickled import PickledGrader
from judgekit.execution.pool_worker import HEADER, children

LOADING_S = 300.0
"""Seconds that a worker may take to import and warm up a grader."""
_LAST_LOOK_S = 0.05
"""Seconds in which an answer that came with the timeout is read."""
_STARVED = 10
"""Timeouts that a worker may take which computes but does not get the CPU, or is loading."""
KEPT_GRADERS = 16
"""Graders that one worker holds at most."""
_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT, signal.SIGSYS)
"""Signals that a process brings on itself; any other came from outside."""


class WorkerLost(JudgekitError):
    """The worker process ended, was killed from outside, or sent a wrong reply. Not the rollout's fault."""

    def __init__(self, message: str, crashed: bool = False) -> None:
        super().__init__(message, crashed)
        self.crashed = crashed


class WorkerTimeout(JudgekitError):
    """The grader timed out while idle, starved or still loading. Not the rollout's fault."""


class WorkerRanAway(RolloutError):
    """The rollout used up its timeout in CPU time; the worker was killed."""


class Crew:
    """The workers of a pool on one background loop."""

    def __init__(self, size: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.limiter = anyio.CapacityLimiter(size)
        self._idle: list[Worker] = []
        self._all: set[Worker] = set()
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

    async def hire(self, memory_mb: int) -> Worker:
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

    async def _start(self, memory_mb: int) -> Worker:
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
        return Worker(process, *streams)

    async def idle_worker(self, grader: PickledGrader, *, loaded: bool) -> Worker | None:
        """Return the live idle worker that has shown most with *grader*. *loaded*: only one that holds it."""
        self._idle.sort(key=lambda worker: worker.graders.get(grader.key, -1))
        while self._idle and (not loaded or grader.key in self._idle[-1].graders):
            worker = self._idle.pop()
            if worker.alive:
                return worker
            await self._end(worker)
        return None

    async def put_back(self, worker: Worker) -> None:
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

    async def _end(self, worker: Worker) -> None:
        with anyio.move_on_after(5.0, shield=True):
            await worker.end()
        self._all.discard(worker)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Worker:
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
        drop = list(self.graders)[: max(0, len(self.graders) - KEPT_GRADERS + 1)]
        warmed = await self._in_loading_time(("load", grader.key, grader.payload, drop))
        for key in drop:
            del self.graders[key]
        self.graders[grader.key] = warmed

    async def practise(self, grader: PickledGrader, rollout: bytes) -> bool:
        """Have it answer a rollout that the grader has managed before. Returns whether it has nothing left to load."""
        with suppress(GraderRaised, WorkerLost, WorkerTimeout):
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
