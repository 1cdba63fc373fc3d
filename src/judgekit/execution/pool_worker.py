"""The program of a pool worker: reads graders and rollouts from its standard input, answers on its output."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import sys
from typing import IO, Any

_HEADER = struct.Struct("<I")


def main() -> None:
    memory_mb = int(sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    die_with_parent()
    cap_memory(memory_mb)
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a grader prints must not stand between replies
    graders: dict[int, Any] = {}
    requests = sys.stdin.buffer
    while (message := read(requests)) is not None:
        kind, *rest = message
        if kind == "main":
            load_main(rest[0])
            continue
        try:
            if kind == "grader":
                graders[rest[0]] = pickle.loads(rest[1])
                reply: tuple[Any, ...] = ("ok", None)
            else:
                rollout = read(requests)  # before anything can fail, so that the next message is one
                reply = ("ok", graders[rest[0]].grade(rollout))
            data = pickle.dumps(reply)
        except BaseException as error:  # SystemExit too: a grader that exits costs its own grade
            data = failure(error)
        replies.write(_HEADER.pack(len(data)) + data)
        replies.flush()


def failure(error: BaseException) -> bytes:
    from judgekit.errors import ROLLOUT_ERRORS

    return pickle.dumps(("error", type(error).__name__, str(error)[:500], isinstance(error, ROLLOUT_ERRORS)))


def read(stream: IO[bytes]) -> Any:
    header = stream.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    return pickle.loads(stream.read(_HEADER.unpack(header)[0]))


def load_main(path: str | None) -> None:
    """Run the parent's script under another name, so that graders defined in it can be found."""
    import runpy
    import types

    if path is None:
        return
    module = types.ModuleType("__mp_main__")
    module.__dict__.update(runpy.run_path(path, run_name="__mp_main__"))
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module


def cap_memory(megabytes: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        limit = megabytes << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def die_with_parent() -> None:
    """Have Linux kill this process when its parent is gone, however busy it is then."""
    if sys.platform == "linux":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
