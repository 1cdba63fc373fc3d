"""Giving way lets all that is due run first."""

from __future__ import annotations

import asyncio

from judgekit.execution.turns import give_way


async def test_whoever_gives_way_waits_for_three_turns_of_the_loop() -> None:
    turns = 0

    def turn() -> None:
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(turn)

    asyncio.get_running_loop().call_soon(turn)
    await give_way()
    assert turns == 3
