"""Batches requests, for engines where every round trip costs."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from judgekit.errors import ConfigError
from judgekit.execution.flight import own_copy
from judgekit.judges.base import JudgeReply, JudgeRequest


class ManyJudge(Protocol):
    """An engine that accepts several requests at once."""

    async def complete_many(self, requests: Sequence[JudgeRequest], /) -> Sequence[JudgeReply | Exception]:
        """Return one reply or error per request, in order."""
        ...


class Coalescing:
    """Gathers requests into batches for an engine with `complete_many`.

    A request is sent on the next iteration of the event loop if fewer than *max_out* batches are in flight, or with *max_batch*
    others. Otherwise it waits and is sent with others, up to *max_batch* in one batch. *key*: only requests with equal
    keys share a batch. A batch is cancelled when nobody waits for it any more.
    """

    def __init__(
        self,
        inner: ManyJudge,
        *,
        max_batch: int = 32,
        max_out: int = 16,
        key: Callable[[JudgeRequest], Any] = lambda request: None,
    ) -> None:
        if max_batch < 1 or max_out < 1:
            raise ConfigError("coalescing: max_batch and max_out are at least 1")
        self.inner = inner
        self.max_batch = max_batch
        self.max_out = max_out
        self.batches = 0
        """Batches sent so far."""
        self._key = key
        self._queue: _Queue | None = None

    async def complete(self, request: JudgeRequest, /) -> JudgeReply:
        loop = asyncio.get_running_loop()
        queue = self._queue
        if queue is None or queue.loop is not loop:
            queue = self._queue = _Queue(self, loop)
        future: asyncio.Future[JudgeReply] = loop.create_future()
        queue.put(request, future)
        return await future


_Waiting = tuple[JudgeRequest, asyncio.Future[JudgeReply]]


class _Queue:
    """The requests that wait."""

    def __init__(self, owner: Coalescing, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._owner = owner
        self._waiting: dict[Any, deque[_Waiting]] = {}
        """By key; the key that has waited longest comes first."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._scheduled = False

    def put(self, request: JudgeRequest, future: asyncio.Future[JudgeReply]) -> None:
        self._waiting.setdefault(self._owner._key(request), deque()).append((request, future))
        if not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._send)

    def _send(self) -> None:
        self._scheduled = False
        owner = self._owner
        while keys := self._next_keys():
            batch = self._next_batch(keys[0])
            if batch:
                owner.batches += 1
                task = self.loop.create_task(self._carry(batch))
                self._tasks.add(task)
                task.add_done_callback(self._returned)
                for _, future in batch:
                    future.add_done_callback(partial(_cancel_if_unwanted, batch, task))

    def _next_keys(self) -> list[Any]:
        """Return the key of the next batch to be sent; nothing if all that wait are to wait for others."""
        owner = self._owner
        ready = len(self._tasks) < owner.max_out
        keys = (key for key, waiting in self._waiting.items() if ready or len(waiting) >= owner.max_batch)
        return list(islice(keys, 1))

    def _next_batch(self, key: Any) -> list[_Waiting]:
        waiting = self._waiting.pop(key)
        batch: list[_Waiting] = []
        while waiting and len(batch) < self._owner.max_batch:
            request, future = waiting.popleft()
            if not future.done():  # else it was cancelled while it waited
                batch.append((request, future))
        if waiting:
            self._waiting[key] = waiting  # behind the others
        return batch

    def _returned(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._send)

    async def _carry(self, batch: list[_Waiting]) -> None:
        try:
            replies: Sequence[JudgeReply | BaseException] = await self._owner.inner.complete_many(
                [r for r, _ in batch]
            )
            if len(replies) != len(batch):
                raise RuntimeError(f"{len(replies)} replies for {len(batch)} requests")
        except asyncio.CancelledError:
            for _, future in batch:
                future.cancel()
            raise
        except BaseException as error:  # a panic of native code is no Exception, and all of them wait
            replies = [error] * len(batch)
        for (_, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(own_copy(reply))
            else:
                future.set_result(reply)


def _cancel_if_unwanted(
    batch: Sequence[tuple[Any, asyncio.Future[Any]]], task: asyncio.Task[None], _: object
) -> None:
    if not task.done() and all(future.cancelled() for _, future in batch):
        task.cancel()
