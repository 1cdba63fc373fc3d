"""Event loops on which ready tasks go on in another order each time: what holds for every order holds on a busy machine, too."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import Awaitable, Callable
from typing import Any


class ShuffledLoop(asyncio.SelectorEventLoop):
    """Takes the steps of the tasks that are ready in any order, and lets some of them wait for a round.

    What is not a task's step (callbacks, timers, sockets) keeps its place: asyncio promises their order.
    """

    def __init__(self, seed: object) -> None:
        super().__init__()
        self._rng = random.Random(str(seed))

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        now = [ready.popleft() for _ in range(len(ready))]  # other threads may add to it meanwhile
        places = [i for i, handle in enumerate(now) if _is_step(handle)]
        steps = [now[i] for i in places]
        self._rng.shuffle(steps)
        for i, step in zip(places, steps, strict=True):
            now[i] = step
        waits: list[Any] = []
        if self._rng.random() < 0.5:
            waits = steps[: self._rng.randrange(len(steps) + 1)]
            if len(waits) == len(now):  # or it would wait for a timer instead
                waits = waits[1:]
        ready.extendleft(reversed([handle for handle in now if handle not in waits]))
        super()._run_once()  # type: ignore[misc]
        ready.extendleft(reversed(waits))


def _is_step(handle: asyncio.Handle) -> bool:
    return isinstance(getattr(handle._callback, "__self__", None), asyncio.Task)  # type: ignore[attr-defined]


def under_schedules(program: Callable[[random.Random], Awaitable[None]], seeds: range) -> None:
    """Run *program* once for each seed, on a loop of its own; it draws from the same seed. A failure names the seed.

    Every other one has threads change places as often as Python can.
    """
    switch = sys.getswitchinterval()
    for seed in seeds:
        sys.setswitchinterval(1e-6 if seed % 2 else switch)
        try:
            with asyncio.Runner(loop_factory=lambda seed=seed: ShuffledLoop(seed)) as runner:  # type: ignore[misc]
                runner.run(_alone(program(random.Random(seed))))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        finally:
            sys.setswitchinterval(switch)


async def _alone(program: Awaitable[None]) -> None:
    async with asyncio.timeout(60):
        await program
    await asyncio.sleep(0.01)
    assert asyncio.all_tasks() == {asyncio.current_task()}
