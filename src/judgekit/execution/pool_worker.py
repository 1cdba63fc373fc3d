"""The program of a pool worker: reads graders and rollouts from its standard input, answers on its output.

Every request has a number, and its reply carries the same. Sizes and numbers are 8 bytes, little-endian.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
from typing import IO, Any

HEADER = struct.Struct("<QQ")
"""Size of what follows, and the number of the request."""


def main() -> None:
    parent, memory_mb = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    die_with_parent(parent)
    cap_memory(memory_mb)
    try:
        os.fstat(2)
    except OSError:  # a daemon's are closed: without this the replies would take the place of standard error
        os.open(os.devnull, os.O_WRONLY)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a grader prints must not stand between replies
    graders: dict[bytes, Any] = {}
    while (request := read(sys.stdin.buffer)) is not None:
        number, data = request
        rollout: Any = None
        try:
            kind, key, *rest = pickle.loads(data)
            if kind == "load":
                payload, drop = rest
                for old in drop:
                    graders.pop(old, None)
                graders[key] = load(payload)
                reply: tuple[Any, ...] = ("ok", callable(getattr(graders[key], "warm_up", None)))
            else:
                rollout = pickle.loads(rest[0])
                reply = ("ok", graders[key].grade(rollout))
            out = pickle.dumps(reply)
        except BaseException as error:  # SystemExit too: a grader that exits costs its own grade
            out = failure(error, grading=rollout is not None)
        try:
            replies.write(HEADER.pack(len(out), number) + out)
            replies.flush()
        except BrokenPipeError:  # the parent is gone
            return


def load(payload: bytes) -> Any:
    """Unpickle a grader and warm it up."""
    grader = pickle.loads(payload)
    if callable(warm_up := getattr(grader, "warm_up", None)):
        warm_up()
    return grader


def failure(error: BaseException, *, grading: bool) -> bytes:
    """An exception as a reply: the arguments of GraderRaised.

    Too little memory or stack is the rollout's fault only if the grader is known to fit otherwise, which the pool knows.
    """
    from judgekit.errors import RolloutError, attribute, describe

    blamed = grading and isinstance(error, RolloutError | MemoryError | RecursionError)
    return pickle.dumps(("error", *describe(error), attribute(error, "retryable") is True, blamed))


def read(stream: IO[bytes]) -> tuple[int, bytes] | None:
    header = stream.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    size, number = HEADER.unpack(header)
    return number, stream.read(size)


def cap_memory(megabytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit = megabytes << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def die_with_parent(parent: int) -> None:
    """Have Linux kill this process when its parent ends, however busy it is then."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:  # it ended before we could ask
        sys.exit()
