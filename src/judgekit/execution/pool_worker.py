"""The program of a pool worker: reads graders and rollouts from standard input, and writes replies to its output.

Every reply carries the number of its request.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
from typing import IO, Any

HEADER = struct.Struct("<QQ?")
"""The size of what follows, the number of the request, and, in a reply, whether the worker is to be replaced."""


def main() -> None:
    parent, memory_mb = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    die_with_parent(parent)
    try:
        os.fstat(2)
    except OSError:  # a daemon has none: the replies' descriptor must not take its number
        os.open(os.devnull, os.O_WRONLY)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a grader prints must not end up between replies
    graders: dict[bytes, Any] = {}
    loaded = 0
    while (request := read(sys.stdin.buffer)) is not None:
        number, data = request
        rollout: Any = None
        try:
            kind, key, *rest = pickle.loads(data)
            if kind == "load":
                payload, drop = rest
                for old in drop:
                    graders.pop(old, None)
                cap_memory(None)  # imports may be large, and are no rollout's doing
                graders[key] = load(payload)
                loaded = cap_memory(memory_mb)
                reply: tuple[Any, ...] = ("ok", callable(getattr(graders[key], "warm_up", None)))
            else:
                rollout = pickle.loads(rest[0])
                reply = ("ok", graders[key].grade(rollout))
            out = pickle.dumps(reply)
        except BaseException as error:  # SystemExit, too: a grader that exits costs its own grade
            out = pickle.dumps(failure(error, grading=rollout is not None, memory_mb=memory_mb))
        # graders that accumulate memory for days must not make a rollout pay for it
        full = rollout is not None and memory() - loaded > memory_mb << 19
        try:
            replies.write(HEADER.pack(len(out), number, full) + out)
            replies.flush()
        except BrokenPipeError:  # the parent is gone
            return


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
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    size, number, _ = HEADER.unpack(header)
    return number, stream.read(size)


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
    """Have Linux kill this process when its parent ends, however busy it is."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit()
