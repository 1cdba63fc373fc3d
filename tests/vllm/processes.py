"""Signals to the processes of a real engine."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from judgekit.execution.watchdog import descendants

ONLOOKERS = b"resource_tracker", b"signal.SIG_IGN"
"""What the command lines of multiprocessing's tracker and of our watchdog hold."""


def engine_below(pid: int) -> set[int]:
    """Return the engine's processes below *pid*: those that are no onlookers, however they call themselves."""
    found = set()
    for below in descendants(pid):
        with contextlib.suppress(OSError):
            command = Path(f"/proc/{below}/cmdline").read_bytes()
            if not any(mark in command for mark in ONLOOKERS):
                found.add(below)
    assert found, f"no engine runs below process {pid}"
    return found


def send(pids: set[int], signum: signal.Signals) -> None:
    """Send *signum* to those of *pids* that still are."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


@contextlib.contextmanager
def stopped(pids: set[int]) -> Iterator[None]:
    """Within this block these processes do nothing."""
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)
