"""Gives way to others on the event loop."""

from __future__ import annotations

import asyncio

_TURNS = 3


async def give_way() -> None:
    """Let all that is due run before the caller's next piece of work.

    A timer's task begins only in the second turn of the loop after its time: after a single `sleep(0)` it would wait
    for two more pieces.
    """
    for _ in range(_TURNS):
        await asyncio.sleep(0)
