"""SIGINT, SIGTERM and kill -9 of a host in the middle of a run: does anything outlive it?"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

from fault_host import QUICK

from judgekit import read_ledger

HOST = Path(__file__).with_name("fault_host.py")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PLACES = ("async", "thread", "process", "async+thread+process")
LIMIT_S = 15.0
"""For the host to end after its signal, and for its workers after it."""
CELLS = list(product(("run", "run_sync"), PLACES, SIGNALS, (False, True)))


def signal_cell(way: str, places: str, number: signal.Signals, ledger: bool) -> dict[str, Any]:
    """Start a host, interrupt it in the middle, and look at what is left."""
    counts: dict[str, Any] = {"hangs": 0, "lost": 0, "leaked_processes": 0, "rows": 0, "why": ""}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "ledger.jsonl")
        host = subprocess.Popen(
            [sys.executable, HOST, way, places, folder, path if ledger else "-"],
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            begun = [Path(folder, place) for place in places.split("+")]
            if not _within(20, lambda: all(b.exists() for b in begun)):
                return {**counts, "hangs": 1, "why": "its graders are never called"}
            if ledger:  # what was graded before is written down, whatever comes then
                _within(LIMIT_S, lambda: _rows(path) >= QUICK)
            workers = _descendants(host.pid)
            host.send_signal(number)
            if not _within(LIMIT_S, lambda: host.poll() is not None):
                counts.update(hangs=1, why=f"it still runs {LIMIT_S:g} s after {number.name}")
                workers |= _descendants(host.pid)
                host.kill()
                host.wait()
            if not _within(LIMIT_S, lambda: not any(map(_alive, workers))):
                left = sum(map(_alive, workers))
                counts.update(leaked_processes=left, why=f"{left} workers outlive it")
            if ledger:
                try:
                    rows = _rows(path)
                    counts.update(rows=rows, lost=max(0, QUICK - rows))
                except Exception as error:
                    counts.update(lost=QUICK, why=f"the ledger cannot be read: {error}")
        finally:
            if host.poll() is None:
                host.kill()
                host.wait()
    return counts


def _rows(path: str) -> int:
    """Finished rollouts in the ledger."""
    if not os.path.exists(path):
        return 0
    return sum(entry.status != "unfinished" for entry in read_ledger(path).entries)


def _within(seconds: float, holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return holds()


def _descendants(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # a thread that ends meanwhile
                for child in (task / "children").read_text().split():
                    found |= {int(child), *_descendants(int(child))}
    return found


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False
