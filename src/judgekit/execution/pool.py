"""Killable worker processes, for graders that burn CPU or that hostile input can hang.

A thread cannot be stopped and a signal only reaches the main thread; a process can be killed. Workers start
once and stay, take one rollout at a time over a pipe, have a memory cap, and are replaced when they die or
are killed at their timeout. The pool may be used from any thread and event loop.
"""

from __future__ import annotations

import asyncio
import atexit
import io
import os
import pickle
import select
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from queue import SimpleQueue
from typing import IO, Any

from judgekit.errors import ConfigError, GraderRaised, JudgekitError, RolloutError
from judgekit.types import Rollout

_HEADER = struct.Struct("<I")


class WorkerDied(RolloutError):
    """The worker process died over this rollout (out of memory, a crash in native code)."""


class WorkerTimeout(JudgekitError):
    """The worker got nowhere before its timeout without using the CPU: the machine's fault, or a wait."""


class WorkerRanAway(RolloutError):
    """The worker computed until its timeout and was killed: the rollout's fault."""


class _Task:
    __slots__ = ("abandoned", "future", "grader", "rollout", "timeout_s")

    def __init__(self, grader: Any, rollout: Rollout, timeout_s: float) -> None:
        self.grader = grader
        self.rollout = rollout
        self.timeout_s = timeout_s
        self.future: Future[Any] = Future()
        self.abandoned = False

    def payload(self) -> bytes:
        """The rollout, pickled. A large one is kept until the next large one: pickling it for each of its
        graders would hold up every other thread."""
        global _kept
        rollout, data = _kept
        if rollout is not self.rollout:
            data = pickle.dumps(self.rollout)
            if len(data) > 1 << 20:
                _kept = (self.rollout, data)
        return data


_kept: tuple[Rollout | None, bytes] = (None, b"")


class ProcessPool:
    """`workers` processes that run synchronous graders.

    *memory_mb*: address space of one worker, in MiB; a rollout that needs more is its own fault. Workers
    start on first use. `close` ends them; a pool that is not closed ends with the process.
    """

    def __init__(self, workers: int | None = None, *, memory_mb: int = 4096) -> None:
        if workers is not None and workers < 1:
            raise ConfigError(f"a process pool has at least 1 worker, not {workers}")
        self.workers = workers or max(1, min(8, os.cpu_count() or 1))
        self.memory_mb = memory_mb
        self.started = 0
        """Worker processes started so far, replacements included."""
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    async def grade(self, grader: Any, rollout: Rollout, *, timeout_s: float) -> Any:
        """What `grader.grade(rollout)` returns, from a worker.

        *timeout_s* counts from when a worker takes it; then the worker is killed and WorkerRanAway raised
        (WorkerTimeout where it did not use the CPU). Cancelling kills the worker too.
        """
        task = _Task(grader, rollout, timeout_s)
        self._start()
        self._tasks.put(task)
        try:
            return await asyncio.wrap_future(task.future)
        finally:
            task.abandoned = True  # has a meaning only where we were cancelled

    def close(self) -> None:
        """End the workers. The pool starts new ones when it is used again."""
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._tasks.put(None)
        for thread in threads:
            thread.join(5.0)

    def _start(self) -> None:
        with self._lock:
            if self._pid != os.getpid():  # we are a forked child: threads and pipes are our parent's
                self._pid = os.getpid()
                self._threads, self._tasks = [], SimpleQueue()
            while len(self._threads) < self.workers:
                thread = threading.Thread(
                    target=self._serve, name=f"judgekit-pool-{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()

    def _serve(self) -> None:
        """One thread per worker: hands it tasks, waits, kills and replaces it."""
        worker: _Worker | None = None
        try:
            while (task := self._tasks.get()) is not None:
                if task.abandoned or not task.future.set_running_or_notify_cancel():
                    continue
                try:
                    if worker is None:
                        worker = _Worker(self.memory_mb)
                        self.started += 1
                    result = worker.grade(task)
                except BaseException as error:
                    if worker is not None and worker.broken:
                        worker.kill()
                        worker = None
                    if not task.future.cancelled():
                        task.future.set_exception(error)
                else:
                    task.future.set_result(result)
        finally:
            if worker is not None:
                worker.kill()

    def __reduce__(self) -> Any:
        return _pool, (self.workers, self.memory_mb)


def _pool(workers: int, memory_mb: int) -> ProcessPool:
    return ProcessPool(workers, memory_mb=memory_mb)


_default: ProcessPool | None = None
_default_lock = threading.Lock()


def default_pool() -> ProcessPool:
    """The process's shared pool."""
    global _default
    with _default_lock:
        if _default is None:
            _default = ProcessPool()
            atexit.register(_default.close)
        return _default


class _Worker:
    """One child process and what it has been given."""

    def __init__(self, memory_mb: int) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "judgekit.execution.pool_worker", str(memory_mb)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=env,
        )
        self.broken = False
        self._graders: dict[int, Any] = {}
        """Graders that the worker holds, by id; the reference keeps the id from being reused."""
        self._main_sent = False

    def grade(self, task: _Task) -> Any:
        key = id(task.grader)
        if key not in self._graders:
            payload = _pickled(task.grader)
            if b"__main__" in payload and not self._main_sent:
                self._send(("main", _main_path()))
                self._main_sent = True
            self._send(("grader", key, payload))
            self._graders[key] = task.grader
            # the import that this may need is start-up, not the rollout's time
            self._receive(time.monotonic() + 60.0, task)
        payload = task.payload()
        before, _ = self._cpu()
        self._send(("grade", key))
        self._send_bytes(payload)
        try:
            return self._receive(time.monotonic() + task.timeout_s, task)
        except TimeoutError:
            after, computing = self._cpu()
            self.broken = True
            used = after - before
            # on a busy machine a runaway may have had little of the CPU: that it wants more tells it apart
            if computing or used >= 0.5 * task.timeout_s:
                raise WorkerRanAway(f"still computing after {task.timeout_s:g} s") from None
            raise WorkerTimeout(
                f"no grade within {task.timeout_s:g} s, of which {used:.2g} s were computing"
            ) from None

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _send(self, message: Any) -> None:
        self._send_bytes(pickle.dumps(message))

    def _send_bytes(self, data: bytes) -> None:
        stdin: IO[bytes] = self.process.stdin  # type: ignore[assignment]
        try:
            stdin.write(_HEADER.pack(len(data)))
            stdin.write(data)  # not joined: copying megabytes would hold up the event loop
            stdin.flush()
        except OSError:
            self._died()

    def _receive(self, deadline: float, task: _Task) -> Any:
        size = _HEADER.unpack(self._read(_HEADER.size, deadline, task))[0]
        kind, *rest = pickle.loads(self._read(size, deadline, task))
        if kind == "ok":
            return rest[0]
        raise GraderRaised(*rest)

    def _read(self, size: int, deadline: float, task: _Task) -> bytes:
        fd = self.process.stdout.fileno()  # type: ignore[union-attr]
        data = b""
        while len(data) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            if task.abandoned:
                self.broken = True
                raise asyncio.CancelledError
            if select.select([fd], [], [], min(left, 0.05))[0]:
                chunk = os.read(fd, size - len(data))
                if not chunk:
                    self._died()
                data += chunk
        return data

    def _died(self) -> None:
        self.broken = True
        code = self.process.wait()
        raise WorkerDied(f"the worker process died (exit code {code})")

    def _cpu(self) -> tuple[float, bool]:
        """CPU seconds that the worker has used, and whether it is computing now; where the system does not
        tell, the wall clock."""
        try:
            with open(f"/proc/{self.process.pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), fields[0] == b"R"
        except (OSError, ValueError, IndexError):
            return time.monotonic(), False


def check_picklable(name: str, grader: Any) -> None:
    """Raise ConfigError where *grader* cannot be sent to a worker."""
    try:
        payload = _pickled(grader)
    except Exception as error:
        raise ConfigError(
            f"grader {name!r} runs in a worker process, so it must be picklable: {error}; define it at the top level of a module"
        ) from None
    if b"__main__" in payload and _main_path() is None:
        raise ConfigError(
            f"grader {name!r} runs in a worker process, so it cannot be defined in an interactive session: move it into a module"
        )


def is_picklable(grader: Any) -> bool:
    """Whether *grader* can be sent to a worker."""
    try:
        check_picklable("", grader)
    except ConfigError:
        return False
    return True


def _pickled(grader: Any) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer).dump(grader)
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    """Sends graders of the main script by their name: workers load that script."""

    def reducer_override(self, obj: Any) -> Any:
        if (find := getattr(type(obj), "global_name", None)) and (name := find(obj)):
            return name
        return NotImplemented


def _main_path() -> str | None:
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(path) if path and os.path.isfile(path) else None
