"""Help for tests that start servers: the stand-in for vLLM's, or one of a few lines."""

from __future__ import annotations

import json
import random
import socket
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from aiohttp import web

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
STAND_IN = Path(__file__).parent / "stand_in"


def free_port() -> int:
    """Return the first of three free ports, where no system takes one for a connection that somebody opens meanwhile."""
    while True:
        first = random.SystemRandom().randrange(10_000, 30_000)
        with ExitStack() as probes, suppress(OSError):
            for port in range(first, first + 3):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first


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


@asynccontextmanager
async def serving(answer: Handler) -> AsyncIterator[str]:
    """A server on 127.0.0.1 that gives every request to *answer*; yields its address, without a path."""
    app = web.Application(client_max_size=64 << 20)
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()
