"""The Ray actor that runs a frozen engine.

Requests and answers are sent in batches: `submit` takes requests and returns immediately, `collect` waits for
finished answers. So a slow verdict delays no other, and batches grow with the engine's load.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import secrets
import time
from collections.abc import Mapping
from typing import Any

from judgekit.errors import JudgeLoading, JudgeUnavailable
from judgekit.execution.heap import freeze_heap
from judgekit.judges.base import JudgeRequest
from judgekit.judges.engines.ray.packing import Answer, answer, pack_answers, unpack_requests
from judgekit.version import __version__

_FORGET_S = 600.0
"""Seconds without a call for answers after which a caller is forgotten."""


class JudgeActor:
    """One replica of a judge.

    *config*: `factory`, the engine's class as `module:name`, and its arguments, `options`. The engine takes part
    in no weight synchronisation: no worker extension, and no method that could change its weights.
    """

    def __init__(self, config: Mapping[str, Any], digest: str) -> None:
        self._config = dict(config)
        self._digest = digest
        self._life = secrets.token_hex(8)
        """Distinguishes this process from the one before a restart, whose requests are lost."""
        module, _, name = config["factory"].partition(":")
        self._engine: Any = getattr(importlib.import_module(module), name)(**config["options"])
        self._lives_here = False
        self._frozen = False
        self._boxes: dict[str, _Mailbox] = {}
        self._draining = False
        self._served = 0

    async def start(self) -> str:
        """Load the model; returns the identity of its weights."""
        self._live_here()
        if start := getattr(self._engine, "start", None):
            await start()
        if not self._frozen:
            self._frozen = True
            freeze_heap()
        return await self.identity()

    async def ready(self) -> bool:
        """Whether the engine would answer now; if it does not run, begin to load it."""
        self._live_here()
        ready = getattr(self._engine, "ready", None)
        return not self._draining and (ready is None or bool(await ready()))

    async def identity(self) -> str:
        identity = getattr(self._engine, "identity", None)
        return str(await identity()) if identity is not None else repr(self._engine)

    async def check_request(self, request: JudgeRequest) -> None:
        """Check that the model can answer such requests. Raises ConfigError."""
        if check := getattr(self._engine, "check_request", None):
            await check(request)

    async def describe(self) -> dict[str, Any]:
        """Describe the engine and its load."""
        return {
            "config": self._config,
            "digest": self._digest,
            "life": self._life,
            "pid": os.getpid(),
            "judgekit": __version__,
            "in_flight": sum(len(box.tasks) for box in self._boxes.values()),
            "sequences": getattr(self._engine, "sequences", None),
            "served": self._served,
            "draining": self._draining,
        }

    async def submit(self, caller: str, data: bytes) -> str:
        """Accept a batch of requests, whose answers `collect` returns."""
        box = self._boxes.setdefault(caller, _Mailbox())
        box.seen = time.monotonic()
        self._live_here()
        loop = asyncio.get_running_loop()
        for number, request in unpack_requests(data):
            task = loop.create_task(self._judge(box, number, request))
            box.tasks[number] = task
        self._forget_the_gone()
        return self._life

    async def collect(self, caller: str, life: str, got: int, wait_s: float) -> bytes | None:
        """Return finished answers, waiting up to *wait_s* for the first; None after a restart.

        *got*: how many answers the caller has received so far. Answers are kept until the caller says that it has
        them: what a lost reply carried is sent again.
        """
        if life != self._life:
            return None
        box = self._boxes.setdefault(caller, _Mailbox())
        box.seen = time.monotonic()
        box.acknowledge(got)
        if not box.ready:
            box.news.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(box.news.wait(), wait_s)
        box.seen = time.monotonic()
        return pack_answers(box.first, box.handed_out())

    async def cancel(self, caller: str, numbers: list[int]) -> None:
        """Cancel requests that nobody waits for any more."""
        box = self._boxes.get(caller)
        for number in numbers if box is not None else ():
            if task := box.tasks.pop(number, None):  # type: ignore[union-attr]
                task.cancel()

    async def drain(self) -> None:
        """Accept no more requests, and return when the running ones are done."""
        self._draining = True
        while tasks := [task for box in self._boxes.values() for task in box.tasks.values()]:
            await asyncio.wait(tasks)
            await asyncio.sleep(0)

    async def sleep(self) -> None:
        """Let the engine give its GPU's memory back until `wake_up`."""
        self._live_here()
        await self._engine.sleep()

    async def wake_up(self) -> None:
        self._live_here()
        await self._engine.wake_up()

    async def shutdown(self) -> None:
        """Close the engine; kill the actor afterwards."""
        self._draining = True
        if close := getattr(self._engine, "close", None):
            await close()

    def _live_here(self) -> None:
        """Bind the engine to this actor's loop, on the first call.

        After a restart the first call need not be `start`.
        """
        if not self._lives_here:
            self._lives_here = True
            if hasattr(self._engine, "live_here"):
                self._engine.live_here()

    async def _judge(self, box: _Mailbox, number: int, request: Any) -> None:
        try:
            if self._draining:
                raise JudgeUnavailable("this judge is being stopped")
            # `running` costs nothing; `ready` asks the engine's process
            if not getattr(self._engine, "running", False) and not await self.ready():
                # the caller has other replicas, and a limit for its wait
                raise JudgeLoading("the engine of this replica is being loaded, or sleeps")
            result: Any = await self._engine.complete(request)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # a panic of native code is no Exception, and its caller waits
            result = error
        finally:
            box.tasks.pop(number, None)
        self._served += 1
        box.put(answer(number, result))

    def _forget_the_gone(self) -> None:
        now = time.monotonic()
        for caller, box in list(self._boxes.items()):
            if now - box.seen > _FORGET_S:
                for task in box.tasks.values():
                    task.cancel()
                del self._boxes[caller]


class _Mailbox:
    """One caller's running requests and uncollected answers."""

    def __init__(self) -> None:
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.ready: list[Answer] = []
        """Answers that the caller has not acknowledged."""
        self.first = 0
        """Number of the first of them, counted over all answers."""
        self._handed_out = 0
        """Answers that the caller can have, counted over all."""
        self.news = asyncio.Event()
        self.seen = time.monotonic()

    def put(self, made: Answer) -> None:
        self.ready.append(made)
        self.news.set()

    def handed_out(self) -> list[Answer]:
        """Return all answers that are ready, for the caller."""
        self._handed_out = self.first + len(self.ready)
        return self.ready

    def acknowledge(self, got: int) -> None:
        """Drop the first *got* answers of all; an older number than the last one changes nothing.

        A caller that was forgotten meanwhile counts the answers of its last mailbox, too: what this one has not handed
        out stays.
        """
        got = min(got, self._handed_out)
        if got > self.first:
            del self.ready[: got - self.first]
            self.first = got
