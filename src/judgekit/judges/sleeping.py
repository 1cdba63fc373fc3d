"""Judges that share their GPUs with a trainer: awake while it grades, asleep while it trains.

A sleeping engine keeps its weights in the host's memory and gives the GPU's back (vLLM's sleep mode, level 1; level 2 would throw
the weights away). It answers nothing: calls wait until it is woken.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from judgekit.errors import ConfigError
from judgekit.execution.together import together
from judgekit.judges.home import at_home


@asynccontextmanager
async def awake(*targets: Any) -> AsyncIterator[None]:
    """Keep judges awake for a grading phase, and let them sleep after it.

        async with awake(runner):
            results = await runner.run(rollouts)

    *targets*: judges, or runners that own some. Judges that cannot sleep are left as they are; ConfigError if none can.
    Raises what waking raises; judges are put to sleep also if the phase or another judge fails.
    """
    able = _sleepers(targets)
    try:
        _raise_first(await together(at_home(judge.wake_up) for judge in able))
        yield
    finally:
        with anyio.CancelScope(shield=True):  # a trainer's step follows that needs the memory
            _raise_first(await together(at_home(judge.sleep) for judge in able))


async def sleep(*targets: Any) -> None:
    """Let judges sleep, or those that runners own: before the first grading phase, once they are started."""
    _raise_first(await together(at_home(judge.sleep) for judge in _sleepers(targets)))


def _sleepers(targets: tuple[Any, ...]) -> list[Any]:
    found = [judge for target in targets for judge in _judges(target) if getattr(judge, "can_sleep", False)]
    if not found:
        raise ConfigError("none of the judges can sleep: give one that shares its GPUs sleep: true")
    return list({id(judge): judge for judge in found}.values())


def _judges(target: Any) -> Iterator[Any]:
    owned = getattr(target, "resources", None)
    for one in owned if owned is not None else (target,):
        engine = getattr(one, "engine", getattr(one, "model", None))  # of a stack of layers
        yield one if hasattr(one, "can_sleep") else engine


def _raise_first(outcomes: Any) -> None:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
