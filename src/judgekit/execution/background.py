"""One background event loop per process, for synchronous callers.

`asyncio.run` per call would build and tear down every connection each time, and cannot be called where a
loop already runs (notebooks, Ray actors). Everything synchronous in judgekit runs on this one loop instead.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from judgekit.errors import ConfigError

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_pid = 0


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's background loop, started on first use and anew in a forked child."""
    global _loop, _thread, _pid
    with _lock:
        if _loop is None or _pid != os.getpid() or _loop.is_closed():
            loop = asyncio.new_event_loop()
            thread = threading.Thread(target=_serve, args=(loop,), name="judgekit-loop", daemon=True)
            thread.start()
            _loop, _thread, _pid = loop, thread, os.getpid()
        return _loop


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run *coroutine* on the background loop and wait for it.

    Works from any thread, inside and outside a running loop (whose thread is blocked meanwhile). An
    interrupt (KeyboardInterrupt) cancels the coroutine, gives it a second to clean up, and is raised.
    Raises ConfigError when called on the background loop itself, which would wait for ever.
    """
    if threading.current_thread() is _thread:
        coroutine.close()
        raise ConfigError(
            "this synchronous call was made from judgekit's own loop (inside a grader?): await the async form"
        )
    future = asyncio.run_coroutine_threadsafe(coroutine, background_loop())
    try:
        return future.result()
    except BaseException:
        if not future.done():
            future.cancel()
            finished = threading.Event()
            future.add_done_callback(lambda _: finished.set())
            finished.wait(1.0)
        raise


def close_background_loop() -> None:
    """Stop the background loop and its thread; the next use starts another. For tests and clean exits."""
    global _loop, _thread
    with _lock:
        loop, thread = _loop, _thread
        _loop = _thread = None
    if loop is not None and thread is not None and _pid == os.getpid():
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5.0)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


__all__ = ["background_loop", "close_background_loop", "run_blocking"]
