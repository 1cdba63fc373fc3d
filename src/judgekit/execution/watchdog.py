"""A small process that ends engine processes when their owner dies, even by kill -9.

vLLM's engine processes outlive an owner that is killed, and on a GPU keep its memory. The watchdog reads
process ids from its standard input; when the input ends, because the owner closed it or has died, it ends
the registered processes, and removes the shared memory that only they had mapped.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Collection
from multiprocessing import resource_tracker

_PROGRAM = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
def start_of(pid):
    try:
        with open(f"/proc/{pid}/stat", "rb") as f:
            state, *rest = f.read().rpartition(b")")[2].split()
        return None if state in (b"Z", b"X") else rest[18]
    except (OSError, IndexError):
        return None
def segments(pid):
    try:
        with open(f"/proc/{pid}/maps", "rb") as f:
            return {p for line in f if b"/dev/shm/psm_" in line for p in line.split()[5:6]}
    except OSError:
        return set()
def tracks(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return b"resource_tracker" in f.read()
    except OSError:
        return False
def end(pids, sig, seconds):
    for pid in pids:
        try:
            os.kill(pid, sig)
        except OSError:
            pass
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and left(pids):
        time.sleep(0.05)
watched = {}
def left(pids):
    return [p for p in pids if watched[p] is not None and start_of(p) == watched[p]]
mapped = set()
def look():
    # again and again: those of a process that crashes can no longer be seen at the end
    mapped.update(*map(segments, left(watched)))
for line in sys.stdin:
    watched |= {int(pid): start_of(int(pid)) for pid in line.split()}
    look()
look()
running = left(watched)
trackers = [p for p in running if tracks(p)]
end([p for p in running if p not in trackers], signal.SIGTERM, 4)
end([p for p in left(running) if p not in trackers], signal.SIGKILL, 2)
# the tracker of a process's shared memory removes it once the process has ended
end(left(trackers), signal.SIGTERM, 2)
end(left(trackers), signal.SIGKILL, 1)
mapped = {p for p in mapped if os.path.exists(p)}
if mapped:  # what no process maps any more; another's is left alone
    others = set().union(*(segments(int(p)) for p in os.listdir("/proc") if p.isdigit()))
    for path in mapped - others:
        try:
            os.unlink(path)
        except OSError:
            pass
"""


class Watchdog:
    """Ends the processes given to `watch` when this process dies."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-S", "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # signals to our process group must not reach it
        )
        self.watched: set[int] = set()

    def watch(self, pids: set[int]) -> None:
        """Also end *pids*; and look at the shared memory that all watched processes have by now."""
        new, self.watched = pids - self.watched, self.watched | pids
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"{' '.join(map(str, new))}\n")
                self._process.stdin.flush()

    def close(self) -> None:
        """End the watched processes that still run, and the watchdog."""
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)


def shared_memory(pid: int) -> set[str]:
    """Return the names of the segments of Python's shared memory that a process has mapped (on Linux; elsewhere none)."""
    try:
        with open(f"/proc/{pid}/maps") as file:
            paths = {line.split()[5] for line in file if "/dev/shm/psm_" in line}
    except OSError:
        return set()
    return {path.removeprefix("/dev/shm") for path in paths}


def forget_shared_memory(names: set[str]) -> None:
    """Remove segments of processes that were killed before they could, and tell the tracker, which would warn at the exit."""
    others = [int(pid) for pid in os.listdir("/proc") if pid.isdigit()] if names else []
    for name in names.difference(*map(shared_memory, others)):
        try:
            os.unlink(f"/dev/shm{name}")
        except OSError:
            continue
        resource_tracker.unregister(name, "shared_memory")


class Pulse:
    """Tells processes that stand still from those that work: by the CPU time that they and all their descendants take.

    A process that is stopped or deadlocked takes none, and one that waits for others hardly any; a long step of an engine takes all
    of it, on a GPU, too, whose host polls for its end. On Linux only: elsewhere nothing stands still.
    """

    def __init__(self, pids: Collection[int]) -> None:
        self._pids = set(pids)
        self._seen = self._look()
        self._at = time.monotonic()

    def stood_still(self) -> bool:
        """Whether all of them have stood still since this was made."""
        before, now, most = self._seen, self._look(), _STILL_SHARE * (time.monotonic() - self._at)
        return bool(now) and all(
            pid in before and not (working or before[pid][1]) and seconds - before[pid][0] <= most
            for pid, (seconds, working) in now.items()
        )

    def _look(self) -> dict[int, tuple[float, bool]]:
        """CPU seconds of each process, and whether it runs, or waits for a core or a disk."""
        found = {}
        for pid in self._pids | descendants(*self._pids):
            with (
                contextlib.suppress(OSError, IndexError, ValueError),
                open(f"/proc/{pid}/stat", "rb") as file,
            ):
                state, *fields = file.read().rpartition(b")")[2].split()
                ticks = int(fields[10]) + int(fields[11])
                found[pid] = (ticks / os.sysconf("SC_CLK_TCK"), state in (b"R", b"D"))
        return found


_STILL_SHARE = 0.02
"""Share of a core up to which a process does nothing: vLLM's workers look for work every now and then."""


def start_time(pid: int) -> int | None:
    """When a running process was started, in the kernel's clock ticks; None where there is none (or no /proc).

    With its id this names a process for good: ids are given to others, start times with them are not.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            state, *fields = file.read().rpartition(b")")[2].split()
        return int(fields[18]) if state not in (b"Z", b"X") else None  # a zombie has ended
    except (OSError, IndexError, ValueError):
        return None


def descendants(*pids: int) -> set[int]:
    """Return the ids of all descendants of these processes (on Linux; elsewhere none)."""
    children: dict[int, list[int]] = {}
    # by each process's parent: lists of a thread's children miss those of a thread that ends meanwhile
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with contextlib.suppress(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
            children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found: set[int] = set()
    new = list(pids)
    while new:
        of = [child for parent in new for child in children.get(parent, ())]
        found.update(of)
        new = of
    return found
