"""What is started side by side: errors, and that nothing goes on afterwards."""

from __future__ import annotations

import asyncio

import pytest

from judgekit import ConfigError
from judgekit.execution.together import start_together, together


async def value(of: object) -> object:
    await asyncio.sleep(0)
    if isinstance(of, BaseException):
        raise of
    return of


async def test_each_gives_its_value_or_its_error() -> None:
    error = KeyError("x")
    assert await together([value(1), value(error), value(None)]) == [1, error, None]
    assert await together([]) == []


async def test_a_wrong_configuration_ends_the_others_at_once() -> None:
    ended = []

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append(True)

    with pytest.raises(ConfigError, match="no such model"):
        await together([slow(), value(OSError()), value(ConfigError("no such model"))])
    assert ended == [True]
    waiting = asyncio.create_task(together([slow(), slow()]))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ended == [True] * 3


async def test_other_errors_wait_for_the_others() -> None:
    class Thing:
        started = False

        def __init__(self, error: Exception | None = None) -> None:
            self.error = error

        async def start(self) -> None:
            if self.error is not None:
                raise self.error
            await asyncio.sleep(0.01)
            self.started = True

    good = Thing()
    with pytest.raises(OSError, match="away"):
        await start_together([Thing(OSError("away")), good, object()])
    assert good.started
