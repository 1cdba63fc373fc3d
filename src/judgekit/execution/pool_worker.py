"""The program of a pool worker: reads graders and rollouts from a socket of its own, and answers there.

Every reply carries the number of its request. Nobody else has the socket: what a grader starts inherits /dev/null
as standard input, and the log as output. What a rollout leaves behind ends before its reply is sent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
import time
from contextvars import copy_context
from typing import IO, Any

HEADER = struct.Struct("<QQB")
"""The size of what follows, the number of the request, and, in a reply, why the worker is to be replaced, or 0."""
FULL, THREADS, PROCESSES = 1, 2, 3
"""Reasons: graders hold much memory; a rollout left threads, or processes that cannot be ended."""

_ENDING_S = 0.05
"""Seconds in which threads that a grader has told to end may do so."""
_NICENESS = 10
"""Workers give way to the event loop that feeds them, and to the trainer, where cores are short."""
_GENERATIONS = 100
"""How often the children of ended processes are ended in turn."""


def main() -> None:
    parent, memory_mb, number = map(int, sys.argv[1:])
    os.set_inheritable(number, False)
    os.register_at_fork(after_in_child=lambda: os.dup2(os.open(os.devnull, os.O_RDWR), number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    die_with_parent(parent)
    try:
        os.fstat(2)
    except OSError:  # a daemon has none
        os.set_inheritable(os.open(os.devnull, os.O_WRONLY), True)
    os.dup2(2, 1)
    os.nice(_NICENESS)
    graders: dict[bytes, Any] = {}
    new: set[bytes] = set()
    """Graders without a warm_up that have not answered yet: what they still load is not a rollout's."""
    loaded, residents = 0, Residents()
    with open(number, "rb") as requests, open(number, "wb", closefd=False) as replies:
        while (request := read(requests)) is not None:
            serial, data = request
            rollout: Any = None
            key = b""
            try:
                kind, key, *rest = pickle.loads(data)
                if kind == "load":
                    payload, drop = rest
                    for old in drop:
                        graders.pop(old, None)
                    cap_memory(None)  # imports may be large, and are no rollout's doing
                    graders[key] = load(payload)
                    warm = callable(getattr(graders[key], "warm_up", None))
                    if not warm:
                        new.add(key)
                    reply: tuple[Any, ...] = ("ok", warm)
                else:
                    rollout = pickle.loads(rest[0])
                    reply = ("ok", copy_context().run(graders[key].grade, rollout))
                out = pickle.dumps(reply)
            except BaseException as error:  # SystemExit, too: a grader that exits costs its own grade
                reply = failure(error, grading=rollout is not None, memory_mb=memory_mb)
                out = pickle.dumps(reply)
            answered, grading = reply[0] == "ok", rollout is not None
            why, rollout = 0, None
            if answered and not grading:
                residents = Residents()
            else:
                why = residents.end_others()
            if not grading or (answered and key in new):
                loaded = cap_memory(memory_mb)
            # graders that accumulate memory for days must not make a rollout pay for it
            elif memory() - loaded > memory_mb << 19:
                why = why or FULL
            if answered and grading:
                new.discard(key)
            try:
                replies.write(HEADER.pack(len(out), serial, why) + out)
                replies.flush()
            except OSError:  # the parent is gone
                return


class Residents:
    """The threads and processes that are there once graders are loaded: they stay."""

    def __init__(self) -> None:
        self.threads = set(sys._current_frames())
        self.processes = children(os.getpid()) if has_children() else set()

    def end_others(self) -> int:
        """End the processes that a rollout has left. Returns why the worker must be replaced all the same, or 0."""
        if has_children() and not self._end_processes():
            return PROCESSES
        end = time.monotonic() + _ENDING_S
        while not (running := set(sys._current_frames())) <= self.threads:
            if time.monotonic() > end:
                return THREADS
            time.sleep(0.002)
        self.threads = running  # another thread may get the number of one that has ended
        return 0

    def _end_processes(self) -> bool:
        """Kill all other children and, as this process adopts their orphans, all that descends from them."""
        for _ in range(_GENERATIONS):
            others = children(os.getpid()) - self.processes
            if not others:
                return bool(self.processes) or not has_children()
            try:
                for pid in others:
                    os.kill(pid, signal.SIGKILL)
            except PermissionError:
                return False
            except ProcessLookupError:
                continue
            for pid in others:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)
        return False


def has_children() -> bool:
    """Whether this process has children, ended ones included, whose state is left to whoever waits for them."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def children(pid: int) -> set[int]:
    """Return the ids of a process's children; none where /proc does not tell."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.update(map(int, file.read().split()))
    return found


def load(payload: bytes) -> Any:
    """Unpickle a grader and warm it up."""
    grader = pickle.loads(payload)
    if callable(warm_up := getattr(grader, "warm_up", None)):
        warm_up()
    return grader


def failure(error: BaseException, *, grading: bool, memory_mb: int) -> tuple[Any, ...]:
    """Convert an exception to a reply: the arguments of GraderRaised.

    Running out of memory or stack is the rollout's fault only if the grader manages otherwise, which the pool knows.
    """
    from judgekit.errors import RolloutError, attribute, describe

    name, detail = describe(error)
    if grading and isinstance(error, MemoryError) and not detail:
        detail = f"more than {memory_mb} MiB for one rollout (set by ProcessPool(memory_mb=…))"
    blamed = grading and isinstance(error, RolloutError | MemoryError | RecursionError)
    return "error", name, detail, attribute(error, "retryable") is True, blamed


def read(stream: IO[bytes]) -> tuple[int, bytes] | None:
    """Read a request. Returns None once the parent is gone."""
    with contextlib.suppress(OSError):
        header = stream.read(HEADER.size)
        if len(header) == HEADER.size:
            size, number, _ = HEADER.unpack(header)
            if len(data := stream.read(size)) == size:
                return number, data
    return None


def cap_memory(megabytes: int | None) -> int:
    """Limit the process to *megabytes* more memory than it has now, which is returned. None: no limit.

    Only private writable memory counts, not libraries or address space reserved by threads and CUDA.
    """
    taken = memory()
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = hard if megabytes is None else taken + (megabytes << 20)
        if hard != resource.RLIM_INFINITY:
            limit = min(limit, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    return taken


def memory() -> int:
    """Return the bytes of private writable memory that the process has; 0 without /proc."""
    with contextlib.suppress(OSError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[5]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent ends, and give it the orphans of its own children."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit()
