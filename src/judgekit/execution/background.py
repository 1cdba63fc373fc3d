"""One background event loop per process, for synchronous callers and for what outlives a run.

Calling `asyncio.run` each time would reopen every connection, and is not possible while a loop is running
(notebooks, Ray actors). Synchronous calls, worker processes and grader threads all use this loop, in a daemon
thread.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

import anyio._backends._asyncio  # noqa: F401  # a child forked while a thread imports it would wait forever

from judgekit.errors import ConfigError
from judgekit.execution.crossing import Crossing
from judgekit.fork import in_child, leave_to_parent

T = TypeVar("T")

_CLEAN_UP_S = 5.0
"""Seconds that an interrupted call or a closing loop may take to clean up."""


class _Background:
    """A running loop and its thread."""

    def __init__(self) -> None:
        self._ready: Future[asyncio.AbstractEventLoop] = Future()
        self._stop = asyncio.Event()
        # a daemon, as are the threads that it starts: a grader that blocks forever must not keep the process alive
        self.thread = threading.Thread(target=self._run, name="judgekit-loop", daemon=True)
        self.thread.start()
        self.loop = self._ready.result()
        self.crossing = Crossing(self.loop)

    def _run(self) -> None:
        runner = asyncio.Runner()
        try:
            runner.get_loop()
        except OSError as error:  # no descriptor is left for one
            self._ready.set_exception(error)
            return
        with runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._ready.set_result(asyncio.get_running_loop())
        await self._stop.wait()

    def close(self) -> None:
        """Cancel what runs on the loop and stop it."""
        self.loop.call_soon_threadsafe(self._stop.set)
        self.thread.join(_CLEAN_UP_S)


_lock = threading.Lock()
_running: _Background | None = None


def _background() -> _Background:
    global _running
    running = _running
    if running is not None and running.loop.is_running():
        return running
    with _lock:
        if _running is None or not _running.thread.is_alive():
            _running = _Background()
        return _running


@in_child
def _forget() -> None:
    global _lock, _running
    leave_to_parent(_running)
    _lock, _running = threading.Lock(), None


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the process's background loop, started on first use and in every forked child."""
    return _background().loop


@atexit.register
def close_background_loop() -> None:
    """Stop the background loop, cancelling what runs on it. The next use starts another."""
    global _running
    with _lock:
        ended, _running = _running, None
    if ended is not None and ended.thread.is_alive():
        ended.close()


_LOOK_S = 0.5
"""Seconds after which the waiting thread wakes up to handle signals that reached another thread."""


def run_blocking(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run *coroutine* on the background loop and wait for it.

    Works from any thread, inside and outside a running loop (whose thread is blocked until then). A
    KeyboardInterrupt cancels the coroutine, waits up to 5 s for its clean-up, and is raised. Raises ConfigError
    when called on the background loop itself, which would wait forever.
    """
    try:
        running = _background()
    except BaseException:
        coroutine.close()
        raise
    if threading.current_thread() is running.thread:
        coroutine.close()
        raise ConfigError(
            "this synchronous call was made from judgekit's own loop (inside a grader?): await the async form"
        )
    ended = threading.Event()

    async def tracked() -> tuple[Any, BaseException | None]:
        try:
            return await _outcome(lambda: coroutine)
        finally:
            ended.set()

    future = asyncio.run_coroutine_threadsafe(tracked(), running.loop)
    try:
        while True:
            with contextlib.suppress(TimeoutError):  # the coroutine's own errors are values
                value, error = future.result(_LOOK_S)
                break
    except BaseException:
        # a cancelled future is done at once: only the event tells when the clean-up has ended
        future.cancel()
        ended.wait(_CLEAN_UP_S)
        raise
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


async def in_background(function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
    """Await `function(*args)` on the background loop, from any loop. Cancelling it cancels the call there."""
    crossing = _background().crossing
    if crossing.home is asyncio.get_running_loop():
        return await function(*args)

    value, error = await crossing.run(_outcome(function, *args))
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


async def _outcome(
    function: Callable[..., Coroutine[Any, Any, Any]], *args: Any
) -> tuple[Any, BaseException | None]:
    """Return what `function(*args)` returned and what it raised: a SystemExit would end the loop for everybody."""
    try:
        return await function(*args), None
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        return None, error
