"""Watches how busy a judge's engine is while it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from judgekit.errors import JudgeError
from judgekit.judges.engines.engine_load import EngineLoad
from judgekit.judges.home import at_home


class LoadWatch:
    """What the server of a judge's engine says of its load, at several times."""

    def __init__(self, judge: Any) -> None:
        engine = getattr(judge, "engine", judge)  # without its layers
        self.name = str(engine)
        self._load = getattr(engine, "load", None)
        self._found: list[EngineLoad] = []

    async def look(self) -> bool:
        """Look once; whether the server tells anything."""
        try:
            load = await at_home(self._load) if self._load is not None else None
        except JudgeError:
            load = None
        if load is not None:
            self._found.append(load)
        return load is not None

    async def watch(self, every_s: float) -> None:
        """Look again and again, until cancelled. A server that is away for a while is asked again; one that tells nothing is not."""
        while self._found:
            await asyncio.sleep(every_s)
            await self.look()

    def as_json(self) -> dict[str, Any] | None:
        """The most requests that were running and waiting, and the prefix cache's share of hits; None if nothing is known."""
        if not self._found:
            return None
        return {
            "engine": self.name,
            "running_peak": max(found.running for found in self._found),
            "waiting_peak": max(found.waiting for found in self._found),
            "prefix_hit_rate": self._found[-1].hit_rate(self._found[0]),
        }

    def __str__(self) -> str:
        told = self.as_json()
        if told is None:
            return ""
        text = f"at most {told['running_peak']} requests running and {told['waiting_peak']} waiting"
        during, always = told["prefix_hit_rate"], self._found[-1].hit_rate()
        if during is None and always is None:
            return text
        hits = (
            f"in it: {100 * during:.0f}"
            if during is not None
            else f"since its start: {100 * (always or 0):.0f}"
        )
        return f"{text}; prefix cache hits {hits} %"


@asynccontextmanager
async def watched(judges: Iterable[Any], *, every_s: float = 0.1) -> AsyncIterator[list[LoadWatch]]:
    """Watch the engines of *judges* within the block, where their servers tell their load."""
    watches = [LoadWatch(judge) for judge in judges]
    for one in watches:
        await one.look()
    telling = [one for one in watches if one.as_json() is not None]
    tasks = [asyncio.create_task(one.watch(every_s)) for one in telling]
    try:
        yield watches
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for one in telling:
        await one.look()
