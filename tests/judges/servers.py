"""Help for tests that start the stand-in for vLLM's server."""

from __future__ import annotations

import json
import socket
import time
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

STAND_IN = Path(__file__).parent / "stand_in"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def facts(port: int) -> dict[str, Any]:
    """What the stand-in on *port* says of itself."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


def alive(pids: Iterable[int]) -> list[int]:
    """Those of *pids* that run; a zombie does not."""
    running = []
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state not in "ZX":
            running.append(pid)
    return running


def eventually(true: Callable[[], Any], timeout_s: float = 20.0) -> Any:
    """Wait until *true* gives something, and return that; an OSError (nobody listens yet) is nothing."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if found := true():
                return found
        except OSError:
            pass
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
