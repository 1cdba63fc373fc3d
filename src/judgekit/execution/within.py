"""Awaits what mostly is there at once, within a time limit."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


class OutOfTime(Exception):
    """The time limit has passed; a TimeoutError may be the call's own."""


async def within(seconds: float | None, call: Awaitable[T]) -> T:
    """Return what *call* returns. Raises OutOfTime if it takes longer; None: it may take as long as it likes.

    A coroutine that never waits costs no timer, which would cost more than all the rest.
    """
    first: Any = None
    if isinstance(call, Coroutine):
        try:
            first = call.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        call = _rest(call, first)
    try:
        async with asyncio.timeout(seconds) as scope:
            return await call
    except TimeoutError:
        if not scope.expired():
            raise
        raise OutOfTime from None


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Await the rest of a coroutine that has begun, as `await` would."""
    try:
        while True:
            try:
                sent = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(sent)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
